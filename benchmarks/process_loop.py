"""The same work without Beam: a hand-written loop, one process per core, one shard per task.

python -m benchmarks.process_loop PHOTOS OUTPUT PROCESSES
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import NamedTuple

from recordmill.transforms.examples.features import Feature, build_example
from recordmill.transforms.examples.tfrecord import RecordWriter, index_lines
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.shards.references import order_hash, shard_of

_SHARDS = 16
_BUFFER = 1 << 18
_KEEP = ImagePolicy(validate="header")


class Photo(NamedTuple):
    """A file to convert: path, path below the input, id and name of its class."""

    path: str
    key: str
    label: int
    class_name: str


def list_photos(folder: Path) -> list[Photo]:
    """The files of <folder>/<class>/, classes numbered in the order of their names."""
    return [
        Photo(str(path), f"{names.name}/{path.name}", label, names.name)
        for label, names in enumerate(sorted(folder.iterdir()))
        for path in sorted(names.iterdir())
    ]


def photo_example(photo: Photo) -> bytes:
    """The Example that recordmill writes for a JPEG with --validate=header, by the same functions."""
    with open(photo.path, "rb", buffering=0) as file:
        image = store_image(file.read(), _KEEP)
    return build_example(
        {
            "image/encoded": Feature("bytes_list", (image.data,)),
            "image/format": Feature("bytes_list", (image.image_format.encode(),)),
            "image/height": Feature("int64_list", (image.height,)),
            "image/width": Feature("int64_list", (image.width,)),
            "image/class/label": Feature("int64_list", (photo.label,)),
            "image/class/text": Feature("bytes_list", (photo.class_name.encode(),)),
            "image/filename": Feature("bytes_list", (photo.key.encode(),)),
            "image/key/sha256": Feature("bytes_list", (hashlib.sha256(image.data).hexdigest().encode(),)),
        }
    )


def write_shard(photos: list[Photo], path: Path) -> dict[str, str | int]:
    """Writes one shard and its index; returns its entry in the manifest."""
    with path.open("wb", buffering=_BUFFER) as file:
        writer = RecordWriter(file)
        for photo in photos:
            writer.write(photo_example(photo))
    with path.with_suffix(".idx").open("w", encoding="ascii") as index:
        index.writelines(index_lines(writer.lengths))
    size, digest = writer.bytes_written, writer.sha256
    return {"file": path.name, "records": len(writer.lengths), "bytes": size, "sha256": digest}


def main(photos: str, output: str, processes: str) -> None:
    """Converts in the order of a hash, which does not depend on the order of listing."""
    folder = Path(output)
    folder.mkdir(parents=True)
    listed = list_photos(Path(photos))
    source_bytes = sum(os.stat(photo.path).st_size for photo in listed)
    placed = sorted((order_hash(photo.key, 0), photo) for photo in listed)
    if len({photo.key for photo in listed}) < len(listed):
        raise SystemExit("keys are not unique")
    shards: list[list[Photo]] = [[] for _ in range(_SHARDS)]
    for hashed, photo in placed:
        shards[shard_of(hashed, _SHARDS)].append(photo)
    tasks = [
        (shard, folder / f"train-{number:05d}-of-{_SHARDS:05d}.tfrecord")
        for number, shard in enumerate(shards)
    ]
    with multiprocessing.get_context("spawn").Pool(int(processes)) as pool:
        manifest = {"source_bytes": source_bytes, "shards": pool.starmap(write_shard, tasks, chunksize=1)}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
