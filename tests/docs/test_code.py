"""Commands and programs of the documents parse, and run on drawn inputs; see `tests.docs`."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import linecache
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

from docs.generate import COMMANDS
from recordmill.pipelines import cli
from tests.docs.inputs import draw_inputs
from tests.docs.pages import PAGES, ROOT, Block, arguments, blocks, commands, prose, text_of, write_modules

BY_NAME = {command.name: command for command in COMMANDS}
# Pages whose code has tests of its own.
_OTHERS = ("CONTRIBUTING.md", "docs/guides/map-image.md", "docs/recipes.md", "docs/reference/sources.md")
# What makes the first runs of a page quick and quiet.
_FLAGS = {"convert": ["--progress=none"], "sweep": ["--progress=none"], "verify": ["--quiet"]}
# The page that `make test` runs too.
_QUICK = "docs/index.md"
# Commands that need a bucket or a runner.
_ELSEWHERE = re.compile(r"gs://|--runner[= ](?!DirectRunner)")
# The dataset that programs read before a command of their page has written it.
_OUT = ["recordmill", "convert", "--input", "photos/", "--output", "out/"]
_USES_OUT = re.compile(r"(?<![\w./-])out(?![\w-])")
_WRITES_OUT = re.compile(r"--output[= ]out/?(?!\S)")
_FOREIGN = re.compile(r"^(?:from|import) (tfrecord|nvidia)\b", re.MULTILINE)


def runnable(page: str) -> list[Block]:
    return [one for one in blocks(text_of(page)) if one.is_run and one.language in ("shell", "python")]


RUN = [page for page in PAGES if page not in _OTHERS and runnable(page)]


def flags_of_beam() -> set[str]:
    """Every flag that Beam itself has; runners learn more from a job server."""
    parser = _BeamArgumentParser(add_help=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    return set(parser._option_string_actions)


def commands_of(page: str) -> list[list[str]]:
    found = [one for one in blocks(text_of(page)) if one.language in ("shell", "console")]
    return [words for one in found for words in commands(one.text)]


@pytest.mark.parametrize("page", PAGES)
def test_commands_parse(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_modules(text_of(page), tmp_path)
    of_beam = flags_of_beam()
    for words in commands_of(page):
        if (given := arguments(words)) is None:
            continue
        name = given[0]
        if name.startswith("--"):
            assert name in ("--help", "--version")
            continue
        try:
            _, others = BY_NAME[name].parser("recordmill").parse_known_args(given[1:])
        except SystemExit as ended:
            assert ended.code == 0 and "--help" in given, f"{words}: {capsys.readouterr().err}"
            continue
        unknown = {word.partition("=")[0] for word in others if word.startswith("--")} - of_beam
        assert not unknown, f"{words}: {unknown}"


@pytest.mark.parametrize("page", PAGES)
def test_make_has_the_targets(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    lines = [words for words in commands_of(page) if words[0] == "make"]
    # In the text, and in indented blocks.
    lines += [line.split() for line in re.findall(r"(?:^    |`)(make [a-z-]+)", text_of(page), re.MULTILINE)]
    for _, target, *variables in lines:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        for variable in variables:
            assert re.search(rf"\b{variable.partition('=')[0]}\b", makefile), variable


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_are_run_exist(page: str) -> None:
    if page == "CHANGELOG.md":  # whose older lines name older modules
        return
    for name in re.findall(r"python -m ((?:benchmarks|tests|recordmill)[\w.]*)", text_of(page)):
        assert importlib.util.find_spec(name), name


@pytest.mark.parametrize("page", PAGES)
def test_programs_compile(page: str) -> None:
    for one in blocks(text_of(page)):
        if one.language == "python":
            compile(one.text, f"{page}:{one.line}", "exec")


def test_no_flag_is_made_up() -> None:
    of_benchmarks = {"--images", "--small", "--rows", "--repeats", "--works", "--programs"}
    of_others = {
        "--number_of_execution_retries",  # of Flink's job server
        "--service_port",  # of Beam's pool of workers
        "--location",  # of gcloud
        *("--keep", "--replay"),  # of the fuzzers
    }
    ours = {one.shown for command in COMMANDS for one in command.flags} | {"--help", "--version"}
    allowed = ours | flags_of_beam() | of_benchmarks | of_others
    for page in PAGES:
        if not page.startswith("deploy/"):  # which has flags of gcloud and Terraform
            text = re.sub(r"`gcloud [^`]*`", "", prose(text_of(page)))
            named = set(re.findall(r"(?<![\w-])--[a-z_]+(?![\w-])", text))
            assert named <= allowed, f"{page}: {named - allowed}"


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run_command(words: list[str], status: int = 0) -> None:
    """Runs a `recordmill` command in this process."""
    given = arguments(words)
    assert given is not None
    more = list(_FLAGS.get(given[0], ()))
    if given[0] == "convert" and "--direct_num_workers" not in given:
        more.append("--direct_num_workers=1")
    if "--quiet" in given or "--progress" in " ".join(given):
        more = [one for one in more if one.startswith("--direct")]
    try:
        ended = cli.main([*given, *more])
    except SystemExit as exit_:
        ended = int(exit_.code or 0)
    assert ended == status, words
    if given[0] == "convert" and not status and "--output" in given and "--plan" not in given:
        check_counts(Path(given[given.index("--output") + 1]))


def check_counts(output: Path) -> None:
    """Nothing failed."""
    for made in output.rglob("manifest.json"):
        counts = json.loads(made.read_text("utf-8"))["counts"]
        assert counts["written"] and not counts["failed"], (output, counts)


def run_program(block: Block, page: str, names: dict[str, Any]) -> None:
    """Runs a program. A `print(…)  # TEXT` must print TEXT."""
    if foreign := _FOREIGN.search(block.text):
        if importlib.util.find_spec(foreign[1]) is not None:
            # Its protos and TensorFlow's do not go together in one process.
            call = [sys.executable, "-c", block.text]
            done = subprocess.run(call, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
        return
    name = f"{page}:{block.line}"
    expected = {
        number: found[1]
        for number, line in enumerate(block.text.splitlines(), 1)
        if (found := re.match(r"\s*print\(.*\)  # (.*)$", line))
    }

    def shown(*values, **more):  # type: ignore[no-untyped-def]  # Beam would check types
        out = io.StringIO()
        print(*values, **{**more, "file": out})
        number = sys._getframe(1).f_lineno
        if number in expected:
            assert out.getvalue().strip() == expected[number], f"{page}:{block.line + number - 1}"

    names["print"] = shown if expected else print  # Beam takes no function of other types
    # AutoGraph reads the source of functions.
    linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
    exec(compile(block.text, name, "exec"), names)


def _cases() -> Iterator[Any]:
    """The pages; all but one are slow."""
    for page in RUN:
        yield pytest.param(page, marks=() if page == _QUICK else pytest.mark.slow)


@pytest.mark.parametrize("page", _cases())
def test_code_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    is_drawn = False
    for block in runnable(page):
        draw_inputs(block.text, tmp_path)
        if _USES_OUT.search(block.text) and not _WRITES_OUT.search(block.text) and not Path("out").exists():
            draw_inputs("photos", tmp_path)
            run_command(_OUT)
            is_drawn = True
        if block.language == "python":
            run_program(block, page, names)
            continue
        for words in commands(block.text):
            if arguments(words) is None or _ELSEWHERE.search(" ".join(words)) or (is_drawn and words == _OUT):
                continue
            run_command(words, block.status)
