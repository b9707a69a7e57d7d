"""The site: it builds without a warning, and its pages load nothing from a network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

_LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc(?:set)?=\"?(?:https?:)?//"
    r"|<link\b(?=[^>]*rel=\"?(?:stylesheet|preconnect|preload|icon))[^>]*href=\"?(?:https?:)?//"
    r"|@import|url\([\"']?(?:https?:)?//",
)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed")
def test_the_site_builds_and_needs_no_network(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")]
    assert len(pages) > 20
    for page in pages:
        assert not _LOADS.search(page.read_text("utf-8")), page
    assert (tmp_path / "search/search_index.js").exists()
