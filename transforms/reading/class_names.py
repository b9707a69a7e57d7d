"""Names of the classes of a dataset: from its manifest, or from files next to its shards."""

from __future__ import annotations

from typing import NamedTuple

from recordmill.transforms.reading.dataset import Dataset
from recordmill.transforms.records import ClassNames, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.tfrecord.files import defined_classes, inputs, read_manifests


class NamesFound(NamedTuple):
    """Names of classes.

    Attributes:
        names: by stored id, in the order of the ids.
        texts: display text by name, for classes whose names are codes.
        fault: why the files with names cannot be used; empty if they can, or there are none.
    """

    names: dict[int, str]
    texts: dict[str, str]
    fault: str = ""

    @property
    def shown(self) -> dict[int, str]:
        """The display text, or else the name, of each class by id."""
        return {number: self.texts.get(name, name) for number, name in self.names.items()}


def class_names(dataset: Dataset) -> NamesFound:
    """The classes that the manifest, else label maps, else a label file of TFDS define.

    Raises:
        OSError: the files next to the shards cannot be read.
    """
    if dataset.manifest is not None or not dataset.shards:
        return NamesFound(dataset.labels, {})
    is_folder = dataset.path == dataset.folder
    try:
        others = inputs(
            SourceConfig(kind="tfrecord", input=dataset.folder if is_folder else dataset.shards[0].path)
        ).others
        found = defined_classes(others, read_manifests(others)) or ClassNames({})
    except JobError as error:
        return NamesFound({}, {}, str(error))
    return NamesFound(dict(sorted(found.names.items())), dict(found.texts))
