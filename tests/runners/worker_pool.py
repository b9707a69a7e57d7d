"""Beam's pool of Python workers, for several task managers of one host.

python -m tests.runners.worker_pool PORT

Task managers number their workers alike, and Beam's pool knows them by that number: with one pool for two, a
task manager that stops its worker would stop the other's. Here each worker ends when its task manager's
connection does.
"""

import sys
import threading
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer


class WorkerPool(BeamFnExternalWorkerPoolServicer):
    """Starts workers, each a process, and stops none."""

    def StopWorker(self, stop_worker_request: Any, unused_context: Any) -> Any:
        """Nothing."""
        return beam_fn_api_pb2.StopWorkerResponse()


if __name__ == "__main__":
    _, server = WorkerPool.start(use_process=True, port=int(sys.argv[1]))
    threading.Event().wait()
