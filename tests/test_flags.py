"""Flags in messages: quoted for a shell, and replaced by parameters in errors of the Python API."""

import argparse
import dataclasses
import itertools
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest

from recordmill.pipelines import convert
from recordmill.pipelines.options import convert_parser
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.flags import PARAMETERS, as_flags, as_parameters, flag_with
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.read import ReadSource
from recordmill.transforms.records import JobError
from recordmill.transforms.sources.source import SourceConfig
from recordmill.transforms.write import WriteDataset
from tests.images.drawn import encoded, gradient

CLASSES = {"SourceConfig": SourceConfig, "DatasetConfig": DatasetConfig, "ImagePolicy": ImagePolicy}


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    return {flag.removeprefix("--") for flag in parser._option_string_actions if flag.startswith("--")}


def test_each_parameter_is_there_and_has_its_flag() -> None:
    assert PARAMETERS.keys() <= flags_of(convert_parser("prog"))
    named = set()
    for parameter in PARAMETERS.values():
        match = re.fullmatch(r"(\w+)(?:\.(\w+)|\((\w+)=True\))", parameter)
        assert match is not None
        if match[1] != "WriteDataset":
            named.add((match[1], match[2] or match[3]))
    fields = {(name, field.name) for name, cls in CLASSES.items() for field in dataclasses.fields(cls)}
    assert named <= fields
    # Flags whose names are those of fields are all there.
    flags = flags_of(convert_parser("prog"))
    assert {field for _, field in fields if field in flags} <= PARAMETERS.keys() | {"kind"}


@pytest.mark.parametrize(
    ("flags", "parameters"),
    [
        (
            "--output is '/a'; --overwrite replaces it",
            "WriteDataset.output is '/a'; DatasetConfig(overwrite=True) replaces it",
        ),
        ("--splits=a=0.5 adds up to 0.5", "DatasetConfig.splits=a=0.5 adds up to 0.5"),
        ("give --image_root the folder", "give SourceConfig.image_roots the folder"),
        ("which only --writer=shards heeds", "which only DatasetConfig.writer=shards heeds"),
        ("--runner and /a--output and --outputs stay", "--runner and /a--output and --outputs stay"),
    ],
)
def test_there_and_back(flags: str, parameters: str) -> None:
    assert as_parameters(flags) == parameters
    assert as_parameters(parameters) == parameters
    assert as_flags(parameters) == flags
    assert str(JobError(flags)) == parameters


def test_every_parameter_comes_back() -> None:
    for one, other in itertools.product(PARAMETERS, PARAMETERS):
        assert as_flags(as_parameters(f"--{one} is 1, and --{other}=2")) == f"--{one} is 1, and --{other}=2"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SourceConfig("csv", "a", limit=0), "SourceConfig.limit is 0; it may be 1 or more"),
        (lambda: SourceConfig("csv", "~nosuchuser"), "SourceConfig.input is '~nosuchuser': there is no user"),
        (lambda: DatasetConfig(boxes="keep"), "DatasetConfig.boxes is 'keep'; it may be clip, drop or fail"),
        (
            lambda: DatasetConfig(writer="beam", seed=3),
            "DatasetConfig.seed is 3, which only DatasetConfig.writer=shards heeds",
        ),
        (
            lambda: DatasetConfig(overwrite=True, dataset_version="auto"),
            "DatasetConfig(overwrite=True) replaces a dataset, and DatasetConfig.dataset_version=auto",
        ),
        (lambda: DatasetConfig(splits={"a": 0.5}), "DatasetConfig.splits=a=0.5 adds up to 0.5"),
        (lambda: ImagePolicy(jpeg_quality=0), "ImagePolicy.jpeg_quality is 0; it may be 1 to 100"),
        (
            lambda: ImagePolicy(max_side=3, short_side=3),
            "ImagePolicy.max_side and ImagePolicy.short_side both decide the size",
        ),
        (lambda: WriteDataset("", DatasetConfig()), "WriteDataset.output is empty"),
        (lambda: WriteDataset("s3://a/b", DatasetConfig()), "WriteDataset.output is 's3://a/b'"),
    ],
)
def test_constructors_name_parameters(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value).startswith(message)
    assert "--" not in str(caught.value)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(encoded(gradient(), "PNG"))
    return tmp_path / "photos"


def test_a_pipeline_names_parameters(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text("{}")

    def run(source: SourceConfig) -> str:
        with pytest.raises(Exception) as caught, beam.Pipeline() as pipeline:
            pipeline | ReadSource(source) | WriteDataset(str(tmp_path / "out"), DatasetConfig())
        return str(caught.value)

    said = run(SourceConfig("folder", str(photos)))
    assert "which holds a dataset already; DatasetConfig(overwrite=True) replaces it" in said
    assert "--o" not in said
    said = run(SourceConfig("folder", str(photos / "none")))
    assert f"SourceConfig.input is '{photos}/none': there is no such file or folder" in said


def test_the_command_names_flags(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text("{}")
    call = [f"--input={photos}", f"--output={tmp_path}/out"]
    for flags, message in (
        ([], f"--output is '{tmp_path}/out', which holds a dataset already; --overwrite replaces it, or"),
        (
            ["--limit=1", "--boxes=drop", "--max_failure_ratio=2"],
            "--max_failure_ratio is 2; it may be 0 to 1",
        ),
        (["--jpeg_quality=0"], "--jpeg_quality is 0; it may be 1 to 100"),
        (["--label_column=a", "--label_pattern=b"], "--label_column is 'a' and --label_pattern 'b'"),
    ):
        with pytest.raises(SystemExit) as caught:
            convert.main([*call, *flags], "recordmill convert")
        assert caught.value.code == 2
        assert capsys.readouterr().err.startswith(f"recordmill convert: error: {message}")


def test_a_value_with_a_line_break_stays_in_one_line() -> None:
    assert flag_with("--image_column", "two\nlines' \0") == r"--image_column $'two\nlines\' \x00'"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("path", "--image_column path"),
        ("Image Path", "--image_column 'Image Path'"),
        ("it's $HOME", """--image_column 'it'"'"'s $HOME'"""),
        ("", "--image_column ''"),
        ("-x", "--image_column=-x"),
    ],
)
def test_a_flag_with_its_value(value: str, text: str) -> None:
    assert flag_with("--image_column", value) == text
    assert shlex.split(text) in (["--image_column", value], [f"--image_column={value}"])


def test_no_message_suggests_a_value_as_it_is() -> None:
    root = Path(__file__).parents[1]
    unquoted = re.compile(r"give --[a-z_]+[ =]\{(?!self\.name)")
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for folder in ("pipelines", "transforms")
        for path in (root / folder).rglob("*.py")
        for line in path.read_text().splitlines()
        if unquoted.search(line)
    ]
    assert found == []
