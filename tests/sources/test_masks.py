"""Source `masks`: pairs by folder, by name and by pattern; classes by id and by colour; what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.records import ClassNames, Failure, ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.masks.source import MasksSource
from recordmill.transforms.sources.source import Item
from tests.buckets.server import BucketServer
from tests.sources.sniffing import sniff

SOURCE = MasksSource()


def tree(root: Path, *names: str, mode: str = "L", **texts: str) -> str:
    """Writes images, `mode` the one of those in PNG; and files of text."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode if path.suffix in (".png", ".tif") else "RGB", (4, 2)).save(path)
    for name, text in texts.items():
        (root / re.sub(r"_(txt|csv|yaml)$", r".\1", name)).write_text(text)
    return str(root)


def listed(place: str, **options: object) -> list[Item]:
    config = SourceConfig("masks", place, **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, "/nowhere"))


def pairs(items: list[Item], root: object = "/") -> dict[str, tuple[str, str | None]]:
    """The mask and the split of each image."""
    return {
        item.key: (item.annotations.masks["class"].image.uri.removeprefix(str(root)).lstrip("/"), item.split)
        for item in items
        if isinstance(item, ImageRecord)
    }


def failures(items: list[Item]) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


def sniffed(place: str, **options: object) -> bool:
    return sniff(SOURCE, SourceConfig("auto", place, **options)) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("image", "mask", "split"),
    [
        ("images/1.jpg", "masks/1.png", None),
        ("imgs/1.jpg", "labels/1.gif", None),
        ("images/train/1.jpg", "masks/train/1.png", "train"),
        ("val/images/1.jpg", "val/masks/1.tif", "val"),
        ("JPEGImages/1.jpg", "SegmentationClass/1.png", None),
        ("train/1.png", "trainannot/1.png", "train"),
        ("train/1.jpg", "train_labels/1_L.png", "train"),
        ("images/1.jpg", "annotations/1_mask.png", None),
        (
            "leftImg8bit/val/bonn/bonn_0_19_leftImg8bit.png",
            "gtFine/val/bonn/bonn_0_19_gtFine_labelIds.png",
            "val",
        ),
        ("images/1.png", "labels/1_P.png", None),
        ("default/1.png", "defaultannot/1.png", None),
        ("1.jpg", "1_mask.png", None),
        ("train/1_jpg.rf.0f.jpg", "train/1_jpg.rf.0f_mask.png", "train"),
    ],
)
def test_pairs_by_folder_and_name(tmp_path: Path, image: str, mask: str, split: str | None) -> None:
    place = tree(tmp_path, image, mask)
    items = listed(place)
    assert pairs(items, place) == {image: (mask, split)}
    assert failures(items) == []
    assert SOURCE.split_names(SourceConfig("masks", place)) == ((split,) if split else ())
    assert sniffed(place)


def test_what_has_no_counterpart_is_told(tmp_path: Path) -> None:
    names = ["images/1.jpg", "images/2.jpg", "images/3.jpg", "masks/1.png", "masks/3.jpg", "masks/9.png"]
    items = listed(tree(tmp_path, *names, notes_txt="x"))
    assert pairs(items, tmp_path) == {"images/1.jpg": ("masks/1.png", None)}
    assert sorted(failures(items)) == [
        ("images/2.jpg", "image without a mask", True),
        ("images/3.jpg", "mask is not lossless", False),
        ("masks/9.png", "annotation without its image", False),
        ("notes.txt", "not an image by name", True),
    ]


def test_of_several_pictures_of_one_image_the_class_ids_count(tmp_path: Path) -> None:
    ends = ("labelIds", "labelTrainIds", "color", "instanceIds")
    names = [f"gtFine/train/a/a_gtFine_{end}.png" for end in ends]
    items = listed(tree(tmp_path, "leftImg8bit/train/a/a_leftImg8bit.png", *names))
    assert pairs(items, tmp_path) == {"leftImg8bit/train/a/a_leftImg8bit.png": (names[0], "train")}
    assert sorted(failures(items)) == sorted(
        [
            (names[1], "another mask of the same image", True),
            (names[2], "not a mask of classes", True),
            (names[3], "not a mask of classes", True),
        ]
    )


@pytest.mark.parametrize(
    ("pattern", "image", "mask"),
    [
        ("truth/{stem}_m.png", "x/1.jpg", "truth/1_m.png"),
        ("{folder}/{stem}.png", "x/1.jpg", "x/1.png"),
        ("{folder}/../truth/{stem}.png", "train/x/1.jpg", "train/truth/1.png"),
        ("truth/{folder}/{name}.png", "x/y/1.jpg", "truth/x/y/1.jpg.png"),
        ("{folder}/{stem}_m.png", "1.jpg", "1_m.png"),
        ("{folder}/../lab/{stem}.png", "a/x/img/1.png", "a/x/lab/1.png"),
        ("{folder}/../../lab/{parent}/{stem}.png", "a/img/x/1.png", "a/lab/x/1.png"),
        ("gt/{subfolder}/{stem}_gt.png", "leftImg/train/bonn/1.png", "gt/train/bonn/1_gt.png"),
        ("gt/{subfolder}/{stem}.png", "leftImg/1.png", "gt/1.png"),
        ("{folder}/../{parent}annot/{name}", "train/1.png", "trainannot/1.png"),
        ("./no/../masks//{parent}_{stem}.png", "photos/x/1.jpg", "masks/x_1.png"),
    ],
)
def test_pairs_by_pattern(tmp_path: Path, pattern: str, image: str, mask: str) -> None:
    folder = image.rpartition("/")[0]
    lone = f"{folder}/2.jpg".lstrip("/")
    items = listed(tree(tmp_path, image, mask, lone), mask_pattern=pattern)
    assert pairs(items, tmp_path)[image][0] == mask
    assert failures(items) == [(lone, "image without a mask", True)]
    assert sniffed(str(tmp_path), mask_pattern=pattern)


@pytest.mark.parametrize("folder", ["701_StillsRaw/test/seq", "images/test", "test"])
def test_with_a_pattern_splits_are_folders_in_a_folder_of_any_name(tmp_path: Path, folder: str) -> None:
    tree(tmp_path, f"{folder}/1.png", "gt/1.png")
    items = listed(str(tmp_path), mask_pattern="gt/{stem}.png")
    assert pairs(items, tmp_path) == {f"{folder}/1.png": ("gt/1.png", "test")}
    config = SourceConfig("masks", str(tmp_path), mask_pattern="gt/{stem}.png")
    assert SOURCE.splits(config) == {"test"}


@pytest.mark.parametrize(
    ("pattern", "mask"), [("masks/{parent}.png", "masks/x.png"), ("{folder}/label.png", "photos/x/label.png")]
)
def test_a_mask_with_the_name_of_its_folder(tmp_path: Path, pattern: str, mask: str) -> None:
    names = ["photos/x/1.jpg", mask, mask.replace("x", "y"), "photos/z/1.jpg", "photos/z/2.jpg", "1.jpg"]
    items = listed(tree(tmp_path, *names, mask.replace("x", "z")), mask_pattern=pattern)
    assert pairs(items, tmp_path) == {"photos/x/1.jpg": (mask, None)}
    assert sorted(failures(items)) == [
        ("1.jpg", "image without a mask", True),
        (mask.replace("x", "y"), "annotation without its image", False),
        ("photos/z/1.jpg", "several images of one name", False),
        ("photos/z/2.jpg", "several images of one name", False),
    ]


@pytest.mark.parametrize(
    ("image_root", "pattern"),
    [("a/x/lab", "../lab/{name}"), ("a/x", "../lab/{stem}.png"), ("a", "../../x/lab/{name}")],
)
def test_masks_outside_the_input_are_below_an_image_root(
    tmp_path: Path, image_root: str, pattern: str
) -> None:
    tree(tmp_path, "a/x/img/1.png", "a/x/img/2.png", "a/x/lab/1.png", "a/x/secret/2.png")
    options = {"mask_pattern": pattern, "image_roots": (str(tmp_path / image_root),)}
    items = listed(str(tmp_path / "a/x/img"), **options)
    assert pairs(items, tmp_path) == {"1.png": ("a/x/lab/1.png", None)}
    assert ("2.png", "image without a mask", True) in failures(items)
    message = "the mask of '1.png' would be '../lab/1.png', outside of it; give --image_root"
    with pytest.raises(ValueError, match=message):
        listed(str(tmp_path / "a/x/img"), mask_pattern="../lab/{name}")


def test_a_mask_outside_all_roots_is_not_read(tmp_path: Path) -> None:
    tree(tmp_path, "in/img/1.png", "in/img/2.png", "in/lab/1.png", "lab/2.png")
    (tmp_path / "in/lab/2.png").symlink_to(tmp_path / "lab/2.png")
    for pattern in ("{folder}/../lab/{name}", "lab/{name}"):
        items = listed(str(tmp_path / "in"), mask_pattern=pattern)
        assert pairs(items, tmp_path / "in") == {"img/1.png": ("lab/1.png", None)}
        assert ("img/2.png", "image without a mask", True) in failures(items)
        assert ("lab/2.png", "outside the input root", False) in failures(items)


def test_trees_of_equal_names(tmp_path: Path) -> None:
    """Masks in the input, images in an image root, and a second root with one of the images."""
    tree(tmp_path, "gt/train/1.png", "gt/train/2.png", "photos/train/1.png", "photos/train/2.png")
    tree(tmp_path, "more/train/2.png")
    roots = (str(tmp_path / "photos"), str(tmp_path / "more"))
    items = listed(str(tmp_path / "gt"), image_roots=roots)
    assert pairs(items, tmp_path) == {f"train/{n}.png": (f"gt/train/{n}.png", "train") for n in (1, 2)}
    images = {item.key: item.image.uri for item in items if isinstance(item, ImageRecord) and item.image}
    assert images == {f"train/{n}.png": str(tmp_path / f"photos/train/{n}.png") for n in (1, 2)}
    assert failures(items) == [("train/2.png", "same path below two roots", False)]


def test_a_mask_of_the_pattern_needs_its_image(tmp_path: Path) -> None:
    items = listed(tree(tmp_path, "a/1.jpg", "b/1_m.png", "b/2_m.png"), mask_pattern="b/{stem}_m.png")
    assert failures(items) == [("b/2_m.png", "annotation without its image", False)]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("masks/1.png", "is the same for all images"),
        ("{stem.__class__}.png", "it may have {stem}, {name}, {folder}"),
        ("{0}{stem}", "which has {0}"),
        ("{stem", "a brace without the other"),
        ("/masks/{stem}.png", "a path below --input"),
        ("gs://b/{stem}.png", "a path below --input"),
    ],
)
def test_bad_patterns(tmp_path: Path, pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match="--mask_pattern is .*" + message):
        listed(tree(tmp_path, "images/1.jpg", "masks/1.png"), mask_pattern=pattern)


def test_images_elsewhere(tmp_path: Path) -> None:
    masks = tree(tmp_path / "in", "masks/1.png", "masks/2.png")
    images = tree(tmp_path / "pictures", "1.jpg", "3.png")
    for place in (masks, f"{masks}/masks"):
        items = listed(place, image_roots=(images,))
        assert pairs(items, masks) == {"1.jpg": ("masks/1.png", None)}
        assert {item[:2] for item in failures(items)} == {
            ("3.png", "image without a mask"),
            ("2.png" if place.endswith("masks") else "masks/2.png", "annotation without its image"),
        }
    assert sniffed(masks, image_roots=(images,))


@pytest.mark.parametrize(
    "lines",
    [
        ("b\na", "c\nz"),
        ("b.jpg\na.jpg", "c.jpg\nz"),
        ("images/b.jpg\nimages/a.jpg", "/set/images/c.jpg\nz"),
        ("/x/images/b.jpg /x/masks/b.png\nimages/a.jpg masks/a.png", "/x/images/c.jpg /x/masks/c.png\nz"),
    ],
)
def test_lists_of_splits(tmp_path: Path, lines: tuple[str, str]) -> None:
    names = [f"{folder}/{stem}" for stem in "abcd" for folder in ("images", "masks")]
    files = [f"{name}.{'jpg' if name.startswith('images') else 'png'}" for name in names]
    place = tree(tmp_path, *files, train_txt=f"{lines[0]}\n", val_txt=f"{lines[1]}\n../../a.jpg\nc\n")
    items = listed(place)
    assert list(pairs(items, place).items()) == [
        ("images/b.jpg", ("masks/b.png", "train")),
        ("images/a.jpg", ("masks/a.png", "train")),
        ("images/c.jpg", ("masks/c.png", "val")),
    ]
    assert failures(items) == [
        ("z", "not found", False),
        ("../../a.jpg", "outside the input root", False),
        ("images/c.jpg", "image listed twice", True),
        ("images/d.jpg", "image in no split", True),
    ]
    assert SOURCE.split_names(SourceConfig("masks", place)) == ("train", "val")


@pytest.mark.parametrize(
    "table",
    [
        {"label_colors_txt": "64 128 64\tAnimal\n192 0 128 Arch way\n0 0 0\tVoid\n"},
        {"class_dict_csv": "name,r,g,b\nAnimal,64,128,64\nArch way,192,0,128\nVoid, 0, 0, 0\n"},
        {"labelmap_txt": "# label:color_rgb\nAnimal:64,128,64::\nArch way:192,0,128::\nVoid:0,0,0::\n"},
    ],
)
def test_tables_of_colours(tmp_path: Path, table: dict[str, str]) -> None:
    items = listed(tree(tmp_path, "images/1.jpg", "masks/1.png", mode="RGB", **table))
    assert items[0] == ClassNames({0: "Animal", 1: "Arch way", 2: "Void"})
    assert isinstance(items[1], ImageRecord) and len(items) == 2
    assert items[1].annotations.masks["class"].colors == ((0x408040, 0), (0xC00080, 1), (0, 2))


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("class_dict", "Animal,64,128,64\nArch way,192,0,128\nVoid,0,0,0\n"),
        ("colors", "name,color\nAnimal,#408040\nArch way,#c00080\nVoid,#000000\n"),
        ("classes", "Animal,408040\nArch way,C00080\n# void\nVoid,000000\n"),
        ("label_colors", '# r g b\nclass,RGB\nAnimal,"64, 128, 64"\nArch way,192 0 128\nVoid,"[0 0 0]"\n'),
        (
            "colors",
            "ID,Red,Green,Blue,Name,Parts\n2,0,0,0,Void,x\n0,64,128,64,Animal,\n1,192,0,128,Arch way,\n",
        ),
        ("class_dict", "Klasse,Rot,Gelb,Blau\nAnimal,64,128,64\nArch way,192,0,128\nVoid,0,0,0\n"),
        ("class_dict", "Nr,Name,Rot,Gelb,Blau\n1,Animal,64,128,64\n2,Arch way,192,0,128\n3,Void,0,0,0\n"),
    ],
)
def test_tables_of_colours_in_csv(tmp_path: Path, name: str, table: str) -> None:
    items = listed(tree(tmp_path, "images/1.jpg", "masks/1.png", mode="RGB", **{f"{name}_csv": table}))
    assert items[0] == ClassNames({0: "Animal", 1: "Arch way", 2: "Void"})
    assert isinstance(items[1], ImageRecord) and len(items) == 2
    assert sorted(items[1].annotations.masks["class"].colors) == [(0, 2), (0x408040, 0), (0xC00080, 1)]


def test_ids_of_a_table(tmp_path: Path) -> None:
    table = "id,name,color\n255,border,#ffffff\n7,road,#804080\n255,void,#000000\n7,road,#808080\n"
    items = listed(tree(tmp_path, "images/1.jpg", "masks/1.png", mode="RGB", classes_csv=table))
    assert items[0] == ClassNames({7: "road"})
    assert isinstance(items[1], ImageRecord)
    colors = {0xFFFFFF: 255, 0x804080: 7, 0: 255, 0x808080: 7}
    assert dict(items[1].annotations.masks["class"].colors) == colors


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("classes_csv", "id,name\n3,car\n1,road\n", {1: "road", 3: "car"}),
        ("class_dict_csv", "name,r,g,b\nroad,1,1,1\ncar,2,2,2\n", {0: "road", 1: "car"}),
        ("data_yaml", "names:\n- road\n- no\n", {0: "road", 1: "no"}),
        ("roads_yaml", "path: x\nnames: {0: road, 5: car}\n", {0: "road", 5: "car"}),
    ],
)
def test_names_of_ids_in_other_files(tmp_path: Path, name: str, text: str, names: dict[int, str]) -> None:
    place = tree(tmp_path, "images/1.jpg", "masks/1.png", **{name: text, "other_yaml": "x: 1\n"})
    items = listed(place)
    assert items[0] == ClassNames(names)
    assert failures(items) == [("other.yaml", "not an image by name", True)]
    assert sniffed(place)
    (tmp_path / "classes.txt").write_text("first\n")
    assert listed(place)[0] == ClassNames({0: "first"})


def test_yaml_that_cannot_be_used(tmp_path: Path) -> None:
    place = tree(tmp_path, "images/1.jpg", "masks/1.png", a_yaml="names: [x]\n", b_yaml="names: [y]\n")
    with pytest.raises(ValueError, match="'a.yaml' and 'b.yaml' both name classes; remove one of them"):
        listed(place)
    (tmp_path / "b.yaml").unlink()
    (tmp_path / "a.yaml").write_text("names: {x: y}\n")
    with pytest.raises(ValueError, match="names has the id 'x', not a number"):
        listed(place)


def test_a_yaml_of_splits_without_labels_is_of_masks(tmp_path: Path) -> None:
    """With label files it is YOLO's."""
    yaml = "train: images\nnames: [road, car]\n"
    place = tree(tmp_path, "images/1.jpg", "masks/1.png", data_yaml=yaml)
    assert detect(SourceConfig("auto", place)).kind == "masks"
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/1.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    assert detect(SourceConfig("auto", place)).kind == "yolo"


def test_colours_of_one_name_are_one_class(tmp_path: Path) -> None:
    table = "1 0 0 car\n2 0 0 road\n3 0 0 car\n1 0 0 car\n"
    items = listed(tree(tmp_path, "images/1.jpg", "masks/1.png", mode="RGB", label_colors_txt=table))
    assert items[0] == ClassNames({0: "car", 1: "road"})
    assert isinstance(items[1], ImageRecord)
    assert items[1].annotations.masks["class"].colors == ((0x010000, 0), (0x020000, 1), (0x030000, 0))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "the masks are in colours, and no table .* label_colors.txt, class_dict.csv, labelmap.txt"),
        ({"label_colors_txt": "1 2 3 a\n1 2 3 b\n"}, "the colour 1 2 3 twice, for 'a' and 'b'"),
        ({"label_colors_txt": "1 2 a\n"}, "line 1 is not a name with three numbers"),
        ({"class_dict_csv": "name,r,g,b\na,1,2,256\n"}, "line 2 is not a name with three numbers"),
        ({"labelmap_txt": "# nothing\n"}, "has no colours"),
        ({"colors_csv": "name,color\na,#00000\n"}, "line 2 is not a name with .* or one like #804000"),
        ({"classes_csv": "id,name\n1,a\n"}, "has no colours, and the masks are in colours"),
        ({"classes_csv": "id,name,rgb\n1,a,1 1 1\n1,b,2 2 2\n"}, "has the id 1 twice, for 'a' and 'b'"),
        ({"classes_csv": "id,name,rgb\n1,a,1 1 1\n2,a,2 2 2\n"}, "has two ids of 'a': 1 and 2"),
        ({"classes_csv": "id,name,rgb\nx,a,1 1 1\n"}, "line 2 has the id 'x', not a number of 0 to 65535"),
    ],
)
def test_colours_that_cannot_be_told(tmp_path: Path, table: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        listed(tree(tmp_path, "images/1.jpg", "masks/1.png", mode="RGB", **table))


@pytest.mark.parametrize("mode", ["L", "P", "1"])
def test_ids_have_the_names_of_a_file(tmp_path: Path, mode: str) -> None:
    place = tree(
        tmp_path, "images/1.jpg", "masks/1.png", mode=mode, classes_txt="__ignore__\n_background_\ncat\n"
    )
    items = listed(place)
    assert items[0] == ClassNames({0: "_background_", 1: "cat"})
    assert isinstance(items[1], ImageRecord) and items[1].annotations.masks["class"].colors == ()
    (tmp_path / "classes.txt").write_text("a\n\nb\n")
    with pytest.raises(ValueError, match="has a blank line between names"):
        listed(place)


def test_selection_limit_and_flags(tmp_path: Path) -> None:
    place = tree(tmp_path, "images/1.jpg", "images/2.jpg", "masks/1.png", "masks/2.png")
    assert list(pairs(listed(place, exclude=("1.*",)))) == ["images/2.jpg"]
    assert list(pairs(listed(place, limit=1))) == ["images/1.jpg"]
    assert len(pairs(listed(place, include_annotations=("masks",)))) == 2
    for options in (
        {"annotations": ("a",)},
        {"label_pattern": "(a)"},
        {"include_annotations": ("captions",)},
    ):
        with pytest.raises(ValueError, match="--source masks"):
            listed(place, **options)
    with pytest.raises(ValueError, match="no image has a mask"):
        listed(f"{place}/images")


@pytest.mark.parametrize(
    "names",
    [
        ["masks/1.jpg", "images/2.jpg"],
        ["masks/1.png", "masks/2.png", "masks/3.png", "images/1.jpg"],
        ["cat/1.png", "masks/2.png"],
        ["train/mask/1.png", "train/no_mask/1.png"],
        ["1.jpg", "1_L.png"],
        ["1.jpg", "2.jpg", "3.jpg", "3_mask.png", "4.jpg"],
        ["JPEGImages/1.jpg", "SegmentationClass/1.png", "Annotations/1.xml"],
        ["images/val/1.jpg", "annotations/panoptic_val/1.png"],
        ["images/1.jpg", "annotations/1.png", "annotations/panoptic.json"],
    ],
)
def test_other_inputs_are_not_taken_for_masks(tmp_path: Path, names: list[str]) -> None:
    tree(tmp_path, *(name for name in names if name.endswith(("jpg", "png"))))
    for name in names:
        if name.endswith(("xml", "json")):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("{}")
    assert not sniffed(str(tmp_path))


def test_a_split_without_masks_is_none(tmp_path: Path) -> None:
    place = tree(tmp_path, "train/1.jpg", "train_masks/1_mask.gif", "test/2.jpg")
    assert SOURCE.split_names(SourceConfig("masks", place)) == ("train",)
    assert failures(listed(place)) == [("test/2.jpg", "image without a mask", True)]


@pytest.mark.parametrize("name", ["classes.txt", "train.txt"])
def test_names_and_lists_outside_the_input_are_refused(tmp_path: Path, name: str) -> None:
    place = tree(tmp_path / "in", "images/1.jpg", "masks/1.png")
    (tmp_path / "secret").write_text("1\n")
    (tmp_path / "in" / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=f"{name} is outside the input root"):
        listed(place)


def test_a_bucket_gives_what_the_disk_gives(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    names = ["train/1.png", "trainannot/1.png", "test/2.png", "testannot/2.png", "test/3.png"]
    place = tree(
        tmp_path, *names, mode="RGB", label_colors_txt="0 0 0 Void\n", train_txt="1\n", test_txt="2\n3\n"
    )
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")
    expected, found = listed(place), listed(f"{bucket}/in")
    assert found[0] == expected[0] == ClassNames({0: "Void"})
    assert sorted(pairs(found, f"{bucket}/in").items()) == sorted(pairs(expected, place).items())
    assert failures(found) == failures(expected) == [("test/3.png", "image without a mask", True)]
    assert {record.size for record in found if isinstance(record, ImageRecord)} == {
        os.path.getsize(tmp_path / "train/1.png")
    }
    assert sniffed(f"{bucket}/in")


def test_masks_above_the_input_in_a_bucket(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    tree(tmp_path, "x/img/1.png", "x/img/2.png", "x/lab/1.png", "x/other/2.png")
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")
    home = f"{bucket}/in/x"
    items = listed(f"{home}/img", mask_pattern="../lab/{name}", image_roots=(f"{home}/lab",))
    assert pairs(items, home) == {"1.png": ("lab/1.png", None)}
    assert failures(items) == [("2.png", "image without a mask", True)]


@pytest.mark.corpus
def test_real_palette_masks_have_the_ids_of_their_truth(corpus: Path) -> None:
    items = listed(f"{corpus}/palette_masks")
    assert isinstance(items[0], ClassNames) or ClassNames in map(type, items)
    found = pairs(items)
    assert len(found) == 3
    for key, (mask, _) in found.items():
        truth = np.load(corpus / "palette_masks/SegmentationClassNpy" / f"{Path(key).stem}.npy")
        ids = np.asarray(Image.open(f"/{mask}"))
        assert np.array_equal(np.where(ids == 255, -1, ids.astype(int)), truth)


@pytest.mark.corpus
def test_real_masks_whose_images_are_elsewhere(corpus: Path) -> None:
    items = listed(f"{corpus}/coco64/semantic", image_roots=(f"{corpus}/coco64/images/val2017",))
    found = pairs(items, f"{corpus}/coco64/semantic")
    assert failures(items) == []
    assert found == {
        name: (f"masks/{Path(name).stem}.png", None) for name in os.listdir(corpus / "coco64/images/val2017")
    }
    with pytest.raises(ValueError, match="the masks are in colours"):
        listed(f"{corpus}/layouts/camvid_dataset")


@pytest.mark.parametrize(
    ("images", "options"),
    [
        (("images/a/1.jpg", "images/b/1.jpg"), {"mask_pattern": "masks/{stem}.png"}),
        (("images/1.jpg", "images/1.jpeg"), {"mask_pattern": "masks/{stem}.png"}),
        (("images/1.jpg", "images/1.jpeg"), {}),
        (("images/a/1.jpg", "images/b/1.jpg"), {}),
    ],
)
def test_images_that_share_a_mask_fail(
    tmp_path: Path, images: tuple[str, str], options: dict[str, object]
) -> None:
    place = tree(tmp_path, *images, "masks/1.png", *(("images/2.jpg", "masks/2.png") if options else ()))
    items = listed(place, **options)
    fault = Failure(
        "",
        "annotations",
        "several images of one name",
        "masks/1.png may belong to each; --exclude all but one",
    )
    assert [item for item in items if isinstance(item, Failure)] == [
        msgspec.structs.replace(fault, key=image) for image in sorted(images)
    ]
    assert pairs(items, tmp_path) == ({"images/2.jpg": ("masks/2.png", None)} if options else {})
    kept = listed(place, exclude=(images[0],), **options)
    assert pairs(kept, tmp_path)[images[1]] == ("masks/1.png", None)


def test_a_list_may_give_two_images_one_mask(tmp_path: Path) -> None:
    place = tree(
        tmp_path,
        "a/images/1.jpg",
        "b/images/1.jpg",
        "masks/1.png",
        train_txt="a/images/1.jpg masks/1.png\nb/images/1.jpg masks/1.png\n",
    )
    assert set(pairs(listed(place), tmp_path).values()) == {("masks/1.png", "train")}
