"""A process that waits reads all that the page needs."""

from jinja2.meta import find_referenced_templates

from recordmill.transforms.pages.render import environment
from recordmill.transforms.reporting import ready


def test_all_templates_of_the_page_are_read() -> None:
    loader = environment().loader
    assert loader is not None
    needed: set[str | None] = set()
    new: set[str | None] = {"report.html"}
    while new:
        needed |= new
        sources = [loader.get_source(environment(), str(name))[0] for name in new]
        every = {name for text in sources for name in find_referenced_templates(environment().parse(text))}
        new = every - needed
    assert needed == set(ready.TEMPLATES)
