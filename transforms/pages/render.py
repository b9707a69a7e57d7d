"""Renders a page from its template: one file that fetches nothing.

Templates escape every value. A name that a template uses and does not get is an error. The policy in the page
forbids scripts and requests.
"""

from __future__ import annotations

import base64
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recordmill.transforms.pages import text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render_page(template: str, **values: Any) -> str:
    """The page; a character that UTF-8 cannot encode becomes a question mark.

    Args:
        template: file name of a template, such as `report.html`.
        values: the names that the template uses.
    """
    page = environment().get_template(template).render(values)
    return page.encode("utf-8", "replace").decode("utf-8")


@functools.cache
def environment() -> Environment:
    """The Jinja environment of all pages. It caches templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,  # each template is rendered once
    )
    environment.filters.update(
        name=name_markup,
        data_uri=data_uri,
        number="{:,}".format,
        counted=text.counted,
        size=text.size_text,
        share=text.share_text,
        ssim=text.ssim_text,
    )
    return environment


def name_markup(name: object, longest: int = text.LONGEST_NAME) -> Markup:
    """A name from the data as HTML: in its own direction, in visible characters, shortened in the middle."""
    from markupsafe import Markup

    visible = text.visible(str(name), longest)
    # A path keeps the order of its parts in any script; a line may end between them.
    start = Markup('<bdi dir="ltr">' if "/" in visible else "<bdi>")  # nosec B704
    return start + Markup("/<wbr>").join(visible.split("/")) + Markup("</bdi>")


def data_uri(data: bytes, kind: str = "png") -> str:
    """An encoded image as an address; `kind` is its format."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
