"""Hooks of MkDocs: adds pages of the repository outside docs/, and makes the links to them work in the site.

Links in the sources are those of the repository, so that they also work where it is browsed.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
# Pages outside docs/. The site has them below repository/.
PAGES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/README.md",
    "deploy/vertex/trainer/README.md",
)
HOME = "index.md"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages."""
    for path in PAGES:
        if (ROOT / path).exists():
            files.append(File.generated(config, f"repository/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites the links that lead out of docs/, or from a page outside it.

    A link to a file that the site does not have becomes its text.
    """
    here = page.file.src_uri
    return _LINK.sub(lambda found: _link(found[1], found[2], here), markdown)


def _link(text: str, target: str, here: str) -> str:
    name, _, anchor = target.partition("#")
    if not name or ":" in name:
        return f"[{text}]({target})"
    uri = site_uri(posixpath.normpath(posixpath.join(posixpath.dirname(_repository_path(here)), name)))
    if uri is None:
        return text
    relative = posixpath.relpath(uri, posixpath.dirname(here))
    return f"[{text}]({relative}{'#' + anchor if anchor and uri != HOME else ''})"


def _repository_path(uri: str) -> str:
    """The path in the repository of a page of the site."""
    return uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}"


def site_uri(path: str) -> str | None:
    """The page of the site for a path in the repository; None if it has none."""
    if path == "README.md":  # the home page of the site is shorter, and has other headings
        return HOME
    if path in PAGES:
        return f"repository/{path}"
    return path.removeprefix("docs/") if path.startswith("docs/") else None
