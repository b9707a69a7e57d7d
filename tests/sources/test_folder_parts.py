"""A bucket's folder in parts, listed side by side: together what one listing of all of it has."""

from __future__ import annotations

import pickle
import random
from collections import Counter

import pytest

from recordmill.transforms.records import Failure, ImageRecord, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.folder import FolderPart, FolderSource
from recordmill.transforms.sources.source import listing_faults
from tests.buckets.server import BucketServer

SOURCE = FolderSource()
Item = ImageRecord | Failure


def listed_in_parts(config: SourceConfig, most: int) -> tuple[list[FolderPart], list[Item]]:
    parts = list(SOURCE.parts(config, most))
    parts = pickle.loads(pickle.dumps(parts))
    items = [item for part in parts for item in SOURCE.read(config, "/nowhere", part)]
    return parts, items  # type: ignore[return-value]


def same(server: BucketServer, config: SourceConfig, most: int = 20) -> int:
    """How many parts there are; their entries are those of a whole listing, each once."""
    parts, items = listed_in_parts(config, most)
    whole = list(SOURCE.read(config, "/nowhere"))
    assert Counter(map(repr, items)) == Counter(map(repr, whole))
    return len(parts)


def put(server: BucketServer, names: list[str], bucket: str) -> None:
    for name in names:
        server.put(f"{bucket}/in/{name}", b"x" * len(name.encode()))
    for name in ("in-private/1.jpg", "in.jpg", "i/2.jpg", "in0/3.jpg"):
        server.put(f"{bucket}/{name}", b"x")


@pytest.mark.parametrize(
    "page", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(5, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("names", "options"),
    [
        (["dog/1.jpg", "cat/deep/er/2.jpg", "cat/1.jpg", "top.jpg", "c.txt", "d"], {}),
        (["train/cat/x/1.jpg", "Validation/dog/1.jpg", "TEST/1.jpg", "1.jpg", "notes/a.txt"], {}),
        (["train/1.jpg", "other/1.jpg", "t/1.jpg", "trai/2.jpg"], {}),
        (["train.jpg", "training", "val", "tr/1.jpg"], {}),
        ([".git/1", ".git/2", ".git/a/3", ".gitignore", "__MACOSX/1.jpg", "a/.b.jpg", "a/.c/d.jpg"], {}),
        (["a/1.jpg", "a-b/1.jpg", "a.jpg", "a b/1.jpg", "a0.jpg", "aé/1.jpg", "a/b/c.jpg", "a/b.jpg"], {}),
        (["cat/", "cat/1.jpg", "cat", "dog/", "x.jpg", "x.jpg/1.jpg", "a//b.jpg", "//b.jpg", "c/../d"], {}),
        (["\U0001f600/1.jpg", "\ue000.jpg", "中/1.jpg", "%2F/1.jpg", "a\nb/c\nd.jpg"], {}),
        (["a/1.jpg", "a/2.png", "b/1.jpg", "b/2.jpg", "c/1.jpg"], {"exclude": ("b/1*",)}),
        ([f"{one:02}/{file:02}.jpg" for one in range(5) for file in range(9)], {"label_pattern": "(.)/"}),
        (["out/1.jpg", "out/x/1.jpg", "out-2/1.jpg", "train/out/3.jpg"], {"skip": ("out", "train/out")}),
    ],
)  # fmt: skip
def test_parts_have_together_what_the_whole_has(
    bucket: str, bucket_server: BucketServer, page: int, names: list[str], options: dict[str, object]
) -> None:
    bucket_server.page_size = page
    put(bucket_server, names, bucket)
    skip = tuple(f"{bucket}/in/{name}" for name in options.pop("skip", ()))  # type: ignore[attr-defined]
    config = SourceConfig("folder", f"{bucket}/in", skip_dirs=skip, **options)  # type: ignore[arg-type]
    assert same(bucket_server, config) > (page < 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_trees_by_chance(bucket: str, bucket_server: BucketServer, seed: int) -> None:
    chance = random.Random(seed)
    folders = ["", "a/", "ab/", "b/", "train/", "val/", ".x/", "a/.y/", "b/c/d/", "//", "é/"]
    stems = ["1", "12", "2", ".h", "a", "é", "zz", "10", "100"]
    names = ["".join(map(chance.choice, (folders, ["", *folders], stems, [".jpg", ""]))) for _ in range(40)]
    put(bucket_server, [name for name in names if not name.startswith("/")], bucket)
    bucket_server.page_size = chance.choice([1, 3, 7])
    same(bucket_server, SourceConfig("folder", f"{bucket}/in"), chance.choice([2, 5, 100]))
    same(bucket_server, SourceConfig("folder", bucket), 10)


@pytest.mark.slow
def test_no_part_lists_what_is_another_ones(bucket: str, bucket_server: BucketServer) -> None:
    for number in range(3000):
        bucket_server.put(f"{bucket}/in/train/cat/{number:06}.jpg", b"x")
    bucket_server.page_size = 100
    config = SourceConfig("folder", f"{bucket}/in")
    parts, items = listed_in_parts(config, 10)
    assert len(items) == 3000
    assert len(parts) >= 10
    bucket_server.clear()
    sizes = []
    for part in parts:
        before = len(bucket_server.requests)
        sizes.append(len(list(SOURCE.read(config, "/nowhere", part))))
        # The folders on the way, and a page for each hundred, the first of them where a page ends.
        assert len(bucket_server.requests) - before <= 5 + sizes[-1] // 100
    assert max(sizes) <= 600


@pytest.mark.parametrize(
    ("names", "is_split"),
    [
        (["train/1.jpg", "vAL/1.jpg"], True),
        (["train/1.jpg", "cat/1.jpg"], False),
        (["train/1.jpg", "cat/notes.txt", "2.jpg"], True),
        (["train.jpg", "cat/1.jpg", "validate/1.jpg"], False),
        (["Dev/1.jpg", ".hidden/1.jpg"], True),
    ],
)
def test_whether_folders_are_splits_is_told_to_every_part(
    bucket: str, bucket_server: BucketServer, names: list[str], is_split: bool
) -> None:
    put(bucket_server, names, bucket)
    bucket_server.page_size = 1
    parts = list(SOURCE.parts(SourceConfig("folder", f"{bucket}/in"), 50))
    assert {part.has_splits for part in parts} == {is_split}


def test_a_flat_folder_is_not_listed_to_find_its_parts(bucket: str, bucket_server: BucketServer) -> None:
    put(bucket_server, [f"t{number:05}.jpg" for number in range(2000)], bucket)
    bucket_server.page_size = 10
    bucket_server.clear()
    assert len(list(SOURCE.parts(SourceConfig("folder", f"{bucket}/in"), 8))) >= 8
    assert len(bucket_server.requests) < 60


def test_what_is_not_divided(tmp_path: object, bucket: str, bucket_server: BucketServer) -> None:
    put(bucket_server, ["a.jpg", "b.jpg"], bucket)
    for place in (str(tmp_path), f"{bucket}/in", f"{bucket}/in/a.jpg"):
        assert list(SOURCE.parts(SourceConfig("folder", place), 100)) == [FolderPart()]


def test_a_bucket_that_may_not_be_listed(bucket: str, bucket_server: BucketServer) -> None:
    with pytest.raises(JobError, match="the input cannot be listed: "), listing_faults():
        list(SOURCE.parts(SourceConfig("folder", f"{bucket}-there-is-none/in"), 100))
