"""The base class of sources. A simple source defines its name, description and `items` only."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Generator, Iterable, Iterator
from typing import Any, ClassVar

from recordmill.transforms.records import ClassNames, Failure, ImageRecord, JobError
from recordmill.transforms.sources.config import SourceConfig, check_input_exists, os_error_text, readable
from recordmill.transforms.sources.look import check_roots_used
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.storage.files import is_folder

Item = ImageRecord | Failure | ClassNames
"""An item of a source: a record, an input that is not in the dataset and why, or classes it defines."""

Items = Generator[Item, None, None]

SOURCE_FLAGS = (
    *("annotations", "image_column", "label_column", "label_pattern"),
    *("include_annotations", "input_features", "mask_pattern"),
)
"""Flags that only some sources use."""


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """Describes an input format, for `recordmill formats` and the reference."""

    reads: str  # its files, in one line
    label: str  # where labels are read from
    split: str
    key: str  # of a record
    example: str  # a tree of files, one per line; folders end in `/`, their files are indented by two spaces
    annotations: tuple[str, ...] = ()  # values of `--include_annotations` that it supports


class Source(abc.ABC):
    """An input format: subclasses set `name` and `description` and define `items`; the rest has defaults."""

    name: ClassVar[str]  # its value of `--source`
    description: ClassVar[Description]
    flags: ClassVar[tuple[str, ...]] = ()  # of SOURCE_FLAGS; with annotations, also `include_annotations`
    searches_roots: ClassVar[bool] = False  # for images; otherwise only links lead into the image roots
    needs_folder: ClassVar[bool] = False  # the input may not be a file
    untyped: ClassVar[bool] = False  # features are text; their types are found from all records

    def check(self, config: SourceConfig) -> None:
        """Checks the flags, and the input if that is cheap. Raises ValueError with flag, value and error."""
        check_input_exists(config)
        self._check_flags(config)
        Selection(config)  # raises ValueError
        with readable("--input", config.input):
            if self.needs_folder and not is_folder(config.input):
                raise ValueError(f"--input is {config.input!r}, a file; --source {self.name} reads a folder")
            if not self.searches_roots:
                check_roots_used(config, self.name)
            self.check_input(config)

    def _check_flags(self, config: SourceConfig) -> None:
        kinds = self.description.annotations
        for name in SOURCE_FLAGS:
            value = getattr(config, name)
            if not value or name in self.flags or (name == "include_annotations" and kinds):
                continue
            if isinstance(value, tuple):
                value = ", ".join(one if isinstance(one, str) else "=".join(one) for one in value)
            raise ValueError(f"--{name} is {value!r}, and --source {self.name} does not use it")
        if kinds and (given := config.include_annotations) and not set(given) & set(kinds):
            has = f"--source {self.name} has {', '.join(kinds)}"
            raise ValueError(f"--include_annotations has {given[0]!r}; {has}")

    def check_input(self, config: SourceConfig) -> None:
        """Raises ValueError, as `check`, or OSError if the existing input cannot be read."""
        return

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        """The names of `splits`, in order. Raises ValueError if the input cannot be looked at."""
        with readable("--input", config.input):
            found = self.splits(config)
            return None if found is None else tuple(sorted({split for split in found if split is not None}))

    def splits(self, config: SourceConfig) -> Iterable[str | None] | None:
        """The splits in the layout of the input, with or without records; None if a column has the splits.

        Records may still have no split: images next to the folders of splits.
        """
        return ()

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        """The schemas that `--schema auto` writes; none to detect them from the records. Raises OSError."""
        return ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        """Lists the input in an order that depends on its contents alone; `ClassNames` may come anywhere.

        Memory does not grow with the input.

        Args:
            config: a configuration that passed `check`.
            scratch: an existing folder of the run, for containers that have to be unpacked.

        Raises:
            JobError: the input cannot be used, which `check` did not find.
            OSError: a lasting fault of the file system that concerns more than one file.
        """
        for part in self.parts(config, 1):
            yield from self.part_items(config, scratch, part)

    def parts(self, config: SourceConfig, most: int) -> Iterator[Any]:
        """The parts of a large input without a limit, which workers list in parallel; by default one, None.

        Raises JobError or OSError as `items`. `most` is the number of parts that are useful.
        """
        yield None

    def part_items(self, config: SourceConfig, scratch: str, part: Any) -> Items:
        """As `items`, of one part. All parts together have all items of the input; classes may repeat."""
        raise NotImplementedError(f"{type(self).__name__} defines neither items nor part_items")

    def read(self, config: SourceConfig, scratch: str, part: Any = None) -> Iterator[Item]:
        """The items of a part, or of the input up to the `--limit`-th record. Raises JobError."""
        found = self.items(config, scratch) if part is None else self.part_items(config, scratch, part)
        left = config.limit
        with contextlib.closing(found), listing_faults():
            for item in found:
                yield item
                if left is not None and isinstance(item, ImageRecord):
                    left -= 1
                    if not left:
                        return


@contextlib.contextmanager
def listing_faults() -> Iterator[None]:
    """Raises JobError for a lasting fault of the file system that concerns more than one file."""
    try:
        yield
    except OSError as error:
        raise JobError(f"the input cannot be listed: {os_error_text(error)}") from error
