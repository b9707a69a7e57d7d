"""Every kind of input and of record, converted twice: as from scratch, and only what changed is made anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conversion import manifest
from tests.pipelines.versions import annotated, contained, photos
from tests.pipelines.versions.edits import Edit
from tests.pipelines.versions.homes import NEXT, Rerun, assert_same_version, latest, taken_over, work

ODD = 48


def check(folder: Path, edit: Edit) -> None:
    """Converts the first state, then the second; everything that has not changed cannot be read."""
    rerun = Rerun.made(folder, edit)
    home = rerun.home(folder)
    rerun.edited()
    assert rerun.convert(home) == 0
    assert_same_version(home / NEXT, rerun.scratch)
    assert latest(home) == NEXT
    assert manifest(home / NEXT)["counts"]["written"] == edit.records
    reads = edit.images if edit.reads is None else edit.reads
    assert work(home / NEXT) == (reads, edit.images, edit.masks)
    made = edit.images if edit.made is None else edit.made
    found = taken_over(home / NEXT)
    assert (found["from"], found["records"], found["reason"]) == ("1.0.0", edit.records - made, "")


def slow(name: str, make: Callable[[], Edit]) -> Any:
    return pytest.param(make, id=name, marks=pytest.mark.slow)


def quick(name: str, make: Callable[[], Edit]) -> Any:
    return pytest.param(make, id=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        # Three new pictures of two objects; those of an outline that moved, and of one that is relabelled.
        slow("coco", lambda: annotated.coco(10, "--include_annotations=masks")),
        slow("coco without masks", lambda: annotated.coco(0)),
        slow(
            "coco with masks of classes",
            lambda: annotated.coco(15, "--include_annotations=masks", "--schema=detection,segmentation"),
        ),
        slow("labelme", annotated.outlines),
        slow("panoptic", annotated.panoptic),
        quick("masks", annotated.masks),
        slow("csv", annotated.table),
        slow("rows without images", contained.features),
        slow("frames", contained.frames),
        slow("sequences", contained.sequences),
        slow("numpy", contained.arrays),
        slow("idx", contained.idx),
        slow("tar", lambda: contained.archives("tar")),
        slow("zip", lambda: contained.archives("zip")),
        slow("tar.gz", lambda: contained.archives("tar.gz")),
        slow("webdataset", lambda: contained.webdataset("tar")),
        slow("packed webdataset", lambda: contained.webdataset("tar.gz")),
        slow("parquet", contained.parquet),
        slow("tfrecord", lambda: contained.records(is_packed=False)),
        slow("packed tfrecord", lambda: contained.records(is_packed=True)),
    ],
)
def test_every_input(make: Callable[[], Edit], tmp_path: Path) -> None:
    check(tmp_path, make())


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ("--order=key",),
        ("--schema=imagenet",),
        ("--schema=plain", "--rename=image_raw=pixels,label=class"),
        ("--rename=image/encoded=bytes,image/class/label=y", "--seed=5", "--label_offset=7"),
        ("--image_format=png",),
        ("--image_format=raw",),
        ("--image_format=tensor",),
        ("--image_format=webp", "--reencode=always"),
        ("--image_format=jpeg", "--alpha=flatten", "--background=#336699"),
        ("--image_format=jpeg", "--target_ssim=0.9"),
        ("--max_side=32", "--exif=ignore"),
        ("--size=24x24", "--fit=pad"),
        ("--size=24x24", "--fit=crop", "--color=gray"),
        ("--optimize=lossless-progressive",),
        ("--metadata=strip", "--image_format=jpeg"),
        ("--validate=header",),
        ("--splits=train=0.6,val=0.4", "--group_pattern=/(.)"),
    ],
    ids="".join,
)
def test_every_way_to_store_them(flags: tuple[str, ...], tmp_path: Path) -> None:
    check(tmp_path, photos.odd(*flags))


@pytest.mark.slow
def test_shards_by_key_that_records_move_between(tmp_path: Path) -> None:
    """New keys before all others push every edge of --order=key."""
    edit = photos.odd("--order=key")
    more = {f"A/{number}.jpg": data for number, data in enumerate(list(edit.before.values())[1::6])}
    after = {**edit.after, **more}
    moved = Edit(edit.before, after, ODD + len(more), edit.images + len(more), flags=edit.flags)
    check(tmp_path, moved)
