"""Python imports this at its start, in every process that has this folder in PYTHONPATH.

Each process writes a file in $WATCH_FOLDER, with a line for each import of TensorFlow or of a part of it.
An audit hook reports imports when they begin, so those of a process that is killed later count too.
"""

from __future__ import annotations

import os
import sys

_REPORT = os.path.join(os.environ["WATCH_FOLDER"], str(os.getpid()))


def _notice(event: str, arguments: tuple[object, ...]) -> None:
    if event == "import" and str(arguments[0]).partition(".")[0] == "tensorflow":
        with open(_REPORT, "a", encoding="utf-8") as report:
            report.write(f"{arguments[0]}\n")


with open(_REPORT, "w", encoding="utf-8"):
    sys.addaudithook(_notice)
