"""MeasureSettings as a transform: in people's own pipelines, and with images that end their process."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

from benchmarks.drawings import draw
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.similarity import Similarity
from recordmill.transforms.records import Annotations, Failure, ImageRecord, ImageRef
from recordmill.transforms.sweep import AddUpFn, MeasureSettings, SweptSource, reason_of
from recordmill.transforms.sweeping.measure import Measure, MeasuredImage
from recordmill.transforms.sweeping.settings import SweepConfig
from recordmill.transforms.sweeping.sums import SweepSum
from recordmill.transforms.workers import process
from tests.patched import patched_site

CONFIG = SweepConfig(qualities=(60,), targets=(), worst=2)
SOURCE = SweptSource("here", "own", started="2026-01-01T00:00:00+00:00")
TIMED = ("encode_seconds", "decode_seconds", "encode_images_per_second", "decode_images_per_second")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[ImageRecord]:
    folder = tmp_path_factory.mktemp("images")
    found = []
    for number in range(6):
        path = folder / f"{number}.{'png' if number % 2 else 'jpg'}"
        draw("circle", number, 64, 48).save(path)
        size = path.stat().st_size
        found.append(ImageRecord(path.name, ImageRef(str(path)), None, Annotations(("a",)), "", size))
    return found


def swept(
    entries: Iterable[ImageRecord | Failure], output: Path, config: SweepConfig = CONFIG, workers: int = 1
) -> dict[str, Any]:
    """sweep.json, without what the clock says."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = (
            pipeline
            | beam.Create(list(entries))
            | MeasureSettings(str(output), config, DatasetConfig(workers=workers), SOURCE)
        )
    found: dict[str, Any] = json.loads((output / "sweep.json").read_text())
    for row in found["rows"]:
        for name in TIMED:
            assert row.pop(name) > 0
    return found


@pytest.mark.slow
def test_the_order_of_records_and_the_number_of_processes_change_nothing(
    records: list[ImageRecord], tmp_path: Path
) -> None:
    one = swept(records, tmp_path / "one")
    other = swept(reversed(records), tmp_path / "other", workers=2)
    assert one == other
    assert one["images"] == 6 and one["source_kind"] == "own"
    pages = [(tmp_path / name / "sweep.html").read_text() for name in ("one", "other")]
    crops = [page[page.index("The worst images") : page.index("What the settings")] for page in pages]
    assert crops[0] == crops[1]


@pytest.mark.slow
def test_failures_are_counted_and_what_is_skipped_is_not(records: list[ImageRecord], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jpg"
    damaged.write_bytes(Path(records[0].image.uri).read_bytes()[:-200])  # type: ignore[union-attr]
    listed = [
        *records[:2],
        ImageRecord("damaged", ImageRef(str(damaged))),
        ImageRecord("gone", ImageRef(str(tmp_path / "gone.jpg"))),
        ImageRecord("features alone", None),
        Failure("row 3", "manifest", "no path"),
        Failure("notes.txt", "list", "not an image by name", skipped=True),
    ]
    found = swept(listed, tmp_path / "out")
    assert found["images"] == 2
    assert found["failures"] == {
        "decode: truncated": 1,
        "load: no image": 1,
        "load: not found": 1,
        "manifest: no path": 1,
    }


@pytest.mark.slow
def test_no_image_at_all(tmp_path: Path) -> None:
    gone = ImageRecord("gone", ImageRef(str(tmp_path / "gone.jpg")))
    with pytest.raises(
        Exception, match="there is no image to measure: 1 inputs failed; most often, 1 times, load"
    ):
        swept([gone], tmp_path / "out")
    with pytest.raises(
        Exception, match="there is no image to measure: 1 inputs failed; most often, 1 times, m"
    ):
        swept([Failure("row 3", "manifest", "no path")], tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_an_image_that_ends_its_process_is_one_failure(
    records: list[ImageRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = (
        "import os, signal\n"
        "def patch(module):\n"
        "    store = module.store_image\n"
        "    def crashing(data, policy, shape):\n"
        "        if data.endswith(b'CRASH') and policy.image_format == 'webp':\n"
        "            os.kill(os.getpid(), signal.SIGSEGV)\n"
        "        return store(data, policy, shape)\n"
        "    module.store_image = crashing\n"
    )
    site = patched_site(tmp_path, "recordmill.transforms.images.similarity", patch)
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    process.stop_idle()
    crashing = tmp_path / "crashing.jpg"
    crashing.write_bytes(Path(records[0].image.uri).read_bytes() + b"CRASH")  # type: ignore[union-attr]
    listed = [*records[:3], ImageRecord("crashing", ImageRef(str(crashing)))]
    found = swept(listed, tmp_path / "out", workers=2)
    process.stop_idle()
    assert found["images"] == 3
    assert found["failures"] == {"decode: crashes the codec": 1}


@pytest.mark.slow
def test_an_output_that_holds_something_is_refused_in_the_pipeline_too(
    records: list[ImageRecord], tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(Exception, match="which is not empty \\('mine.txt'\\)"):
        swept(records, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_combiner_adds_up_what_it_is_given() -> None:
    measures = (Measure(10, 5, 1.0, 2.0, Similarity(0.5, 20.0, False), 60),)
    images = [MeasuredImage(key, key.encode(), 100, measures) for key in ("b", "a")]
    expected = SweepSum(1)
    for image in images:
        expected.add(image)
    assert expected.settings[0].tfrecord_bytes == 20 and [one.key for one in expected.worst] == ["a"]
    with TestPipeline() as pipeline:
        total = pipeline | beam.Create(images) | beam.CombineGlobally(AddUpFn(1))
        assert_that(total, equal_to([expected]))


def test_reasons_are_named_with_their_stage() -> None:
    assert reason_of(Failure("a", "decode", "truncated", "at byte 3")) == "decode: truncated"
