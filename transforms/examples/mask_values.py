"""`--mask_values`: classes that are merged or ignored in masks."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from recordmill.transforms.examples.labels import BACKGROUND, Label, LabelMap
from recordmill.transforms.records import IGNORE

_IGNORED = str(IGNORE)
_INTEGER = re.compile(r"-?[0-9]+")
_LARGEST = 65_535
_SHOWN_NAMES = 8


def with_ignored(values: Mapping[str, str], ignored: Iterable[str]) -> dict[str, str]:
    """Replacements, and `ignored` classes as replacements by 255. Raises ValueError for one in both."""
    found = {str(old).strip(): str(new).strip() for old, new in values.items()}
    for old in map(str.strip, map(str, ignored)):
        if old in found:
            raise ValueError(
                f"--ignore_label is {old!r}, and --mask_values has {old}={found[old]}; give one of them"
            )
        found[old] = _IGNORED
    return found


def check_mask_values(values: Mapping[str, str]) -> None:
    """Raises ValueError for replacements that are wrong for any classes."""
    for old, new in values.items():
        if old == _IGNORED:
            raise _wrong(old, new, f"{IGNORE} is ignored already; leave it out")
        for one in (old, new):
            if _INTEGER.fullmatch(one) and not 0 <= int(one) <= _LARGEST:
                raise _wrong(old, new, f"{one} is not a value of a mask, which has 0 to {_LARGEST}")
        if old == new:
            raise _wrong(old, new, "it replaces a class by itself; leave it out")
        if new in values:
            raise _chain(old, new, new, values)


def _chain(old: str, new: str, replaced: str, values: Mapping[str, str]) -> ValueError:
    """The error for a class that is replaced by one that is `replaced`."""
    if values[replaced] == old:
        why = f"{replaced} is replaced by {old}; --label_file and --label_offset give classes other ids"
        return _wrong(old, new, why)
    return _wrong(old, new, f"{replaced} is replaced, too; give {old}={values[replaced]}")


def _wrong(old: str, new: str, why: str) -> ValueError:
    flag = f"--ignore_label is {old!r}" if new == _IGNORED else f"--mask_values has {old}={new}"
    return ValueError(f"{flag}: {why}")


def with_mask_values(
    labels: LabelMap,
    values: Mapping[str, str],
    annotated: frozenset[str],
    used: Collection[Label],
    classes: Mapping[int, str] | None = None,
) -> LabelMap:
    """Labels whose classes are merged and ignored in masks.

    Args:
        labels: of the dataset.
        values: checked replacements: values of the source or names on both sides.
        annotated: kinds of annotations, as in `FeatureSettings`.
        used: stored labels of images and objects, whose names stay.
        classes: names by the source's own ids, if the source has them.

    Raises:
        ValueError: a name is unknown, a value cannot occur, or a class is replaced twice, or by a replaced
            class.
    """
    if not values:
        return labels
    find = _Finder(labels, annotated, classes or {})
    found = {old: find(old, old, new) for old, new in values.items()}
    names = dict(labels.labels)
    mask_values: dict[int, int] = {}
    merged: dict[int, int] = {}
    for old, new in values.items():
        to = find.target(old, new)
        _check(old, new, to, found, values)
        mask_values.update(dict.fromkeys(found[old].values, to))
        if (stored := found[old].stored) is not None:
            merged[stored] = to
        if names and to not in (0, IGNORE):  # `recordmill verify` accepts no id without a name
            names.setdefault(to, new)
    kept = {labels.ids.get(label) for label in used}
    left = {number: name for number, name in sorted(names.items()) if number not in merged or number in kept}
    return dataclasses.replace(labels, labels=left, mask_values=mask_values, merged=merged)


class _Class(NamedTuple):
    """A class, or a value without a class.

    Attributes:
        stored: the id of its labels; None for a value without a class.
        values: of its pixels in masks of classes.
    """

    stored: int | None
    values: frozenset[int]


@dataclasses.dataclass(frozen=True)
class _Finder:
    """Finds classes by their names, or by their values in the source."""

    labels: LabelMap
    annotated: frozenset[str]
    classes: Mapping[int, str]

    def __call__(self, text: str, old: str, new: str) -> _Class:
        """The class that a text in `old=new` means. A number that is the name of a class means that class."""
        mask_ids, stored = self.labels.mask_ids, self.labels.ids.get(text)
        values = {one for one, name in self.classes.items() if name == text}
        if stored is None:
            values = {int(text)} if _INTEGER.fullmatch(text) else values
            known = (self.labels.ids.get(one, (mask_ids or {}).get(one)) for one in sorted(values))
            stored = next((one for one in known if one is not None), None)
        if stored is None and self._is_background(text):
            stored = 0
        if stored is None and not (values and "class" in self.annotated):
            raise self._unknown(text, old, new)
        if mask_ids is not None:
            values |= {one for one, number in mask_ids.items() if number == stored}
        elif not values and stored is not None:
            values = {stored - self.labels.offset}
        return _Class(stored, frozenset(values))

    def target(self, old: str, new: str) -> int:
        """The id that replaces a class in masks."""
        if new == _IGNORED:
            return IGNORE
        stored = self(new, old, new).stored
        if stored is None:
            if not _INTEGER.fullmatch(new):
                raise self._unknown(new, old, new)
            stored = int(new) + self.labels.offset
            if stored in self.labels.labels:
                name = self.labels.labels[stored]
                raise _wrong(old, new, f"{new} is no class, and would be stored as {stored}, {name!r}")
        if not 0 <= stored <= _LARGEST or stored == IGNORE:
            ids = f"ids are 0 to {_LARGEST}, and {IGNORE} is to ignore"
            raise _wrong(old, new, f"{new} would be stored as {stored}; {ids}")
        return stored

    def _is_background(self, text: str) -> bool:
        """Whether a text means the 0 on which objects are drawn."""
        is_drawn = not self.annotated & {"class", "panoptic"}
        return is_drawn and 0 not in self.labels.labels and (text == "0" or text.lower() in BACKGROUND)

    def _unknown(self, text: str, old: str, new: str) -> ValueError:
        names = list(self.labels.labels.values())
        shown = ", ".join(names[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
        classes = f"the classes are {shown}" if names else "the classes have no names; give a value"
        return _wrong(old, new, f"{text!r} is no class; {classes}")


def _check(old: str, new: str, to: int, found: Mapping[str, _Class], values: Mapping[str, str]) -> None:
    """Raises ValueError for a class that is replaced twice, by itself, or by a replaced class."""
    if to == found[old].stored:
        raise _wrong(old, new, "both are one class; leave it out")
    for other, one in found.items():
        same = one.stored is not None and one.stored == found[old].stored
        if other != old and (same or one.values & found[old].values):
            raise _wrong(old, new, f"{old} and {other} are one class; give one of them")
        if to != IGNORE and one.stored == to:
            raise _chain(old, new, other, values)
