"""Names of the classes of a dataset: those of its manifest, else of what lies beside its files."""

from __future__ import annotations

from typing import NamedTuple

from recordmill.transforms.reading.dataset import Dataset
from recordmill.transforms.records import ClassNames, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.tfrecord.files import defined_classes, inputs, read_manifests


class NamesFound(NamedTuple):
    """What tells the names of classes.

    Attributes:
        names: by stored id, in the order of the ids.
        texts: what people call a class whose name is a code, by name.
        fault: why the names beside the files are not heeded; empty where they are, or there are none.
    """

    names: dict[int, str]
    texts: dict[str, str]
    fault: str = ""

    @property
    def shown(self) -> dict[int, str]:
        """What people call each class, by its id."""
        return {number: self.texts.get(name, name) for number, name in self.names.items()}


def class_names(dataset: Dataset) -> NamesFound:
    """The classes that the manifest, else label maps, else a label file of TFDS define.

    Raises:
        OSError: what lies beside the files cannot be read.
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
