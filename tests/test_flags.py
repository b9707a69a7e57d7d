"""Flags in messages can be pasted into a shell."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from transforms.flags import flag_with


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
