"""Which name of a JSON object is what. Every row tells for itself: no row has to have all the names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput, FeatureValue
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.tables.manifests import PEEKED
from recordmill.transforms.sources.tables.rows import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    Columns,
    split_columns,
    usual_name,
)

VERTEX_IMAGE = "imageGcsUri"
_REMEMBERED = 1_000  # sets of names that rows have


class RowColumns:
    """Finds the columns of each row by itself, with the precedence that a whole manifest has.

    Where two usual names of one meaning stand in a row, the better one counts and the other is a free
    feature: in all rows, so that no row's label is another one's feature.

    Args:
        columns: of the manifest, as its first rows and the flags tell.
        first: the first rows.
        config: of the source.
    """

    def __init__(self, columns: Columns, first: Sequence[Mapping[str, Any]], config: SourceConfig) -> None:
        self._has_images = columns.image is not None
        self._asked_image = columns.image if config.image_column is not None else None
        self._asked_labels = columns.labels if config.label_column is not None else ()
        asked = {name.lower() for name in (self._asked_image, *self._asked_labels) if name is not None}
        rows = [_by_lower(row, asked) for row in first]
        labels = () if config.label_pattern or config.label_column or not self._has_images else LABEL_COLUMNS
        self._image = _Meaning(IMAGE_COLUMNS, rows, "--image_column says which")
        self._label = _Meaning(labels, rows, "--label_column says which")
        names = {name for row in first for name in row}
        values = [flat(row, strict=False) for row in first]
        self._split = _Meaning(split_columns(names, values), rows, "rename one")
        self._asked = asked
        self._known: dict[tuple[str, ...], Columns] = {}

    def of(self, item: Mapping[str, Any]) -> Columns:
        """The columns of one row.

        Raises:
            BadInput: it has an image where the first rows have none, or a second name of a meaning
                that earlier rows have by itself.
        """
        names = tuple(item)
        usual = self._known.get(names)
        if usual is None:
            usual = self._usual(_by_lower(names, self._asked))
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[names] = usual
        if not self._asked:
            return usual
        image = usual.image if self._asked_image is None else _as_written(item, self._asked_image)
        labels = tuple(_as_written(item, name) for name in self._asked_labels) or usual.labels
        return Columns(image, labels, usual.split)

    def _usual(self, names: Mapping[str, str]) -> Columns:
        image = None if self._asked_image else self._image.pick(names)
        late = image or names.get(VERTEX_IMAGE.lower())
        if late is not None and not self._has_images:
            raise BadInput(
                "manifest",
                "image column comes late",
                f"{late!r}; the first {PEEKED} rows have none, so records are features alone; "
                f"give {flag_with('--image_column', late)}",
            )
        label = self._label.pick(names)
        return Columns(image, () if label is None else (label,), self._split.pick(names))


class _Meaning:
    """The usual names of one meaning, the best first."""

    def __init__(self, usual: Sequence[str], first: Iterable[Mapping[str, str]], remedy: str) -> None:
        self._usual = usual
        self._remedy = remedy
        self._taken: set[str] = set()
        self._features = {name for names in first for name in self._found(names)[1:]}

    def pick(self, names: Mapping[str, str]) -> str | None:
        """The name in a row, given by lower case, that has the meaning.

        Raises:
            BadInput: there are two, and earlier rows were read by the one that now comes second.
        """
        found = [name for name in self._found(names) if name not in self._features]
        if not found:
            return None
        best, *others = found
        if self._taken.intersection(others):
            told = ", ".join(repr(names[name]) for name in found)
            raise BadInput("manifest", "two columns of one meaning", f"{told}; {self._remedy}")
        self._features.update(others)
        self._taken.add(best)
        return names[best]

    def _found(self, names: Mapping[str, str]) -> list[str]:
        return [name for name in self._usual if name in names]


def _by_lower(names: Iterable[str], asked: set[str]) -> dict[str, str]:
    """Names by lower case, the first of those that are alike; without those that flags name."""
    found: dict[str, str] = {}
    for name in names:
        if (lower := name.lower()) not in asked:
            found.setdefault(lower, name)
    return found


def _as_written(item: Mapping[str, Any], name: str) -> str:
    """How a row writes a name that a flag gives: as it is, or else in another case."""
    if name in item:
        return name
    names = all_names(item)
    return name if name in names else usual_name((name.lower(),), names) or name


def all_names(item: Mapping[str, Any]) -> list[str]:
    """The names in an object, and those of inner objects as `outer/inner`."""
    return list(dict.fromkeys((*item, *flat(item, strict=False))))


def take(item: dict[str, Any], name: str) -> Any:
    """Takes a value out of an object by its name, or by `outer/inner`; None where there is none."""
    if name in item:
        return item.pop(name)
    for at in range(len(name)):
        inner = item.get(name[:at]) if name[at] == "/" else None
        if isinstance(inner, dict) and (value := take(inner, name[at + 1 :])) is not None:
            return value
    return None


def flat(item: Mapping[str, Any], strict: bool = True) -> dict[str, FeatureValue]:
    """The values of an object by name, those of inner objects as `outer/inner`; null is left out.

    A list of scalars is a tuple; a list that holds anything else is its JSON text.

    Raises:
        BadInput: two values come out under one name, or one has none; not raised unless `strict`.
    """
    features: dict[str, FeatureValue] = {}
    _gather(features, "", item, strict)
    return features


def _gather(features: dict[str, FeatureValue], prefix: str, item: Mapping[str, Any], strict: bool) -> None:
    for inner, value in item.items():
        name = f"{prefix}{inner}" if prefix else inner
        if isinstance(value, dict):
            _gather(features, f"{name}/", value, strict)
            continue
        if strict and (name in features or not name.strip("/")):
            raise BadInput(
                "manifest", "two values have the same name" if name else "a value has no name", name
            )
        if isinstance(value, list):
            is_flat = all(issubclass(kind, str | int | float) for kind in set(map(type, value)))
            features[name] = tuple(value) if is_flat else json.dumps(value, ensure_ascii=False)
        elif value is not None:
            features[name] = value
