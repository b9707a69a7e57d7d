"""Preloads the modules and templates of report.html in a worker process that has no task yet."""

from recordmill.transforms.pages.render import environment
from recordmill.transforms.reporting import page

__all__ = ["TEMPLATES", "page"]

TEMPLATES = ("base.html", "charts.html", "report.html", "style.css")

for _name in TEMPLATES:
    environment().get_template(_name)
