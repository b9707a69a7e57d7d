"""The `recordmill` command itself."""

import importlib.metadata

import pytest

from recordmill.pipelines import cli

COMMANDS = ("convert", "inspect", "verify", "report", "schema", "sweep", "formats")


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "usage: recordmill COMMAND [FLAGS]"
    assert [line.split()[0] for line in lines if line.startswith("  ") and line[2].islower()] == list(
        COMMANDS
    )


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    cli.main([])
    assert said == capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"recordmill {importlib.metadata.version('recordmill')}\n"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("conver", "argument command: invalid choice: 'conver'"),
        ("--quiet", "unrecognized arguments: --quiet"),
    ],
)
def test_no_such_command(argument: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([argument])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"recordmill: error: {message}")
    assert said.count("\n") == 1
