"""Small trees in layouts that people have, a step off what the sources read; and what each has to be."""

from __future__ import annotations

import dataclasses
import io
import json
import zlib
from collections.abc import Mapping

from PIL import Image

from tests.sources.moved_cases import Expected
from tests.sources.moved_trees import Tree

Made = dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Near:
    """A tree and its reading.

    Attributes:
        tree: its files.
        right: what is read of it, where it is read; None where nothing can be.
        evidence: a word of the refusal, where it is refused; None where it must be read.
    """

    tree: Tree
    right: Expected | None
    evidence: str | None = ""


def _encoded(image: Image.Image, kind: str) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def _photos(*paths: str) -> Made:
    def photo(path: str) -> bytes:
        number = zlib.crc32(path.encode())
        color = (number & 255, number >> 8 & 255, number >> 16 & 255)
        kind = "PNG" if path.endswith("png") else "JPEG"
        return _encoded(Image.new("RGB", (8, 6), color), kind)

    return {path: photo(path) for path in paths}


def _masks(*paths: str) -> Made:
    """Of classes 0, 1 and 2."""
    image = Image.new("L", (8, 6), 0)
    image.putpixel((1, 1), 1)
    image.putpixel((2, 2), 2)
    data = _encoded(image, "PNG")
    return dict.fromkeys(paths, data)


def _text(text: str, *paths: str) -> Made:
    return dict.fromkeys(paths, text.encode())


def _voc(*stems: str) -> Made:
    def xml(stem: str) -> bytes:
        name = stem.rpartition("/")[2]
        size = "<size><width>8</width><height>6</height><depth>3</depth></size>"
        box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox>"
        thing = f"<object><name>cat</name>{box}</object>"
        return f"<annotation><filename>{name}.jpg</filename>{size}{thing}</annotation>".encode()

    return {f"{stem}.xml": xml(stem) for stem in stems}


def _coco(path: str, *names: str) -> Made:
    """A box of a cat in each image."""
    images = [{"id": number, "file_name": name, "width": 8, "height": 6} for number, name in enumerate(names)]
    boxes = [
        {
            "id": one["id"],
            "image_id": one["id"],
            "category_id": 1,
            "bbox": [1, 1, 3, 3],
            "area": 9,
            "iscrowd": 0,
        }
        for one in images
    ]
    value = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    return {path: json.dumps(value).encode()}


_LINE = "0 0.5 0.5 0.2 0.2\n"


def _folder(splits: Mapping[str, int] | int, **labels: int) -> Expected:
    return Expected("folder", {None: splits} if isinstance(splits, int) else splits, labels)


def _boxes(source: str, splits: Mapping[str, int] | int, **boxes: int) -> Expected:
    return Expected(source, {None: splits} if isinstance(splits, int) else splits, boxes=boxes)


def _mask_pairs(splits: Mapping[str, int] | int, count: int) -> Expected:
    found = {None: splits} if isinstance(splits, int) else splits
    return Expected("masks", found, masks={"class": count})


_SPLIT_NAMES = {
    "train_images and test_images of Kaggle": Near(
        _photos("train_images/1.jpg", "train_images/2.jpg", "test_images/3.jpg"),
        _folder({"train": 2, "test": 1}),
        "train_images",
    ),
    "train and test1 of Kaggle": Near(
        _photos("train/cat.0.jpg", "train/dog.0.jpg", "test1/1.jpg"),
        _folder({"train": 2, "test": 1}),
        "test1",
    ),
    "training_set/training_set/cats": Near(
        _photos(
            "training_set/training_set/cats/1.jpg",
            "training_set/training_set/dogs/1.jpg",
            "test_set/test_set/cats/2.jpg",
        ),
        _folder({"train": 2, "test": 1}, cats=2, dogs=1),
        "training_set",
    ),
    "seg_train, seg_test, seg_pred": Near(
        _photos("seg_train/seg_train/sea/1.jpg", "seg_test/seg_test/sea/2.jpg", "seg_pred/seg_pred/3.jpg"),
        None,
        "seg_",
    ),
    "train and val, and sample": Near(
        _photos("train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg", "sample/1.jpg"), None, "sample"
    ),
    "train and train2, and val": Near(
        _photos("train/cat/1.jpg", "train2/cat/2.jpg", "val/cat/3.jpg"), None, "train2"
    ),
    "splits with a year": Near(
        _photos("train2017/cat/1.jpg", "val2017/cat/2.jpg"), _folder({"train": 1, "val": 1}, cat=2), None
    ),
    "splits below classes": Near(
        _photos("cat/train/1.jpg", "cat/test/2.jpg", "dog/train/1.jpg", "dog/test/2.jpg"),
        _folder({"train": 2, "test": 2}, cat=2, dog=2),
    ),
    "MVTec, of one object": Near(
        {
            **_photos("bottle/train/good/0.jpg", "bottle/test/good/0.jpg", "bottle/test/broken/0.jpg"),
            **_masks("bottle/ground_truth/broken/0_mask.png"),
        },
        None,
    ),
    "val alone": Near(_photos("val/cat/1.jpg", "val/dog/2.jpg"), _folder({"val": 2}, cat=1, dog=1), None),
    "a test split without labels": Near(
        _photos("train/cat/1.jpg", "train/dog/2.jpg", "test/3.jpg"),
        _folder({"train": 2, "test": 1}, cat=1, dog=1),
        None,
    ),
}

_WRAPPERS = {
    "data/train and data/test": Near(
        _photos("data/train/cat/1.jpg", "data/train/dog/2.jpg", "data/test/cat/3.jpg"),
        _folder({"train": 2, "test": 1}, cat=2, dog=1),
    ),
    "one folder around classes": Near(
        _photos("2750/AnnualCrop/1.jpg", "2750/River/1.jpg"), _folder(2, AnnualCrop=1, River=1)
    ),
    "images below splits": Near(
        _photos("train/images/1.jpg", "train/images/2.jpg", "test/images/3.jpg"),
        _folder({"train": 2, "test": 1}),
    ),
    "two trees of classes": Near(
        _photos("A/train/cat/1.jpg", "A/test/cat/2.jpg", "B/train/dog/1.jpg", "B/test/dog/2.jpg"), None, "A"
    ),
    "VOC of Roboflow in a folder": Near(
        {**_photos("ds/train/a.jpg", "ds/valid/b.jpg"), **_voc("ds/train/a", "ds/valid/b")},
        _boxes("voc", {"train": 1, "valid": 1}, cat=2),
        None,
    ),
    "images and masks below splits, in a folder": Near(
        {
            **_photos("ISIC/train/images/a.jpg", "ISIC/test/images/b.jpg"),
            **_masks("ISIC/train/masks/a.png", "ISIC/test/masks/b.png"),
        },
        _mask_pairs({"train": 1, "test": 1}, 2),
        None,
    ),
    "obj_train_data of CVAT in a folder": Near(
        {
            **_photos("cvat/obj_train_data/a.jpg", "cvat/obj_train_data/b.jpg"),
            **_text(_LINE, "cvat/obj_train_data/a.txt", "cvat/obj_train_data/b.txt"),
            **_text("cat\n", "cvat/obj.names"),
            **_text("classes = 1\ntrain = data/train.txt\nnames = data/obj.names\n", "cvat/obj.data"),
            **_text("data/obj_train_data/a.jpg\ndata/obj_train_data/b.jpg\n", "cvat/train.txt"),
        },
        _boxes("yolo", {"train": 2}, cat=2),
        None,
    ),
    "COCO four folders down": Near(
        {**_photos("x/y/images/a.jpg"), **_coco("x/y/z/labels/train.json", "a.jpg")},
        _boxes("coco", {"train": 1}, cat=1),
    ),
    "COCO unpacked into folders of the same names": Near(
        {
            **_photos("train2017/train2017/a.jpg", "val2017/val2017/b.jpg"),
            **_coco("annotations/instances_train2017.json", "a.jpg"),
            **_coco("annotations/instances_val2017.json", "b.jpg"),
        },
        _boxes("coco", {"train": 1, "val": 1}, cat=2),
        "image_root",
    ),
    "coco8.yaml next to coco8": Near(
        {
            **_photos("coco8/images/train/a.jpg", "coco8/images/val/b.jpg"),
            **_text(_LINE, "coco8/labels/train/a.txt", "coco8/labels/val/b.txt"),
            **_text(
                "path: ../datasets/coco8\ntrain: images/train\nval: images/val\nnames: {0: cat}\n",
                "coco8.yaml",
            ),
        },
        _boxes("yolo", {"train": 1, "val": 1}, **{"0": 2}),
    ),
}

_LISTS = {
    "lists of Food-101": Near(
        {
            **_photos("images/pie/1.jpg", "images/pie/2.jpg", "images/tart/3.jpg"),
            **_text("pie/1\ntart/3\n", "meta/train.txt"),
            **_text("pie/2\n", "meta/test.txt"),
        },
        None,
        "meta/",
    ),
    "lists of CUB": Near(
        {
            **_photos("images/001.A/a.jpg", "images/001.A/b.jpg", "images/002.B/c.jpg"),
            **_text("1 001.A/a.jpg\n2 001.A/b.jpg\n3 002.B/c.jpg\n", "images.txt"),
            **_text("1 1\n2 0\n3 1\n", "train_test_split.txt"),
        },
        None,
        "images.txt",
    ),
    "lists next to classes": Near(
        {
            **_photos("pie/1.jpg", "pie/2.jpg", "tart/3.jpg"),
            **_text("pie/1.jpg\ntart/3.jpg\n", "train.txt"),
            **_text("pie/2.jpg\n", "test.txt"),
        },
        _folder({"train": 2, "test": 1}, pie=2, tart=1),
        ".txt",
    ),
    "list of Oxford's pets": Near(
        {
            **_photos("images/Abyssinian_1.jpg", "images/beagle_1.jpg"),
            **_text("Abyssinian_1 1 1 1\nbeagle_1 2 2 1\n", "annotations/list.txt"),
            **_masks("annotations/trimaps/Abyssinian_1.png", "annotations/trimaps/beagle_1.png"),
        },
        None,
        "annotations",
    ),
    "captions.txt of Flickr30k": Near(
        {
            **_photos("Images/1.jpg", "Images/2.jpg"),
            **_text("image,caption\n1.jpg,a cat\n2.jpg,a dog\n", "captions.txt"),
        },
        None,
        "captions.txt",
    ),
    "metadata.csv in each split": Near(
        {
            **_photos("train/1.jpg", "train/2.jpg", "test/3.jpg"),
            **_text("file_name,label\n1.jpg,cat\n2.jpg,dog\n", "train/metadata.csv"),
            **_text("file_name,label\n3.jpg,cat\n", "test/metadata.csv"),
        },
        None,
        "metadata.csv",
    ),
    "metadata.jsonl next to images": Near(
        {
            **_photos("1.jpg", "2.jpg"),
            **_text('{"file_name": "1.jpg", "label": "cat"}\n{"file_name": "2.jpg"}\n', "metadata.jsonl"),
        },
        None,
        "metadata.jsonl",
    ),
    "a CSV in each class, of GTSRB": Near(
        {
            **_photos("Images/00000/a.jpg", "Images/00001/b.jpg"),
            **_text("Filename;ClassId\na.jpg;0\n", "Images/00000/GT-00000.csv"),
            **_text("Filename;ClassId\nb.jpg;1\n", "Images/00001/GT-00001.csv"),
        },
        None,
        "GT-0000",
    ),
    "labels.json": Near(
        {
            **_photos("images/1.jpg", "images/2.jpg"),
            **_text('{"1.jpg": "cat", "2.jpg": "dog"}', "labels.json"),
        },
        None,
        "labels.json",
    ),
    "JSON of VIA": Near(
        {
            **_photos("train/1.jpg", "val/2.jpg"),
            **_text('{"1.jpg9": {"filename": "1.jpg", "regions": []}}', "train/via_region_data.json"),
        },
        None,
        "via_region_data.json",
    ),
    "JSON of CreateML": Near(
        {
            **_photos("train/1.jpg", "valid/2.jpg"),
            **_text('[{"image": "1.jpg", "annotations": []}]', "train/_annotations.createml.json"),
            **_text('[{"image": "2.jpg", "annotations": []}]', "valid/_annotations.createml.json"),
        },
        None,
        "createml",
    ),
}

_STEMS = {
    "captions of the same stems": Near(
        {**_photos("1.jpg", "2.jpg"), **_text("a cat on a mat", "1.txt", "2.txt")}, None, ".txt"
    ),
    "JSON of the same stems": Near(
        {**_photos("1.jpg", "2.jpg"), **_text('{"label": "cat"}', "1.json", "2.json")}, None, ".json"
    ),
    "JSON of the same stems in labels": Near(
        {
            **_photos("images/1.jpg", "images/2.jpg"),
            **_text('{"label": 1}', "labels/1.json", "labels/2.json"),
        },
        None,
        ".json",
    ),
    "XML of another program": Near(
        {**_photos("a.jpg", "b.jpg"), **_text("<note><x/></note>", "a.xml", "b.xml")}, None, ".xml"
    ),
    "KITTI": Near(
        {
            **_photos("training/image_2/0.jpg", "training/image_2/1.jpg", "testing/image_2/0.jpg"),
            **_text(
                "Car 0 0 -1.57 1 1 4 4 1 1 1 1 1 1 1\n", "training/label_2/0.txt", "training/label_2/1.txt"
            ),
        },
        None,
        "label_2",
    ),
    "VisDrone": Near(
        {
            **_photos("images/a.jpg", "images/b.jpg"),
            **_text("1,1,3,3,1,4,0,0\n", "annotations/a.txt", "annotations/b.txt"),
        },
        None,
        "annotations",
    ),
    "DOTA": Near(
        {
            **_photos("images/P1.jpg", "images/P2.jpg"),
            **_text("1 1 4 1 4 4 1 4 plane 0\n", "labelTxt/P1.txt", "labelTxt/P2.txt"),
        },
        None,
        "labelTxt",
    ),
    "OIDv4": Near(
        {
            **_photos("train/Apple/a.jpg", "train/Apple/b.jpg", "test/Apple/c.jpg"),
            **_text("Apple 1 1 4 4\n", "train/Apple/Label/a.txt", "train/Apple/Label/b.txt"),
        },
        None,
        "Label",
    ),
    "YOLO's labels in another folder": Near(
        {**_photos("images/a.jpg", "images/b.jpg"), **_text(_LINE, "labels_yolo/a.txt", "labels_yolo/b.txt")},
        _boxes("yolo", 2, **{"0": 2}),
        "labels_yolo",
    ),
    "masks called like photos": Near(
        {**_photos("1.jpg", "2.jpg"), **_masks("1.png", "2.png")}, _mask_pairs(2, 2)
    ),
    "data and target": Near(
        {**_photos("data/a.jpg", "data/b.jpg"), **_masks("target/a.png", "target/b.png")},
        _mask_pairs(2, 2),
        "target",
    ),
    "rgb and depth": Near(
        {**_photos("rgb/cat/1.jpg", "rgb/dog/2.jpg"), **_masks("depth/cat/1.png", "depth/dog/2.png")},
        None,
        "depth",
    ),
}

_READ = {
    "ADE20K": Near(
        {
            **_photos("images/training/a.jpg", "images/validation/b.jpg"),
            **_masks("annotations/training/a.png", "annotations/validation/b.png"),
        },
        _mask_pairs({"training": 1, "validation": 1}, 2),
        None,
    ),
    "Cityscapes": Near(
        {
            **_photos("leftImg8bit/train/bonn/bonn_0_leftImg8bit.png"),
            **_photos("leftImg8bit/val/ulm/ulm_0_leftImg8bit.png"),
            **_masks("gtFine/train/bonn/bonn_0_gtFine_labelIds.png"),
            **_masks("gtFine/val/ulm/ulm_0_gtFine_labelIds.png"),
            **_masks("gtFine/train/bonn/bonn_0_gtFine_instanceIds.png"),
            **_masks("gtFine/val/ulm/ulm_0_gtFine_instanceIds.png"),
            **_masks("gtFine/train/bonn/bonn_0_gtFine_color.png"),
            **_masks("gtFine/val/ulm/ulm_0_gtFine_color.png"),
        },
        _mask_pairs({"train": 1, "val": 1}, 2),
        None,
    ),
    "DAVIS": Near(
        {
            **_photos("JPEGImages/480p/bear/0.jpg", "JPEGImages/480p/bear/1.jpg"),
            **_masks("Annotations/480p/bear/0.png", "Annotations/480p/bear/1.png"),
        },
        _mask_pairs(2, 2),
        None,
    ),
    "1.jpg and 1_mask.png": Near(
        {**_photos("1.jpg", "2.jpg"), **_masks("1_mask.png", "2_mask.png")}, _mask_pairs(2, 2), None
    ),
    "train and train_masks": Near(
        {
            **_photos("train/a.jpg", "train/b.jpg"),
            **_masks("train_masks/a_mask.png", "train_masks/b_mask.png"),
        },
        _mask_pairs({"train": 2}, 2),
        None,
    ),
    "COCO next to flat images": Near(
        {**_photos("a.jpg", "b.jpg"), **_coco("instances.json", "a.jpg", "b.jpg")},
        _boxes("coco", 2, cat=2),
        None,
    ),
    "train.json and val.json of COCO": Near(
        {**_photos("train/a.jpg", "val/b.jpg"), **_coco("train.json", "a.jpg"), **_coco("val.json", "b.jpg")},
        _boxes("coco", {"train": 1, "val": 1}, cat=2),
        None,
    ),
    "YOLO with a test split without labels": Near(
        {
            **_photos("train/images/a.jpg", "test/images/b.jpg"),
            **_text(_LINE, "train/labels/a.txt"),
            **_text("train: ../train/images\ntest: ../test/images\nnc: 1\nnames: [cat]\n", "data.yaml"),
        },
        _boxes("yolo", {"train": 1, "test": 1}, cat=1),
        None,
    ),
    "classes, and files that are no images": Near(
        {**_photos("cat/1.jpg", "dog/1.jpg"), **_text("x", "cat/README.md", "model.pt", "requirements.txt")},
        _folder(2, cat=1, dog=1),
        None,
    ),
    "a class called images": Near(
        _photos("apple/1.jpg", "banana/1.jpg", "images/1.jpg"), _folder(3, apple=1, banana=1, images=1), None
    ),
    "the same names in each class": Near(
        _photos("cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"), _folder(4, cat=2, dog=2), None
    ),
    "photos as JPEG and as PNG": Near(
        _photos("cat/1.jpg", "cat/1.png", "dog/2.jpg"), _folder(3, cat=2, dog=1)
    ),
}

NEAR: Mapping[str, Near] = {**_SPLIT_NAMES, **_WRAPPERS, **_LISTS, **_STEMS, **_READ}

OPEN = {
    "COCO unpacked into folders of the same names": "the message names no root",
    "coco8.yaml next to coco8": "a data.yaml next to its dataset is not read with it",
    "rgb and depth": "a second tree of images of the same names is two classes",
}
"""What is not as it has to be yet, and why."""
