"""Templates: every value is escaped, and every name that they use is given."""

import pytest
from jinja2 import UndefinedError

from recordmill.transforms.pages import render


def test_a_name_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'findings' is undefined"):
        render.render_page("report.html")


def test_values_are_escaped() -> None:
    page = render.environment().from_string("{{ value }} {{ value | name }}")
    text = page.render(value="<b>\"'&/x")
    assert text == ('&lt;b&gt;&#34;&#39;&amp;/x <bdi dir="ltr">&lt;b&gt;&#34;&#39;&amp;/<wbr>x</bdi>')


@pytest.mark.parametrize(
    ("data", "kind", "uri"),
    [(b"\0", "png", "data:image/png;base64,AA=="), (b"", "jpeg", "data:image/jpeg;base64,")],
)
def test_pictures_are_in_the_page(data: bytes, kind: str, uri: str) -> None:
    assert render.data_uri(data, kind) == uri
