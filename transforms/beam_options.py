"""The Beam options of a job. Each group is parsed once."""

from __future__ import annotations

from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions


class Options(PipelineOptions):
    """Options that keep their views. Beam asks for some two hundred, and parses all flags again for each."""

    def view_as(self, cls: type[PipelineOptions]) -> Any:
        """The options as `cls`; all views share the values."""
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_views"}
