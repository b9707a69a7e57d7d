"""What is known of a dataset that parsing code is written for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.reading.class_names import class_names
from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.reading.inference import first_records, specs_of
from recordmill.transforms.reading.parsing_sample import ImageLayout, Sample, sample_of
from recordmill.transforms.reading.shard import opened
from recordmill.transforms.storage.files import is_file, read_bytes


@dataclasses.dataclass(frozen=True)
class Described:
    """What code is written for.

    Attributes:
        path: as it was given.
        folder: of the shards.
        splits: shards by split.
        features: by the name that they are stored under; of a sequence, its context.
        feature_lists: of one step.
        labels: class names by id.
        renames: our name of a feature, by its stored name.
        sample: what records tell beside it.
        compression: as tf.data.TFRecordDataset names it.
    """

    path: str
    folder: str
    splits: Mapping[str, tuple[ShardEntry, ...]]
    features: Mapping[str, FeatureSpec]
    feature_lists: Mapping[str, FeatureSpec]
    labels: Mapping[int, str]
    renames: Mapping[str, str]
    sample: Sample
    compression: str = ""

    @property
    def stored(self) -> dict[str, str]:
        """The stored name of each feature, by ours."""
        names = {self.renames.get(name, name): name for name in self.feature_lists}
        return {**names, **{self.renames.get(name, name): name for name in self.features}}

    def spec(self, name: str) -> FeatureSpec | None:
        """The spec of a feature by our name for it."""
        return self.features.get(self.stored.get(name, name))


def described(dataset: Dataset) -> Described:
    """What is needed of a dataset, of which the first records are read.

    Raises:
        ValueError: it has no record, or a shard is damaged.
        BadInput: a record is no Example.
        OSError: a shard cannot be read.
    """
    specs, payloads = specs_of(dataset), first_records(dataset.shards)
    sample = sample_of(dataset, specs, payloads)
    if sample.image is not None and sample.image.codec == "image":
        sample = dataclasses.replace(sample, image=_as_published(dataset, sample.image))
    return Described(
        dataset.path,
        dataset.folder,
        {split: shards for split, shards in dataset.splits.items() if shards},
        specs.features,
        specs.feature_lists,
        class_names(dataset).names,
        dataset.renames,
        sample,
        _compression(dataset.shards),
    )


def _as_published(dataset: Dataset, layout: ImageLayout) -> ImageLayout:
    """With the channels and the type that features.json has for all images, where there is one."""
    path = f"{dataset.folder}/features.json"
    if dataset.manifest is None or not is_file(path):
        return layout
    try:
        told: Any = json.loads(read_bytes(path))["featuresDict"]["features"][layout.key]["image"]
        dimensions, dtype = told["shape"]["dimensions"], told["dtype"]
    except (ValueError, KeyError, TypeError):
        return layout  # left as bytes there: no one shape fits
    return dataclasses.replace(layout, channels=max(int(dimensions[-1]), 0) or layout.channels, dtype=dtype)


def _compression(shards: Sequence[ShardEntry]) -> str:
    """As TensorFlow names that of the first shard with records."""
    for shard in shards:
        if shard.size:
            with opened(shard.path) as file:
                return file.compression
    return ""
