"""Small valid inputs of every source, rich in what its parsers read: what the fuzzer of parsers mutates."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import io
import json
import struct
import zipfile
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from recordmill.transforms.examples.framing import masked_crc32c
from tests.protos import Example, SequenceExample
from tests.sources import small_inputs
from tests.sources.small_inputs import mask, picture

Files = dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Seed:
    """An input.

    Attributes:
        kind: of the source.
        files: by path.
        place: what --input is, below the folder of the files.
        options: of `SourceConfig`.
        annotations: manifests below the folder.
    """

    kind: str
    files: Files
    place: str = ""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    annotations: tuple[str, ...] = ()


_ALL = {"include_annotations": ("masks", "keypoints", "captions")}
_MASKS = {"include_annotations": ("masks",)}


def _pictures(*names: str) -> Files:
    return {name: picture(number) for number, name in enumerate(names)}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _coco() -> Files:
    images = [{"id": at, "file_name": f"{at}.png", "height": 4, "width": 6} for at in (1, 2)]
    shared = {"category_id": 1, "area": 4.0, "iscrowd": 0}
    objects = [
        {**shared, "id": 1, "image_id": 1, "bbox": [1, 1, 2, 2], "segmentation": [[1, 1, 3, 1, 3, 3]]},
        {
            **shared,
            "id": 2,
            "image_id": 2,
            "bbox": [0.5, 1, 2, 2],
            "iscrowd": 1,
            "segmentation": {"counts": [8, 4, 12], "size": [4, 6]},
            "keypoints": [1, 1, 2, 0, 0, 0],
            "num_keypoints": 1,
        },
        {
            **shared,
            "id": 3,
            "image_id": 2,
            "bbox": [1, 1, 2, 2],
            "segmentation": {"counts": "05`0", "size": [4, 6]},
        },
    ]
    categories = [
        {"id": 1, "name": "cat", "supercategory": "pet", "keypoints": ["a", "b"], "skeleton": [[1, 2]]}
    ]
    value = {"info": {"year": 2017}, "images": images, "annotations": objects, "categories": categories}
    captions = {"images": images, "annotations": [{"id": 1, "image_id": 1, "caption": "A cat."}]}
    return {
        **{f"val2017/{at}.png": picture(at) for at in (1, 2)},
        "annotations/instances_val2017.json": _json(value),
        "annotations/captions_val2017.json": _json(captions),
    }


_VOC_XML = b"""<annotation><folder>VOC</folder><filename>%d.jpg</filename>
<source><database>x</database></source>
<size><width>6</width><height>4</height><depth>3</depth></size><segmented>1</segmented>
<object><name>cat</name><pose>Left</pose><truncated>0</truncated><difficult>1</difficult><occluded>0</occluded>
<bndbox><xmin>1</xmin><ymin>1.5</ymin><xmax>5</xmax><ymax>3</ymax></bndbox>
<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part></object>
</annotation>"""


def _voc() -> Files:
    return {
        **{f"JPEGImages/{at}.png": picture(at) for at in (1, 2)},
        **{f"Annotations/{at}.xml": _VOC_XML % at for at in (1, 2)},
        **{
            f"{folder}/{at}.png": mask()
            for at in (1, 2)
            for folder in ("SegmentationClass", "SegmentationObject")
        },
        "ImageSets/Main/train.txt": b"1\n",
        "ImageSets/Main/val.txt": b"2\n",
        "ImageSets/Main/cat_train.txt": b"1 -1\n",
        "labelmap.txt": b"# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:1,1,1::\n",
    }


def _labelme() -> Files:
    shapes = [
        {
            "label": "cat",
            "points": [[1, 1], [3, 3]],
            "shape_type": "rectangle",
            "flags": {},
            "group_id": None,
        },
        {
            "label": "dog",
            "points": [[1, 1], [3, 1], [2, 3]],
            "shape_type": "polygon",
            "flags": {"hard": True},
        },
        {"label": "sun", "points": [[2, 2], [3, 2]], "shape_type": "circle", "description": "round"},
        {"label": "eye", "points": [[2, 2]], "shape_type": "point", "group_id": 1},
    ]
    value = {
        "version": "5.4.1",
        "flags": {"day": True},
        "shapes": shapes,
        "imagePath": "1.png",
        "imageData": None,
    }
    found = _json({**value, "imageHeight": 4, "imageWidth": 6})
    return {
        "1.png": picture(1),
        "1.json": found,
        "2.png": picture(2),
        "2.json": found.replace(b"1.png", b"2.png"),
    }


_LABEL = b"0 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.2 0.2\n"


def _yolo(label: bytes = _LABEL) -> Files:
    return {
        **_pictures("images/train/1.png", "images/val/2.png"),
        "labels/train/1.txt": label,
        "labels/val/2.txt": label,
        "data.yaml": b"path: .\ntrain: images/train\nval: images/val\nnc: 2\nnames:\n  0: cat\n  1: dog\n"
        b"kpt_shape: [2, 3]\nflip_idx: [1, 0]\n",
    }


def _darknet() -> Files:
    return {
        **_pictures("obj_train_data/a.png", "obj_train_data/b.png"),
        **dict.fromkeys(("obj_train_data/a.txt", "obj_train_data/b.txt"), _LABEL),
        "obj.names": b"cat\ndog\n",
        "obj.data": b"classes = 2\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/\n",
        "train.txt": b"data/obj_train_data/a.png\ndata/obj_train_data/b.png\n",
    }


_BOXES = (
    "filename,width,height,class,xmin,ymin,xmax,ymax,split\n"
    '1.png,6,4,cat,1,1,3,3,train\n2.png,6,4,"a, b",1,1,3,3,test\n'
)
_ROWS = 'image,label,split,note\n1.png,cat,train,"two\nlines"\n2.png,"[""cat"", 3]",test,7\n'
_VERTEX = "TRAIN,1.png,cat,0.1,0.1,,,0.5,0.5,,\nTEST,2.png,dog,0.1,0.1,0.5,0.1,0.5,0.5,0.1,0.5\n"
_OBJECTS = [
    {"image": "1.png", "label": ["cat", "dog"], "split": "train", "meta": {"a": [1, 2.5], "b": True}},
    {"image": "2.png", "bbox": [[1, 1, 2, 2]], "labels": ["cat"], "width": 6, "height": 4},
    {"file_name": "2.png", "objects": {"bbox": [[1, 1, 2, 2]], "category": [0]}},
]
_VERTEX_JSON = [
    {
        "imageGcsUri": "1.png",
        "boundingBoxAnnotations": [
            {"displayName": "cat", "xMin": "0.1", "xMax": 0.5, "yMin": 0.1, "yMax": "0.4"}
        ],
        "dataItemResourceLabels": {"aiplatform.googleapis.com/ml_use": "training"},
    },
    {"imageGcsUri": "2.png", "classificationAnnotations": [{"displayName": "cat"}]},
]
_CLIPS = [
    {
        "key": "clip",
        "split": "train",
        "context": {"label": "cat", "n": 1, "f": [0.5, 1]},
        "feature_lists": {"frames": ["1.png", "2.png"], "speed": [0.5, 1], "tags": [["a"], ["b", "c"]]},
    }
]


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(_json(row) + b"\n" for row in rows)


def _table(name: str, text: str | bytes) -> Files:
    return {**_pictures("0.png", "1.png", "2.png"), name: text.encode() if isinstance(text, str) else text}


def _openimages() -> Files:
    return {
        **_pictures("images/train/a.png", "images/train/b.png"),
        "masks/train/a_m.png": mask(),
        "annotations/class-descriptions-boxable.csv": b"/m/c,Cat\n/m/d,Dog\n",
        "annotations/train-annotations-bbox.csv": b"ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,"
        b"IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside\na,xclick,/m/c,1,0.1,0.5,0.1,0.5,0,1,0,0,-1\n"
        b"b,xclick,/m/d,1,0.1,0.5,0.1,0.5,0,1,0,0,0\n",
        "annotations/train-annotations-human-imagelabels.csv": b"ImageID,Source,LabelName,Confidence\n"
        b"a,verification,/m/c,1\na,verification,/m/d,0\nb,verification,/m/c,0.5\n",
        "annotations/train-annotations-object-segmentation.csv": b"MaskPath,ImageID,LabelName,BoxID,BoxXMin,"
        b"BoxXMax,BoxYMin,BoxYMax,PredictedIoU,Clicks\na_m.png,a,/m/c,1,0.1,0.5,0.1,0.5,0.9,\n",
        "annotations/train-images-boxable-with-rotation.csv": b"ImageID,Subset,OriginalURL,Rotation\n"
        b"a,train,http://x,90.0\nb,train,http://x,\n",
    }


def _imagenet() -> Files:
    xml = _VOC_XML.replace(b"cat", b"n01440764") % 1
    return {
        **_pictures(
            "Data/CLS-LOC/train/n01440764/n01440764_1.JPEG", "Data/CLS-LOC/val/ILSVRC2012_val_00000001.JPEG"
        ),
        "Annotations/CLS-LOC/train/n01440764/n01440764_1.xml": xml,
        "Annotations/CLS-LOC/val/ILSVRC2012_val_00000001.xml": xml,
        "LOC_synset_mapping.txt": b"n01440764 tench, Tinca tinca\nn01443537 goldfish\n",
        "LOC_val_solution.csv": b"ImageId,PredictionString\nILSVRC2012_val_00000001,n01440764 1 1 3 3 \n",
        "LOC_train_solution.csv": b"ImageId,PredictionString\nn01440764_1,n01440764 1 1 3 3\n",
    }


def _devkit() -> Files:
    files = {
        **_pictures("train/n01440764/n01440764_1.JPEG", "val/ILSVRC2012_val_00000001.JPEG"),
        "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt": b"1\n",
    }
    try:
        from scipy import io as scipy_io
    except ImportError:
        return files
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    rows = [(1, "n01440764", "tench", 0), (2, "n01443537", "goldfish", 0)]
    stream = io.BytesIO()
    scipy_io.savemat(stream, {"synsets": np.array(rows, dtype=fields)}, do_compression=False)
    return {**files, "ILSVRC2012_devkit_t12/data/meta.mat": stream.getvalue()}


def _tiny() -> Files:
    return {
        **_pictures(
            "train/n01440764/images/n01440764_0.JPEG", "val/images/val_0.JPEG", "test/images/test_0.JPEG"
        ),
        "train/n01440764/n01440764_boxes.txt": b"n01440764_0.JPEG\t0\t1\t2\t3\n",
        "val/val_annotations.txt": b"val_0.JPEG\tn01440764\t0\t1\t2\t3\n",
        "wnids.txt": b"n01440764\n",
        "words.txt": b"n01440764\ttench\n",
    }


def _masks() -> Files:
    return {
        **_pictures("train/a.png", "val/b.png"),
        "trainannot/a.png": mask(),
        "valannot/b.png": mask(),
        "train.txt": b"/SegNet/train/a.png /SegNet/trainannot/a.png\n",
        "val.txt": b"/SegNet/val/b.png /SegNet/valannot/b.png\n",
        "label_colors.txt": b"64 128 64\tAnimal\n192 0 128\tArchway\n",
        "class_dict.csv": b"name,r,g,b\nAnimal,64,128,64\nArchway,192,0,128\n",
    }


def _frames() -> Files:
    return {
        **_pictures("walk/1/0.png", "walk/1/1.png", "run/2/0.png"),
        "walk/1/timestamps.csv": b"frame,timestamp\n0,0.5\n1,1.25\n",
        "walk/1/labels.csv": b"frame,label\n0,a\n0,b\n1,c\n",
        "run/2/timestamps.txt": b"1000\n",
        "run/2/labels.txt": b"a\n",
    }


def _framed(payload: bytes) -> bytes:
    head = struct.pack("<Q", len(payload))
    return b"".join(
        (head, struct.pack("<I", masked_crc32c(head)), payload, struct.pack("<I", masked_crc32c(payload)))
    )


def tfrecord(*payloads: bytes) -> bytes:
    """A file of records."""
    return b"".join(map(_framed, payloads))


def _example() -> Any:
    example = Example()
    feature = example.features.feature
    feature["image/encoded"].bytes_list.value.append(picture(1))
    feature["image/filename"].bytes_list.value.append(b"1.png")
    feature["image/height"].int64_list.value.append(4)
    feature["image/width"].int64_list.value.append(6)
    for name in ("xmin", "xmax", "ymin", "ymax"):
        feature[f"image/object/bbox/{name}"].float_list.value.extend([0.1 if name[1:] == "min" else 0.5] * 2)
    feature["image/object/class/label"].int64_list.value.extend([1, 2])
    feature["image/object/class/text"].bytes_list.value.extend([b"cat", b"dog"])
    feature["weight"].float_list.value.append(0.5)
    return example


def _sequence_example() -> bytes:
    example = SequenceExample()
    example.context.feature["video/id"].bytes_list.value.append(b"clip")
    for number in (1, 2):
        frames = example.feature_lists.feature_list["image/encoded"].feature.add()
        frames.bytes_list.value.append(picture(number))
        times = example.feature_lists.feature_list["image/timestamp"].feature.add()
        times.int64_list.value.append(number)
    return bytes(example.SerializeToString())


def _tfrecord() -> Files:
    payload = bytes(_example().SerializeToString())
    items = b'item {\n  id: 1\n  name: "cat"\n}\nitem { id: 2 name: "dog" display_name: "Dog" }\n'
    return {
        "train.tfrecord": tfrecord(payload, payload.replace(b"1.png", b"2.png")),
        "label_map.pbtxt": items,
    }


def _tfds() -> Files:
    features = {
        "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
        "featuresDict": {"features": {"label": {"classLabel": {"numClasses": "2"}}, "image": {"image": {}}}},
    }
    example = Example()
    example.features.feature["image"].bytes_list.value.append(picture(1))
    example.features.feature["label"].int64_list.value.append(1)
    return {
        "x-train.tfrecord-00000-of-00001": tfrecord(bytes(example.SerializeToString())),
        "features.json": _json(features),
        "dataset_info.json": _json({"name": "x", "splits": [{"name": "train", "shardLengths": ["1"]}]}),
        "label.labels.txt": b"cat\ndog\n",
    }


def _parquet() -> Files:
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    rows = [{"bytes": picture(number), "path": f"{number}.png"} for number in (1, 2)]
    boxes = [{"bbox": [[1.0, 1.0, 2.0, 2.0]], "category": [0]}] * 2
    info = {
        "info": {
            "features": {"image": {"_type": "Image"}, "label": {"names": ["a", "b"], "_type": "ClassLabel"}}
        }
    }
    table = pyarrow.table(
        {"image": pyarrow.array(rows, kind), "label": [0, 1], "objects": boxes, "text": ["x", "y"]}
    )
    stream = io.BytesIO()
    pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(info)}), stream)
    return {"data/train-00000-of-00001.parquet": stream.getvalue()}


def _webdataset() -> Files:
    members: Files = {}
    for at in (1, 2):
        notes = {"label": "cat", "n": at, "caption": "A cat.", "boxes": [[1, 1, 2, 2]]}
        members |= {
            f"{at}.png": picture(at),
            f"{at}.cls": b"3",
            f"{at}.json": _json(notes),
            f"{at}.txt": b"A cat.",
        }
    return {"train-0.tar": small_inputs._tar(members, "w")}


def _numpy() -> Files:
    files: Files = {}
    images = np.stack([small_inputs.pixels(number) for number in (1, 2)])
    names = (
        ("x_train", images),
        ("y_train", np.array([0, 1])),
        ("x_test", images > 99),
        ("y_test", np.eye(2)),
    )
    for name, array in names:
        stream = io.BytesIO()
        np.save(stream, array)
        files[f"{name}.npy"] = stream.getvalue()
    return files


def _npz(save: Any) -> Files:
    stream = io.BytesIO()
    images = np.stack([small_inputs.pixels(number) for number in (1, 2)])
    save(stream, x_train=images, y_train=np.array(["cat", "dog"]))
    return {"data.npz": stream.getvalue()}


def _idx(packed: bool) -> Files:
    images = np.stack([small_inputs.pixels(number)[..., 0] for number in (1, 2)])
    files = {
        "train-images-idx3-ubyte": struct.pack(">HBB3I", 0, 8, 3, *images.shape) + images.tobytes(),
        "train-labels-idx1-ubyte": struct.pack(">HBBI", 0, 8, 1, 2) + b"\1\2",
    }
    return {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in files.items()} if packed else files


def _zip() -> Files:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for at in (1, 2):
            method = zipfile.ZIP_DEFLATED if at == 1 else zipfile.ZIP_STORED
            archive.writestr(f"train/cat/{at}.png", picture(at), method)
    return {"a.zip": stream.getvalue()}


@functools.cache
def seeds() -> dict[str, Seed]:
    """The inputs, by name."""
    small = {
        name: Seed(one.kind, dict(one.files((1, 2))), one.place, one.options)
        for name, one in small_inputs.INPUTS.items()
    }
    return {
        **{f"small-{name}": seed for name, seed in small.items()},
        "coco": Seed("coco", _coco(), options=_ALL),
        "voc": Seed("voc", _voc(), options=_MASKS),
        "labelme": Seed("labelme", _labelme(), options={"include_annotations": ("masks", "keypoints")}),
        "yolo": Seed("yolo", _yolo()),
        "yolo-pose": Seed(
            "yolo",
            _yolo(b"0 0.5 0.5 0.5 0.5 0.1 0.1 2 0.3 0.3 1\n"),
            options={"include_annotations": ("keypoints",)},
        ),
        "yolo-polygons": Seed("yolo", _yolo(b"0 0.1 0.1 0.5 0.1 0.5 0.5\n"), options=_MASKS),
        "darknet": Seed("yolo", _darknet()),
        "csv": Seed("csv", _table("m.csv", _ROWS), "m.csv"),
        "csv-beside": Seed("csv", _table("m.csv", _ROWS), "", annotations=("m.csv",)),
        "csv-boxes": Seed("csv", _table("m.csv", _BOXES), "m.csv"),
        "csv-vertex": Seed("csv", _table("m.csv", _VERTEX), "m.csv"),
        "csv-utf16": Seed("csv", _table("m.csv", _ROWS.encode("utf-16")), "m.csv"),
        "tsv": Seed("csv", _table("m.tsv", _ROWS.replace(",", "\t")), "m.tsv"),
        "jsonl": Seed("jsonl", _table("m.jsonl", _lines(_OBJECTS)), "m.jsonl"),
        "jsonl-vertex": Seed("jsonl", _table("m.jsonl", _lines(_VERTEX_JSON)), "m.jsonl"),
        "sequence": Seed("sequence", _table("m.jsonl", _lines(_CLIPS)), "m.jsonl"),
        "openimages": Seed("openimages", _openimages(), options=_MASKS),
        "imagenet": Seed("imagenet", _imagenet()),
        "imagenet-devkit": Seed("imagenet", _devkit()),
        "imagenet-tiny": Seed("imagenet", _tiny()),
        "masks": Seed("masks", _masks()),
        "frames": Seed("frames", _frames()),
        "tfrecord": Seed("tfrecord", _tfrecord()),
        "tfrecord-tfds": Seed("tfrecord", _tfds()),
        "tfrecord-sequences": Seed("tfrecord", {"train.tfrecord": tfrecord(_sequence_example())}),
        "parquet": Seed("parquet", _parquet()),
        "webdataset": Seed("webdataset", _webdataset()),
        "numpy": Seed("numpy", _numpy()),
        "npz": Seed("numpy", _npz(np.savez)),
        "npz-packed": Seed("numpy", _npz(np.savez_compressed)),
        "idx": Seed("idx", _idx(packed=False)),
        "idx-packed": Seed("idx", _idx(packed=True)),
        "zip": Seed("archive", _zip()),
    }
