"""A small input of each kind of source, made of given pictures: some as files, some in containers."""

from __future__ import annotations

import base64
import gzip
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from recordmill.transforms.examples.framing import masked_crc32c
from tests.protos import Example

Files = dict[str, bytes]
SIZE = (4, 6)  # height, width
RAW_BYTES = 4 * 6 * 3


def picture(number: int) -> bytes:
    """A PNG that other numbers do not have."""
    stream = io.BytesIO()
    Image.fromarray(pixels(number)).save(stream, "PNG")
    return stream.getvalue()


def pixels(number: int) -> np.ndarray[Any, Any]:
    """The pixels of `picture`."""
    return np.random.default_rng(number).integers(0, 256, (*SIZE, 3), dtype=np.uint8)


def mask() -> bytes:
    """A PNG of class ids."""
    stream = io.BytesIO()
    Image.new("L", SIZE[::-1], 1).save(stream, "PNG")
    return stream.getvalue()


class Input(NamedTuple):
    """A kind of input.

    Attributes:
        kind: the source's name.
        files: makes them of the numbers of its pictures, one a record or a frame.
        refs: of each record, to images and masks.
        place: what --input is, below the folder of the files.
        options: of `SourceConfig`.
        in_place: images are ranges of a file of the input.
    """

    kind: str
    files: Callable[[Sequence[int]], Files]
    refs: int = 1
    place: str = ""
    options: dict[str, Any] = {}
    in_place: bool = False


def _named(form: str) -> Callable[[Sequence[int]], Files]:
    return lambda numbers: {form.format(at): picture(one) for at, one in enumerate(numbers)}


def _csv(numbers: Sequence[int]) -> Files:
    images = _named("photos/{}.png")(numbers)
    return {**images, "m.csv": "".join(f"{row}\n" for row in ("image", *images)).encode()}


def _jsonl(numbers: Sequence[int]) -> Files:
    images = _named("photos/{}.png")(numbers)
    return {**images, "m.jsonl": _lines({"image": name, "label": "cat"} for name in images)}


def _sequence(numbers: Sequence[int]) -> Files:
    images = _named("photos/{}.png")(numbers)
    lines = ({"context": {"n": 1}, "feature_lists": {"frames": [name, "photos/all.png"]}} for name in images)
    return {**images, "photos/all.png": picture(99), "m.jsonl": _lines(lines)}


def _lines(rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _frames(numbers: Sequence[int]) -> Files:
    clips = {f"walk/{at}/0.png": picture(one) for at, one in enumerate(numbers)}
    return {**clips, **{name.replace("/0.png", "/1.png"): picture(99) for name in clips}}


def _coco(numbers: Sequence[int]) -> Files:
    images = [{"id": at, "file_name": f"{at}.png", "height": 4, "width": 6} for at in range(len(numbers))]
    categories = [{"id": 1, "name": "cat", "isthing": 1}]
    masks = [
        {"image_id": at, "file_name": f"{at}.png", "segments_info": [{"id": 1, "category_id": 1}]}
        for at in range(len(numbers))
    ]
    panoptic = {"images": images, "annotations": masks, "categories": categories}
    return {
        **_named("val2017/{}.png")(numbers),
        **{f"annotations/panoptic_val2017/{at}.png": mask() for at in range(len(numbers))},
        "annotations/panoptic_val2017.json": json.dumps(panoptic).encode(),
    }


def _voc(numbers: Sequence[int]) -> Files:
    xml = (
        b"<annotation><size><width>6</width><height>4</height><depth>3</depth></size><object><name>cat</name>"
        b"<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>3</ymax></bndbox></object></annotation>"
    )
    files = _named("JPEGImages/{}.png")(numbers)
    for at in range(len(numbers)):
        files |= {f"Annotations/{at}.xml": xml}
        files |= {f"{folder}/{at}.png": mask() for folder in ("SegmentationClass", "SegmentationObject")}
    return files


def _yolo(numbers: Sequence[int]) -> Files:
    labels = {f"labels/{at}.txt": b"0 0.5 0.5 0.5 0.5\n" for at in range(len(numbers))}
    return {**_named("images/{}.png")(numbers), **labels}


def _labelme(numbers: Sequence[int]) -> Files:
    """The first image is a file, the others are in the JSON."""
    files = {"0.png": picture(numbers[0])}
    for at, number in enumerate(numbers):
        data = base64.b64encode(picture(number)).decode() if at else None
        shape = {"label": "cat", "points": [[1, 1], [3, 3]], "shape_type": "rectangle", "flags": {}}
        found = {"version": "5.4.1", "shapes": [shape], "imagePath": f"{at}.png", "imageData": data}
        files[f"{at}.json"] = json.dumps({**found, "imageHeight": 4, "imageWidth": 6}).encode()
    return files


def _labelme_web(numbers: Sequence[int]) -> Files:
    files = _named("Images/set/{}.png")(numbers)
    for at in range(len(numbers)):
        files[f"Masks/set/{at}_1.png"] = mask()
        files[f"Annotations/set/{at}.xml"] = (
            f"<annotation><filename>{at}.png</filename><folder>set</folder><source><sourceAnnotation>LabelMe "
            "Webtool</sourceAnnotation></source><object><name>cat</name><segm><box><xmin>1</xmin><ymin>1</ymin>"
            f"<xmax>3</xmax><ymax>3</ymax></box><mask>{at}_1.png</mask></segm></object></annotation>"
        ).encode()
    return files


def _openimages(numbers: Sequence[int]) -> Files:
    header = "MaskPath,ImageID,LabelName,BoxID,BoxXMin,BoxXMax,BoxYMin,BoxYMax,PredictedIoU,Clicks"
    rows = [f"{at}_m.png,{at},/m/c,1,0.3,0.4,0.5,0.6,0.9," for at in range(len(numbers))]
    return {
        **_named("images/train/{}.png")(numbers),
        **{f"masks/train/{at}_m.png": mask() for at in range(len(numbers))},
        "annotations/class-descriptions-boxable.csv": b"/m/c,Cat\n",
        "annotations/train-annotations-object-segmentation.csv": "\n".join((header, *rows)).encode(),
    }


def _imagenet_list(numbers: Sequence[int]) -> Files:
    images = _named("ILSVRC2012_val_{:08}.JPEG")(numbers)
    rows = "".join(f"{name} 0\n" for name in images)
    return {**images, "val.txt": rows.encode(), "synset_words.txt": b"n01440764 tench"}


def _masks(numbers: Sequence[int]) -> Files:
    return {**_named("images/{}.png")(numbers), **{f"masks/{at}.png": mask() for at in range(len(numbers))}}


def _tar(members: Files, mode: Any) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def _zip(members: Files) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _samples(numbers: Sequence[int]) -> Files:
    members: Files = {}
    for at, number in enumerate(numbers):
        members |= {f"{at}.png": picture(number), f"{at}.cls": b"3", f"{at}.seg.png": mask()}
    return members


def _tfrecord(numbers: Sequence[int]) -> bytes:
    data = b""
    for number in numbers:
        example = Example()
        for name, value in (("encoded", picture(number)), ("segmentation/class/encoded", mask())):
            example.features.feature[f"image/{name}"].bytes_list.value.append(value)
        payload = example.SerializeToString()
        head = struct.pack("<Q", len(payload))
        data += b"".join((head, _checksum(head), payload, _checksum(payload)))
    return data


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(data))


def _parquet(numbers: Sequence[int]) -> Files:
    """The first image is a file, the others are in the table."""
    stored = [
        {"bytes": None, "path": "first.png"},
        *({"bytes": picture(n), "path": None} for n in numbers[1:]),
    ]
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    masks = pyarrow.array([{"bytes": mask(), "path": None}] * len(numbers), kind)
    stream = io.BytesIO()
    table = pyarrow.table({"image": pyarrow.array(stored, kind), "mask": masks})
    pyarrow.parquet.write_table(table, stream)
    return {"x/train.parquet": stream.getvalue(), "x/first.png": picture(numbers[0])}


def _raw(numbers: Sequence[int]) -> np.ndarray[Any, Any]:
    return np.stack([pixels(number) for number in numbers])


def _npy(numbers: Sequence[int]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, _raw(numbers))
    return stream.getvalue()


def _npz(numbers: Sequence[int]) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, x_train=_raw(numbers))
    return stream.getvalue()


def _idx(numbers: Sequence[int]) -> bytes:
    raw = _raw(numbers)
    return struct.pack(">HBB4I", 0, 8, 4, *raw.shape) + raw.tobytes()


_MASKS = {"include_annotations": ("masks",)}

INPUTS = {
    "folder": Input("folder", _named("cat/{}.png")),
    "csv": Input("csv", _csv, place="m.csv"),
    "jsonl": Input("jsonl", _jsonl, place="m.jsonl"),
    "sequence": Input("sequence", _sequence, 2, "m.jsonl"),
    "frames": Input("frames", _frames, 2),
    "coco": Input("coco", _coco, 2),
    "voc": Input("voc", _voc, 3, options=_MASKS),
    "yolo": Input("yolo", _yolo),
    "labelme": Input("labelme", _labelme),
    "labelme-web": Input("labelme", _labelme_web, 2, options=_MASKS),
    "openimages": Input("openimages", _openimages, 2, options=_MASKS),
    "imagenet": Input("imagenet", _named("train/n01440764/n01440764_{}.JPEG")),
    "imagenet-list": Input("imagenet", _imagenet_list),
    "masks": Input("masks", _masks, 2),
    "tar": Input(
        "archive", lambda numbers: {"a.tar": _tar(_named("cat/{}.png")(numbers), "w")}, in_place=True
    ),
    "zip": Input("archive", lambda numbers: {"a.zip": _zip(_named("cat/{}.png")(numbers))}, in_place=True),
    "tar.gz": Input("archive", lambda numbers: {"a.tar.gz": _tar(_named("cat/{}.png")(numbers), "w:gz")}),
    "webdataset": Input(
        "webdataset", lambda numbers: {"a-train-0.tar": _tar(_samples(numbers), "w")}, 2, "", _MASKS, True
    ),
    "webdataset.gz": Input(
        "webdataset", lambda numbers: {"a-train-0.tar.gz": _tar(_samples(numbers), "w:gz")}, 2, "", _MASKS
    ),
    "tfrecord": Input(
        "tfrecord", lambda numbers: {"train.tfrecord": _tfrecord(numbers)}, 2, "", _MASKS, True
    ),
    "tfrecord.gz": Input(
        "tfrecord", lambda numbers: {"train.tfrecord": gzip.compress(_tfrecord(numbers))}, 2, "", _MASKS
    ),
    "parquet": Input("parquet", _parquet, 2, "x/train.parquet", _MASKS),
    "npy": Input("numpy", lambda numbers: {"x_train.npy": _npy(numbers)}, in_place=True),
    "npz": Input("numpy", lambda numbers: {"train.npz": _npz(numbers)}),
    "idx": Input("idx", lambda numbers: {"train-images-idx4-ubyte": _idx(numbers)}, in_place=True),
    "idx.gz": Input("idx", lambda numbers: {"train-images-idx4-ubyte.gz": gzip.compress(_idx(numbers))}),
}
