"""Links of the documents lead to files and headings that exist."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links, text_of


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    wrong = []
    for target in links(text_of(page)):
        if target.startswith(("https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        other = os.path.normpath(Path(page).parent / name) if name else page
        if not (ROOT / other).exists():
            wrong.append(f"{target}: there is no {other}")
        elif anchor and other.endswith(".md") and anchor not in anchors(text_of(other)):
            wrong.append(f"{target}: {other} has no such heading")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_images_have_a_text_for_those_who_do_not_see_them(page: str) -> None:
    text = text_of(page)
    assert re.findall(r"!\[\]\([^)]*\)|<img(?![^>]*alt=\"[^\"])[^>]*>", text) == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE))
    of_docs = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    of_repository = {f"repository/{page}" for page in PAGES if not page.startswith("docs/")}
    assert listed == (of_docs | of_repository) - {"repository/README.md"}
