"""Several schemas at once: one record holds the features of all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage


@dataclasses.dataclass(frozen=True, slots=True)
class Combined:
    """The features of several schemas; shared features are written once.

    A mask that a record lacks is an empty list: a record may have objects only, or masks only.

    Attributes:
        schemas: two or more, whose shared features are equal.
    """

    schemas: tuple[s.Schema, ...]

    @property
    def name(self) -> str:
        """As in `--schema`."""
        return ",".join(schema.name for schema in self.schemas)

    @property
    def first_id(self) -> int:
        """The smallest that all of them allow."""
        return max(schema.first_id for schema in self.schemas)

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        """The fields that any of them needs; see `Schema.needs`."""
        return frozenset().union(*(schema.needs(annotated) for schema in self.schemas))

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        features: dict[str, Feature] = {}
        for schema in self.schemas:
            features |= schema.features(record, image, mapped, settings)
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a dataset; see `Schema.specs`.

        Raises:
            ValueError: two of the schemas do not agree on a feature.
        """
        specs: dict[str, s.FeatureSpec] = {}
        owners: dict[str, str] = {}
        for owner, name, spec in self._own_specs(summary):
            if specs.setdefault(name, spec) != spec:
                raise ValueError(
                    f"the schemas {owners[name]!r} and {owner!r} both write {name}, with different specs; "
                    "choose one of them as --schema"
                )
            owners.setdefault(name, owner)
        return specs

    def _own_specs(self, summary: s.DatasetSummary) -> Iterator[tuple[str, str, s.FeatureSpec]]:
        for schema in self.schemas:
            for name, spec in schema.specs(summary).items():
                optional = dataclasses.replace(spec, shape=(None,)) if spec.role == "mask" else spec
                yield schema.name, name, optional
