"""Runs a staged pipeline.pb with the code that was staged beside it, in a process of its own.

python -m tests.dataflow.staged PIPELINE.PB FOLDER_OF_THE_UNPACKED_CODE

Prints state and counters as JSON. TensorFlow cannot be imported, nor our code from anywhere else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(pipeline: str, code: str) -> None:
    """Runs it in this process, on the in-process portable runner."""
    sys.path.insert(0, code)
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    import recordmill.transforms

    assert Path(recordmill.transforms.__file__).is_relative_to(code)
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.portability.api import beam_runner_api_pb2
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import EmbeddedPythonEnvironment

    proto = beam_runner_api_pb2.Pipeline.FromString(Path(pipeline).read_bytes())
    embedded = EmbeddedPythonEnvironment.default().to_runner_api(None)
    for environment in proto.components.environments.values():
        environment.CopyFrom(embedded)
    result = FnApiRunner().run_via_runner_api(proto, PipelineOptions([]))
    result.wait_until_finish()
    counters = {
        counter.key.metric.name: counter.committed
        for counter in result.metrics().query()["counters"]
        if counter.key.metric.namespace == "recordmill"
    }
    print(json.dumps({"state": result.state, "counters": counters}))


if __name__ == "__main__":
    main(*sys.argv[1:])
