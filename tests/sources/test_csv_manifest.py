"""CSV manifests: every row becomes a record or a failure, with the line it starts at."""

from __future__ import annotations

import csv
import errno
import io
import os
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.records import Annotations, ClassNames, Failure, ImageRecord, ImageRef, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_image_name
from recordmill.transforms.sources.tables.manifest_sources import CsvSource
from recordmill.transforms.sources.tables.manifests import PEEKED
from recordmill.transforms.sources.tables.text_rows import MAX_COLUMNS, MAX_LINE, MAX_ROW
from recordmill.transforms.storage.local import version_of

SOURCE = CsvSource()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder with a.jpg, b.jpg, sub/c.jpg, `d, e.jpg` and ` f.jpg`, of 1 to 5 bytes."""
    (tmp_path / "sub").mkdir()
    for size, name in enumerate(["a.jpg", "b.jpg", "sub/c.jpg", "d, e.jpg", " f.jpg"], 1):
        (tmp_path / name).write_bytes(b"x" * size)
    return tmp_path


def listed(folder: Path, text: str | bytes, **options: object) -> list[ImageRecord | Failure]:
    manifest = folder / "m.csv"
    manifest.write_bytes(text.encode() if isinstance(text, str) else text)
    config = SourceConfig("csv", str(manifest), **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return [item for item in SOURCE.read(config, "/nowhere") if not isinstance(item, ClassNames)]


def records(
    items: Iterable[ImageRecord | Failure],
) -> list[tuple[str, str | None, tuple[str | int, ...], dict[str, object]]]:
    found = [item for item in items if isinstance(item, ImageRecord)]
    return [
        (item.key, item.split, item.annotations.labels, dict(item.annotations.features)) for item in found
    ]


def faults(items: Iterable[ImageRecord | Failure]) -> list[tuple[str, str]]:
    return [(item.key, item.reason) for item in items if isinstance(item, Failure)]


def test_a_row_in_full(images: Path) -> None:
    text = "image,label,split,width,note\nsub/c.jpg,cat,val,12,\n"
    assert listed(images, text) == [
        ImageRecord(
            "sub/c.jpg",
            ImageRef(f"{images}/sub/c.jpg", version=version_of(os.stat(images / "sub/c.jpg"))),
            "val",
            Annotations(("cat",), {"width": "12"}),
            "m.csv, line 2",
            3,
        )
    ]


@pytest.mark.parametrize(
    ("header", "row", "labels", "features"),
    [
        ("image,label", "a.jpg,cat", ("cat",), {}),
        ("IMAGE_PATH,Class", "a.jpg,cat", ("cat",), {}),
        ("filename,category", "a.jpg,cat", ("cat",), {}),
        ("file_name,labels", "a.jpg,cat", ("cat",), {}),
        ("path,class_name", "a.jpg,cat", ("cat",), {}),
        ("uri,x", "a.jpg,cat", (), {"x": "cat"}),
        ("filepath,label", "a.jpg,", (), {}),
        ("filename,image", "7,a.jpg", (), {"filename": "7"}),
        ("class,label,image", "5,cat,a.jpg", ("cat",), {"class": "5"}),
        (" image , label ", "a.jpg, cat ", ("cat",), {}),
        (",image,label", "0,a.jpg,cat", ("cat",), {}),
        ("image;label", "a.jpg;cat, dog", ("cat, dog",), {}),
        ("image\tlabel", "a.jpg\tcat", ("cat",), {}),
        ("image", "a.jpg", (), {}),
        ("image,label", 'a.jpg,"[""cat"", 3]"', ("cat", 3), {}),
        ("image,label", "a.jpg,[cat]", ("[cat]",), {}),
        ("image,label", "a.jpg,[]", (), {}),
        ("image,x", 'a.jpg,"two\nlines, ""quoted"""', (), {"x": 'two\nlines, "quoted"'}),
        ("image,x", "a.jpg, spaced ", (), {"x": " spaced "}),
        ("größe,image", "ü,a.jpg", (), {"größe": "ü"}),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_columns(
    images: Path, header: str, row: str, labels: tuple[str, ...], features: dict[str, str], end: str, bom: str
) -> None:
    items = listed(images, f"{bom}{header}{end}{row}{end}")
    assert records(items) == [("a.jpg", None, labels, features)]


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({"label_column": "b"}, ("2",)),
        ({"label_column": "b,c"}, ("2", "3")),
        ({"label_column": "C, b"}, ("3", "2")),
        ({"label_column": "x,y"}, ("4",)),
        ({"label_pattern": "([a-z])[.]jpg"}, ("a",)),
        ({}, ("1",)),
    ],
)
def test_label_columns(images: Path, options: dict[str, str], labels: tuple[str, ...]) -> None:
    text = 'image,label,b,c,"x,y"\na.jpg,1,2,3,4\n'
    ((_, _, found, features),) = records(listed(images, text, **options))
    assert found == labels
    assert sorted(map(str, features.values())) == sorted({"1", "2", "3", "4"} - set(labels))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_read_as_utf_8_is(images: Path, encoding: str) -> None:
    text = 'image,label,note\r\na.jpg,"chien\r\n🐶",é\r\n\r\ngone.jpg,chat,\r\nb.jpg,chat,x\r\n'
    expected = listed(images, text)
    assert [item.origin for item in expected if isinstance(item, ImageRecord)] == [
        "m.csv, line 2",
        "m.csv, line 6",
    ]
    assert faults(expected) == [("m.csv:5", "not found")]
    mark = b"" if encoding == "utf-16" else b"\xfe\xff"
    assert listed(images, mark + text.encode(encoding)) == expected


def test_damaged_utf_16_costs_its_rows(images: Path) -> None:
    good, half = "image,label\na.jpg,x\n".encode("utf-16"), b"\x00\xd8"
    items = listed(images, good + half + "b.jpg,y\nsub/c.jpg,z".encode("utf-16-le") + b"\x41")
    assert [row[0] for row in records(items)] == ["a.jpg"]
    assert faults(items) == [("m.csv:3", "row is not UTF-16"), ("m.csv:4", "row is not UTF-16")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_separator_is_found_in_the_header(images: Path, delimiter: str) -> None:
    rows = [["image", "label", "note"], ["a.jpg", "cat", "x.y"], ["b.jpg", "dog", ""]]
    text = "".join(delimiter.join(row) + "\n" for row in rows)
    assert records(listed(images, text)) == [
        ("a.jpg", None, ("cat",), {"note": "x.y"}),
        ("b.jpg", None, ("dog",), {}),
    ]


def test_vertical_bars_in_cells_separate_nothing(images: Path) -> None:
    (row,) = records(listed(images, "image,tag|x|y\na.jpg,a|b|c\n"))
    assert row == ("a.jpg", None, (), {"tag|x|y": "a|b|c"})


def test_integers_that_pandas_wrote_as_floats_have_their_own_ids(images: Path) -> None:
    written = listed(images, 'image,label\na.jpg,10.0\nb.jpg,2.0\nsub/c.jpg,\n"d, e.jpg","[0.0, 2.0]"\n')
    labels = [labels for _, _, labels, _ in records(written)]
    assert labels == [("10.0",), ("2.0",), (), (0, 2)]
    ids = LabelMap.build(label for one in labels for label in one)
    assert [[ids.id_of(label) for label in one] for one in labels] == [[10], [2], [], [0, 2]]
    assert ids.labels == {0: "0", 2: "2", 10: "10"}


def test_image_column_may_have_any_name(images: Path) -> None:
    text = "image,photo\n7,a.jpg\n"
    assert records(listed(images, text, image_column="Photo")) == [("a.jpg", None, (), {"image": "7"})]


@pytest.mark.parametrize(
    ("column", "cell", "split"),
    [
        ("split", "train", "train"),
        ("Subset", " Val ", "val"),
        ("set", "", None),
        ("split", "UNASSIGNED", "UNASSIGNED"),
        ("ml_use", "UNASSIGNED", None),
        ("ml_use", "TRAINING", "train"),
        ("ml_use", "Test", "test"),
        ("ml_use", "fold-1", "fold-1"),
        ("split", "a/b ", "a/b"),  # --splits may replace it: the survey of the records refuses it otherwise
        ("SET", "dev", "dev"),
    ],
)
def test_splits(images: Path, column: str, cell: str, split: str | None) -> None:
    assert records(listed(images, f"image,{column}\na.jpg,{cell}\n")) == [("a.jpg", split, (), {})]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image,set\na.jpg,train\nb.jpg,red\n", [(None, {"set": "train"}), (None, {"set": "red"})]),
        ("image,set\na.jpg,train\nb.jpg,\n", [("train", {}), (None, {})]),
        ("image,set\n" + "a.jpg,\n" * 100 + "a.jpg,val\n", [(None, {})] * 100 + [(None, {"set": "val"})]),
        ("image,subset,set\na.jpg,7,val\n", [("val", {"subset": "7"})]),
        ("image,subset,ml_use\na.jpg,train,test\n", [("train", {"ml_use": "test"})]),
        ("image,subset,ml_use\na.jpg,7,test\n", [("test", {"subset": "7"})]),
    ],
)
def test_set_and_subset_are_splits_where_the_first_rows_name_splits(
    images: Path, text: str, expected: list[tuple[str | None, dict[str, str]]]
) -> None:
    found = [(split, features) for _, split, _, features in records(listed(images, text))]
    assert found == expected


def test_faulty_rows_are_counted_and_the_rest_is_read(images: Path) -> None:
    text = (
        b"image,label,split\n"
        b"a.jpg,cat,\n"
        b"a.jpg,cat\n"
        b"a.jpg,cat,,more\n"
        b"\n"
        b",cat,\n"
        b"none.jpg,cat,\n"
        b"../../../../../../../etc/passwd,cat,\n"
        b"gs://bucket/a.jpg,cat,\n"
        b"sub,cat,\n"
        b'"a.jpg","two\nlines\n",x/y,\n'
        b"a.jpg,\xff,\n"
        b"a.jpg,c\0at,\n"
        b'a.jpg,"cat"s,\n'
        b'a.jpg,"[1.5]",\n'
        b"b.jpg,dog,\n"
    )
    items = listed(images, text)
    assert [key for key, *_ in records(items)] == ["a.jpg", "b.jpg"]
    assert items[-1].origin == "m.csv, line 18"  # type: ignore[union-attr]
    assert faults(items) == [
        ("m.csv:3", "wrong number of cells"),
        ("m.csv:4", "wrong number of cells"),
        ("m.csv:6", "no image path"),
        ("m.csv:7", "not found"),
        ("m.csv:8", "outside the input root"),
        ("m.csv:9", "outside the input root"),
        ("m.csv:10", "not a file"),
        ("m.csv:11", "wrong number of cells"),
        ("m.csv:14", "row is not UTF-8"),
        ("m.csv:15", "row has a NUL byte"),
        ("m.csv:16", "not CSV"),
        ("m.csv:17", "label is not text or an integer"),
    ]
    assert all(isinstance(item, ImageRecord) or item.stage == "manifest" for item in items)
    assert "2, the header has 3" in items[1].detail  # type: ignore[union-attr]


def test_a_quote_that_never_ends_is_a_failure(images: Path) -> None:
    items = listed(images, 'image,x\na.jpg,1\nb.jpg,"open\nsub/c.jpg,2\n')
    assert records(items) == [("a.jpg", None, (), {"x": "1"})]
    detail = "column 2 is in quotes that are not closed, up to line 4"
    assert items[1] == Failure("m.csv:3", "manifest", "not CSV", detail)


@pytest.mark.slow
def test_a_quote_that_never_ends_costs_a_part_of_the_file(images: Path) -> None:
    row = "sub/c.jpg,2\n"
    text = 'image,x\na.jpg,1\nb.jpg,"open\n' + 3 * MAX_ROW // len(row) * row
    items = listed(images, text)
    first = [item for item in items if item.key != "sub/c.jpg"]
    last = 3 + (MAX_ROW - len('b.jpg,"open\n')) // len(row) + 1  # the line that is too much is lost too
    detail = (
        f"column 2 is in quotes for more than {MAX_ROW} characters; a quote may be unclosed, "
        f"up to line {last}"
    )
    assert first[1:] == [Failure("m.csv:3", "manifest", "not CSV", detail)]
    assert len(items) == 1 + 1 + text.count("\n") - last


def test_cells_and_lines_that_are_too_long_are_failures(images: Path) -> None:
    long = "y" * (MAX_LINE + 5)
    lines = [
        "image,x",
        "a.jpg,1",
        f"b.jpg,{long}",
        f'b.jpg,"{long[: MAX_LINE - 20]}',
        f'{long[:50]}"',
        "b.jpg,2",
    ]
    items = listed(images, "\n".join(lines) + "\n")
    assert records(items) == [("a.jpg", None, (), {"x": "1"}), ("b.jpg", None, (), {"x": "2"})]
    assert faults(items) == [("m.csv:3", "row too long"), ("m.csv:4", "not CSV")]


def test_cells_of_several_lines_and_of_megabytes_are_read(images: Path) -> None:
    lines, polygon = "1,2\n" * (MAX_ROW // 5), "1 " * MAX_ROW
    items = listed(images, f'image,x\na.jpg,"{lines}"\nb.jpg,{polygon}\n')
    assert records(items) == [("a.jpg", None, (), {"x": lines}), ("b.jpg", None, (), {"x": polygon})]


def test_many_columns_take_linear_time_and_more_are_refused(images: Path) -> None:
    names = [f"c{number}" for number in range(MAX_COLUMNS - 1)]
    items = listed(images, f"image,{','.join(names)}\na.jpg{',1' * len(names)}\n")
    assert records(items) == [("a.jpg", None, (), dict.fromkeys(names, "1"))]
    with pytest.raises(ValueError, match=r"m\.csv', which has 32,769 columns; at most 32,768 are read"):
        listed(images, f"image,one,{','.join(names)}\na.jpg\n")
    with pytest.raises(ValueError, match=r"has a name of 1,001 characters for column 2, 'x{40}'…; at most"):
        listed(images, f"image;{'x' * 1001}\na.jpg;1\n")


def test_paths_with_spaces_are_tried_as_they_are_first(images: Path) -> None:
    items = listed(images, 'image,x\n" f.jpg",1\n a.jpg ,2\n"d, e.jpg",3\n')
    assert [key for key, *_ in records(items)] == [" f.jpg", "a.jpg", "d, e.jpg"]


def test_records_of_features_alone(tmp_path: Path) -> None:
    items = listed(tmp_path, 'x,label,split\n1,a,train\n"2\n",b,\n3,c,\n')
    assert items == [
        ImageRecord("m.csv:2", None, "train", Annotations((), {"x": "1", "label": "a"}), "m.csv, line 2"),
        ImageRecord("m.csv:3", None, None, Annotations((), {"x": "2\n", "label": "b"}), "m.csv, line 3"),
        ImageRecord("m.csv:5", None, None, Annotations((), {"x": "3", "label": "c"}), "m.csv, line 5"),
    ]
    labelled = listed(tmp_path, "x,label\n1,a\n", label_column="label")
    assert records(labelled) == [("m.csv:2", None, ("a",), {"x": "1"})]


def test_features_alone_may_mention_images(tmp_path: Path) -> None:
    rows = records(listed(tmp_path, "id,note\n1,see a.jpg\n2,blurred\n"))
    assert [features for *_, features in rows] == [
        {"id": "1", "note": "see a.jpg"},
        {"id": "2", "note": "blurred"},
    ]


def test_selection_and_limit(images: Path) -> None:
    text = "image\na.jpg\nb.jpg\nsub/c.jpg\nnone.jpg\n"
    items = listed(images, text, exclude=("a*",), limit=2)
    assert [item.key for item in items] == ["a.jpg", "b.jpg", "sub/c.jpg"]
    assert items[0] == Failure(
        "a.jpg", "list", "excluded by --include/--exclude", "m.csv, line 2", skipped=True
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gs://b/a.jpg,cat\n", [("a.jpg", None, ("cat",), {})]),
        ("TRAIN,gs://b/a.jpg,cat,dog\n", [("a.jpg", "train", ("cat", "dog"), {})]),
        ("UNASSIGNED,gs://b/a.jpg\n", [("a.jpg", None, (), {})]),
        ("validation,gs://b/a.jpg,label\n", [("a.jpg", "validation", ("label",), {})]),
        (
            ",gs://b/a.jpg,cat\nTEST,sub/c.jpg,dog\n",
            [("a.jpg", None, ("cat",), {}), ("sub/c.jpg", "test", ("dog",), {})],
        ),
        ("a.jpg,cat\n", [("a.jpg", None, ("cat",), {})]),
        ("a.jpg\nb.jpg\n", [("a.jpg", None, (), {}), ("b.jpg", None, (), {})]),
    ],
)
def test_vertex_import_file(images: Path, text: str, expected: list[object]) -> None:
    assert records(listed(images, text, image_roots=(str(images),))) == expected


ROWS = "a.jpg,x\n" * PEEKED


@pytest.mark.parametrize(
    ("text", "options", "splits"),
    [
        ("image,label\na.jpg,x\n", {}, ()),
        ("image,split\na.jpg,train\n", {}, None),
        ("image,ML_USE\na.jpg,training\n", {}, None),
        ("image,Set\na.jpg,val\n", {}, None),
        ("image,set\na.jpg,7\n" + "a.jpg,val\n" * 200, {}, ()),  # as its rows are read: a feature
        ("image,split\na.jpg,cat\n", {"label_column": "split"}, ()),
        (f"image,label\n{ROWS * 2}", {}, ()),
        ("a.jpg,x\n", {}, ()),
        ("TRAIN,a.jpg,x\n", {}, None),
        (f"{ROWS[8:]}test,a.jpg,x\n", {}, None),
        (ROWS, {}, ()),
        (f"{ROWS}a.jpg,x\n", {}, None),  # what comes later nobody has seen
        ("", {}, None),
        ("image,image\n", {}, None),
    ],
)
def test_split_names(
    tmp_path: Path, text: str, options: dict[str, str], splits: tuple[str, ...] | None
) -> None:
    (tmp_path / "m.csv").write_text(text)
    assert SOURCE.split_names(SourceConfig("csv", f"{tmp_path}/m.csv", **options)) == splits  # type: ignore[arg-type]


def test_split_names_of_several_manifests(tmp_path: Path) -> None:
    for name, header in (("a", "image,label"), ("b", "image,class"), ("c", "image,split")):
        (tmp_path / f"{name}.csv").write_text(f"{header}\na.jpg,x\n")

    def split_names(*manifests: str) -> tuple[str, ...] | None:
        return SOURCE.split_names(SourceConfig("csv", str(tmp_path), manifests))

    assert split_names("a.csv", "b.csv") == ()
    assert split_names("a.csv", "c.csv") is None
    assert split_names("a.csv", "missing.csv") is None


def test_the_folder_of_each_manifest_is_the_split_of_its_rows(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        (tmp_path / split).mkdir()
        (tmp_path / split / f"{split}.jpg").write_bytes(b"x")
        (tmp_path / split / "_annotations.csv").write_text(f"filename,class\n{split}.jpg,cat\n")
    config = SourceConfig("csv", str(tmp_path), ("train/_annotations.csv", "valid/_annotations.csv"))
    SOURCE.check(config)
    assert records(list(SOURCE.read(config, "/nowhere"))) == [  # type: ignore[arg-type]
        ("train/train.jpg", "train", ("cat",), {}),
        ("valid/valid.jpg", "valid", ("cat",), {}),
    ]
    assert SOURCE.split_names(config) == ("train", "valid")


def test_links_to_manifests_outside_the_input_keep_their_folders(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        (tmp_path / "store" / split).mkdir(parents=True)
        (tmp_path / "input" / split).mkdir(parents=True)
        (tmp_path / "store" / split / "1.jpg").write_bytes(split.encode())
        (tmp_path / "store" / split / "a.csv").write_text("filename,class\n1.jpg,cat\n")
        (tmp_path / "input" / split / "a.csv").symlink_to(tmp_path / "store" / split / "a.csv")
    config = SourceConfig("csv", str(tmp_path / "input"), ("train/a.csv", "valid/a.csv"))
    SOURCE.check(config)
    found = [item for item in SOURCE.read(config, "") if isinstance(item, ImageRecord)]
    assert [(one.split, one.image and one.image.uri) for one in found] == [
        (split, str(tmp_path / "store" / split / "1.jpg")) for split in ("train", "valid")
    ]


def test_an_image_behind_a_link_that_leads_outside_names_the_image_root(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "1.jpg").write_bytes(b"")
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "linked").symlink_to(tmp_path / "store")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "a.csv").write_text("filename,class\n1.jpg,cat\n")
    config = SourceConfig("csv", str(tmp_path / "input"), (str(tmp_path / "lists" / "a.csv"),))
    (item,) = SOURCE.read(config, "")
    assert isinstance(item, Failure)
    assert item.reason == "not found"
    assert item.detail.endswith(f", outside the input: give --image_root {tmp_path / 'store'}")


@pytest.mark.parametrize("above", ["", "dataset/", "outer/dataset/"])
def test_images_in_a_folder_next_to_that_of_the_manifest(tmp_path: Path, above: str) -> None:
    for name in ("images/a.jpg", "images/b.jpg", "other/a.jpg", "data/labels.csv"):
        (tmp_path / above / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / above / name).write_bytes(b"image,label\na.jpg,x\nb.jpg,y\n")
    config = SourceConfig("csv", str(tmp_path), (f"{above}data/labels.csv",))
    SOURCE.check(config)
    assert records(list(SOURCE.read(config, "/nowhere"))) == [  # type: ignore[arg-type]
        (f"{above}images/a.jpg", None, ("x",), {}),
        (f"{above}images/b.jpg", None, ("y",), {}),
    ]


@pytest.mark.parametrize("options", [{}, {"annotations": ("train.csv",)}])
def test_ids_of_images_without_extensions(tmp_path: Path, options: dict[str, tuple[str, ...]]) -> None:
    for name in ("train_images/a", "train_images/b", "test_images/c", "masks/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.png").write_bytes(b"x")
    (tmp_path / "train.csv").write_text("id_code,label\na,1\nb,0\n")
    place = str(tmp_path) if options else f"{tmp_path}/train.csv"
    with pytest.raises(ValueError, match="the column 'id_code' names images, such as 'a'; give ") as caught:
        SOURCE.check(SourceConfig("csv", place, **options))
    flags = f"--image_column id_code --image_root {tmp_path}/train_images"
    assert str(caught.value).endswith(f"; give {flags}")
    config = SourceConfig(
        "csv", place, **options, image_column="id_code", image_roots=(f"{tmp_path}/train_images",)
    )
    SOURCE.check(config)
    assert records(list(SOURCE.read(config, "/nowhere"))) == [  # type: ignore[arg-type]
        ("train_images/a.png", None, ("1",), {}),
        ("train_images/b.png", None, ("0",), {}),
    ]


@pytest.mark.parametrize("times", [3, 4])
def test_rows_go_on_after_a_fault_that_passes(
    images: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float], times: int
) -> None:
    text = "image,number\n" + "".join(f"a.jpg,{number}\n" for number in range(20_000))
    readv, calls = os.readv, 0

    def flaky(descriptor: int, buffers: list[memoryview]) -> int:
        nonlocal calls
        calls += 1
        if 20 < calls <= 20 + times:
            raise OSError(errno.EIO, "I/O error")
        return readv(descriptor, buffers)

    monkeypatch.setattr(os, "readv", flaky)
    if times < 4:
        numbers = [features["number"] for _, _, _, features in records(listed(images, text))]
        assert numbers == [str(number) for number in range(20_000)]
    else:
        with pytest.raises(JobError, match=f"cannot be listed: i/o error, reading '{images}/m.csv'$"):
            listed(images, text)
    assert len(waits) == min(times, 3)


def test_remote_images_are_looked_for_below_image_roots_only(images: Path) -> None:
    (images / "bucket/x").mkdir(parents=True)
    (images / "bucket/x/a.jpg").write_bytes(b"y")
    text = "image\ngs://bucket/x/a.jpg\nhttps://h/sub/c.jpg\ngs://bucket/none.jpg\ngs://b/../../etc/passwd\n"
    items = listed(images, text, image_roots=(str(images),))
    assert [key for key, *_ in records(items)] == ["bucket/x/a.jpg", "sub/c.jpg"]
    assert faults(items) == [("m.csv:4", "outside the input root"), ("m.csv:5", "outside the input root")]
    assert faults(listed(images, text)) == [
        ("m.csv:2", "outside the input root"),
        ("m.csv:3", "not a local path"),
        ("m.csv:4", "outside the input root"),
        ("m.csv:5", "outside the input root"),
    ]
    local = listed(images, f"image\nfile://{images}/d%2C%20e.jpg\n")
    assert [key for key, *_ in records(local)] == ["d, e.jpg"]


def test_where_paths_are_looked_for_and_what_keys_are(tmp_path: Path) -> None:
    for name in ("in/lists/a.jpg", "in/a.jpg", "in/b.jpg", "more/c.jpg", "more/b.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "in/lists/m.csv").write_text("image\na.jpg\n../a.jpg\n./b.jpg\nc.jpg\n../../more/b.jpg\n")
    (tmp_path / "n.csv").write_text("image\nb.jpg\n")
    config = SourceConfig(
        "csv",
        str(tmp_path / "in"),
        annotations=("lists/m.csv", str(tmp_path / "n.csv")),
        image_roots=(str(tmp_path / "more"),),
    )
    SOURCE.check(config)
    items = [item for item in SOURCE.read(config, "/nowhere") if isinstance(item, ImageRecord) and item.image]
    assert [
        (item.key, item.image and item.image.uri.removeprefix(f"{tmp_path}/"), item.origin) for item in items
    ] == [
        ("lists/a.jpg", "in/lists/a.jpg", "lists/m.csv, line 2"),
        ("a.jpg", "in/a.jpg", "lists/m.csv, line 3"),
        ("b.jpg", "in/b.jpg", "lists/m.csv, line 4"),
        ("c.jpg", "more/c.jpg", "lists/m.csv, line 5"),
        ("b.jpg", "more/b.jpg", "lists/m.csv, line 6"),
        ("b.jpg", "in/b.jpg", "n.csv, line 2"),
    ]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "m.csv', which is empty"),
        ("\n \n", {}, "m.csv', which is empty"),
        ("image,label\n", {}, "which has a header and no row"),
        ("image,label\n\n\n", {}, "which has a header and no row"),
        ("image,x,x\na,b,c\n", {}, "header names two columns 'x'"),
        ("image,,x\na,b,c\n", {}, "header has no name for column 2"),
        (
            "image,x\na,b\n",
            {"image_column": "photo"},
            "--image_column is 'photo'; .* has the columns image, x",
        ),
        ("image,x\na,b\n", {"label_column": "y"}, "--label_column is 'y'; .* has the columns image, x"),
        ("image,x\na,b\n", {"label_column": "x,y"}, "--label_column is 'y'"),
        ("image,x\na,b\n", {"label_column": "image"}, "the column of the image paths"),
        ("image,x\na,b\n", {"label_pattern": "x"}, "--label_pattern is 'x', which has no group"),
        ("Image Path,n\na.jpg,1\n", {}, "by name, such as 'a.jpg'; give --image_column 'Image Path'$"),
        ("x,y\na,b\n", {"image_roots": (".",)}, "no column is named like one of image paths"),
        (b"\xff\xfe", {}, "which is empty"),
        ("image\na".encode("utf-16-le"), {}, "looks like UTF-16 without a byte order mark; save it as UTF-8"),
        ("image\na".encode("utf-16-be"), {}, "looks like UTF-16 without a byte order mark; save it as UTF-8"),
        ("image\na".encode("utf-32"), {}, "which is UTF-32; save it as UTF-8"),
        (b"\x89PNG\0\0", {}, "which is not a text file"),
        ('{"image": "a.jpg"}\n', {}, "which looks like JSON; --source jsonl"),
        (
            'image,"x\n',
            {},
            "first row cannot be read: not CSV: column 2 is in quotes that are not closed, up",
        ),
        (
            'image,label\n"a.jpg,cat\nb.jpg,dog\n',
            {},
            "no row below the header can be read: not CSV: column 1 is in quotes that are not closed, up to "
            "line 3, in the row that starts at line 2",
        ),
        ("photo|label\na.jpg|cat\n", {}, "give --image_column photo$"),
        (
            "id,photo\n1,a.jpg\n2,b.PNG \n3,\n",
            {},
            "the column 'photo' has images .* 'a.jpg'; give --image_col",
        ),
        ("id,photo\n1,gs://b/c/a.jpg\n", {}, "--image_column photo"),
        ("id,photo\n1,a.jpg\n", {"label_column": "id"}, "--image_column photo"),
        (
            "image,x\na,b\n",
            {"label_column": "x", "label_pattern": "(x)"},
            "SourceConfig.label_column is 'x' and SourceConfig.label_p",
        ),
        (
            "image,xmin,ymin,xmax,ymax,a,b\na.jpg,1,2,3,4,5,6\n",
            {"label_column": "a,b"},
            "--label_column is 'a,b', and a row with a box has one label",
        ),
        ("b.jpg,,,,,\na.jpg,1,2,3,4,cow\n", {}, "four numbers and a class; put a header above"),
        ("image_id,x_min,y_min,x_max,y_max\na,1,2,3,4\n", {}, "x_max, y_max.* --image_column image_id"),
        (
            'image_id,bbox\na,"[1, 2, 3, 4]"\n',
            {},
            r"boxes \(bbox\) need an image; give --image_column image_id",
        ),
    ],
)
def test_bad_calls(tmp_path: Path, text: str | bytes, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        listed(tmp_path, text, **options)
    assert "\n" not in str(caught.value)


def test_bad_calls_of_manifest_and_folder(images: Path) -> None:
    (images / "m.csv").write_text("image\na.jpg\n")
    (images / "sub/m.csv").write_text("photo\na.jpg\n")
    (images / "none").mkdir()
    (images / "n.txt").write_text("photo\nz.jpg\n")
    (images / "deep/er").mkdir(parents=True)
    (images / "deep/er/m.csv").write_text("image\na.jpg\n")
    for config, message in [
        (
            SourceConfig("csv", str(images)),
            f"a folder; --source csv reads a manifest: give --input {images} "
            f"--annotations {images}/m.csv --annotations {images}/sub/m.csv "
            f"--annotations {images}/deep/er/m.csv$",
        ),
        (SourceConfig("csv", str(images / "none")), "reads a manifest: name it with --annotations, or as"),
        (
            SourceConfig("csv", str(images), ("none.csv",)),
            "--annotations is 'none.csv': there is no such file",
        ),
        (SourceConfig("csv", f"{images}/m.csv", ("m.csv",)), "--input is the folder of the images"),
        (SourceConfig("csv", str(images), ("sub/m.csv",)), "such as 'a.jpg'; give --image_column photo$"),
        (SourceConfig("csv", str(images), ("n.txt",)), "name it with --image_column: photo"),
    ]:
        with pytest.raises(ValueError, match=message):
            SOURCE.check(config)


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8).filter(
    lambda text: not is_image_name(text.strip())  # a column of those asks for --image_column
)


@settings(max_examples=60)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8))
def test_what_the_csv_module_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([("a:x", "a:y"), *pairs])
    items = listed(tmp_path_factory.mktemp("csv"), out.getvalue())
    expected = [
        {name: cell for name, cell in zip(("a:x", "a:y"), pair, strict=True) if cell} for pair in pairs
    ]
    assert [features for *_, features in records(items)] == expected
    assert len({item.key for item in items}) == len(pairs)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        manifest = tmp_path / f"{rows}.csv"
        manifest.write_text("x,y\n" + "".join(f"{number},text\n" for number in range(rows)))
        tracemalloc.start()
        count = sum(1 for _ in SOURCE.read(SourceConfig("csv", str(manifest)), "/nowhere"))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == rows
        return used

    assert peak(40_000) < peak(4_000) + 300_000  # 36,000 records would be 20 MB
