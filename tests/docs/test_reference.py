"""docs/reference/: generated parts are as generated; the examples of sources are read."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from docs.generate import COMMANDS, ENVIRONMENT, documents
from recordmill.pipelines.options import dataflow
from recordmill.pipelines.options.parser import Command, help_text
from recordmill.transforms.examples.registry import SCHEMAS
from recordmill.transforms.shards import memory
from recordmill.transforms.sources.names import SPLIT_NAMES
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.sources.tables.columns import (
    CORNER_COLUMNS,
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    LIST_COLUMN,
    SIDE_COLUMNS,
    SPLIT_COLUMNS,
)
from tests.docs.inputs import draw_example, write_file
from tests.docs.pages import PAGES, ROOT, arguments, blocks, commands, in_backticks, rows, section, text_of
from tests.docs.test_code import run_command
from tests.pipelines.conversion import manifest

SOURCES_PAGE = text_of("docs/reference/sources.md")


def test_generated_files_are_as_generated() -> None:
    stale = [
        str(path.relative_to(ROOT)) for path, text in documents().items() if path.read_text("utf-8") != text
    ]
    assert not stale, f"out of date: {', '.join(stale)}; run `make reference`"


def test_every_generated_part_is_on_a_page() -> None:
    text = "".join(map(text_of, PAGES))
    named = set(re.findall(r"<!-- generated: (.*?) -->", text))
    parts = {"flags", "sources", "source flags", "reasons", "limits", "manifest", "environment"}
    of_api = {"public names", "feature shapes"}
    configs = {f"parameters: {name}" for name in ("SourceConfig", "DatasetConfig", "ImagePolicy")}
    assert named == configs | parts | of_api | {f"schema: {name}" for name in SCHEMAS} | {
        f"example: {name}" for name in SOURCES
    }


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_is_that_of_the_flags(command: Command) -> None:
    shown = " ".join(command.parser("x").format_help().split())
    for one in command.flags:
        assert one.shown in shown
        assert " ".join(help_text(one).split()) in re.sub(r"(?<=\w)- (?=\w)", "-", shown)


def read_variables(path: Path) -> set[str]:
    """The names of environment variables in a module that uses `os.environ`."""
    text = path.read_text("utf-8")
    if "environ" not in text:
        return set()
    constants = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    return {
        one
        for one in constants
        if isinstance(one, str) and re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*_?", one) and "_" in one
    }


def test_every_environment_variable_is_listed() -> None:
    found = {
        name
        for folder in ("recordmill", "pipelines", "transforms", "deploy/vertex")
        for path in (ROOT / folder).rglob("*.py")
        for name in read_variables(path)
    }
    of_libraries = {"GOOGLE_APPLICATION_CREDENTIALS", "TMPDIR"}
    assert found | of_libraries == set(ENVIRONMENT)


def test_the_defaults_of_dataflow_are_those_of_the_code() -> None:
    table = {
        name: row
        for page in PAGES
        for row in rows(text_of(page))
        if len(row) > 1
        for name in in_backticks(row[0])
        if page.startswith(("README", "docs/guides"))
    }
    assert table["--machine_type"][1] == f"`{dataflow.MACHINE_TYPE}`"
    assert table["--number_of_worker_harness_threads"][1].strip("`") == str(dataflow.HARNESS_THREADS)
    assert str(dataflow.MAX_WORKERS) in table["--max_num_workers"][1]
    assert table["--disk_size_gb"][1].strip("`") == str(dataflow.DISK_GB)


def test_every_warning_is_described() -> None:
    schema = json.loads((ROOT / "transforms/shards/manifest.schema.json").read_text("utf-8"))
    kinds = schema["properties"]["warnings"]["items"]["properties"]["kind"]["enum"]
    guides = [text_of(page) for page in PAGES if page.startswith("docs/guides/")]
    assert set(kinds) <= {
        name for text in guides for row in rows(text) for name in in_backticks(" ".join(row))
    }


def test_memory_of_the_beam_writer_is_that_of_the_code() -> None:
    assert f"{memory._SHUFFLE_FACTOR} times the size of the dataset" in " ".join(
        "".join(map(text_of, PAGES)).split()
    )


def test_names_of_splits_and_columns_are_those_of_the_code() -> None:
    text = " ".join(SOURCES_PAGE.split())
    (splits,) = re.findall(r"names of splits are (.*?)\. Case", text)
    assert set(in_backticks(splits)) == SPLIT_NAMES
    columns = {row[0]: tuple(in_backticks(row[1])) for row in rows(section("## csv", SOURCES_PAGE))}
    assert columns["image"] == IMAGE_COLUMNS
    assert columns["label"] == LABEL_COLUMNS
    assert columns["split"] == SPLIT_COLUMNS
    assert columns["corner and sides"] == SIDE_COLUMNS
    assert columns["the same in one list"][0] == LIST_COLUMN
    usual = iter(columns["two corners"])
    assert all(any(name == other for other in usual) for names in CORNER_COLUMNS for name in names[:1])


def test_every_source_has_a_section_with_a_command() -> None:
    titles = re.findall(r"^## (\w+)$", SOURCES_PAGE, re.MULTILINE)
    assert sorted(titles) == sorted(["Limits", *SOURCES])
    for name in SOURCES:
        assert any(one.language == "shell" for one in blocks(section(f"## {name}", SOURCES_PAGE))), name


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


def conversions(name: str, folder: Path) -> list[list[str]]:
    """Draws the example of a source. Returns the commands of its section."""
    text = section(f"## {name}", SOURCES_PAGE)
    draw_example(name, folder)
    if name in ("csv", "jsonl"):
        for number in (1, 2):
            write_file(folder / f"photos/{number}.jpg")
        lines = re.findall(r"^    ((?:filename|photos/).*,.*)$", text, re.MULTILINE)
        (folder / "boxes.csv").write_text("\n".join(lines), "utf-8")
    found = [words for one in blocks(text) if one.language == "shell" for words in commands(one.text)]
    return [words for words in found if arguments(words)]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("folder", "coco") else pytest.mark.slow) for name in SOURCES],
)
def test_each_source_lists_its_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = {}
    for words in conversions(name, tmp_path):
        run_command([*words, "--plan"])
        printed = dict(re.findall(r"^(\w+) +(\S+)", capsys.readouterr().out, re.MULTILINE))
        assert (printed["source"], printed["failed"]) == (name, "0")
    assert (int(printed["records"]), printed["schema"]) == WRITTEN[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SOURCES))
def test_each_source_reads_its_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in conversions(name, tmp_path):
        run_command(words)
        made = manifest(tmp_path / words[words.index("--output") + 1])
        assert made["source"]["kind"] == name
        assert made["counts"]["failed"] == 0
    assert (made["counts"]["written"], made["config"]["schema"]) == WRITTEN[name]
