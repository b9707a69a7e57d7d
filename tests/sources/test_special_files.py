"""Under each name that a source reads: a pipe, a socket, a folder, an unreadable file, a broken link."""

from __future__ import annotations

import gzip

from tests.sources.small_inputs import INPUTS

NUMBERS = (1, 2)
_BOXES = b"ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n0,xclick,/m/c,1,0.1,0.5,0.1,0.5\n"
_LABELS = b"ImageID,Source,LabelName,Confidence\n0,verification,/m/c,1\n"
_NAMES = b"cat\ndog\n"
_IDX_LABELS = b"\0\0\x08\x01\0\0\0\x02\1\2"
_XML = (
    b"<annotation><filename>n01440764_0</filename><size><width>6</width><height>4</height></size><object>"
    b"<name>n01440764</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox>"
    b"</object></annotation>"
)
FURTHER: dict[str, dict[str, bytes]] = {
    "yolo": {"data.yaml": b"path: .\ntrain: images\nnames: [cat]\n", "labels/classes.txt": _NAMES},
    "yolo-darknet": {},
    "openimages": {
        "train-annotations-bbox.csv": _BOXES,
        "annotations/train-annotations-human-imagelabels.csv": _LABELS,
        "train-images-boxable-with-rotation.csv": b"ImageID,Rotation\n0,0.0\n",
    },
    "imagenet": {
        "train/LOC_synset_mapping.txt": b"n01440764 tench\n",
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
        "walk/0/labels.csv": b"frame,label\n0.png,a\n1.png,b\n",
        "walk/0/timestamps.txt": b"0.1\n0.2\n",
    },
    "npy": {"y_train.npy": b""},
    "idx": {"train-labels-idx1-ubyte": _IDX_LABELS},
    "idx.gz": {"train-labels-idx1-ubyte.gz": gzip.compress(_IDX_LABELS)},
    "tfrecord": {
        "label_map.pbtxt": b"item {\n  id: 1\n  name: 'cat'\n}\n",
        "manifest.json": b"{}",
        "image.class.label.labels.txt": _NAMES,
    },
}
CASES = [
    (name, key) for name, one in INPUTS.items() for key in {**one.files(NUMBERS), **FURTHER.get(name, {})}
]
