"""Whether one source's rule of detection fits an input."""

from __future__ import annotations

from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import why
from recordmill.transforms.sources.look import Look
from recordmill.transforms.sources.source import Source


def sniff(source: Source, config: SourceConfig) -> str | None:
    return why(source.name, Look(config))
