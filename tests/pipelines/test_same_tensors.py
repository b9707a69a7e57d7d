"""The code that `recordmill schema` prints gives the tensors of `load_dataset`: all schemas and formats."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from recordmill import load_dataset
from recordmill.pipelines import schema_code
from tests.golden.cases import CASES, run
from tests.lazy import tf

# Records that become tensors in different ways: by schema, source of sequences and lists, mask, image format.
NAMES = (
    "schema-panoptic",
    "schema-sequence",
    "shards-rename",
    "schema-classification",
    "schema-imagenet",
    "schema-plain",
    "schema-segmentation",
    "schema-detection,panoptic",
    "photos-classification",
    "photos-plain",
    "boxes-geometry-0",
    "masks-geometry-0",
    "masks-plain",
    "images-keep",  # 1, 3 and 4 channels, 8 and 16 bits
    "images-color-gray-alpha-flatten",
    "images-color-rgb",
    "images-image_format-jpeg",
    "images-image_format-png",
    "images-image_format-raw",
    "images-image_format-tensor",
    "images-image_format-webp-jpeg_quality-80",
    "images-size-16x24-fit-crop-image_format-raw",
    "source-idx",
    "source-frames",
    "source-sequence",
    "source-tfrecord-sequences",
    "source-yolo-pose",
    "source-jsonl",
    "shards-splits",
    "boxes-versions",
)


def compare(printed: dict[str, Any], path: Path | str, splits: int | None = None) -> set[str]:
    """Compares the tensors of each record of the first splits, or of all; returns their names."""
    names: set[str] = set()
    for split in list(printed["FILES"])[:splits]:
        expected = load_dataset(str(path), split, deterministic=True)
        found = printed["load"](split)
        assert found.element_spec == expected.element_spec
        names |= set(expected.element_spec)
        try:
            elements = _listed(expected)
        except tf.errors.InvalidArgumentError:  # pixels of 8 and 16 bits are not one tensor
            with pytest.raises(tf.errors.InvalidArgumentError):
                _listed(found)
            continue
        assert elements
        assert _listed(found) == elements
    return names


def printed_and_compared(path: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """As `compare`, with the first split, and the code that the command prints."""
    capsys.readouterr()
    assert schema_code.main([str(path)]) == 0
    printed: dict[str, Any] = {"__name__": "printed"}
    exec(compile(capsys.readouterr().out, "printed", "exec"), printed)
    return compare(printed, path, splits=1)


def _listed(dataset: tf.data.Dataset) -> list[Any]:
    """Dtype, shape and values of each tensor of each element, in an order of their own."""
    return sorted(
        ([(name, *_values(tensor)) for name, tensor in sorted(element.items())] for element in dataset),
        key=repr,
    )


def _values(tensor: Any) -> tuple[Any, ...]:
    if isinstance(tensor, tf.RaggedTensor) or tensor.dtype == tf.string:
        return tensor.dtype.name, str(tensor)
    return tensor.dtype.name, tensor.shape, tensor.numpy().tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_schema_and_format(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(CASES[name], tmp_path)
    names = printed_and_compared(tmp_path / "out", capsys)
    homes = sorted((tmp_path / "out").glob("[0-9]*.*.*")) or [tmp_path / "out"]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for shard in homes[-1].glob("*.tfrecord"):
        if shard.stat().st_size:  # an empty file has no features
            (foreign / f"{shard.name}.gz").write_bytes(gzip.compress(shard.read_bytes()))
    assert printed_and_compared(foreign, capsys) <= names
