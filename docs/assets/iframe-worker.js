// Search without a server: browsers start no worker from a file, so a frame does its work. The name makes the
// offline plugin of the theme use this file, not one from a network.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const worker = frame.contentWindow;
      const script = worker.document.createElement("script");
      worker.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.post = new Promise((resolve) => {
        script.onload = () => resolve((data) => worker.dispatchEvent(new MessageEvent("message", { data })));
      });
      script.src = url;
      worker.document.body.append(script);
    }

    postMessage(data) {
      this.post.then((post) => post(data));
    }
  };
}
