"""The categories of COCO annotation files, put together."""

from __future__ import annotations

import collections
from typing import Any, TypeGuard

from recordmill.transforms.records import BadInput, ClassNames, JobError
from recordmill.transforms.sources.names import is_unicode

_LARGEST = 1 << 62  # with --label_offset it still is an int64


class CocoClasses:
    """The classes of a dataset; all files have to agree on them."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._files: dict[int, str] = {}
        self._stuff: set[int] = set()
        self._repeated = False

    def add(self, category: Any, file: str) -> None:
        """Takes an entry of `categories` of a file.

        Raises:
            JobError: it has no id or name, or another file has another name for the id.
        """
        number = category.get("id") if isinstance(category, dict) else None
        name = category.get("name") if isinstance(category, dict) else None
        if not _is_category(number):
            raise JobError(f"{file!r} has a category without an id of 0 to 2**62: {str(category)[:100]}")
        if not isinstance(name, str) or not name or not is_unicode(name):
            raise JobError(f"{file!r} has no name for the category {number}")
        known = self._names.setdefault(number, name)
        other = self._files.setdefault(number, file)
        if known != name:
            raise JobError(
                f"the category {number} is {known!r} in {other!r} and {name!r} in {file!r}: "
                "correct one of them, or convert them one by one with --annotations"
            )
        if category.get("isthing") in (0, False):
            self._stuff.add(number)

    def names(self) -> ClassNames | None:
        """The names by id, or None where no file has categories; labels are made from here on."""
        count = collections.Counter(self._names.values())
        self._repeated = any(number > 1 for number in count.values())
        return ClassNames(dict(sorted(self._names.items()))) if self._names else None

    def label(self, category: object) -> str | int:
        """The label of a category id: its name; its id where categories share names, or there are none.

        Raises:
            BadInput: there is no such category.
        """
        if not _is_category(category):
            raise BadInput("annotations", "no category", f"category_id is {category!r}")
        if not self._names:
            return category
        if category not in self._names:
            raise BadInput("annotations", "category is not listed", f"category_id is {category}")
        return category if self._repeated else self._names[category]

    def is_thing(self, category: int) -> bool:
        """Whether a category is of things, as it is unless its file says otherwise."""
        return category not in self._stuff


def _is_category(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _LARGEST
