"""Annotation files of many rows about one thing: in linear time, which the tests' time limit shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.transforms.read import list_part
from recordmill.transforms.records import ClassNames, Failure, ImageRecord, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.sources.source import Item
from tests.fuzz.parser_seeds import Seed, seeds

COUNT = 60_000


def listed(seed: Seed, folder: Path, **files: bytes) -> list[Item]:
    """What is read of an input some of whose files have other contents, by their names without a folder."""
    for path, data in seed.files.items():
        name = path.rpartition("/")[2].replace(".", "_").replace("-", "_")
        (folder / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "in" / path).write_bytes(files.pop(name, data))
    assert not files
    config = SourceConfig(seed.kind, str(folder / "in" / seed.place).rstrip("/"), **seed.options)
    SOURCES[seed.kind].check(config)
    (folder / "scratch").mkdir()
    return list(SOURCES[seed.kind].read(config, str(folder / "scratch")))


def records(items: list[Item]) -> list[ImageRecord]:
    return [item for item in items if isinstance(item, ImageRecord)]


@pytest.mark.slow
def test_labels_of_one_image_in_many_rows(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(COUNT)]
    rows = "".join(f"1.png,{name},,,,\n" for name in (*names, *names))
    items = listed(seeds()["csv"], tmp_path, m_csv=f"image,label,xmin,ymin,xmax,ymax\n{rows}".encode())
    assert [one.annotations.labels for one in records(items)] == [tuple(names)]


@pytest.mark.slow
def test_features_of_one_image_in_many_rows(tmp_path: Path) -> None:
    rows = "".join(f'{{"image": "1.png", "bbox": [1, 1, 2, 2], "f{at}": {at}}}\n' for at in range(10_000))
    items = listed(seeds()["jsonl"], tmp_path, m_jsonl=rows.encode())
    assert [len(one.annotations.objects) for one in records(items)] == [10_000]


def test_labels_of_one_frame_in_many_rows(tmp_path: Path) -> None:
    seed = Seed("frames", {path: data for path, data in seeds()["frames"].files.items() if "walk" in path})
    items = listed(seed, tmp_path, labels_csv=b"frame,label\n" + b"0,a\n1,b\n" * COUNT)
    (clip,) = records(items)
    assert clip.annotations.steps is not None
    assert clip.annotations.steps.labels == (("a",) * COUNT, ("b",) * COUNT)


def test_boxes_and_masks_of_one_image(tmp_path: Path) -> None:
    seed = seeds()["openimages"]
    (header, *_), (mask_header, *_) = (
        seed.files[f"annotations/train-annotations-{name}.csv"].split(b"\n")
        for name in ("bbox", "object-segmentation")
    )
    count = 10_000
    boxes = [b"a,x,/m/c,1,0.%06d,0.5,0.1,0.5,0,1,0,0,-1" % number for number in range(count)]
    masks = [b"a_m.png,a,/m/c,1,0.%06d,0.5,0.1,0.5,1," % (999_999 - number) for number in range(count)]
    same = [b"a_m.png,a,/m/c,1,0.000000,0.5,0.1,0.5,1,"]
    items = listed(
        seed,
        tmp_path,
        train_annotations_bbox_csv=b"\n".join((header, *boxes)),
        train_annotations_object_segmentation_csv=b"\n".join((mask_header, *masks, *same)),
    )
    objects = next(one for one in records(items) if one.key.endswith("a.png")).annotations.objects
    assert len(objects) == 2 * count  # one of the masks belongs to a box
    assert [at for at, one in enumerate(objects[:count]) if one.mask] == [0]
    assert all(one.mask for one in objects[count:])


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        (b"x: [" + b"a, " * 300_000 + b"]", "has more than 200000 values"),
        (b"x: " + b"[" * 100_000, "is nested more than 100 deep"),
        (b"x: " + b"{a: " * 100_000, "is nested more than 100 deep"),
        (b"- " * 100_000, "is nested more than 100 deep"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\ntrain: *b\n", "train is neither a path nor a list of paths"),
        (b"names: \xff", "data.yaml' is not UTF-8"),
        (b"names: *none", "data.yaml' is not YAML"),
    ],
)
def test_yaml_that_is_no_description(tmp_path: Path, yaml: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        listed(seeds()["yolo"], tmp_path, data_yaml=yaml)
    assert "data.yaml" in str(caught.value) and "\n" not in str(caught.value)


def test_names_that_a_message_shows_are_cut(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data.yaml has val: '9{200}…'"):
        listed(seeds()["yolo"], tmp_path, data_yaml=b"train: images/train\nnames: [a]\nval: " + b"9" * 5000)
    seed = Seed("voc", seeds()["voc"].files)
    with pytest.raises(JobError, match=r"labelmap.txt' has the colour '9{200}…'; colours are"):
        (tmp_path / "2").mkdir()
        listed(seed, tmp_path / "2", labelmap_txt=b"background:0,0,0::\ncat:" + b"9" * 5000 + b",1,1::\n")


@pytest.mark.parametrize("number", [b"9" * 19, b"9" * 5000, b"a/" * 3000])
def test_ids_of_a_label_map_that_are_no_int64(tmp_path: Path, number: bytes) -> None:
    text = b'item { id: "%s" name: "cat" }' % number
    with pytest.raises(
        JobError, match="label_map.pbtxt' is not a label map: line 1: this item has id "
    ) as caught:
        listed(seeds()["tfrecord"], tmp_path, label_map_pbtxt=text)
    assert len(str(caught.value)) < len(str(tmp_path)) + 400


def test_blanks_in_a_table_of_colours(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 2 is not a name with three numbers"):
        listed(seeds()["masks"], tmp_path, label_colors_txt=b"0 0 0 cat\n1 1 1" + b" " * 500_000 + b"\n")


@pytest.mark.slow
def test_wide_lists_in_json_lines(tmp_path: Path) -> None:
    line = b'{"image": "1.png", "x": [' + b"1, " * 1_000_000 + b"2.5]}\n"
    (record,) = records(listed(seeds()["jsonl"], tmp_path, m_jsonl=line))
    value = record.annotations.features["x"]
    assert isinstance(value, tuple) and len(value) == 1_000_001 and value[-1] == 2.5


def test_a_quote_in_a_csv_of_another_source_is_one_line(tmp_path: Path) -> None:
    text = b'frame,label\n0,"a\n' + b"1,b\n" * 300_000
    items = listed(seeds()["frames"], tmp_path, labels_csv=text)
    failure = next(item for item in items if isinstance(item, Failure) and not item.skipped)
    assert failure.reason == "file does not fit the frames"
    assert "labels.csv: line 2: column 2 is in quotes for more than 1048576 characters" in failure.detail


def test_a_sparse_image_fails_alone_and_takes_no_room_in_a_plan(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, size in (("a.jpg", 10), ("b.jpg", 5 << 40), ("c.jpg", 1 << 30)):
        with open(tmp_path / "in" / name, "wb") as file:
            file.truncate(size)
    found = list(list_part(None, SourceConfig("folder", str(tmp_path / "in")), str(tmp_path / "scratch")))
    assert [(type(item), item.key) for item in found if not isinstance(item, ClassNames)] == [
        (ImageRecord, "a.jpg"),
        (Failure, "b.jpg"),
        (ImageRecord, "c.jpg"),
    ]
    (failure,) = (item for item in found if isinstance(item, Failure))
    assert (failure.stage, failure.reason) == ("load", "too large")
    assert failure.detail == f"{tmp_path}/in/b.jpg has {5 << 40} bytes; up to {1 << 30} are read"
