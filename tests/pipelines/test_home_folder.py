"""`~` at the start of a path that the user gives is the home folder, in each command and in the API."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines import inspection, report, schema_code
from recordmill.pipelines.options.convert import parse_convert
from recordmill.pipelines.options.inspect import INSPECT
from recordmill.pipelines.options.reading import REPORT, SCHEMA
from recordmill.pipelines.options.sweep import parse_sweep
from recordmill.pipelines.options.verify import parse_verify
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.reading.dataset import find_dataset
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.write import WriteDataset
from tests.images.drawn import encoded, gradient


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / "photos").mkdir(parents=True)
    (folder / "photos" / "a.png").write_bytes(encoded(gradient(), "PNG"))
    (folder / "names.txt").write_text("cat\n")
    (folder / "out").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_of_convert_and_sweep(home: Path) -> None:
    parsers: list[Callable[..., Any]] = [parse_convert, parse_sweep]
    for parse in parsers:
        flags = ["--input=~/photos", "--output=~/out", "--label_file=~/names.txt", "--source=folder"]
        parsed = parse(flags, "prog")
        assert (parsed.source.input, parsed.output) == (f"{home}/photos", f"{home}/out")
        assert parsed.dataset.label_names == ("cat",)


def test_of_annotations_and_image_roots(home: Path) -> None:
    (home / "labels.csv").write_text("path,label\na.png,cat\n")
    flags = ["--input=~/photos", "--output=~/out", "--annotations=~/labels.csv", "--image_root=~/photos"]
    parsed = parse_convert(flags, "prog")
    assert parsed.source.annotations == (f"{home}/labels.csv",)
    assert parsed.source.image_roots == (f"{home}/photos",)


def test_of_the_commands_that_take_a_path(home: Path) -> None:
    assert INSPECT.parser("prog").parse_args(["~/out"]).path == f"{home}/out"
    assert INSPECT.parser("prog").parse_args(["x", "--images=~/a.png"]).images == f"{home}/a.png"
    assert SCHEMA.parser("prog").parse_args(["~/out"]).path == f"{home}/out"
    parsed = REPORT.parser("prog").parse_args(["~/out", "--output=~/page.html"])
    assert (parsed.path, parsed.output) == (f"{home}/out", f"{home}/page.html")
    (home / "a.tfrecord").write_bytes(b"")
    verified = parse_verify(["~/a.tfrecord", "--report=~/report.json"], "prog")
    assert (verified.path, verified.report) == (f"{home}/a.tfrecord", f"{home}/report.json")


def test_of_the_python_api(home: Path) -> None:
    source = SourceConfig("csv", "~/photos", annotations=("~/a.csv", "b.csv"), image_roots=("~",))
    assert (source.input, source.annotations) == (f"{home}/photos", (f"{home}/a.csv", "b.csv"))
    assert source.image_roots == (str(home),)
    assert SourceConfig.from_json(source.as_json()).input == f"{home}/photos"
    assert WriteDataset("~/new", DatasetConfig()).run.published == f"{home}/new"
    (home / "a.tfrecord").write_bytes(b"")
    assert find_dataset("~/a.tfrecord").path == f"{home}/a.tfrecord"
    assert not (home.parent / "~").exists()


def test_only_at_the_start(home: Path) -> None:
    assert absolute("a/~") == f"{home.parent}/a/~"
    assert absolute("./~x") == f"{home.parent}/~x"
    assert absolute("gs://bucket/~/x") == "gs://bucket/~/x"


CALLS: list[tuple[Callable[[Sequence[str]], object], list[str]]] = [
    (lambda argv: parse_convert(argv, "prog"), ["--input=~nosuchuser/x", "--output=out"]),
    (lambda argv: parse_convert(argv, "prog"), ["--input=home/photos", "--output=~nosuchuser/x"]),
    (lambda argv: parse_sweep(argv, "prog"), ["--input=~nosuchuser/x", "--output=out"]),
    (lambda argv: parse_verify(argv, "prog"), ["~nosuchuser/x"]),
    (inspection.main, ["~nosuchuser/x"]),
    (report.main, ["~nosuchuser/x"]),
    (schema_code.main, ["~nosuchuser/x"]),
]


@pytest.mark.parametrize(("call", "argv"), CALLS)
def test_a_user_who_is_not_there(
    home: Path, capsys: pytest.CaptureFixture[str], call: Callable[[Sequence[str]], object], argv: list[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        call(argv)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert (
        "'~nosuchuser/x': there is no user 'nosuchuser'; a file or folder of that name is ./~nosuchuser/x"
        in said
    )
    assert sorted(path.name for path in home.parent.iterdir()) == ["home"]


def test_a_user_who_is_not_there_in_python(home: Path) -> None:
    with pytest.raises(ValueError, match="there is no user 'nosuchuser'"):
        SourceConfig("folder", "~nosuchuser/x")
    with pytest.raises(ValueError, match="there is no user 'nosuchuser'"):
        WriteDataset("~nosuchuser/x", DatasetConfig())
    with pytest.raises(ValueError, match="there is no user 'nosuchuser'"):
        find_dataset("~nosuchuser/x")
