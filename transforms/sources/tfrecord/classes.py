"""Names of classes that records of TFRecords tell, one record at a time."""

from __future__ import annotations

from collections.abc import Mapping

from recordmill.transforms.records import ClassNames
from recordmill.transforms.sources.tfrecord.labels import add_name


class Classes:
    """Gathers names of classes over the records.

    Args:
        defined: whether their names by id lie beside the records; then only texts of synsets are gathered.
    """

    def __init__(self, defined: bool) -> None:
        self._defined = defined
        self._names: dict[int, str] = {}
        self._texts: dict[str, str] = {}

    def add(self, names: Mapping[int, str], texts: Mapping[str, str]) -> None:
        """Takes in what a record tells.

        Raises:
            JobError: a class has another name in another record.
        """
        if not self._defined:
            for number, name in names.items():
                add_name(self._names, number, name)
        for name, text in texts.items():
            if text and text != name:
                self._texts[name] = min(text, self._texts.get(name, text))

    def found(self) -> ClassNames | None:
        """The classes; None where the records name none. Ids stay ids where not all of them have names."""
        if not self._names and not self._texts:
            return None
        return ClassNames(self._names, self._texts, optional=True)
