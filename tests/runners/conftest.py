"""One input, and what the in-process runner makes of it, for all other runners."""

from pathlib import Path

import pytest

from benchmarks.drawings import SHAPES, draw
from tests.buckets.fixtures import bucket as bucket
from tests.buckets.fixtures import bucket_server as bucket_server
from tests.runners.calls import INPUT_FLAGS, convert

_EACH = {"train": 80, "val": 20}


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 images in two splits, of three labels, and two files that are none."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    for split, each in _EACH.items():
        for number, shape in enumerate(SHAPES):
            (folder / split / shape).mkdir(parents=True)
            for index in range(each):
                path = folder / split / shape / f"{shape}_{index:03d}.jpg"
                draw(shape, seed=1000 * number + index, width=48, height=32).save(path)
    (folder / "train" / "circle" / "bad.jpg").write_bytes(b"no image")
    (folder / "val" / "square" / "bad.jpg").write_bytes(b"\xff\xd8\xff")
    return folder


@pytest.fixture(scope="session")
def direct(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset as the in-process runner makes it, with --writer=shards."""
    output = tmp_path_factory.mktemp("direct") / "out"
    status, said = convert(photos, output, *INPUT_FLAGS, "--writer=shards")
    assert status == 0, said
    return output
