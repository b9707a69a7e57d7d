"""The survey of large inputs, which worker processes do."""

import enum
import json
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from msgspec.structs import replace

from recordmill.transforms import survey
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import Annotations, ImageRecord, JobError
from recordmill.transforms.write import WriteDataset

LISTED = [
    ImageRecord(f"row {number}", None, ("train", "test")[number % 5 == 0], Annotations(features=features))
    for number in range(600)
    for features in [{"number": number, "list": (number, 2.5), "text": "x" * (number % 7 * 100)}]
]


def written(output: Path, workers: int, listed: list[ImageRecord]) -> dict[str, bytes]:
    config = DatasetConfig(workers=workers, shuffles_in_memory=True)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | beam.Create(listed) | WriteDataset(str(output), config)
    return {path.name: path.read_bytes() for path in output.glob("*.tfrecord")}


def test_processes_survey_as_this_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = written(tmp_path / "one", 1, LISTED)
    assert len(expected) == 2
    monkeypatch.setattr(survey, "_BATCH_BYTES", 10_000)
    assert written(tmp_path / "several", 2, LISTED) == expected


def test_a_key_of_two_batches_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_BATCH_BYTES", 10_000)
    with pytest.raises(JobError, match="key 'row 0' is not unique"):
        written(tmp_path / "out", 2, [*LISTED, LISTED[0]])


class Color(str, enum.Enum):
    RED = "red"


@pytest.mark.parametrize("workers", [1, 2])
def test_labels_that_are_members_of_an_enum(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "_BATCH_BYTES", 1_000)
    labelled = [replace(record, annotations=Annotations((Color.RED,))) for record in LISTED[:30]]
    written(tmp_path / "out", workers, labelled)
    assert json.loads((tmp_path / "out/manifest.json").read_text())["labels"] == {"0": "red"}
