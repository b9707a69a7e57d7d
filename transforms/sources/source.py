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
"""What a source lists: a record, an input that is not in the dataset and why, or the classes it defines."""

Items = Generator[Item, None, None]

SOURCE_FLAGS = (
    *("annotations", "image_column", "label_column", "label_pattern"),
    *("include_annotations", "input_features", "mask_pattern"),
)
"""Flags that some sources use and others do not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """What a source reads, for `recordmill formats` and the reference page of sources."""

    reads: str  # the files, in a line
    label: str  # where labels come from
    split: str
    key: str  # of a record
    example: str  # a tree of files, a line each, folders indented by two spaces and ending in `/`
    annotations: tuple[str, ...] = ()  # those of `ANNOTATIONS` that it can store


class Source(abc.ABC):
    """An input format: subclasses set `name` and `description` and define `items`; the rest has defaults.

    Attributes:
        name: its value of `--source`.
        description: for people.
        flags: those of `SOURCE_FLAGS` that may be given; any other one is an error. `include_annotations` may
            be, too, if the description has annotations.
        searches_roots: it looks for images in the image roots; otherwise only links may lead there.
        needs_folder: the input may not be a file.
        untyped: values of features are text, and their types are found from all records.
    """

    name: ClassVar[str]
    description: ClassVar[Description]
    flags: ClassVar[tuple[str, ...]] = ()
    searches_roots: ClassVar[bool] = False
    needs_folder: ClassVar[bool] = False
    untyped: ClassVar[bool] = False

    def check(self, config: SourceConfig) -> None:
        """Checks a call: its flags, and the input as far as that is cheap.

        Raises:
            ValueError: one line that names the flag, its value and what is wrong.
        """
        check_input_exists(config)
        self._check_flags(config)
        Selection(config)  # raises for one that is not valid
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
        """Looks for what makes an existing input unreadable; finds nothing by default.

        Raises:
            ValueError: as `check`.
            OSError: the input cannot be looked at; `check` names it.
        """
        return

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        """The names of `splits`, in order. Raises ValueError if the input cannot be looked at."""
        with readable("--input", config.input):
            found = self.splits(config)
            return None if found is None else tuple(sorted({split for split in found if split is not None}))

    def splits(self, config: SourceConfig) -> Iterable[str | None] | None:
        """The splits that the layout of the input names, whether or not they have a record; in any order.

        A record may have no split all the same: an image next to the folders of splits. None where a column
        of the input names the splits.
        """
        return ()

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        """The schemas that `--schema auto` writes; none to detect them from the records.

        Raises:
            OSError: the input cannot be looked at.
        """
        return ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        """Lists the input in an order that depends on its contents alone; `ClassNames` may come anywhere.

        Memory does not grow with the input.

        Args:
            config: one that `check` has passed.
            scratch: an existing folder of the run's own, for containers that have to be unpacked.

        Raises:
            JobError: the input cannot be used at all, which only reading it shows.
            OSError: a fault of the file system that is not one file's own, and has not passed.
        """
        for part in self.parts(config, 1):
            yield from self.part_items(config, scratch, part)

    def parts(self, config: SourceConfig, most: int) -> Iterator[Any]:
        """The parts of a large input that workers list in parallel; by default it has one, None.

        Args:
            config: one that `check` has passed, without a limit.
            most: the number of parts that are of use where an input can be divided anywhere.

        Raises:
            JobError, OSError: as `items`.
        """
        yield None

    def part_items(self, config: SourceConfig, scratch: str, part: Any) -> Items:
        """As `items`, of one part; all parts together have the items of the input, in any order.

        More than one part may yield the same classes.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither items nor part_items")

    def read(self, config: SourceConfig, scratch: str, part: Any = None) -> Iterator[Item]:
        """The items of a part, or of the input up to the `--limit`-th record.

        Raises:
            JobError: as `items`; or a fault of the file system lasts.
        """
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
    """Makes a JobError of a fault of the file system that is not one file's own, and has not passed."""
    try:
        yield
    except OSError as error:
        raise JobError(f"the input cannot be listed: {os_error_text(error)}") from error
