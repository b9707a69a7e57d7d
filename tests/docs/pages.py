"""The pages of the documents: their blocks of code, commands, links and tables."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_GLOBS = ("*.md", "docs/**/*.md", "deploy/**/*.md")
PAGES = sorted(str(path.relative_to(ROOT)) for glob in _GLOBS for path in ROOT.glob(glob))
_BLOCK = re.compile(r"^(?:<!-- *(.*?) *-->\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMANDS = (("recordmill",), ("python", "-m", "recordmill"), ("python", "pipelines/convert.py"))


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    is_run: bool = True
    line: int = 1  # of its first line in the page
    status: int = 0  # with which its commands end


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a text, in order."""
    found = []
    for match in _BLOCK.finditer(text):
        mark = match[1] or ""
        line = text.count("\n", 0, match.start(3)) + 1
        status = int(mark.removeprefix("exit ")) if mark.startswith("exit ") else 0
        is_run = mark != "not run" and match[2] != "console"
        found.append(Block(match[2], match[3], is_run, line, status))
    return found


def write_modules(text: str, folder: Path) -> None:
    """Writes the Python modules of a page: the programs that begin with `# NAME.py`."""
    for one in blocks(text):
        if name := re.match(r"# (\w+\.py)\n", one.text):
            (folder / name[1]).write_text(one.text, "utf-8")


def commands(text: str) -> list[list[str]]:
    """The commands of a shell block, as argument lists."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def arguments(words: list[str]) -> list[str] | None:
    """The arguments of a `recordmill` command, its name first; None for another program."""
    for start in _COMMANDS:
        if tuple(words[: len(start)]) == start:
            return words[len(start) :]
    return None


def section(title: str, text: str) -> str:
    """The text under a heading, up to the next of the same level."""
    level, _, _ = title.partition(" ")
    found = re.search(rf"^{re.escape(title)}\n(.*?)(?=^{level} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows of a text, headers and rules included."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def in_backticks(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return _BLOCK.sub("", text)


def links(text: str) -> list[str]:
    """The targets of the links and images of a page."""
    inline = re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", prose(text))
    return inline + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", prose(text))


@functools.cache
def anchors(text: str) -> set[str]:
    """The anchors of a page: of its headings, and those that it names itself."""
    titles = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    slugs = {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}
    of_api = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    return slugs | set(of_api) | set(re.findall(r"id=\"([^\"]+)\"", text))
