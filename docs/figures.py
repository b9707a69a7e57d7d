"""Runs the tests of docs/promises.md, and writes how much they tried into the page: `make figures`."""

from __future__ import annotations

import collections
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree  # of pytest  # nosec B405

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/promises.md"
ROW = re.compile(r"^(\|.*\| `(tests/[\w/]+\.py::\w+)` \|)(.*)\|$", re.MULTILINE)


def main() -> None:
    """The command. Raises CalledProcessError if a test fails."""
    page = PAGE.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        tests = dict.fromkeys(row[2] for row in ROW.finditer(page))
        call = [sys.executable, "-m", "pytest", "-m", "", f"--junitxml={results}", "-n", "2", *tests]
        subprocess.run(call, cwd=ROOT, check=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
        found = figures(results.read_text("utf-8"))
    PAGE.write_text(with_figures(page, found), "utf-8")


def figures(results: str) -> dict[str, str]:
    """How much each test tried, from the results of pytest in the format of JUnit.

    These are the sums of what it recorded with the fixture `figure`; of a test that recorded nothing, the
    number of its cases. Skipped cases do not count.
    """
    sums: dict[str, collections.Counter[str]] = {}
    for case in ElementTree.fromstring(results).iter("testcase"):  # nosec B314
        path = case.attrib["classname"].replace(".", "/")
        name = f"{path}.py::{case.attrib['name'].partition('[')[0]}"
        found = sums.setdefault(name, collections.Counter())
        if case.find("skipped") is not None:
            continue
        recorded = list(case.iter("property"))
        for one in recorded:
            found[one.attrib["name"]] += int(one.attrib["value"])
        if not recorded:
            found["cases"] += 1
    return {name: ", ".join(_shown(*one) for one in found.items()) for name, found in sums.items()}


def with_figures(page: str, found: Mapping[str, str]) -> str:
    """The page with other figures; skipped tests keep theirs. Raises KeyError for a test that was not run."""
    return ROW.sub(lambda row: f"{row[1]} {found[row[2]] or row[3].strip()} |", page)


def _shown(name: str, count: int) -> str:
    return f"{count:,} {name.removesuffix('s') if count == 1 else name}"


if __name__ == "__main__":
    main()
