"""What is in records: their keys with dtypes, shapes and values, their images and their classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recordmill.transforms.examples.wire import Feature
from recordmill.transforms.reading.survey_classes import CLASS_KEYS, Classes, is_class
from recordmill.transforms.reading.survey_parsed import Parsed, facts_of, fields_of, image_in, parsed
from recordmill.transforms.reading.survey_values import Range, Values
from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.tfrecord.records import IMAGE_KEYS, Fields

_MOST_KEYS = 2_000
_MOST_IMAGES = 64  # of one feature of one record


class Survey:
    """Counts what is in records.

    Args:
        renames: our name of a feature, by the name that it is stored under.
        names: of classes by id, as what lies beside the records tells them.

    Attributes:
        records: that were taken in.
        examples: of them.
        sequences: of them.
        empty: Examples without a feature, which are among the examples.
        others: that are neither.
        unread: too large to be looked into.
        sizes: bytes of each record.
        features: by stored name; of a sequence, those of its context.
        lists: feature lists, by stored name.
        classes: by our name of the feature that has them.
        misdeclared: images that have another height or width than the features beside them say.
        left_out: keys that were too many to be counted.
    """

    def __init__(self, renames: Mapping[str, str], names: Mapping[int, str]) -> None:
        self._renames = renames
        self._names = names
        self.records = self.examples = self.sequences = self.empty = self.others = self.unread = 0
        self.misdeclared = self.left_out = 0
        self.sizes = Range()
        self.features: dict[str, Values] = {}
        self.lists: dict[str, Values] = {}
        self.classes: dict[str, Classes] = {}

    @property
    def parsed(self) -> int:
        """Records whose features were looked at."""
        return self.examples + self.sequences

    def add_size(self, size: int) -> None:
        """Takes in a record that is too large to be looked into."""
        self.records += 1
        self.unread += 1
        self.sizes.add(size, size)

    def add(self, payload: bytes) -> int:
        """Takes in a record; the number of values it has."""
        try:
            record = parsed(payload)
        except BadInput:
            self.add_size(len(payload))
            return 0
        self.records += 1
        self.sizes.add(len(payload), len(payload))
        if record is None:
            self.others += 1
            return 0
        self.sequences += bool(record.lists)
        self.examples += not record.lists
        self.empty += not payload
        self._add_features(record)
        self._add_lists(record)
        return record.values

    def _add_features(self, record: Parsed) -> None:
        ours = fields_of(record.payload, record.features, self._renames)
        for name, feature in record.features.items():
            values = self._values(self.features, name)
            if values is None:
                continue
            values.records += 1
            values.add(record.payload, feature)
            self._add_images(values, name, feature, ours)
        self._add_classes(ours)

    def _add_lists(self, record: Parsed) -> None:
        for name, steps in record.lists.items():
            values = self._values(self.lists, name)
            if values is None:
                continue
            values.records += 1
            values.steps.add(len(steps), len(steps))
            for number, step in enumerate(steps):
                values.add(record.payload, step)
                if step.spans and number < _MOST_IMAGES:
                    beside = {**record.features, name: step}
                    self._add_images(values, name, step, fields_of(record.payload, beside, self._renames))
                if self._renames.get(name, name) in CLASS_KEYS:
                    self._add_classes(fields_of(record.payload, {name: step}, self._renames))

    def _add_images(self, values: Values, name: str, feature: Feature, ours: Fields) -> None:
        """Takes in those values of a feature that are images."""
        our_name = self._renames.get(name, name)
        if len(feature.spans) != 1:
            found = (facts_of(ours.record, span) for span in feature.spans[:_MOST_IMAGES])
            values.add_images(facts for facts in found if facts is not None)
            return
        facts = image_in(ours.record, our_name, feature.spans[0], ours)
        if facts is None:
            return
        values.add_images([facts])
        if our_name in IMAGE_KEYS and facts.height:
            shape = ours.shape()
            told = ((shape.height, facts.height), (shape.width, facts.width))
            self.misdeclared += any(said is not None and said != real for said, real in told)

    def _add_classes(self, ours: Fields) -> None:
        for name, beside in CLASS_KEYS.items():
            if is_class(name, ours.features):
                classes = self.classes.setdefault(name, Classes(self._names))
                classes.add(ours.record, ours.features[name], ours.features.get(beside))

    def _values(self, found: dict[str, Values], name: str) -> Values | None:
        """What is counted of a key; None where there are too many keys."""
        if name not in found:
            if len(found) >= _MOST_KEYS:
                self.left_out += 1
                return None
            found[name] = Values()
        return found[name]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "kinds": {
                "examples": self.examples,
                "sequence_examples": self.sequences,
                "without_features": self.empty,
                "others": self.others,
                "not_looked_into": self.unread,
            },
            "record_bytes": self.sizes.as_json(),
            "features": {name: values.as_json(self.parsed) for name, values in sorted(self.features.items())},
            "feature_lists": {
                name: values.as_json(self.parsed) for name, values in sorted(self.lists.items())
            },
            "classes": {name: classes.as_json() for name, classes in self.classes.items()},
            "images_misdeclared": self.misdeclared,
        }
