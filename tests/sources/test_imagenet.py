"""Source `imagenet`: every layout it comes in, and every file that tells labels."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from PIL import Image

from recordmill.transforms.records import AnnotatedObject, Box, ClassNames, Failure, ImageRecord, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.imagenet.meta_mat import read_meta_mat
from recordmill.transforms.sources.imagenet.source import ImagenetSource
from recordmill.transforms.sources.source import Item
from tests.buckets.server import BucketServer
from tests.sources.placeless import without_place
from tests.sources.sniffing import sniff

SOURCE = ImagenetSource()
TENCH, SHARK, FOX = "n01440764", "n01484850", "n02119789"
ROOT_XML = """<annotation><folder>{folder}</folder><filename>%s</filename>
<source><database>ILSVRC_2012</database></source><size><width>{width}</width><height>2</height><depth>3</depth>
</size><segmented>0</segmented>{objects}</annotation>"""


def xml(*boxes: tuple[str, int], width: int = 4) -> str:
    objects = "".join(
        f"<object><name>{name}</name><bndbox><xmin>{left}</xmin><ymin>0</ymin><xmax>4</xmax><ymax>2</ymax>"
        "</bndbox></object>"
        for name, left in boxes
    )
    return ROOT_XML.format(folder="%s", objects=objects, width=width)


def tree(root: Path, files: dict[str, str | None]) -> str:
    """Writes a file each: images where there is no text."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            Image.new("RGB", (4, 2)).save(path)
        else:
            path.write_text(text)
    return str(root)


def listed(place: str, **options: object) -> list[Item]:
    config = SourceConfig("imagenet", place, **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, "/nowhere"))


def labels(items: list[Item]) -> dict[str, tuple[str | None, tuple[str | int, ...]]]:
    return {
        item.key: (item.split, item.annotations.labels) for item in items if isinstance(item, ImageRecord)
    }


def failures(items: list[Item]) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


def classes(items: list[Item]) -> list[ClassNames]:
    return [item for item in items if isinstance(item, ClassNames)]


def box(label: str, left: float) -> AnnotatedObject:
    return AnnotatedObject(label, Box(left, 0, 4, 2))


def image(number: int) -> str:
    return f"ILSVRC2012_val_{number:08}.JPEG"


TRAIN: dict[str, str | None] = {
    f"train/{TENCH}/{TENCH}_1.JPEG": None,
    f"train/{TENCH}/{TENCH}_2.JPEG": None,
    f"train/{FOX}/{FOX}_1.JPEG": None,
}
TRAIN_LABELS = {key: ("train", (key.split("/")[1],)) for key in TRAIN}


def test_synset_folders_with_boxes_and_words(tmp_path: Path) -> None:
    place = tree(
        tmp_path,
        {
            **TRAIN,
            "README": "x",
            "imagenet_metadata.txt": f"n00004475\torganism, being\n{FOX}\tkit fox, Vulpes macrotis\n",
            f"bbox/{TENCH}/{TENCH}_2.xml": xml((TENCH, 1), ("tench", 2)),
            f"bbox/{FOX}/{FOX}_1.xml": xml((TENCH, 0), width=0),
            f"bbox/{FOX}/{FOX}_9.xml": xml((FOX, 0)),
            f"train/{FOX}/{FOX}_1.xml": xml((FOX, 0)),
            "montage.jpg": None,
        },
    )
    config = SourceConfig("auto", place)
    assert detect(config)[:2] == ("imagenet", f"it has folders named by synset, such as '{TENCH}'")
    assert SOURCE.split_names(config) == ("train",)
    assert SOURCE.schemas(config) == ("imagenet",)
    items = listed(place)
    assert labels(items) == TRAIN_LABELS
    assert classes(items) == [ClassNames({0: TENCH, 1: FOX}, {FOX: "kit fox, Vulpes macrotis"})]
    told = {item.key: item.annotations for item in items if isinstance(item, ImageRecord)}
    assert told[f"train/{TENCH}/{TENCH}_1.JPEG"].objects == ()
    # a box with a word means the synset of the image
    assert told[f"train/{TENCH}/{TENCH}_2.JPEG"].objects == (box(TENCH, 1), box(TENCH, 2))
    assert told[f"train/{TENCH}/{TENCH}_2.JPEG"].size == (2, 4)
    assert told[f"train/{FOX}/{FOX}_1.JPEG"].objects == (box(TENCH, 0),)
    assert told[f"train/{FOX}/{FOX}_1.JPEG"].size is None
    assert sorted(failures(items)) == [
        ("README", "neither image nor annotations by name", True),
        (f"bbox/{FOX}/{FOX}_9.xml", "annotation without its image", False),
        ("montage.jpg", "image without annotations", True),
        (f"train/{FOX}/{FOX}_1.xml", "XML in no folder of annotations", True),
    ]


MAP = f"{FOX} 1 kit_fox\n{TENCH} 2 tench\n{SHARK} 3 great_white_shark\n"


@pytest.mark.parametrize(
    "truth",
    [
        {"ILSVRC2012_validation_ground_truth.txt": "3\n1\n", "map_clsloc.txt": MAP},
        {
            "devkit/data/ILSVRC2015_clsloc_validation_ground_truth.txt": "3\n1",
            "devkit/data/map_clsloc.txt": MAP,
        },
        {
            "ILSVRC2012_validation_ground_truth.txt": "3\n1\n",
            "imagenet_lsvrc_2015_synsets.txt": f"{FOX}\n{TENCH}\n{SHARK}\n",
        },
        {"imagenet_2012_validation_synset_labels.txt": f"{SHARK}\n{FOX}\n"},
        {"val.txt": f"{image(1)} 1\n{image(2)} 2\n", "synset_words.txt": f"{TENCH} t\n{SHARK} s\n{FOX} f"},
        {"val_map.txt": f"{image(1)[:-5]} {SHARK}\n{image(2)[:-5]} {FOX}\n"},
        {"LOC_val_solution.csv": f"ImageId,PredictionString\n{image(1)[:-5]},{SHARK} 1 0 4 2 \n"
         f"{image(2)[:-5]},{FOX} 1 0 4 2 {FOX} 2 0 4 2 \n"},
    ],
)  # fmt: skip
def test_the_flat_validation_set(tmp_path: Path, truth: dict[str, str | None]) -> None:
    place = tree(tmp_path, {**TRAIN, f"val/{image(1)}": None, f"val/{image(2)}": None, **truth})
    items = listed(place)
    expected = {f"val/{image(1)}": ("val", (SHARK,)), f"val/{image(2)}": ("val", (FOX,))}
    assert labels(items) == TRAIN_LABELS | expected
    assert failures(items) == []
    assert SOURCE.split_names(SourceConfig("imagenet", place)) == ("train", "val")
    (names,) = classes(items)
    in_order = [FOX, TENCH, SHARK] if "imagenet_lsvrc_2015_synsets.txt" in truth else [TENCH, SHARK, FOX]
    assert list(names.names.items()) == list(enumerate(in_order))
    if any("map_clsloc" in name for name in truth):
        assert names.texts == {FOX: "kit fox", TENCH: "tench", SHARK: "great white shark"}
    found = [item.annotations.objects for item in items if isinstance(item, ImageRecord)]
    assert ((box(FOX, 1), box(FOX, 2)) in found) == ("LOC_val_solution.csv" in truth)


def test_the_development_kits_meta_mat(tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    numpy = pytest.importorskip("numpy")
    fields = [("ILSVRC2012_ID", object), ("WNID", object), ("words", object), ("children", object)]
    rows = [(1, FOX, "kit fox, V.", [2.5]), (2, TENCH, "tench", []), (300, SHARK, "whité", [1, 2])]
    truth: dict[str, str | None] = {
        f"val/{image(1)}": None,
        f"val/{image(2)}": None,
        "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt": "2\n1\n",
    }
    place = tree(tmp_path, truth)
    path = tmp_path / "ILSVRC2012_devkit_t12/data/meta.mat"
    for packed in (True, False):
        synsets = numpy.array([rows[0], rows[1], (3, *rows[2][1:])], dtype=fields).reshape(3, 1)
        scipy_io.savemat(path, {"other": numpy.zeros(3), "synsets": synsets}, do_compression=packed)
        items = listed(place)
        assert labels(items) == {f"val/{image(1)}": ("val", (TENCH,)), f"val/{image(2)}": ("val", (FOX,))}
        assert classes(items) == [ClassNames({0: TENCH, 1: FOX}, {FOX: "kit fox, V.", TENCH: "tench"})]
        assert failures(items) == []
    scipy_io.savemat(path, {"synsets": numpy.array(rows, dtype=fields)})
    with pytest.raises(ValueError, match="meta.mat' has not the ids 1 to 3, each once"):
        listed(place)
    whole = path.read_bytes()
    for damaged in (b"", b"x" * 500, whole[:-9], whole[:200], whole[:128]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="meta.mat': it "):
            listed(place)
    for at in range(128, len(whole)):
        with contextlib.suppress(ValueError):
            read_meta_mat(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])


def test_ilsvrc_ids_are_not_taken_for_places_in_the_alphabet(tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        f"val/{image(1)}": None,
        "ILSVRC2012_validation_ground_truth.txt": "1\n",
        "synsets.txt": f"{TENCH}\n{FOX}\n",
    }
    with pytest.raises(ValueError, match="ids, which are not in alphabetical order; add meta"):
        listed(tree(tmp_path, files))


def test_kaggles_tree(tmp_path: Path) -> None:
    root = "ILSVRC/Data/CLS-LOC"
    place = tree(
        tmp_path,
        {
            **{f"{root}/{name}": None for name in TRAIN},
            f"{root}/val/{image(1)}": None,
            f"{root}/test/ILSVRC2012_test_00000001.JPEG": None,
            f"ILSVRC/Annotations/CLS-LOC/train/{FOX}/{FOX}_1.xml": xml((FOX, 3)),
            f"ILSVRC/Annotations/CLS-LOC/val/{image(1)[:-5]}.xml": xml((TENCH, 1), (TENCH, 2)),
            "ILSVRC/ImageSets/CLS-LOC/val.txt": f"{image(1)[:-5]} 1\n",
            "ILSVRC/ImageSets/CLS-LOC/train_cls.txt": f"{TENCH}/{TENCH}_1 1\n",
            "LOC_synset_mapping.txt": f"{TENCH} tench, Tinca tinca\n{SHARK} shark\n{FOX} kit fox\n",
        },
    )
    items = listed(place)
    expected: dict[str, tuple[str | None, tuple[str, ...]]] = {
        f"{root}/{key}": value for key, value in TRAIN_LABELS.items()
    }
    expected[f"{root}/val/{image(1)}"] = ("val", (TENCH,))
    expected[f"{root}/test/ILSVRC2012_test_00000001.JPEG"] = ("test", ())
    assert labels(items) == expected
    assert detect(SourceConfig("auto", place))[0] == "imagenet"
    assert SOURCE.split_names(SourceConfig("imagenet", place)) == ("test", "train", "val")
    assert classes(items)[0].names == {0: TENCH, 1: SHARK, 2: FOX}
    assert classes(items)[0].texts[TENCH] == "tench, Tinca tinca"
    assert {key for key, _, skipped in failures(items) if skipped} == {
        "ILSVRC/ImageSets/CLS-LOC/val.txt",
        "ILSVRC/ImageSets/CLS-LOC/train_cls.txt",
    }


def test_lists_of_images_and_class_numbers(tmp_path: Path) -> None:
    place = tree(
        tmp_path / "in",
        {
            "train.txt": "a.jpg 0\nb b.jpg 2 1\nmissing.jpg 1\n../out.jpg 0\nd.jpg 3\na.jpg 0\nb b.jpg 1\n",
            "synsets.txt": "cat\nbig dog\nbird\n",
            "images/a.jpg": None,
            "images/b b.jpg": None,
            "images/c.jpg": None,
            "images/d.jpg": None,
            "../out.jpg": None,
        },
    )
    items = listed(place)
    assert labels(items) == {
        "images/a.jpg": ("train", ("cat",)),
        "images/b b.jpg": ("train", ("bird", "big dog")),
    }
    assert classes(items) == [ClassNames({0: "cat", 1: "big dog", 2: "bird"})]
    assert sorted(failures(items)) == [
        ("images/a.jpg", "image listed twice", True),
        ("images/b b.jpg", "image listed twice", False),
        ("images/c.jpg", "image without annotations", True),
        ("images/d.jpg", "number of no class", False),
        ("train.txt:3", "not found", False),
        ("train.txt:4", "outside the input root", False),
    ]
    assert detect(SourceConfig("auto", place))[0] == "imagenet"
    (tmp_path / "in/synsets.txt").unlink()
    items = listed(place)
    assert labels(items)["images/d.jpg"] == ("train", (3,)) and classes(items) == []


def test_numbers_that_begin_with_1_are_refused(tmp_path: Path) -> None:
    place = tree(tmp_path, {"train.txt": "a.jpg 1\nb.jpg 2\n", "synsets.txt": "x\ny\n", "a.jpg": None})
    with pytest.raises(
        ValueError, match=r"'train.txt' has the class numbers 1 to 2, and there are 2 classes"
    ):
        listed(place)


def test_tiny_imagenet(tmp_path: Path) -> None:
    place = tree(
        tmp_path,
        {
            f"train/{FOX}/images/{FOX}_0.JPEG": None,
            f"train/{TENCH}/images/{TENCH}_0.JPEG": None,
            "val/images/val_0.JPEG": None,
            "val/val_annotations.txt": f"val_0.JPEG\t{FOX}\t1\t0\t4\t2\n",
            "test/images/test_0.JPEG": None,
            "wnids.txt": f"{FOX}\n{TENCH}\n",
            "words.txt": f"{FOX}\tkit fox\nn00001740\tentity\n",
        },
    )
    items = listed(place)
    assert labels(items) == {
        f"train/{FOX}/images/{FOX}_0.JPEG": ("train", (FOX,)),
        f"train/{TENCH}/images/{TENCH}_0.JPEG": ("train", (TENCH,)),
        "val/images/val_0.JPEG": ("val", (FOX,)),
        "test/images/test_0.JPEG": ("test", ()),
    }
    assert classes(items) == [ClassNames({0: FOX, 1: TENCH}, {FOX: "kit fox"})]
    assert failures(items) == []
    (record,) = (item for item in items if isinstance(item, ImageRecord) and item.split == "val")
    assert record.annotations.objects == (box(FOX, 1),)


def test_what_tells_of_images_that_are_not_there(tmp_path: Path) -> None:
    truth = {
        "imagenet_2012_validation_synset_labels.txt": f"{SHARK}\n{FOX}\n",
        "LOC_val_solution.csv": f"ImageId,PredictionString\nx,{FOX} 1 0 4\ny,{FOX} 1 0 4 2\nz\n",
    }
    place = tree(tmp_path, {**TRAIN, **truth})
    assert failures(listed(place)) == [
        ("imagenet_2012_validation_synset_labels.txt", "ground truth without its images", True),
        ("LOC_val_solution.csv:4", "row has not two cells", False),
        ("LOC_val_solution.csv", "ground truth without its images", True),
    ]
    tree(tmp_path, {f"val/{image(2)}": None, f"val/{image(3)}": None, "val/x.JPEG": None})
    assert failures(listed(place)) == [
        (f"val/{image(3)}", "no line in the ground truth", False),
        ("val/x.JPEG", "not a prediction string", False),
        ("imagenet_2012_validation_synset_labels.txt:1", "annotation without its image", False),
        ("LOC_val_solution.csv:4", "row has not two cells", False),
        ("LOC_val_solution.csv: y", "annotation without its image", False),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<annotation><object/></annotation>", "not VOC XML"),
        ("<!DOCTYPE a><annotation/>", "XML with a document type"),
    ],
)
def test_bad_xml_fails_its_image_alone(tmp_path: Path, text: str, reason: str) -> None:
    place = tree(tmp_path, {**TRAIN, f"bbox/{FOX}_1.xml": text})
    items = listed(place)
    assert failures(items) == [(f"train/{FOX}/{FOX}_1.JPEG", reason, False)]
    assert len(labels(items)) == 2


def test_flags(tmp_path: Path) -> None:
    place = tree(tmp_path, {**TRAIN, f"bbox/{FOX}_1.xml": xml((FOX, 0))})
    items = listed(place, exclude=(f"**/{FOX}_*",))
    assert failures(items) == [(f"train/{FOX}/{FOX}_1.JPEG", "excluded by --include/--exclude", True)]
    assert len(labels(listed(place, limit=1))) == 1
    items = listed(place, label_pattern=r"_(\d)\.")
    assert {label for _, label in labels(items).values()} == {("1",), ("2",)}
    assert classes(items)[0].optional
    assert labels(listed(place, skip_dirs=(f"{place}/train/{FOX}",))).keys() == set(list(TRAIN)[:2])
    with pytest.raises(ValueError, match="--annotations is 'x', and --source imagenet does not use it"):
        listed(place, annotations=("x",))
    with pytest.raises(ValueError, match=r"no folder named by a synset .*see --source folder"):
        listed(tree(tmp_path / "other", {"cat/a.jpg": None, "train.txt": "images/a.jpg images/b.png"}))


def test_other_trees_are_not_taken_for_it(tmp_path: Path) -> None:
    rows = ("images/a.jpg", "a.jpg b.png", "hello", "", f"{TENCH}_1 1\n{TENCH}_2 2", "a.jpg some 5")
    for number, row in enumerate(rows):
        place = tree(tmp_path / str(number), {"train.txt": row, "a.jpg": None, "cat/b.jpg": None})
        assert sniff(SOURCE, SourceConfig("auto", place)) is None, row


def test_a_bucket_gives_what_the_disk_gives(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    place = tree(
        tmp_path,
        {
            **TRAIN,
            f"val/{image(1)}": None,
            "val.txt": f"{image(1)} 0\nno.jpg 1",
            "synsets.txt": f"{TENCH}\n{FOX}",
            f"bbox/{FOX}/{FOX}_1.xml": xml((FOX, 0)),
        },
    )
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")

    def found(where: str) -> list[Item]:
        return [item if isinstance(item, ClassNames) else without_place(item) for item in listed(where)]

    assert found(f"{bucket}/in") == found(place)
    assert len(labels(found(place))) == 4
    assert detect(SourceConfig("auto", f"{bucket}/in"))[0] == "imagenet"


def test_a_list_that_changes_under_the_job_fails_it(tmp_path: Path) -> None:
    place = tree(tmp_path, {**TRAIN, "synsets.txt": TENCH})
    config = SourceConfig("imagenet", place)
    SOURCE.check(config)
    (tmp_path / "synsets.txt").write_text(f"{TENCH}\n{TENCH}\n")
    with pytest.raises(JobError, match="'synsets.txt' names a class twice"):
        list(SOURCE.read(config, "/nowhere"))


@pytest.mark.corpus
def test_real_lists(corpus: Path) -> None:
    items = listed(f"{corpus}/layouts/imagenet_txt_dataset/basic")
    assert labels(items) == {
        "images/1.jpg": ("train", ("label_0",)),
        "images/2.jpg": ("train", ("label_5",)),
    }
    assert [key for key, _, _ in failures(items)] == ["train.txt:3", "train.txt:4"]
    assert detect(SourceConfig("auto", f"{corpus}/layouts/imagenet_dataset"))[0] == "folder"
