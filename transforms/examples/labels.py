"""Class labels to integer ids, and the names that belong to the ids."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from transforms.records import BadInput

Label = str | int

# A list of class names holds a filler for each id without a class: not more of them than this.
MAX_FILLERS = 100_000
_INT64_MAX = 2**63 - 1
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")  # canonical: neither 007, +5 nor -0
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


@dataclasses.dataclass(frozen=True, slots=True)
class LabelMap:
    """What id each label gets.

    - Without a label file, labels that are all integers (`3`, or the text `3`) are the ids themselves;
      any others are numbered in code-point order of their names.
    - With one, its line number is the id, from 0. A label is a name of it, or an integer that is a line
      number; the text of an integer counts as a line number only where no name is an integer itself.
    - The offset is added to every id.

    Attributes:
        ids: stored id of each label there may be, as the source has it.
        labels: name of each stored id, in ascending order of id.
        offset: what was added to each id.
    """

    ids: Mapping[Label, int]
    labels: Mapping[int, str]
    offset: int = 0

    @classmethod
    def build(cls, labels: Iterable[Label], names: Sequence[str] | None = None, offset: int = 0) -> LabelMap:
        """The map for the labels of a whole dataset, given in any order and any number of times.

        A label that can have no id is left to `id_of`, so that it costs its own records only.

        Args:
            labels: all labels of the dataset.
            names: the lines of the label file, where there is one.
            offset: added to every id; negative only where labels are integers, to make ids start at 0.

        Raises:
            ValueError: the offset would make the id of a named class negative.
        """
        distinct = set(labels)
        if names is None and all(_integer(label) is not None for label in distinct):
            return cls._of_integers(distinct, offset)
        if offset < 0:
            raise ValueError(
                f"--label_offset is {offset}; named classes are numbered from 0, so it must be 0 or more"
            )
        if names is not None:
            return cls._of_lines(names, offset)
        texts = sorted({str(label) for label in distinct})
        number_of = {text: number for number, text in enumerate(texts, offset)}
        ids = {label: number_of[str(label)] for label in distinct}
        return cls(ids, {number: text for text, number in number_of.items()}, offset)

    @classmethod
    def _of_lines(cls, names: Sequence[str], offset: int) -> LabelMap:
        labels = dict(enumerate(names, offset))
        ids: dict[Label, int] = {line: line + offset for line in range(len(names))}
        if all(_integer(name) is None for name in names):
            ids.update({str(line): line + offset for line in range(len(names))})
        ids.update({name: number for number, name in labels.items()})
        return cls(ids, labels, offset)

    @classmethod
    def _of_integers(cls, labels: Iterable[Label], offset: int) -> LabelMap:
        ids: dict[Label, int] = {}
        for label in labels:
            number = _integer(label)
            if number is not None and number >= 0 and 0 <= number + offset <= _INT64_MAX:
                ids[label] = number + offset
        return cls(ids, {number: str(number - offset) for number in sorted(set(ids.values()))}, offset)

    def id_of(self, label: Label) -> int:
        """The id to store for a label.

        Raises:
            BadInput: the label is negative, too large for int64, or not in the label file.
        """
        number = self.ids.get(label)
        if number is not None:
            return number
        integer = _integer(label)
        if integer is not None and min(integer, integer + self.offset) < 0:
            detail = (
                f"label {label}, offset {self.offset}: ids are 0 or more; correct it, or give a label file"
            )
            raise BadInput("build", "negative label", detail)
        detail = f"label {label!r} is none of the {len(self.labels)} classes; add it to the label file"
        raise BadInput("build", "unknown label", detail)

    def text_of(self, label: Label) -> str:
        """The name of a label: of its line in the label file, else the label itself.

        Raises:
            BadInput: as `id_of`.
        """
        return self.labels[self.id_of(label)]

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


def _integer(label: Label) -> int | None:
    """The integer a label is, or canonically spells within int64 (a longer number is a name)."""
    if isinstance(label, int):
        return int(label)
    if len(label) > 20 or not _INTEGER.fullmatch(label):
        return None
    number = int(label)
    return number if -_INT64_MAX <= number <= _INT64_MAX else None


def _one_line(name: str) -> str:
    """A name without line ends, control characters and what UTF-8 cannot hold."""
    return _UNPRINTABLE.sub(" ", name).encode("utf-8", "replace").decode().strip()


def _unique(name: str, number: int, taken: set[str]) -> str:
    candidate = name
    while candidate in taken:
        candidate = f"{candidate} ({number})"
    taken.add(candidate)
    return candidate
