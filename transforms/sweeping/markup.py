"""What our pages are made of: a document that fetches nothing, escaped text, bars, pictures in the page."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def document(title: str, style: str, body: Iterable[str]) -> str:
    """A whole page, whose own policy forbids to fetch anything.

    Args:
        title: text.
        style: the style sheet.
        body: HTML, in parts; empty ones are left out.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n{joined(part for part in body if part)}</body>\n</html>\n"
    )


def escaped(value: object) -> str:
    """Text as HTML; what UTF-8 cannot hold becomes a question mark."""
    return html.escape(str(value).encode("utf-8", "replace").decode("utf-8"))


def joined(parts: Iterable[str]) -> str:
    """Parts, a line each."""
    return "".join(f"{part}\n" for part in parts)


def bars(rows: Sequence[tuple[str, int]]) -> str:
    """Bars with their figures, the longest 80 % wide.

    Args:
        rows: title, as HTML, and figure of each.
    """
    most = max((count for _, count in rows), default=0) or 1
    drawn = "".join(
        f'<span>{title}</span><div><i style="width:{80 * count / most:.1f}%"></i>{count:,}</div>'
        for title, count in rows
    )
    return f'<div class="bars">{drawn}</div>'


def data_uri(data: bytes, kind: str = "png") -> str:
    """A picture as an address.

    Args:
        data: an encoded image.
        kind: `png` or `webp`.
    """
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
