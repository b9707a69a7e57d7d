"""Large libraries that some tests need, imported when one of these first asks for a name of theirs.

Every worker collects every test: what the modules import themselves is paid for by each of them.
"""

from __future__ import annotations

import importlib
from typing import Any


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for some at every name of a module
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


tf = _Lazy("tensorflow")
tfds = _Lazy("tensorflow_datasets")
keras = _Lazy("keras")
jsonschema = _Lazy("jsonschema")
skimage_color = _Lazy("skimage.color")
skimage_metrics = _Lazy("skimage.metrics")
