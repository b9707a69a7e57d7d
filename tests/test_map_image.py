"""MapImage: which function it is, and that other processes can load it."""

from __future__ import annotations

import functools
import importlib
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.map_image import MapImage
from recordmill.transforms.records import JobError

HELPER = "def added():\n    return 1\n"
MODULE = (
    "import {helper}\n\nFACTOR = 2\n\n\ndef work(number):\n    return FACTOR * number + {helper}.added()\n"
)


def twice(number: int) -> int:
    return 2 * number


class Maker:
    """Its instances are functions, whose source is not theirs alone."""

    def __call__(self, number: int) -> int:
        return number

    def work(self, number: int) -> int:
        return number


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[str, str]:
    """The names of two new modules in the working directory; the first imports the second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    stem = re.sub(r"\W", "_", request.node.name)
    names = f"steps_{stem}", f"helper_{stem}"
    (tmp_path / f"{names[0]}.py").write_text(MODULE.format(helper=names[1]))
    (tmp_path / f"{names[1]}.py").write_text(HELPER)
    importlib.invalidate_caches()
    return names


def parsed_elsewhere(text: str) -> str:
    """The function of a text as a new process has it."""
    code = (
        "import sys; from recordmill import MapImage; one = MapImage.parse(sys.argv[1]); "
        "print(one, one.load()(3))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, text], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.slow
def test_the_source_identifies_a_function(names: tuple[str, str], tmp_path: Path) -> None:
    text = f"{names[0]}:work"
    first = parsed_elsewhere(text)
    assert re.fullmatch(rf"{text}@sha256:[0-9a-f]{{16}} 7", first)
    assert parsed_elsewhere(text) == first
    assert parsed_elsewhere(f"{text}@3.1") == f"{text}@3.1 7"
    # Of another size: Python may take a file of the same second and size as unchanged.
    edits = (names[0], "FACTOR = 2", "FACTOR = 1 + 2", 10), (names[1], "1", "2 + 3", 14)
    for name, old, new, result in edits:
        path = tmp_path / f"{name}.py"
        path.write_text(path.read_text().replace(old, new))
        after = parsed_elsewhere(text)
        assert after != first and after.endswith(f" {result}")
        first = after


def test_a_function_is_sent_with_its_code(names: tuple[str, str]) -> None:
    """A process that finds neither module loads it."""
    made = MapImage.parse(f"{names[0]}:work")
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).load()(3))"
    sent = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(made), capture_output=True, cwd="/", check=True
    )
    assert sent.stdout == b"7\n"


@pytest.mark.parametrize(
    ("name", "statement", "expression", "helper"),
    [
        ("h", "from h import K", "K", "K = 1"),
        ("h", "from h import *", "K['a']", "K = {'a': 1}"),
        ("h", "from h import m", "m()", "class M:\n    def __call__(self):\n        return 1\nm = M()"),
        ("h", "", "K", "K = 1"),
        ("spaced.h", "import spaced.h", "spaced.h.K", "K = 1"),
        ("packed.h", "import packed.h", "packed.h.K", "K = 1"),
        ("packed.sub.h", "from packed.sub import top", "top.K()", "def K():\n    return 1"),
    ],
)
def test_all_that_a_module_imports_identifies_it(
    name: str,
    statement: str,
    expression: str,
    helper: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values, instances, packages with and without an empty __init__.py, imports within functions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    body = "" if statement else f"    from {name} import K\n"
    (tmp_path / "s.py").write_text(f"{statement}\n\n\ndef work():\n{body}    return {expression}\n")
    path = tmp_path / f"{name.replace('.', '/')}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.startswith("packed"):
        (tmp_path / "packed/__init__.py").touch()
        (path.parent / "__init__.py").touch()
        (path.parent / "top.py").write_text("from .h import K\n")
    made = []
    for value in ("1", "23"):
        path.write_text(helper.replace("1", value))
        for one in [one for one in sys.modules if one.split(".")[0] in ("s", "h", "spaced", "packed")]:
            monkeypatch.delitem(sys.modules, one)
        importlib.invalidate_caches()
        made.append(MapImage.parse("s:work"))
        if not body:
            code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())())"
            call = [sys.executable, "-c", code]
            sent = subprocess.run(call, input=made[-1].pickled, capture_output=True, cwd="/", check=True)
            assert sent.stdout.decode().strip() == value
    assert made[0] != made[1]


def test_an_edited_file_is_not_the_imported_module(names: tuple[str, str], tmp_path: Path) -> None:
    made = MapImage.parse(f"{names[0]}:work")
    path = tmp_path / f"{names[0]}.py"
    path.write_text(path.read_text().replace("FACTOR = 2", "FACTOR = 2 + 2"))
    assert MapImage.parse(f"{names[0]}:work") == made
    importlib.reload(sys.modules[names[0]])
    again = MapImage.parse(f"{names[0]}:work")
    assert again != made and again.load()(3) == 13


def test_installed_functions_are_sent_by_name() -> None:
    made = MapImage.parse("textwrap:dedent")
    assert made.pickled is not None and len(made.pickled) < 100
    assert made.load()("  a") == "a"


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda sample: sample, "test_map_image:<lambda>"),
        (functools.partial(twice, 3), "functools:partial"),
        (Maker(), "test_map_image:Maker"),
        (Maker().work, "test_map_image:Maker.work"),
    ],
)
def test_a_function_without_a_source_needs_a_version(function: Any, name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}, and no source identifies it: .* state a version"):
        MapImage.of(function)
    assert MapImage.of(function, version="2").identity == "2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("crops", "it may be MODULE:FUNCTION or MODULE:FUNCTION@VERSION"),
        ("no_such_module:f", "there is no module 'no_such_module', neither in"),
        ("json.no_such:f", "there is no module 'json.no_such', neither in"),
        ("textwrap:no_such", r"textwrap.py has no 'no_such'"),
        ("string:digits", "'digits' is not a function"),
        ("broken_step:f", "importing 'broken_step' fails with ZeroDivisionError: division by zero"),
        ("needs_more:f", "importing 'needs_more' fails with ModuleNotFoundError: No module named 'no_more'"),
        ("made_step:f", "no source identifies it: state a version, such as made_step:f@1"),
    ],
)
def test_wrong_texts(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken_step.py").write_text("1 / 0\n")
    (tmp_path / "needs_more.py").write_text("import no_more\n")
    (tmp_path / "made_step.py").write_text("f = lambda sample: sample\n")
    with pytest.raises(ValueError, match=rf"--map_image is '{text}'.*{message}"):
        MapImage.parse(text)


def test_a_function_that_cannot_be_sent() -> None:
    held = threading.Lock()
    with pytest.raises(ValueError, match="cannot be sent to workers: TypeError: cannot pickle"):
        MapImage.of(lambda sample: held, version="1")


def test_a_module_that_workers_lack() -> None:
    with pytest.raises(
        JobError, match="map_image is a:b, which this worker cannot load: ModuleNotFoundError"
    ):
        MapImage("a", "b", "1", b"cno_such_module\nf\n.").load()


def test_the_configuration_names_the_function() -> None:
    plain, mapped = DatasetConfig(), DatasetConfig(map_image=MapImage.of(twice))
    assert "map_image" not in plain.as_json()
    assert mapped.as_json()["map_image"] == str(MapImage.of(twice))
    again = DatasetConfig.from_json(mapped.as_json())
    assert again == mapped and again.map_image is not None and again.map_image.pickled is None
    assert len({one.digest({}) for one in (plain, mapped, again)}) == 2
    with pytest.raises(ValueError, match="it may be MapImage.of"):
        DatasetConfig(map_image=twice)  # type: ignore[arg-type]


def test_the_quality_of_changed_images() -> None:
    policy = ImagePolicy(jpeg_quality=80)
    assert DatasetConfig(policy, map_image=MapImage.of(twice)).policy.jpeg_quality == 80
    with pytest.raises(ValueError, match="ImagePolicy.jpeg_quality is 80, which only"):
        DatasetConfig(policy)
