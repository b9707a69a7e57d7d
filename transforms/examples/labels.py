"""Class labels to integer ids, and the names that belong to the ids."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from recordmill.transforms.examples.label_map import read_map_items
from recordmill.transforms.records import IGNORE, BadInput

Label = str | int

# A list of class names holds a filler for each id without a class: not more of them than this.
MAX_FILLERS = 100_000
_INT64_MAX = 2**63 - 1
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")  # canonical: neither 007, +5 nor -0
_WHOLE = re.compile(rf"({_INTEGER.pattern})\.0+")  # pandas writes integers so in a column with empty cells
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
BACKGROUND = frozenset({"background", "_background_", "__background__"})
"""Names of the background class, in lower case."""


@dataclasses.dataclass(frozen=True, slots=True)
class LabelMap:
    """The id of each label.

    - With a label file, the line number is the id, from 0; a label map gives its own ids. A label is a name
      in it; an integer is the source's own id of a class, or, if the source names no classes, an id of the
      file.
    - Else, if the source names its classes, its own ids are the ids.
    - Else labels that are all integers (`3`, or the text `3`) are the ids themselves.
    - If all labels are integers and some are written as `3.0`, those are read as the text `3`.
    - Any others are numbered in code-point order of their names.

    The text of an integer counts as the integer only if no name is an integer itself. The offset is
    added to every id.

    Attributes:
        ids: stored id of each possible label, as the source has it.
        labels: name of each stored id, in ascending order of id.
        offset: added to each id.
        texts: display names of classes whose name is a code, by name.
        mask_ids: stored id of each value that the pixels of a mask may have; None if the offset
            is added to any value.
        mask_values: id in masks of each value whose class is merged or ignored (255).
        merged: id in masks of each stored id whose class is merged or ignored (255).
    """

    ids: Mapping[Label, int]
    labels: Mapping[int, str]
    offset: int = 0
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    mask_ids: Mapping[int, int] | None = None
    mask_values: Mapping[int, int] = dataclasses.field(default_factory=dict)
    merged: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def build(
        cls,
        labels: Iterable[Label],
        names: Sequence[str] | Mapping[int, str] | None = None,
        offset: int | None = None,
        classes: Mapping[int, str] | None = None,
        texts: Mapping[str, str] | None = None,
        first_id: int = 0,
    ) -> LabelMap:
        """The map for the labels of a dataset, given in any order and any number of times.

        A label that can have no id fails in `id_of`, so that it fails its own records only.

        Args:
            labels: all labels of the dataset.
            names: the lines of the label file, if there is one; or the names of a label map by their ids.
            offset: added to every id; negative only if no id becomes negative. None for the smallest
                offset that gives every class but a background of id 0 an id of at least `first_id`.
            classes: names by the source's own ids, if the source has them.
            texts: display names of classes, by name.
            first_id: the smallest id of a class that the schema allows.

        Raises:
            ValueError: the offset would make the id of a named class negative, or a label is the name of
                two classes.
        """
        distinct = set(labels)
        if written := _whole_numbers(distinct):
            integers = {written.get(label, label) for label in distinct}
            found = cls.build(integers, names, offset, classes, texts, first_id)
            known = {label: found.ids[text] for label, text in written.items() if text in found.ids}
            return dataclasses.replace(found, ids={**known, **found.ids})
        called = dict(texts or {})
        if names is not None:
            lines = dict(names if isinstance(names, Mapping) else enumerate(names))
            return cls._of_file(lines, offset, classes or {}, called, first_id)
        if classes:
            return cls._of_classes(distinct, offset, classes, called, first_id)
        if all(_integer(label) is not None for label in distinct):
            return cls._of_integers(distinct, offset, called, first_id)
        shift = first_id if offset is None else offset
        if shift < 0:
            raise ValueError(
                f"--label_offset is {shift}; named classes are numbered from 0, so it must be 0 or more"
            )
        by_id = dict(enumerate(sorted(set(map(str, distinct))), shift))
        number_of = {text: number for number, text in by_id.items()}
        return cls({label: number_of[str(label)] for label in distinct}, by_id, shift, called)

    @classmethod
    def _of_file(
        cls,
        lines: Mapping[int, str],
        offset: int | None,
        classes: Mapping[int, str],
        texts: dict[str, str],
        first_id: int,
    ) -> LabelMap:
        names = set(lines.values())
        if offset is None:
            # The source's background is 0 in masks: that id is taken.
            taken = _is_background(classes, 0) and classes[0] not in names
            offset = _least_offset(lines, max(first_id, 1) if taken else first_id)
        labels = _shifted(lines, offset)
        named: dict[Label, int] = {name: number for number, name in labels.items()}
        if not classes:
            own = {line: line + offset for line in lines}
            ids = _of_texts(texts, named) | _spelt(own, names) | named
            return cls(ids, labels, offset, texts, _with_background(own, lines, labels))
        # Source and file may call a class by its code or in words, each as it likes.
        known = _of_texts(texts, named) | named
        of_class = {name: known.get(name, known.get(texts.get(name, name))) for name in classes.values()}
        found: dict[Label, int] = {name: number for name, number in of_class.items() if number is not None}
        own = {own_id: found[name] for own_id, name in classes.items() if name in found}
        ids = known | _spelt(own, [*names, *classes.values()]) | found | named
        return cls(ids, labels, offset, texts, _with_background(own, classes, labels))

    @classmethod
    def _of_classes(
        cls,
        used: set[Label],
        offset: int | None,
        classes: Mapping[int, str],
        texts: dict[str, str],
        first_id: int,
    ) -> LabelMap:
        shift = _least_offset(classes, first_id) if offset is None else offset
        labels = _shifted(classes, shift)
        named: dict[Label, int] = {}
        for number, name in labels.items():
            if name in named and name in used:
                raise ValueError(
                    f"classes {named[name] - shift} and {number - shift} are both called {name!r}, so it is "
                    "open which of them a label means; name them apart in the input"
                )
            named.setdefault(name, number)
        own = {own_id: own_id + shift for own_id in classes}
        ids = _of_texts(texts, named) | _spelt(own, classes.values()) | named
        return cls(ids, labels, shift, texts, _with_background(own, classes, labels))

    @classmethod
    def _of_integers(
        cls, labels: Iterable[Label], offset: int | None, texts: dict[str, str], first_id: int
    ) -> LabelMap:
        numbers = {label: number for label in labels if (number := _integer(label)) is not None}
        if offset is None:
            lowest = min((number for number in numbers.values() if number >= 0), default=first_id)
            offset = max(0, first_id - lowest)
        ids = {
            label: number + offset
            for label, number in numbers.items()
            if number >= 0 and 0 <= number + offset <= _INT64_MAX
        }
        names = {number: str(number - offset) for number in sorted(set(ids.values()))}
        return cls(ids, names, offset, texts)

    def id_of(self, label: Label) -> int:
        """The id to store for a label.

        Raises:
            BadInput: the label is negative, too large for int64, or none of the classes.
        """
        number = self.ids.get(label)
        if number is not None:
            return number
        integer = _integer(_whole(label))
        if integer is not None and min(integer, integer + self.offset) < 0:
            remedy = "ids are 0 or more; correct it, or give a label file"
            raise BadInput("build", "negative label", f"label {label}, offset {self.offset}: {remedy}")
        detail = f"label {label!r} is none of the {len(self.labels)} classes; add it to the label file"
        raise BadInput("build", "unknown label", detail)

    def text_of(self, label: Label) -> str:
        """The name of a label: of its line in the label file, of its class, else the label itself."""
        return self.labels[self.id_of(label)]

    def display_of(self, label: Label) -> str:
        """The display name of a label: its name, or its text if the name is a code. Raises as `id_of`."""
        name = self.text_of(label)
        return self.texts.get(name, name)

    def mask_id(self, value: int) -> int:
        """The id to store for a value of a mask's pixels, other than 255; 255 if its class is ignored.

        Raises:
            BadInput: the value is no class, or its id is negative or the one of ignored pixels.
        """
        if value in self.mask_values:
            return self.mask_values[value]
        number = value + self.offset if self.mask_ids is None else self.mask_ids.get(value)
        if number is None:
            detail = f"value {value} is none of the {len(self.labels)} classes; add it to the label file"
            raise BadInput("annotations", "mask value without a class", detail)
        if number < 0 or number == IGNORE:
            stored = f"value {value} would be stored as {number}"
            detail = f"{stored}; ids are 0 or more, and {IGNORE} is to ignore"
            raise BadInput("annotations", "mask value without a class", detail)
        return number

    def in_masks(self, number: int) -> int:
        """The id in masks of a stored id; 255 if its class is ignored."""
        return self.merged.get(number, number)

    def class_names(self) -> tuple[str, ...] | None:
        """The names as a list whose index is the stored id, fit for a file with one name a line.

        Ids without a class are filled as `unused_<id>`, blank names become `class_<id>`, line ends and
        control characters become spaces, and a repeated name gets its id in brackets.

        Returns:
            None without labels, or if more than 100,000 ids below the largest have no class.
        """
        if not self.labels or max(self.labels) + 1 - len(self.labels) > MAX_FILLERS:
            return None
        names: dict[int, str] = {}
        taken: set[str] = set()
        for number, name in self.labels.items():
            names[number] = _unique(_one_line(name) or f"class_{number}", number, taken)
        for number in range(max(self.labels)):
            if number not in names:
                names[number] = _unique(f"unused_{number}", number, taken)
        return tuple(names[number] for number in range(len(names)))


def read_label_file(text: str) -> tuple[str, ...]:
    """The class names of a label file: one a line, the line number (from 0) the id.

    Blank lines at the end, a byte order mark, either line end and spaces around a name do no harm.

    Raises:
        ValueError: there is no name, a blank line in the middle, or a name twice; lines counted from 1.
    """
    lines = [line.strip() for line in text.removeprefix("\ufeff").rstrip().split("\n")]
    if lines == [""]:
        raise ValueError("the label file is empty; it needs one class name a line")
    seen: dict[str, int] = {}
    for number, name in enumerate(lines, 1):
        if not name:
            raise ValueError(
                f"line {number} of the label file is blank; every line is an id and needs a name"
            )
        if name in seen:
            raise ValueError(f"lines {seen[name]} and {number} of the label file are both {name!r}")
        seen[name] = number
    return tuple(lines)


def read_label_map(text: str) -> dict[int, str]:
    """The classes of a label_map.pbtxt: names by id. Raises as `read_map_items`."""
    return {item.number: item.name for item in read_map_items(text)}


def read_label_texts(text: str) -> dict[str, str]:
    """The display names of a label_map.pbtxt, by name, if they differ. Raises as `read_map_items`."""
    return {item.name: item.display for item in read_map_items(text) if item.display not in ("", item.name)}


def _is_background(classes: Mapping[int, str], own_id: int) -> bool:
    return own_id == 0 and classes.get(0, "").lower() in BACKGROUND


def _least_offset(classes: Mapping[int, str], first_id: int) -> int:
    """The smallest offset that gives every class but the background an id of at least `first_id`."""
    lowest = min((own_id for own_id in classes if not _is_background(classes, own_id)), default=first_id)
    return max(0, first_id - lowest)


def _shifted(classes: Mapping[int, str], offset: int) -> dict[int, str]:
    """Classes by their stored ids, ascending; refuses negative ones."""
    labels = {own_id + offset: name for own_id, name in sorted(classes.items())}
    lowest = min(labels)
    if lowest < 0:
        raise ValueError(
            f"--label_offset is {offset}, which would make the id of class {labels[lowest]!r} {lowest}; "
            f"ids are 0 or more, so it must be {offset - lowest} or more"
        )
    return labels


def _spelt(own: Mapping[int, int], names: Iterable[str]) -> dict[Label, int]:
    """Ids by the source's own; by their text too if no name is an integer."""
    ids: dict[Label, int] = {}
    ids.update(own.items())
    if all(_integer(name) is None for name in names):
        ids.update({str(own_id): number for own_id, number in own.items()})
    return ids


def _of_texts(texts: Mapping[str, str], named: Mapping[Label, int]) -> dict[Label, int]:
    """Ids by the display names that only one class has: sources use names or display names."""
    found: dict[Label, int] = {}
    shared: set[str] = set()
    for name, text in texts.items():
        if name in named:
            if text in found:
                shared.add(text)
            found[text] = named[name]
    return {text: number for text, number in found.items() if text not in shared}


def _with_background(
    own: Mapping[int, int], classes: Mapping[int, str], labels: Mapping[int, str]
) -> dict[int, int]:
    """Stored ids of a mask's values; 0 stays 0 if it is background and no class has that id."""
    free = 0 not in own and 0 not in labels and (0 not in classes or _is_background(classes, 0))
    return {**own, 0: 0} if free else dict(own)


def _integer(label: Label) -> int | None:
    """The integer a label is, or canonically spells within int64 (a longer number is a name)."""
    if isinstance(label, int):
        return int(label)
    if len(label) > 20 or not _INTEGER.fullmatch(label):
        return None
    number = int(label)
    return number if -_INT64_MAX <= number <= _INT64_MAX else None


def _whole(label: Label) -> Label:
    """The text `3` for the label `3.0`; any other label unchanged."""
    match = _WHOLE.fullmatch(label) if isinstance(label, str) else None
    return match[1] if match else label


def _whole_numbers(labels: set[Label]) -> dict[Label, Label]:
    """The text `3` by label, for labels like `3.0`; empty unless all labels are integers."""
    if any(_integer(_whole(label)) is None for label in labels):
        return {}
    return {label: text for label in labels if (text := _whole(label)) != label}


def _one_line(name: str) -> str:
    """A name without line ends, control characters and what UTF-8 cannot hold."""
    return _UNPRINTABLE.sub(" ", name).encode("utf-8", "replace").decode().strip()


def _unique(name: str, number: int, taken: set[str]) -> str:
    while name in taken:
        name = f"{name} ({number})"
    taken.add(name)
    return name
