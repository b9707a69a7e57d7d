"""Recordmill: image datasets to sharded TFRecords, on Apache Beam.

from recordmill import load_dataset
train = load_dataset("out/", "train", size=(224, 224), batch_size=32)

The names in `__all__` are imported when they are first used (PEP 562): importing this package imports neither
Beam nor TensorFlow, and `load_dataset` never imports Beam.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recordmill.pipelines.input import DatasetInfo, dataset_info, load_dataset
    from recordmill.transforms.annotations.sample import Sample
    from recordmill.transforms.config import DatasetConfig
    from recordmill.transforms.images.policy import ImagePolicy
    from recordmill.transforms.map_image import MapImage
    from recordmill.transforms.read import ReadSource
    from recordmill.transforms.records import (
        AnnotatedObject,
        Annotations,
        BadInput,
        Box,
        ClassNames,
        Failure,
        ImageRecord,
        ImageRef,
        JobError,
        MaskImage,
        Part,
        Rle,
        Segment,
        Steps,
    )
    from recordmill.transforms.sources.config import SourceConfig
    from recordmill.transforms.sources.detection.detect import detect
    from recordmill.transforms.sources.registry import source_of
    from recordmill.transforms.write import WriteDataset

__version__ = "0.1.0"

__all__ = [
    "AnnotatedObject",
    "Annotations",
    "BadInput",
    "Box",
    "ClassNames",
    "DatasetConfig",
    "DatasetInfo",
    "Failure",
    "ImagePolicy",
    "ImageRecord",
    "ImageRef",
    "JobError",
    "MapImage",
    "MaskImage",
    "Part",
    "ReadSource",
    "Rle",
    "Sample",
    "Segment",
    "SourceConfig",
    "Steps",
    "WriteDataset",
    "dataset_info",
    "detect",
    "load_dataset",
    "source_of",
]

# The module of each public name that is not in `transforms.records`.
_MODULES = {
    "DatasetConfig": "transforms.config",
    "DatasetInfo": "pipelines.input",
    "ImagePolicy": "transforms.images.policy",
    "MapImage": "transforms.map_image",
    "ReadSource": "transforms.read",
    "Sample": "transforms.annotations.sample",
    "SourceConfig": "transforms.sources.config",
    "WriteDataset": "transforms.write",
    "dataset_info": "pipelines.input",
    "detect": "transforms.sources.detection.detect",
    "load_dataset": "pipelines.input",
    "source_of": "transforms.sources.registry",
}

_folder = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(_folder, "pipelines")):
    # A checkout, where pipelines/ and transforms/ are next to this folder.
    __path__.append(os.path.dirname(_folder))


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'transforms.records')}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
