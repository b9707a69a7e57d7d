"""Flags in messages: quoted for a shell, and replaced by parameters in errors of the Python API."""

import dataclasses
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from recordmill.pipelines import convert
from recordmill.pipelines.options.convert import CONVERT
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.flags import Flag, as_flags, as_parameters, flag_with, flags_of, parameters
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.read import ReadSource
from recordmill.transforms.records import JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.write import WriteDataset
from tests.images.drawn import encoded, gradient

CLASSES = (SourceConfig, DatasetConfig, ImagePolicy)


def test_each_flag_of_the_api_has_its_parameter() -> None:
    declared = {one.name for cls in CLASSES for one in flags_of(cls)}
    assert parameters().keys() == declared | {"output"}
    assert parameters().keys() <= {one.name for one in CONVERT.flags}
    assert parameters()["image_root"] == "SourceConfig.image_roots"
    assert parameters()["overwrite"] == "DatasetConfig(overwrite=True)"


@pytest.mark.parametrize("cls", CLASSES)
def test_each_field_is_documented_once(cls: Any) -> None:
    for field in dataclasses.fields(cls):
        assert cls.__doc__.count(f"\n    {field.name}: ") == 1
        assert field.metadata["flag"].help


def test_messages_name_parameters_whatever_was_imported() -> None:
    code = (
        "from recordmill.transforms.records import JobError\n"
        "print(JobError('--image_format, --limit and --order'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ImagePolicy.image_format, SourceConfig.limit and DatasetConfig.order\n"


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (Flag(help="x", name="x", values=("a", "b", "c")), "d", "--x is 'd'; it may be a, b or c"),
        (Flag(help="x", name="x", at_least=1), 0, "--x is 0; it may be 1 or more"),
        (Flag(help="x", name="x", at_least=0, at_most=1), float("nan"), "--x is nan; it may be 0 to 1"),
        (Flag(help="x", name="x", above=0, at_most=1), 0.0, "--x is 0; it may be above 0 and at most 1"),
        (Flag(help="x", name="x", at_least=1, at_most=9), (1, 10), "--x has 10; each may be 1 to 9"),
        (Flag(help="x", name="x", positional=True, metavar="X", values=("a",)), "b", "X is 'b'; it may be a"),
    ],
)
def test_values_are_checked_by_the_declaration(declared: Flag, value: object, message: str) -> None:
    declared.check(None)
    with pytest.raises(ValueError) as caught:
        declared.check(value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (
            "--output is '/a'; --overwrite replaces it",
            "WriteDataset.output is '/a'; DatasetConfig(overwrite=True) replaces it",
        ),
        ("--splits=a=0.5 adds up to 0.5", "DatasetConfig.splits=a=0.5 adds up to 0.5"),
        ("give --image_root the folder", "give SourceConfig.image_roots the folder"),
        ("which only --writer=shards uses", "which only DatasetConfig.writer=shards uses"),
        ("--runner and /a--output and --outputs stay", "--runner and /a--output and --outputs stay"),
    ],
)
def test_there_and_back(flags: str, named: str) -> None:
    assert as_parameters(flags) == named
    assert as_parameters(named) == named
    assert as_flags(named) == flags
    assert str(JobError(flags)) == named


def test_every_parameter_comes_back() -> None:
    for one, other in itertools.product(parameters(), parameters()):
        assert as_flags(as_parameters(f"--{one} is 1, and --{other}=2")) == f"--{one} is 1, and --{other}=2"


@pytest.mark.parametrize("cls", [ImagePolicy, DatasetConfig])
def test_none_is_refused_where_it_is_not_the_default(cls: type) -> None:
    for one in flags_of(cls):
        bounded = one.values or one.at_least is not None or one.at_most is not None
        if bounded and one.default is not None:
            with pytest.raises(ValueError, match=f"{one.field} is None; it may be "):
                cls(**{one.field: None})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SourceConfig("csv", "a", limit=0), "SourceConfig.limit is 0; it may be 1 or more"),
        (lambda: SourceConfig("csv", "~nosuchuser"), "SourceConfig.input is '~nosuchuser': there is no user"),
        (lambda: DatasetConfig(boxes="keep"), "DatasetConfig.boxes is 'keep'; it may be clip, drop or fail"),
        (
            lambda: DatasetConfig(writer="beam", seed=3),
            "DatasetConfig.seed is 3, which only DatasetConfig.writer=shards uses",
        ),
        (
            lambda: DatasetConfig(overwrite=True, dataset_version="auto"),
            "DatasetConfig(overwrite=True) replaces a dataset, and DatasetConfig.dataset_version=auto",
        ),
        (lambda: DatasetConfig(splits={"a": 0.5}), "DatasetConfig.splits=a=0.5 adds up to 0.5"),
        (lambda: ImagePolicy(jpeg_quality=0), "ImagePolicy.jpeg_quality is 0; it may be 1 to 100"),
        (
            lambda: ImagePolicy(jpeg_quality="5"),  # type: ignore[arg-type]
            "ImagePolicy.jpeg_quality is '5'; it may be 1 to 100",
        ),
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


@pytest.mark.slow
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
