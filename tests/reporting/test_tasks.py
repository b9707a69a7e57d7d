"""Images that crash, hang or exhaust the process that draws the page cost pictures, never the dataset."""

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from benchmarks.drawings import draw
from recordmill.transforms import publish
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.publish import reencoded_crops, report_page
from recordmill.transforms.records import ImageRecord, ImageRef
from recordmill.transforms.shards.dataset_plan import plan_dataset
from recordmill.transforms.shards.record_encoder import RecordSettings
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.shards.totals import total
from recordmill.transforms.storage.sealed import is_sealed
from recordmill.transforms.workers import process
from tests.patched import patched_site
from tests.pipelines.conversion import convert

_CODEC = """
import os, signal

def patch(module):
    store = module.store_opened
    def failing(image, policy):
        if image.data.endswith(b"CRASH"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if image.data.endswith(b"MEMORY"):
            raise MemoryError
        if image.data.endswith(b"WRONG"):
            raise ZeroDivisionError
        return store(image, policy)
    module.store_opened = failing
"""

_SAMPLES = """
import errno, os, pathlib, signal, sys

def patch(module):
    choose, left = module.choose, pathlib.Path({folder!r}) / "left"
    def failing(*args):
        sys.modules["recordmill.transforms.reporting.tasks"]._WAIT_SECONDS = 0
        what, _, times = left.read_text().partition(" ")
        if int(times):
            left.write_text(what + " " + str(int(times) - 1))
            if what == "CRASH":
                os.kill(os.getpid(), signal.SIGSEGV)
            if what == "EIO":
                raise OSError(errno.EIO, os.strerror(errno.EIO), "shard")
            if what == "WRONG":
                raise ZeroDivisionError
        return choose(*args)
    module.choose = failing  # called once for each try
"""


@contextlib.contextmanager
def patched(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, patch: str) -> Iterator[None]:
    """Processes that are started within the block have a patched module."""
    site = patched_site(folder, module, patch)
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    process.stop_idle()
    yield
    process.stop_idle()


def settings() -> RecordSettings:
    policy = ImagePolicy("jpeg", reencode="always")
    return plan_dataset(total([ImageRecord("a", ImageRef("a"))]), DatasetConfig(policy=policy)).settings


def remembered(tmp_path: Path, names: Iterable[str]) -> Statistics:
    """Re-encoded images; what they are called is what they make of the codec."""
    statistics = Statistics()
    for name in names:
        path = tmp_path / f"{name}.png"
        draw("circle", 1, 64, 48).save(path)
        data = path.read_bytes()
        path.write_bytes(data[:100] if name == "HALF" else data + name.encode())
        if name == "GONE":
            path.unlink()
        statistics.add_reencoded(name, pack_reference(ImageRecord(name, ImageRef(str(path))), 0))
    return statistics


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("names", [("CRASH", "MEMORY", "whole"), ("GONE", "HALF", "WRONG", "whole")])
def test_an_image_without_a_picture_of_its_encoding(
    tmp_path: Path, names: tuple[str, ...], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    statistics = remembered(tmp_path, names)
    with patched(tmp_path, monkeypatch, "recordmill.transforms.images.store", _CODEC):
        crops = list(reencoded_crops([statistics, Statistics()], settings(), workers))
    assert [crop["key"] for crop in crops] == ["whole"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    (folder / "in").mkdir()
    for number in range(3):
        draw("circle", number, 40, 30).save(folder / f"in/{number}.png")
    assert convert("--input", folder / "in", "--output", folder / "out", "--quiet") == 0
    return folder / "out"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "is_whole", "logged"),
    [
        ("nothing 0", True, ""),
        ("CRASH 1", True, ""),
        ("CRASH 2", False, "crashes the codec"),
        ("EIO 2", True, ""),
        ("EIO 3", False, "Input/output error"),
        ("WRONG 1", False, "ZeroDivisionError"),
    ],
)
def test_a_page_whose_records_cannot_be_drawn(
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    left: str,
    is_whole: bool,
    logged: str,
) -> None:
    (tmp_path / "left").write_text(left)
    manifest, report = (json.loads((dataset / f"{name}.json").read_text()) for name in ("manifest", "report"))
    patch = _SAMPLES.format(folder=str(tmp_path))
    with (
        patched(tmp_path, monkeypatch, "recordmill.transforms.reporting.samples", patch),
        caplog.at_level(logging.WARNING, publish.__name__),
    ):
        page = report_page(str(dataset), manifest, report, str(dataset / "failures.jsonl"))
    published = (dataset / "report.html").read_text()
    assert (page == published) == is_whole
    assert is_sealed(page.encode()) and page.count("<img") == (3 if is_whole else 0)
    assert (logged in caplog.text) if logged else not caplog.records


@pytest.mark.slow
def test_the_process_that_publishes_draws_nothing() -> None:
    """It does not even import what draws."""
    code = (
        "import sys, recordmill.transforms.publish; "
        "print('recordmill.transforms.reporting.findings' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
