"""The README and docs/: commands and programs are run on drawn inputs, tables are held against the code."""

from __future__ import annotations

import contextlib
import csv
import gzip
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser
from PIL import Image, ImageDraw

from benchmarks.drawings import draw, draw_folder
from benchmarks.inputs import draw_digits
from recordmill.pipelines import cli, convert, formats
from recordmill.pipelines.options import dataflow
from recordmill.pipelines.options.documents import COMMANDS, documents
from recordmill.pipelines.options.parser import Command as FlagCommand
from recordmill.pipelines.options.parser import help_text
from recordmill.transforms.examples.columns import Column
from recordmill.transforms.examples.registry import SCHEMAS
from recordmill.transforms.examples.schema import DatasetSummary, SequenceSchema
from recordmill.transforms.images import png
from recordmill.transforms.images.reasons import MAX_PIXELS
from recordmill.transforms.shards import memory
from recordmill.transforms.sources.names import SPLIT_NAMES, is_image_name
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.sources.tables.columns import (
    CORNER_COLUMNS,
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    LIST_COLUMN,
    SIDE_COLUMNS,
    SPLIT_COLUMNS,
)
from recordmill.transforms.storage import gcs, gcs_client, lock, reader
from recordmill.transforms.workers import pool, task
from tests.pipelines.conversion import by_key, examples, failures, manifest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
SOURCES_PAGE = (ROOT / "docs/reference/sources.md").read_text("utf-8")
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/reference/sources.md",
    "docs/recipes.md",
    "docs/scale.md",
    "docs/reference/flags.md",
)
# What runs a command, and its arguments.
Command = tuple[Callable[[list[str]], int], list[str]]
WAYS_TO_CONVERT: dict[tuple[str, ...], Callable[[list[str]], int]] = {
    ("recordmill",): cli.main,
    ("python", "-m", "recordmill"): cli.main,
    ("python", "pipelines/convert.py"): convert.main,
}


def blocks(language: str, page: str = README) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def commands(page: str = README) -> list[list[str]]:
    """The commands of the shell blocks, in order, as argument lists."""
    lines = "".join(blocks("shell", page)).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def conversions(page: str = README) -> list[Command]:
    """What runs each command that converts, and its arguments."""
    found = []
    for words in commands(page):
        for start, run in WAYS_TO_CONVERT.items():
            if tuple(words[: len(start)]) == start:
                found.append((run, words[len(start) :]))
    return found


def section(title: str, page: str = README) -> str:
    """The text under a heading, up to the next of the same level."""
    level, _, _ = title.partition(" ")
    found = re.search(rf"^{re.escape(title)}\n(.*?)(?=^{level} |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows of a text, headers and rules included."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def named(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", text)


SIZE = (32, 24)  # of the pictures in the examples of sources
BOX = [4, 2, 10, 12]
_SIDES = "<xmin>4</xmin><ymin>2</ymin><xmax>14</xmax><ymax>14</ymax>"


def _xml(name: str) -> str:
    return (
        f"<annotation><filename>{{stem}}</filename><size><width>{SIZE[0]}</width><height>{SIZE[1]}</height>"
        f"</size><object><name>{name}</name><bndbox>{_SIDES}</bndbox></object></annotation>"
    )


def _coco(annotation: dict[str, Any], **category: object) -> str:
    image = {"id": 9, "file_name": "000000000009.jpg", "width": SIZE[0], "height": SIZE[1]}
    categories = [{"id": 18, "name": "dog", **category}]
    annotations = [{"id": 1, "image_id": 9, **annotation}]
    return json.dumps({"images": [image], "annotations": annotations, "categories": categories})


_LABELME = json.dumps(
    {
        "imagePath": "",
        "imageHeight": SIZE[1],
        "imageWidth": SIZE[0],
        "shapes": [{"label": "dog", "points": [[4, 2], [14, 2], [14, 14]], "shape_type": "polygon"}],
    }
)
_OPEN_IMAGES = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n0001eeaf4aed83f9,x,/m/0cmf2,1,0.1,0.5,0.2,0.6\n"
)
# What the files of the examples hold that are neither images nor containers, by name.
TEXTS = {
    "instances_train2017.json": _coco(
        {
            "category_id": 18,
            "bbox": BOX,
            "area": 120,
            "iscrowd": 0,
            "segmentation": [[4, 2, 14, 2, 14, 14, 4, 14]],
            "keypoints": [5, 5, 2],
        }
    ),
    "captions_train2017.json": _coco({"caption": "a dog"}),
    "panoptic_train2017.json": _coco(
        {"file_name": "000000000009.png", "segments_info": [{"id": 1, "category_id": 18}]}, isthing=1
    ),
    "2007_000027.xml": _xml("dog"),
    "n01440764_10040.xml": _xml("n01440764"),
    "train.txt": "2007_000027\n",
    "data.yaml": "train: images/train\nval: images/val\nnames: [dog]\n",
    "1.txt": "0 0.5 0.5 0.25 0.5\n",
    "2.txt": "0 0.25 0.25 0.75 0.25 0.5 0.75\n",
    "1.json": _LABELME,
    "2.json": _LABELME,
    "class-descriptions-boxable.csv": "/m/0cmf2,Airplane\n",
    "validation-annotations-bbox.csv": _OPEN_IMAGES,
    "classes.txt": "background\nroad\n",
    "ILSVRC2012_validation_ground_truth.txt": "1\n",
    "synset_words.txt": "n01440764 tench, Tinca tinca\n",
    "labels.txt": "start\nend\n",
    "timestamps.txt": "0.0\n0.04\n",
    "labels.csv": "path,label\nphotos/1.jpg,cat\nphotos/2.jpg,dog\n",
    "labels.jsonl": "".join(json.dumps({"image": f"photos/{n}.jpg", "label": "cat"}) + "\n" for n in (1, 2)),
    "label_map.pbtxt": "item { id: 1 name: 'cat' }",
}


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def draw_inputs(place: Path) -> None:
    """Draws the inputs that the README's commands name."""
    assert len(list(draw_folder(place / "photos", each=10))) == 30
    (place / "pets").mkdir()
    for name in ("cat_0.jpeg", "cat_1.png", "dog_0.jpg"):
        draw("circle", len(name), 32, 24).save(place / "pets" / name)
    keys = ["circle/circle_000.jpg", "square/square_000.jpg"]
    with (place / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        table = [["path", "label", "age"], *([f"photos/{key}", key[:6], "7"] for key in keys)]
        csv.writer(file).writerows(table)
    (place / "lists").mkdir()
    lines = [json.dumps({"image": key, "label": key.split("/")[0]}) for key in keys]
    (place / "lists/labels.jsonl").write_text("\n".join(lines), "utf-8")
    draw_digits(place / "mnist", 20)
    for name in ("coco", "voc", "yolo"):
        draw_example(name, place)
    write_records(place / "bloated/train.tfrecord")


def run_in(place: Path, commands: list[Command], *more: str) -> None:
    """Runs commands of the README."""
    flags = {"convert": ("--progress=none", *more), "sweep": ("--progress=none",), "verify": ("--quiet",)}
    with working_in(place):
        for run, arguments in commands:
            assert run([*arguments, *flags.get(arguments[0], ())]) == 0, arguments


def is_of_what_is_read(command: Command) -> bool:
    """Whether a command makes or reads a dataset that programs of the README read."""
    return any(word.startswith(("out/", "pixels/")) for word in command[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inputs, and with what programs read; the commands that read were run too."""
    place = tmp_path_factory.mktemp("readme")
    draw_inputs(place)
    commands = [one for one in conversions() if is_of_what_is_read(one) and "--overwrite" not in one[1]]
    run_in(place, commands, "--direct_num_workers=1")
    return place


def test_the_first_commands_do_what_is_said(folder: Path) -> None:
    assert manifest(folder / "out")["labels"] == {"0": "circle", "1": "square", "2": "triangle"}
    with Image.open(folder / "sheet.png") as sheet:
        assert sheet.format == "PNG" and sheet.width > 500
    assert "circle" in (folder / "out/report.html").read_text("utf-8")


@pytest.mark.slow
def test_every_conversion_is_planned(folder: Path) -> None:
    before = sorted(folder.iterdir())
    others = [one for one in conversions() if one[1][0] == "convert" and not is_of_what_is_read(one)]
    run_in(folder, others, "--plan")
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow
def test_the_other_commands_do_what_is_said(folder: Path) -> None:
    others = [one for one in conversions() if "--overwrite" in one[1] or not is_of_what_is_read(one)]
    run_in(folder, others, "--direct_num_workers=1")
    small = manifest(folder / "small")
    assert {name: len(split["shards"]) for name, split in small["splits"].items()} == {"train": 4, "val": 1}
    assert small["formats"] == {"jpeg": 30}
    assert manifest(folder / "pets-records")["labels"] == {"0": "cat", "1": "dog"}
    labelled = by_key(folder / "labelled")
    assert {one["age"][0] for one in labelled.values()} == {7}
    listed = by_key(folder / "listed")
    assert {key: one["image/class/text"] for key, one in listed.items()} == {
        "circle/circle_000.jpg": [b"circle"],
        "square/square_000.jpg": [b"square"],
    }
    assert set(manifest(folder / "mnist-records")["splits"]) == {"test"}
    (coco,) = by_key(folder / "coco-records").values()
    assert coco["image/object/class/label"] == [18] and coco["image/caption"] == [b"a dog"]
    assert {"image/object/mask", "image/object/keypoint/x", "image/panoptic/category/encoded"} <= set(coco)
    (pair,) = examples(folder / "voc-pairs")
    assert (
        np.frombuffer(pair["mask_raw"][0], np.uint8).reshape(SIZE[::-1])[2:14, 4:14].tolist()
        == [[1] * 10] * 12
    )
    assert len(pair["image_raw"][0]) == 3 * SIZE[0] * SIZE[1]
    assert by_key(folder / "yolo-records")["images/train/1.jpg"]["image/object/bbox/xmin"] == [0.375]
    (lean,) = examples(folder / "lean")
    assert lean["image/format"] == [b"jpeg"] and lean["image/class/label"] == [1]
    assert not (folder / "later").exists()
    assert {path.suffix for path in (folder / "sweep").iterdir()} == {
        ".html",
        ".png",
        ".svg",
        ".csv",
        ".json",
    }


def test_the_other_commands_are_there() -> None:
    others = [words for words in commands() if not any(words[0] == start[0] for start in WAYS_TO_CONVERT)]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert [words[:2] for words in others] == [["make", "convert"], ["make", "test"]]
    for _, target, *variables in others:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        for variable in variables:
            assert f"$({variable.partition('=')[0]})" in makefile


@pytest.mark.parametrize("flags", ["", "--images 500 --rows 20000 --digits 1000 --repeats 1"])
def test_the_benchmark_takes_these_flags(flags: str) -> None:
    from benchmarks.write import _parser

    assert f"python -m benchmarks.write {flags}".strip() in README
    assert _parser().parse_args(flags.split()).images == (500 if flags else 20_000)


def program(containing: str) -> tuple[str, CodeType]:
    """The one Python block with this text, and its code."""
    (source,) = [block for block in blocks("python") if containing in block]
    return source, compile(source, f"README.md, {containing}", "exec")


def printed(containing: str, folder: Path) -> list[str]:
    """What the program prints, line by line, run in `folder`."""
    _, code = program(containing)
    out = io.StringIO()
    with working_in(folder), contextlib.redirect_stdout(out):
        exec(code, {"__name__": "readme"})
    return out.getvalue().splitlines()


READERS = {
    "import load_dataset": r"^\('circle', 'square', 'triangle'\) 1$",
    "import tensorflow_datasets": r"\(<tf\.Tensor: shape=\(240, 320, 3\), dtype=uint8",
    "list_files": r"^\(240, 320, 3\) [012] (circle|square|triangle)$",
    "decode_raw": r"^\(240, 320, 3\)$",
    "from tfrecord": r"^\[[012]\] [0-9]{4,}$",
    "from nvidia": r"^\(240, 320, 3\) \[[012]\]$",
}
WRITERS = ("ReadSource(source)", "beam.FlatMap(polygons_only", "beam.Create(ROWS)")


def test_every_program_is_run() -> None:
    names = [*READERS, *WRITERS]
    assert sorted(program(name)[0] for name in names) == sorted(blocks("python"))


@pytest.mark.parametrize(
    "name", ["import load_dataset", "import tensorflow_datasets", "list_files", "decode_raw"]
)
def test_readers(folder: Path, name: str) -> None:
    text = "\n".join(printed(name, folder))
    assert len(re.findall(READERS[name], text, re.MULTILINE)) == (3 if name == "list_files" else 1), text


@pytest.mark.tfrecord
@pytest.mark.parametrize(("name", "package"), [("from tfrecord", "tfrecord"), ("from nvidia", "nvidia")])
def test_foreign_readers(folder: Path, name: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    # A process of its own: their protos and TensorFlow's do not go together.
    done = subprocess.run(
        [sys.executable, "-c", program(name)[0]], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == (7 if package == "tfrecord" else 1)
    assert all(re.search(READERS[name], line) for line in lines), lines


def test_a_source_in_a_pipeline_of_ones_own(folder: Path) -> None:
    import tensorflow as tf

    assert printed("ReadSource(source)", folder) == [str(folder / "from_source/manifest.json")]
    output = folder / "from_source"
    made = manifest(output)
    assert (made["source"]["kind"], made["config"]["name"]) == ("folder", "shapes")
    assert {name: len(split["shards"]) for name, split in made["splits"].items()} == {"train": 2, "val": 2}
    found = by_key(output)
    assert set(found) == {str(path.relative_to(folder / "photos")) for path in folder.rglob("photos/*/*.jpg")}
    for key, one in found.items():
        assert one["image/class/text"] == [key.split("/")[0].encode()]
        assert tf.io.decode_jpeg(one["image/encoded"][0]).shape == (240, 320, 3)
        assert len(one["image/encoded"][0]) < (folder / "photos" / key).stat().st_size
    assert made["counts"] == {"read": 30, "written": 27, "failed": 0, "skipped": 3}


def test_a_step_of_ones_own_behind_a_source(folder: Path) -> None:
    printed("beam.FlatMap(polygons_only", folder)
    output = folder / "polygons"
    found = by_key(output)
    assert {key.split("/")[0] for key in found} == {"square", "triangle"}
    assert {(one["image/class/text"][0], one["sides"][0]) for one in found.values()} == {
        (b"square of 4 sides", 4),
        (b"triangle of 3 sides", 3),
    }
    made = manifest(output)
    assert made["labels"] == {"0": "square of 4 sides", "1": "triangle of 3 sides"}
    assert made["counts"] == {"read": 30, "written": 18, "failed": 0, "skipped": 12}
    skipped = [one for one in failures(output) if one["reason"] == "not a polygon"]
    assert [one["key"].split("/")[0] for one in skipped] == ["circle"] * 9


def test_records_of_ones_own(folder: Path) -> None:
    import tensorflow as tf

    printed("beam.Create(ROWS)", folder)
    output = folder / "from_rows"
    found = by_key(output)
    assert {key: (one["camera"], one["image/class/label"]) for key, one in found.items()} == {
        "circle/circle_000.jpg": ([7], [0]),
        "square/square_000.jpg": ([3], [1]),
    }
    for key, one in found.items():
        stored = (folder / "photos" / key).read_bytes()
        np.testing.assert_array_equal(tf.io.decode_image(one["image/encoded"][0]), tf.io.decode_image(stored))
    assert failures(output) == [{"key": "camera 3", "stage": "list", "reason": "no file"}]


def test_the_page_of_flags_is_generated() -> None:
    (text,) = (text for path, text in documents().items() if path.name == "flags.md")
    remedy = "docs/reference/flags.md is out of date: python -m recordmill.pipelines.options.documents"
    assert (ROOT / "docs/reference/flags.md").read_text("utf-8") == text, remedy


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_is_that_of_the_flags(command: FlagCommand) -> None:
    shown = " ".join(command.parser("x").format_help().split())
    for one in command.flags:
        assert one.shown in shown
        assert " ".join(help_text(one).split()) in re.sub(r"(?<=\w)- (?=\w)", "-", shown)


def flags_of_beam() -> set[str]:
    """Every flag that Beam itself has; runners learn more from a job server."""
    parser = _BeamArgumentParser(add_help=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    return set(parser._option_string_actions)


def test_no_flag_is_made_up() -> None:
    of_the_benchmark = {"--images", "--rows", "--digits", "--repeats"}
    of_flink = {"--number_of_execution_retries"}  # learnt from the job server
    of_the_fuzzers = {"--minutes", "--samples", "--keep"}
    ours = {one.shown for command in COMMANDS for one in command.flags} | {"--help", "--version"}
    known = ours | flags_of_beam() | of_the_benchmark | of_flink | of_the_fuzzers
    for page in PAGES:
        mentioned = set(re.findall(r"(?<![\w-])--[a-z_]+", (ROOT / page).read_text("utf-8")))
        assert mentioned <= known, page


def test_the_defaults_of_dataflow_are_told() -> None:
    told = {name: row[1] for row in rows(section("## On Dataflow"))[2:] for name in named(row[0])}
    assert told["--machine_type"] == f"`{dataflow.MACHINE_TYPE}`"
    assert told["--number_of_worker_harness_threads"] == str(dataflow.HARNESS_THREADS)
    assert told["--max_num_workers"] == f"`THROUGHPUT_BASED`, {dataflow.MAX_WORKERS}"
    assert told["--disk_size_gb"] == str(dataflow.DISK_GB)


def test_the_table_of_sources_is_that_of_the_command() -> None:
    assert formats.markdown(list(SOURCES.values())) in section("## Sources")
    text = " ".join(section("## Sources").split())
    (splits,) = re.findall(r"Split names are (.*?), in any", text)
    assert set(named(splits)) == SPLIT_NAMES


def test_the_columns_are_those_that_are_known() -> None:
    told = rows(section("## csv", SOURCES_PAGE))
    columns = {row[0]: tuple(named(row[1])) for row in told}
    assert columns["image"] == IMAGE_COLUMNS
    assert columns["label"] == LABEL_COLUMNS
    assert columns["split"] == SPLIT_COLUMNS
    assert columns["corner and sides"] == SIDE_COLUMNS
    assert columns["the same in one list"][0] == LIST_COLUMN
    usual = iter(columns["two corners"])
    assert all(any(name == other for other in usual) for names in CORNER_COLUMNS for name in names[:1])


def test_the_sources_are_all_described() -> None:
    titles = re.findall(r"^## (.*)$", SOURCES_PAGE, re.MULTILINE)
    assert sorted(titles) == sorted(["Limits", *SOURCES])
    for name, source in SOURCES.items():
        text = section(f"## {name}", SOURCES_PAGE)
        assert text.startswith("\n" + textwrap.indent(source.description.example, "    ") + "\n"), name


def example_files(example: str) -> dict[str, list[str]]:
    """Paths of the files in an example tree; of a container, those in it."""
    found: dict[str, list[str]] = {}
    above: list[str] = []
    for line in example.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        above[depth:] = [line.strip()]
        parts = [part.rstrip("/") for part in above]
        container = next((at for at, part in enumerate(above) if not part.endswith("/")), depth)
        if line.endswith("/"):
            continue
        members = found.setdefault("/".join(parts[: container + 1]), [])
        if container < depth:
            members.append("/".join(parts[container + 1 :]))
    return found


def draw_example(name: str, place: Path) -> None:
    """Draws the example tree of a source, with contents for each of its files."""
    for path, members in example_files(SOURCES[name].description.example).items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".tar":
            with tarfile.open(file, "w") as tar:
                for member in members or ["0001.jpg", "0001.cls", "0001.json"]:
                    info = tarfile.TarInfo(member)
                    info.size = len(data := member_bytes(member))
                    tar.addfile(info, io.BytesIO(data))
        elif file.suffix == ".zip":
            with zipfile.ZipFile(file, "w") as archive:
                for member in members:
                    archive.writestr(member, member_bytes(member))
        else:
            write_file(file)


def member_bytes(name: str) -> bytes:
    """Contents of a member of an archive."""
    if not is_image_name(name):
        return {"cls": b"1", "json": b'{"age": 7}'}[name.rpartition(".")[2]]
    stored = io.BytesIO()
    draw("circle", 1, *SIZE).save(stored, "PNG" if name.endswith("png") else "JPEG")
    return stored.getvalue()


def write_file(file: Path) -> None:
    """Writes a file of an example."""
    if file.parent.name in ("SegmentationClass", "masks", "validation", "panoptic_train2017") and (
        file.suffix == ".png"
    ):
        mask = Image.new("RGB" if "panoptic" in file.parent.name else "L", SIZE)
        ImageDraw.Draw(mask).rectangle((4, 2, 13, 13), fill=1)
        mask.save(file)
    elif is_image_name(file.name):
        file.write_bytes(member_bytes(file.name))
    elif file.name == "meta.mat":  # map_clsloc.txt tells the same
        file.with_name("map_clsloc.txt").write_text("n01440764 1 tench\n", "utf-8")
    elif file.suffix == ".gz":
        file.write_bytes(gzip.compress(idx_bytes(is_labels="labels" in file.name)))
    elif file.suffix == ".npy":
        np.save(file, np.arange(2) if file.name[0] == "y" else np.zeros((2, *SIZE, 3), np.uint8))
    elif file.suffix == ".tfrecord":
        write_records(file)
    elif file.suffix == ".parquet":
        image = {"bytes": member_bytes("1.png"), "path": None}
        pyarrow.parquet.write_table(pyarrow.table({"image": [image], "label": [1]}), file)
    elif file.name == "series.jsonl":
        lines = re.findall(r"^    (\{.*\})$", section("## sequence", SOURCES_PAGE), re.MULTILINE)
        file.write_text("\n".join(lines), "utf-8")
    else:
        file.write_text(TEXTS[file.name].replace("{stem}", f"{file.stem}.jpg"), "utf-8")


def idx_bytes(is_labels: bool) -> bytes:
    """An IDX file of two digits, or of their labels."""
    shape = (2,) if is_labels else (2, 28, 28)
    head = bytes((0, 0, 8, len(shape))) + b"".join(side.to_bytes(4, "big") for side in shape)
    return head + bytes(int(np.prod(shape)))


def write_records(file: Path) -> None:
    """A TFRecord file of one record of raw pixels, by TensorFlow."""
    import tensorflow as tf

    pixels = np.asarray(draw("circle", 1, *SIZE)).tobytes()
    numbers = {"height": SIZE[1], "width": SIZE[0], "depth": 3, "label": 1}
    features = {name: tf.train.Feature(int64_list={"value": [value]}) for name, value in numbers.items()}
    features["image_raw"] = tf.train.Feature(bytes_list={"value": [pixels]})
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(tf.train.Example(features={"feature": features}).SerializeToString())


# Records of the last command of each section, and their schema.
WRITTEN = {
    "folder": (3, "classification"),
    "csv": (2, "detection"),
    "jsonl": (2, "classification"),
    "imagenet": (2, "imagenet"),
    "coco": (1, "detection,panoptic"),
    "voc": (1, "plain"),
    "yolo": (2, "detection"),
    "labelme": (2, "detection"),
    "openimages": (1, "detection"),
    "masks": (1, "segmentation"),
    "tfrecord": (3, "classification"),
    "webdataset": (2, "classification"),
    "archive": (2, "classification"),
    "parquet": (3, "classification"),
    "numpy": (4, "classification"),
    "idx": (2, "classification"),
    "frames": (1, "sequence"),
    "sequence": (2, "sequence"),
}


def source_commands(name: str, place: Path) -> list[Command]:
    """Draws the example of a source. Returns the conversions of its section."""
    text = section(f"## {name}", SOURCES_PAGE)
    draw_example(name, place)
    if name in ("csv", "jsonl"):
        for number in (1, 2):
            write_file(place / f"photos/{number}.jpg")
        lines = re.findall(r"^    ((?:filename|photos/).*,.*)$", text, re.MULTILINE)
        (place / "boxes.csv").write_text("\n".join(lines), "utf-8")
    return conversions(text)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("folder", "coco", "csv") else pytest.mark.slow)
        for name in SOURCES
    ],
)
def test_each_source_lists_its_example(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = {}
    for command in source_commands(name, tmp_path):
        run_in(tmp_path, [command], "--plan")
        printed = dict(re.findall(r"^(\w+) +(\S+)", capsys.readouterr().out, re.MULTILINE))
        assert (printed["source"], printed["failed"]) == (name, "0")
    assert (int(printed["records"]), printed["schema"]) == WRITTEN[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SOURCES))
def test_each_source_reads_its_example(name: str, tmp_path: Path) -> None:
    for command in source_commands(name, tmp_path):
        run_in(tmp_path, [command], "--direct_num_workers=1")
        made = manifest(tmp_path / command[1][command[1].index("--output") + 1])
        assert made["source"]["kind"] == name
        assert made["counts"]["failed"] == 0
    assert (made["counts"]["written"], made["config"]["schema"]) == WRITTEN[name]


# All that a schema may have features for.
ANNOTATED = (
    *("labels", "objects", "object_masks", "keypoints", "parts", "captions"),
    *("class", "instance", "panoptic", "frames", "step_labels"),
)


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_the_features_are_those_of_the_schema(name: str) -> None:
    (table,) = re.findall(
        rf"^\| `{name}`[^|]*\|.*?\n\n", section("## What is in a record"), re.MULTILINE | re.DOTALL
    )
    told = []
    for row in rows(table)[2:]:
        if row[0].startswith("every other"):
            continue
        keys = named(row[0])
        told += [key.replace("…", keys[0].rpartition("/")[0]) for key in keys]
    attributes = ("is_crowd", "area", "difficult", "truncated", "view")
    summary = DatasetSummary(
        True,
        (1, 1),
        formats=frozenset({"raw"}),
        attributes=dict.fromkeys(attributes, Column("int64", ())),
        annotated=frozenset(ANNOTATED),
    )
    schema = SCHEMAS[name]
    lists = schema.list_specs(summary) if isinstance(schema, SequenceSchema) else {}
    assert sorted(told) == sorted({*schema.specs(summary), *lists})


def test_the_manifest_is_described(folder: Path) -> None:
    told = [name for row in rows(section("## What comes out"))[2:] for name in named(row[0])]
    assert told == list(manifest(folder / "out"))


def headings(page: str) -> set[str]:
    """The anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text("utf-8")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        other = os.path.normpath(Path(page).parent / name) if name else page
        assert (ROOT / other).exists(), target
        assert not anchor or anchor in headings(other), target


def test_the_folders_of_the_map_are_all_there_are() -> None:
    told = {name for row in rows(section("## Map of the code"))[2:] for name in named(row[0])}
    assert all(list(ROOT.glob(name)) or list((ROOT / "transforms").glob(name)) for name in told)
    assert "recordmill/" in told
    folders = {f"transforms/{path.parent.name}/" for path in (ROOT / "transforms").glob("*/__init__.py")}
    assert folders <= told


def test_the_limits_of_time_are_told() -> None:
    text = " ".join(README.split())
    assert f"does not end within {pool.ITEM_SECONDS:g} seconds" in text
    assert f"may take {task.ITEM_CPU_SECONDS:g} seconds of processor time" in text
    assert f"and {task.CPU_SECONDS_PER_MEGAPIXEL:g} more for each megapixel" in text
    assert f"{task.cpu_seconds(MAX_PIXELS):.0f} at the most, since images of more than {MAX_PIXELS:,}" in text
    assert f"at most {png._LONGEST_TEXT >> 20} MiB a keyword" in text
    assert f"dead after {lock._LockFile.dead_seconds:g} seconds without a sign of life" in text
    assert f"in a bucket after {lock._LockObject.dead_seconds:g}." in text
    assert f"written with a precondition and renewed every {lock._LockObject.renew_seconds:g} seconds" in text
    assert f"for {gcs_client._RETRY_SECONDS:g} seconds each" in text
    assert (
        f"up to {gcs_client.CONNECTIONS} requests under way, and holds up to {reader._IMAGES} images" in text
    )
    assert f"images or {reader._BYTES >> 20} MB (or one image)" in text
    assert f"up to {gcs._LARGEST_COPY >> 20} MB" in text
    assert f"{memory._SHUFFLE_FACTOR} times the size of the dataset" in text


def test_every_warning_is_described() -> None:
    described = [name for row in rows(section("## Warnings"))[2:] for name in named(row[0])]
    schema = json.loads((ROOT / "transforms/shards/manifest.schema.json").read_text("utf-8"))
    assert described == schema["properties"]["warnings"]["items"]["properties"]["kind"]["enum"]
