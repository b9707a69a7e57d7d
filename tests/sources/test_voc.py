"""Source `voc`, on trees made here."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.records import (
    Annotations,
    Box,
    ClassNames,
    Failure,
    ImageRecord,
    ImageRef,
    JobError,
    MaskImage,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.source import Item
from recordmill.transforms.sources.voc import xml as voc_xml
from recordmill.transforms.sources.voc.source import VocSource
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.server import BucketServer
from tests.sources.placeless import without_place
from tests.sources.sniffing import sniff

SOURCE = VocSource()


def xml(filename: str = "", label: str = "cat", folder: str = "") -> bytes:
    return (
        f"<annotation><folder>{folder}</folder><filename>{filename}</filename>"
        "<size><width>6</width><height>4</height><depth>3</depth></size>"
        f"<object><name>{label}</name><bndbox><xmin>1</xmin><ymin>1.5</ymin><xmax>5</xmax><ymax>3</ymax>"
        "</bndbox></object></annotation>"
    ).encode()


def png(mode: str = "P") -> bytes:
    stream = io.BytesIO()
    image = Image.new(mode, (6, 4))
    if mode == "P":
        image.putpalette([0, 0, 0, 128, 0, 0])
    image.save(stream, "PNG")
    return stream.getvalue()


def made(root: Path, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return str(root)


def listed(place: str, **options: object) -> list[Item]:
    config = SourceConfig("voc", place, **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, "/nowhere"))


def records(items: list[Item]) -> dict[str, ImageRecord]:
    return {item.key: item for item in items if isinstance(item, ImageRecord)}


def failures(items: list[Item]) -> list[tuple[str, str, str, bool]]:
    return [(one.key, one.stage, one.reason, one.skipped) for one in items if isinstance(one, Failure)]


def placeless(item: Item) -> Item:
    """An item without URIs and versions."""
    if isinstance(item, ClassNames):
        return item
    if isinstance(item, ImageRecord):
        masks = {kind: MaskImage(ImageRef(""), mask.colors) for kind, mask in item.annotations.masks.items()}
        annotations = msgspec.structs.replace(item.annotations, masks=masks)
        item = msgspec.structs.replace(item, annotations=annotations)
    return without_place(item)


def names(items: list[Item]) -> ClassNames:
    (found,) = (item for item in items if isinstance(item, ClassNames))
    return found


DEVKIT = {
    "VOCdevkit/VOC2007/Annotations/000001.xml": xml("000001.jpg", "dog", "VOC2007"),
    "VOCdevkit/VOC2007/Annotations/000002.xml": xml("000002.jpg"),
    "VOCdevkit/VOC2007/Annotations/000003.xml": xml("000003.jpg"),
    "VOCdevkit/VOC2007/Annotations/000004.xml": xml("000004.jpg"),
    "VOCdevkit/VOC2007/ImageSets/Main/train.txt": b"000001\n",
    "VOCdevkit/VOC2007/ImageSets/Main/trainval.txt": b"000001\n000002 \n\n000009\n",
    "VOCdevkit/VOC2007/ImageSets/Main/dog_train.txt": b"000001 -1\n000003  1\n",
    "VOCdevkit/VOC2007/ImageSets/Main/test.txt": b"# all\n000004 1\n000005\n",
    "VOCdevkit/VOC2007/ImageSets/Segmentation/val.txt": b"000002\n",
    "VOCdevkit/VOC2007/SegmentationClass/000002.png": png(),
    "VOCdevkit/VOC2007/SegmentationObject/000002.png": png(),
    **{f"VOCdevkit/VOC2007/JPEGImages/00000{number}.jpg": b"%d" % number for number in (1, 2, 3, 4, 5)},
    "VOCdevkit/VOC2012/Annotations/000001.xml": xml("000001.jpg"),
    "VOCdevkit/VOC2012/ImageSets/Main/val.txt": b"000001\n",
    "VOCdevkit/VOC2012/JPEGImages/000001.jpg": b"12",
    "VOCdevkit/readme": b"x",
}


def test_a_devkit_of_two_years(tmp_path: Path) -> None:
    place = made(tmp_path, DEVKIT)
    items = listed(place)
    found = records(items)
    start, images = "VOCdevkit/VOC2007/", "VOCdevkit/VOC2007/JPEGImages/"
    assert {key: record.split for key, record in found.items()} == {
        f"{images}000001.jpg": "train",
        f"{images}000002.jpg": "trainval",
        f"{images}000004.jpg": "test",
        "VOCdevkit/VOC2012/JPEGImages/000001.jpg": "val",
    }
    first = found[f"{images}000001.jpg"]
    assert (first.annotations.size, first.size, first.origin) == ((4, 6), 1, f"{start}Annotations/000001.xml")
    assert [(one.label, one.box) for one in first.annotations.objects] == [("dog", Box(1, 1.5, 5, 3))]
    assert first.annotations.masks == {}
    masks = found[f"{images}000002.jpg"].annotations.masks
    assert {kind: (mask.image.uri, mask.colors) for kind, mask in masks.items()} == {
        "class": (f"{place}/{start}SegmentationClass/000002.png", ()),
        "instance": (f"{place}/{start}SegmentationObject/000002.png", ()),
    }
    assert failures(items) == [
        ("VOCdevkit/readme", "list", "neither image nor annotations by name", True),
        (f"{start}ImageSets/Main/trainval.txt: 000009", "list", "listed and not there", False),
        (f"{images}000003.jpg", "list", "in no list of ImageSets", True),
        (f"{images}000005.jpg", "list", "image without annotations", True),
    ]
    config = SourceConfig("voc", place)
    assert SOURCE.split_names(config) == ("test", "train", "trainval", "val")
    assert SOURCE.schemas(config) == ("detection", "segmentation")
    assert names(items).optional and (names(items).names[0], names(items).names[20]) == (
        "background",
        "tvmonitor",
    )
    assert len(names(items).names) == 21
    assert "VOC XML" in (sniff(SOURCE, config) or "")


def test_a_bucket_gives_what_the_disk_gives(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    place = made(tmp_path, DEVKIT)
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")
    items, remote = listed(place), listed(f"{bucket}/in")
    assert list(map(placeless, remote)) == list(map(placeless, items))
    config = SourceConfig("voc", f"{bucket}/in")
    assert sniff(SOURCE, config) == sniff(SOURCE, SourceConfig("voc", place))
    assert SOURCE.split_names(config) == ("test", "train", "trainval", "val")
    reader = ImageReader()
    assert [reader.read(one.image) for one in records(remote).values() if one.image] == [
        b"1",
        b"2",
        b"4",
        b"12",
    ]


@pytest.mark.parametrize("spelled", [str.upper, str.lower, str.title])
def test_folders_in_another_case(tmp_path: Path, spelled: Callable[[str], str]) -> None:
    def respelled(key: str) -> str:
        folder, slash, name = key.rpartition("/")
        return spelled(folder) + slash + name

    # The name in the XML is stale: the images are found by the folder that they are in.
    copied = {name: xml("other.jpg") if name.endswith(".xml") else data for name, data in DEVKIT.items()}
    found = records(listed(made(tmp_path / "usual", copied)))
    place = made(tmp_path / "other", {respelled(name): data for name, data in copied.items()})
    items = records(listed(place))
    assert {key: (one.split, one.annotations.masks.keys()) for key, one in items.items()} == {
        respelled(key): (one.split, one.annotations.masks.keys()) for key, one in found.items()
    }
    assert [one.split for one in items.values()] == ["train", "trainval", "test", "val"]
    assert SOURCE.split_names(SourceConfig("voc", place)) == ("test", "train", "trainval", "val")


def test_masks_alone_in_folders_in_another_case(tmp_path: Path) -> None:
    files = {
        "JPEGIMAGES/a.jpg": b"1",
        "SEGMENTATIONCLASS/a.png": png(),
        "IMAGESETS/SEGMENTATION/val.txt": b"JPEGIMAGES/a.jpg\n",
    }
    place = made(tmp_path, files)
    assert (
        sniff(SOURCE, SourceConfig("voc", place))
        == "'SEGMENTATIONCLASS/a.png' is a mask of classes as VOC has them"
    )
    assert {key: one.split for key, one in records(listed(place)).items()} == {"JPEGIMAGES/a.jpg": "val"}


def test_only_images_with_masks(tmp_path: Path) -> None:
    place = made(tmp_path, DEVKIT)
    items = listed(place, include_annotations=("masks",))
    (record,) = records(items).values()
    assert (record.key, record.split) == ("VOCdevkit/VOC2007/JPEGImages/000002.jpg", "val")
    assert len(record.annotations.objects) == 1
    left = [
        key
        for key, _, reason, skipped in failures(items)
        if (reason, skipped) == ("image without a mask", True)
    ]
    assert left == [f"VOCdevkit/VOC2007/JPEGImages/00000{number}.jpg" for number in (1, 3, 4, 5)] + [
        "VOCdevkit/VOC2012/JPEGImages/000001.jpg"
    ]


def test_include_exclude_and_limit(tmp_path: Path) -> None:
    place = made(tmp_path, DEVKIT)
    items = listed(place, include=("**/VOC2007/**",), exclude=("000002.*",))
    assert [key[-5] for key in records(items)] == ["1", "4"]
    excluded = {key for key, _, reason, _ in failures(items) if reason == "excluded by --include/--exclude"}
    assert excluded == {"VOCdevkit/VOC2007/JPEGImages/000002.jpg", "VOCdevkit/VOC2012/JPEGImages/000001.jpg"}
    assert len(records(listed(place, limit=2))) == 2


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"images/a.png": b"1", "annotations/a.xml": xml("a.jpg")}, {"images/a.png": None}),  # by stem
        ({"a.jpg": b"1", "b.jpg": b"2", "b.xml": xml("a.jpg")}, {"b.jpg": None}),  # copied, its name is not
        ({"train/a.jpg": b"1", "train/a.xml": xml("a.jpg"), "valid/a.jpg": b"1", "valid/a.xml": xml("a.jpg")},
         {"train/a.jpg": "train", "valid/a.jpg": "valid"}),
        ({"JPEGImages/test/a.jpg": b"1", "Annotations/test/a.xml": xml("a.jpg")},
         {"JPEGImages/test/a.jpg": "test"}),
        ({"JPEGImages/test/a.jpg": b"1", "Annotations/test/a.xml": xml("test/a.jpg")},
         {"JPEGImages/test/a.jpg": "test"}),
        ({"ds/train/a.jpg": b"1", "ds/train/a.xml": xml(), "ds/valid/a.jpg": b"1", "ds/valid/a.xml": xml()},
         {"ds/train/a.jpg": "train", "ds/valid/a.jpg": "valid"}),  # Roboflow's in a wrapper
        ({"x/y/train/a.jpg": b"1", "x/y/train/a.xml": xml(), "x/y/test/b.jpg": b"1", "x/y/test/b.xml": xml()},
         {"x/y/train/a.jpg": "train", "x/y/test/b.jpg": "test"}),
        ({"ds/JPEGImages/val/a.jpg": b"1", "ds/Annotations/val/a.xml": xml()},
         {"ds/JPEGImages/val/a.jpg": "val"}),
        ({"photos/a.jpg": b"1", "Annotations/x.xml": xml("a.jpg", folder="photos")}, {"photos/a.jpg": None}),
        ({"deep/er/a.jpg": b"1", "Annotations/x.xml": xml("a.jpg")}, {"deep/er/a.jpg": None}),  # the only one
        ({"images/a.jpg": b"1", "Annotations/x.xml": xml("..\\images\\a.jpg")}, {"images/a.jpg": None}),
        ({"images/a.jpg": b"1", "Annotations/x.xml": xml("C:\\photos\\a.jpg")}, {"images/a.jpg": None}),
    ],
)  # fmt: skip
def test_where_images_lie(tmp_path: Path, files: dict[str, bytes], expected: dict[str, str | None]) -> None:
    place = made(tmp_path, files)
    assert {key: one.split for key, one in records(listed(place)).items()} == expected
    splits = tuple(sorted({split for split in expected.values() if split}))
    assert SOURCE.split_names(SourceConfig("voc", place)) == splits


@pytest.mark.parametrize("name", ["test", "trainval", "Val2012"])
def test_a_list_where_no_list_is_read_is_refused(tmp_path: Path, name: str) -> None:
    files = {
        "images/a.jpg": b"1",
        "annotations/xmls/a.xml": xml("a.jpg"),
        f"annotations/{name}.txt": b"a 1 1 1\n",
    }
    with pytest.raises(JobError) as caught:
        listed(made(tmp_path, files))
    key = f"annotations/{name}.txt"
    assert str(caught.value) == (
        f"{key!r} is named like the list of a split, but lists are read from ImageSets/Main/: move it there, "
        f"with one image name per line, or exclude it with SourceConfig.exclude {key}"
    )
    assert list(records(listed(str(tmp_path), exclude=(key,)))) == ["images/a.jpg"]


def test_an_image_in_a_folder_of_a_split_next_to_others_is_in_that_split(tmp_path: Path) -> None:
    files = {"ds/test/a.jpg": b"1", "ds/test/a.xml": xml(), "ds/b.jpg": b"1", "ds/b.xml": xml()}
    items = records(listed(made(tmp_path, files)))
    assert {key: one.split for key, one in items.items()} == {"ds/b.jpg": None, "ds/test/a.jpg": "test"}


def test_image_roots(tmp_path: Path) -> None:
    made(
        tmp_path,
        {"in/a.xml": xml("a.jpg"), "in/b.xml": xml("no.bmp"), "photos/a.jpg": b"1", "photos/b.png": b"2"},
    )
    found = records(listed(f"{tmp_path}/in", image_roots=(f"{tmp_path}/photos",)))
    assert {key: one.image and one.image.uri for key, one in found.items()} == {
        name: f"{tmp_path}/photos/{name}" for name in ("a.jpg", "b.png")
    }


@pytest.mark.parametrize(
    "path", ["../secret.jpg", "/{root}/secret.jpg", "..\\secret.jpg", "a/../../secret.jpg"]
)
def test_paths_that_lead_outside_are_refused(tmp_path: Path, path: str) -> None:
    made(
        tmp_path,
        {"secret.jpg": b"1", "in/a.xml": xml(path.format(root=str(tmp_path).lstrip("/"))), "in/a.jpg": b"2"},
    )
    items = listed(f"{tmp_path}/in")
    assert not records(items)
    assert ("a.xml", "annotations", "outside the input root", False) in failures(items)
    (tmp_path / "in/b.jpg").symlink_to(tmp_path / "secret.jpg")
    made(tmp_path, {"in/b.xml": xml("b.jpg")})
    items = listed(f"{tmp_path}/in")
    assert not records(items)
    assert ("b.jpg", "list", "outside the input root", False) in failures(items)


def test_what_is_wrong_with_one_file_is_its_own_failure(tmp_path: Path) -> None:
    files = {
        "Annotations/a.xml": xml("a.jpg"),
        "Annotations/b.xml": b"<annotation>",
        "Annotations/c.xml": xml("c.jpg"),
        "Annotations/d.xml": xml("a.jpg"),
        "Annotations/e.xml": b"<!DOCTYPE a []><annotation/>",
        **{f"JPEGImages/{name}.jpg": b"1" for name in "abe"},
    }
    items = listed(made(tmp_path, files))
    assert list(records(items)) == ["JPEGImages/a.jpg"]
    assert failures(items) == [
        ("JPEGImages/b.jpg", "annotations", "not XML", False),
        ("Annotations/c.xml", "annotations", "annotation without its image", False),
        ("Annotations/d.xml", "annotations", "image has another annotation", False),
        ("JPEGImages/e.jpg", "annotations", "XML with a document type", False),
    ]


def test_an_image_in_the_lists_of_two_splits(tmp_path: Path) -> None:
    files = {
        "Annotations/a.xml": xml("a.jpg"),
        "Annotations/b c.xml": xml("b c.jpg"),
        "JPEGImages/a.jpg": b"1",
        "JPEGImages/b c.jpg": b"1",
        "ImageSets/Main/train.txt": b'a.jpg\n"b c" 1\n',
        "ImageSets/Main/all.txt": b"a\nb c\n",
        "ImageSets/Main/test.txt": b"a\n",
    }
    items = listed(made(tmp_path, files))
    assert {key: one.split for key, one in records(items).items()} == {"JPEGImages/b c.jpg": "train"}
    assert failures(items) == [("JPEGImages/a.jpg", "annotations", "in several lists of ImageSets", False)]


def test_the_list_of_a_task_without_splits(tmp_path: Path) -> None:
    files = {
        "Annotations/a.xml": xml("a.jpg"),
        "Annotations/b.xml": xml("b.jpg"),
        "ImageSets/Main/default.txt": b"a\n",
        "ImageSets/Main/cat_default.txt": b"a 1\n",
        "JPEGImages/a.jpg": b"1",
        "JPEGImages/b.jpg": b"2",
    }
    place = made(tmp_path, files)
    assert SOURCE.split_names(SourceConfig("voc", place)) == ()
    items = listed(place)
    assert {key: one.split for key, one in records(items).items()} == {"JPEGImages/a.jpg": None}
    assert failures(items) == [("JPEGImages/b.jpg", "list", "in no list of ImageSets", True)]


def test_copied_xml_is_of_the_image_of_its_own_name(tmp_path: Path) -> None:
    files = {"a.jpg": b"1", "a_flip.jpg": b"2", "a.xml": xml("a.jpg"), "a_flip.xml": xml("a.jpg", "dog")}
    items = listed(made(tmp_path, files))
    labels = {key: one.annotations.objects[0].label for key, one in records(items).items()}
    assert (labels, failures(items)) == ({"a.jpg": "cat", "a_flip.jpg": "dog"}, [])


def test_masks_in_colours(tmp_path: Path) -> None:
    files = {
        "JPEGImages/a.jpg": b"1",
        "SegmentationClass/a.png": png("RGB"),
        "SegmentationObject/a.png": png("RGB"),
        "SegmentationClass/b.png": png("RGB"),
        "labelmap.txt": b"# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:1,2,3::\n"
        b"border:224,224,192::\ndog:::\n",
    }
    place = made(tmp_path, files)
    items = listed(place)
    (record,) = records(items).values()
    masks = record.annotations.masks
    assert masks["class"].colors == (
        (0, 0),
        (0x010203, 1),
        (0xE0E0C0, 255),
        (0x808000, 3),
    )
    assert dict(masks["instance"].colors)[0x400000] == 8
    assert names(items) == ClassNames({0: "background", 1: "cat", 2: "border", 3: "dog"})
    assert failures(items) == [
        ("SegmentationClass/b.png", "annotations", "annotation without its image", False)
    ]
    assert SOURCE.schemas(SourceConfig("voc", place)) == ("segmentation",)
    (tmp_path / "labelmap.txt").unlink()
    (record,) = records(listed(place)).values()
    colors = {number: color for color, number in record.annotations.masks["class"].colors}
    assert len(colors) == 256 == len(set(colors.values()))
    known = {0: 0, 1: 0x800000, 2: 0x008000, 9: 0xC00000, 15: 0xC08080, 20: 0x004080, 255: 0xE0E0C0}
    assert {number: colors[number] for number in known} == known


def test_classes_of_labelme(tmp_path: Path) -> None:
    files = {"JPEGImages/a.jpg": b"1", "SegmentationClass/a.png": png()}
    for text in ("__ignore__\n_background_\ncat\n", "_background_\ncat"):
        place = made(tmp_path, {**files, "class_names.txt": text.encode()})
        assert names(listed(place)) == ClassNames({0: "_background_", 1: "cat"})
    made(tmp_path, {"class_names.txt": b"\xff"})
    with pytest.raises(JobError, match=r"'class_names.txt' is not UTF-8"):
        listed(place)
    made(tmp_path, {"class_names.txt": b"cat\ncat\n"})
    with pytest.raises(JobError, match=r"'class_names.txt' names a class twice"):
        listed(place)
    made(tmp_path, {"class_names.txt": b"cat\n", "more/labelmap.txt": b"dog:0,0,1\n"})
    with pytest.raises(JobError, match="have different classes"):
        listed(place)


def test_polygons_only_where_masks_are_asked_for(tmp_path: Path) -> None:
    corners = "".join(
        f"<x{at}>{x}</x{at}><y{at}>{y}</y{at}>" for at, (x, y) in enumerate([(1, 1), (5, 1), (5, 3)], 1)
    )
    data = f"<annotation><object><name>a</name><polygon>{corners}</polygon></object></annotation>".encode()
    place = made(tmp_path, {"a.jpg": b"1", "a.xml": data})
    (record,) = records(listed(place)).values()
    assert [(one.box, one.mask) for one in record.annotations.objects] == [(Box(1, 1, 5, 3), None)]
    (record,) = records(listed(place, include_annotations=("masks",))).values()
    assert [one.mask for one in record.annotations.objects] == [((1, 1, 5, 1, 5, 3),)]


def test_calls_that_are_wrong(tmp_path: Path) -> None:
    place = made(tmp_path, {"a.jpg": b"1"})
    with pytest.raises(ValueError, match="there is no XML in it, and no PNG in SegmentationClass/"):
        listed(place)
    with pytest.raises(ValueError, match="a file; --source voc reads a folder"):
        listed(f"{place}/a.jpg")
    for option in ("annotations", "label_pattern", "image_column", "label_column", "mask_pattern"):
        with pytest.raises(ValueError, match=f"--{option} is .*--source voc does not use it"):
            listed(place, **{option: ("(x)",) if option == "annotations" else "(x)"})
    with pytest.raises(ValueError, match="there is no such file or folder"):
        listed(f"{place}/none")
    assert sniff(SOURCE, SourceConfig("voc", place)) is None
    assert sniff(SOURCE, SourceConfig("voc", f"{place}/a.jpg")) is None


@pytest.mark.corpus
def test_raccoon_equals_an_independent_parse(corpus: Path) -> None:
    expected = {}
    for path in (corpus / "raccoon/annotations").iterdir():
        root = ElementTree.parse(path).getroot()
        boxes = [
            tuple(float(one.findtext(f"bndbox/{name}") or "") for name in Box._fields)
            for one in root.iter("object")
        ]
        expected[f"images/{root.findtext('filename')}"] = boxes
    items = listed(str(corpus / "raccoon"))
    found = {
        key: [tuple(one.box or ()) for one in record.annotations.objects]
        for key, record in records(items).items()
    }
    assert found == expected
    assert (len(found), sum(map(len, found.values()))) == (200, 217)
    for key, record in records(items).items():
        with Image.open(corpus / "raccoon" / key) as image:
            assert record.annotations.size == (image.height, image.width)


@pytest.mark.corpus
def test_palette_masks_and_their_classes(corpus: Path) -> None:
    items = listed(str(corpus / "palette_masks"))
    assert len(records(items)) == 3
    assert (names(items).names[0], names(items).names[20], len(names(items).names)) == (
        "_background_",
        "tv/monitor",
        21,
    )
    for key, record in records(items).items():
        mask = record.annotations.masks["class"]
        truth = np.load(corpus / "palette_masks/SegmentationClassNpy" / f"{Path(key).stem}.npy")
        with Image.open(mask.image.uri) as image:
            assert (np.asarray(image).astype(int) == truth.astype(int) % 256).all()
        assert (mask.colors, record.annotations.objects) == ((), ())


@pytest.mark.corpus
def test_layouts(corpus: Path) -> None:
    first = listed(str(corpus / "layouts/voc_dataset/voc_dataset1"))
    (record,) = records(first).values()
    assert (record.split, len(record.annotations.objects), sorted(record.annotations.masks)) == (
        "train",
        2,
        ["class", "instance"],
    )
    assert failures(first) == [("JPEGImages/2007_000002.jpg", "list", "image without annotations", True)]
    second = listed(str(corpus / "layouts/voc_dataset/voc_dataset2"))
    assert {reason for _, _, reason, _ in failures(second)} == {"annotation without its image"}
    assert (len(failures(second)), names(second).names[21]) == (5, "ignored")
    third = listed(str(corpus / "layouts/voc_dataset/voc_dataset3"))
    assert [one.split for one in records(third).values()] == ["train"] and not failures(third)
    others = [
        "cvat_dataset",
        "imagenet_dataset",
        "coco_dataset",
        "yolo_dataset",
        "labelme_dataset",
        "camvid_dataset",
    ]
    for folder in others:
        assert sniff(SOURCE, SourceConfig("voc", str(corpus / "layouts" / folder))) is None
    assert records(listed(str(corpus / "layouts/labelme_dataset"))) == {}


def test_annotations_are_empty_where_the_xml_has_nothing(tmp_path: Path) -> None:
    (record,) = records(listed(made(tmp_path, {"a.jpg": b"1", "a.xml": b"<annotation/>"}))).values()
    assert record.annotations == Annotations()


def test_an_unexpected_exception_fails_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = voc_xml.parse_xml

    def failing(data: bytes) -> ElementTree.Element:
        if b"2.png" in data:
            raise IndexError("no such element")
        return parse(data)

    files = {f"Annotations/{number}.xml": xml(f"{number}.png") for number in (1, 2, 3)}
    files |= {f"JPEGImages/{number}.png": png() for number in (1, 2, 3)}
    root = made(tmp_path, files)
    monkeypatch.setattr(voc_xml, "parse_xml", failing)
    items = listed(root)
    assert len(records(items)) == 2
    assert [failure[1:] for failure in failures(items)] == [
        ("annotations", "internal error: IndexError", False)
    ]
