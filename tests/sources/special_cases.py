"""Every name that a source reads beside images, and what may lie there in place of a file."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.sources.small_inputs import INPUTS, Files, Input, picture

NUMBERS = (1, 2)
KINDS = ("pipe", "socket", "folder", "unreadable", "broken link")
_BOXES = b"ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n0,xclick,/m/c,1,0.1,0.5,0.1,0.5\n"
_LABELS = b"ImageID,Source,LabelName,Confidence\n0,verification,/m/c,1\n"
_NAMES = b"cat\ndog\n"
_IDX_LABELS = b"\0\0\x08\x01\0\0\0\x02\1\2"
_XML = (
    b"<annotation><filename>n01440764_0</filename><size><width>6</width><height>4</height></size><object>"
    b"<name>n01440764</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox>"
    b"</object></annotation>"
)
_SYNSETS = b"n01440764 tench\n"
_YAML = b"path: .\ntrain: images\nnames: [cat]\n"
_COCO = {
    "images": [{"id": at, "file_name": f"{at}.png", "height": 4, "width": 6} for at in (0, 1)],
    "categories": [{"id": 1, "name": "cat"}],
    "annotations": [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [1, 1, 2, 2]}],
}


def _labels_of_two() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([1, 2]))
    return stream.getvalue()


_FLAT = {f"ILSVRC2012_val_0000000{at}.JPEG": picture(at) for at in NUMBERS}
_DARKNET: Files = {
    **{f"data/obj/{at}.png": picture(at) for at in NUMBERS},
    **{f"data/obj/{at}.txt": b"0 0.5 0.5 0.5 0.5\n" for at in NUMBERS},
    "obj.data": b"classes = 1\ntrain = data/train.txt\nnames = data/obj.names\n",
    "data/obj.names": b"cat\n",
    "data/train.txt": b"data/obj/1.png\ndata/obj/2.png\n",
}
_ALSO: dict[str, Input] = {
    "yolo-yaml": Input("yolo", lambda _: {**INPUTS["yolo"].files(NUMBERS), "data.yaml": _YAML}),
    "yolo-lone": Input(
        "yolo", lambda _: {**INPUTS["yolo"].files(NUMBERS), "data.yaml": _YAML}, place="data.yaml"
    ),
    "yolo-darknet": Input("yolo", lambda _: _DARKNET),
    "imagenet-truth": Input(
        "imagenet",
        lambda _: {
            **_FLAT,
            "ILSVRC2012_validation_ground_truth.txt": b"1\n1\n",
            "map_clsloc.txt": b"n01440764 1 tench\n",
            "words.txt": b"n01440764\ttench\n",
        },
    ),
    "masks-colours": Input(
        "masks", lambda _: {**INPUTS["masks"].files(NUMBERS), "label_colors.txt": b"0 0 0 none\n1 1 1 cat\n"}
    ),
    "coco-boxes": Input(
        "coco",
        lambda _: {
            **{f"train/{at}.png": picture(at) for at in (0, 1)},
            "train/_annotations.coco.json": json.dumps(_COCO).encode(),
        },
    ),
    "tfrecord-tfds": Input(
        "tfrecord",
        lambda _: {**INPUTS["tfrecord"].files(NUMBERS), "image.class.label.labels.txt": _NAMES},
        options=INPUTS["tfrecord"].options,
    ),
    "tfrecord-versions": Input(
        "tfrecord",
        lambda _: {
            **{f"1.0.0/{key}": data for key, data in INPUTS["tfrecord"].files(NUMBERS).items()},
            "latest.json": b'{"format_version": 1, "version": "1.0.0"}',
        },
        options=INPUTS["tfrecord"].options,
    ),
    "csv-annotations": Input("csv", INPUTS["csv"].files, options={"annotations": ("m.csv",)}),
    "jsonl-annotations": Input("jsonl", INPUTS["jsonl"].files, options={"annotations": ("m.jsonl",)}),
}
_FURTHER: dict[str, Files] = {
    "yolo": {"labels/classes.txt": _NAMES},
    "openimages": {
        "train-annotations-bbox.csv": _BOXES,
        "annotations/train-annotations-human-imagelabels.csv": _LABELS,
        "train-images-boxable-with-rotation.csv": b"ImageID,Rotation\n0,0.0\n1,0.0\n",
    },
    "imagenet": {
        "train/LOC_synset_mapping.txt": _SYNSETS,
        "words.txt": b"n01440764\ttench\n",
        "bbox/n01440764/n01440764_0.xml": _XML,
    },
    "imagenet-list": {
        "LOC_val_solution.csv": b"ImageId,PredictionString\nILSVRC2012_val_00000000,n01440764 1 1 3 3\n"
    },
    "masks": {"classes.txt": _NAMES, "train.txt": b"0\n1\n"},
    "voc": {"labelmap.txt": b"cat:::\n", "ImageSets/Main/train.txt": b"0\n1\n"},
    "labelme": {"labels.txt": b"__ignore__\n_background_\ncat\n"},
    "frames": {
        f"walk/{at}/{name}": data
        for at in (0, 1)
        for name, data in {
            "labels.csv": b"frame,label\n0.png,a\n1.png,b\n",
            "timestamps.txt": b"0.1\n0.2\n",
        }.items()
    },
    "npy": {"y_train.npy": _labels_of_two()},
    "idx": {"train-labels-idx1-ubyte": _IDX_LABELS},
    "idx.gz": {"train-labels-idx1-ubyte.gz": gzip.compress(_IDX_LABELS)},
    "tfrecord": {
        "label_map.pbtxt": b"item {\n  id: 1\n  name: 'cat'\n}\n",
        "manifest.json": b"{}",
    },
}
ALL = {**INPUTS, **_ALSO}


def files_of(name: str) -> Files:
    """All files of an input."""
    return {**ALL[name].files(NUMBERS), **_FURTHER.get(name, {})}


CASES = [(name, key) for name in ALL for key in files_of(name)]


def put(root: Path, files: Files) -> None:
    """Writes files below a folder."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def put_special(path: Path, kind: str) -> None:
    """Puts something in the place of a file."""
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "broken link":
        path.symlink_to("nowhere")
    elif kind == "socket":
        folder = os.getcwd()
        os.chdir(path.parent)  # a socket's path may have 107 bytes
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path.name)
        finally:
            os.chdir(folder)


@contextlib.contextmanager
def failing_on_alarm() -> Iterator[None]:
    """Fails the test when the alarm that it has set goes off."""

    def end(*_: object) -> None:
        pytest.fail("no answer within five seconds")

    before = signal.signal(signal.SIGALRM, end)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
