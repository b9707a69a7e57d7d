"""Importing any of our modules leaves the settings of the process as they were."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_imports import modules

ROOT = Path(__file__).parent.parent

# The first import brings other libraries' settings with it; they are undone before ours are imported again.
PROGRAM = """
import ctypes, csv, gc, importlib, json, logging, os, resource, signal, socket, sys, threading, warnings

names = json.loads(sys.argv[1])
environment = dict(os.environ)

def settings():
    return {
        "filters": list(map(str, warnings.filters)),
        "showwarning": warnings.showwarning.__qualname__,
        "loggers": {
            name: [log.level, log.disabled, len(log.handlers), len(log.filters), log.propagate]
            for name, log in [("root", logging.root), *logging.root.manager.loggerDict.items()]
            if isinstance(log, logging.Logger)
        },
        "environment": {n: v for n, v in os.environ.items() if environment.get(n) != v},
        "unset": sorted(environment.keys() - os.environ.keys()),
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "collector": gc.get_threshold(),
        "time-out": socket.getdefaulttimeout(),
        "field size": csv.field_size_limit(),
        "streams": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "exception hooks": [str(sys.excepthook), str(threading.excepthook)],
        "path": sys.path,
        "umask": [os.umask(0o22), os.umask(0o22)][1],
        "limits": [resource.getrlimit(one) for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)],
        "threads": sorted(thread.name for thread in threading.enumerate()),
    }

def imported():
    for name in names:
        importlib.import_module(name)

imported()
for name in [name for name in sys.modules if name.partition(".")[0] == "recordmill"]:
    del sys.modules[name]
warnings.resetwarnings()
for log in logging.root.manager.loggerDict.values():
    if isinstance(log, logging.Logger):
        log.setLevel(logging.NOTSET)
os.environ.clear()
os.environ.update(environment)
before = settings()
imported()
after = settings()

from PIL import Image, _imaging
set_handler = getattr(ctypes.CDLL(_imaging.__file__), "TIFFSetErrorHandler", None)
if set_handler is not None:
    set_handler.argtypes, set_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
    assert set_handler(None) is not None, "libtiff has lost its error handler"
print(json.dumps([before, after, Image.MAX_IMAGE_PIXELS]))
"""


@pytest.mark.slow
def test_importing_changes_no_setting_of_the_process() -> None:
    names = [f"recordmill.{name}" for name, _ in modules() if name.startswith(("pipelines", "transforms"))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(names)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after, most_pixels = json.loads(done.stdout.splitlines()[-1])
    assert after == before
    assert most_pixels == 89_478_485  # Pillow's own
