"""What a source of images is. A simple one has a name, a description and its reading alone."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Generator, Iterator
from typing import Any, ClassVar

from recordmill.transforms.records import ClassNames, Failure, ImageRecord, JobError
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    os_error_text,
    readable,
)
from recordmill.transforms.sources.outline import check_roots_used
from recordmill.transforms.sources.selection import check_selection
from recordmill.transforms.storage.files import is_folder

Item = ImageRecord | Failure | ClassNames
"""What a source lists: a record, an input that is not in the dataset and why, or the classes it defines."""

Items = Generator[Item, None, None]

SOURCE_FLAGS = (
    "annotations",
    "image_column",
    "label_column",
    "label_pattern",
    "include_annotations",
    "input_features",
    "mask_pattern",
)
"""Flags that some sources use and others do not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """What a source reads, for people; `recordmill formats` prints it, and README's table is made of it.

    Attributes:
        reads: what files, in a line.
        label: where labels come from.
        split: where splits come from.
        key: what the key of a record is.
        example: a tree of files, a line each, folders indented by two spaces and ending in `/`.
        annotations: what of `ANNOTATIONS` it can store.
    """

    reads: str
    label: str
    split: str
    key: str
    example: str
    annotations: tuple[str, ...] = ()


class Source(abc.ABC):
    """An input format: subclasses set `name` and `description` and define `items`; the rest has defaults.

    Attributes:
        name: its value of `--source`.
        description: what it reads.
        flags: those of `SOURCE_FLAGS` that it uses, apart from `include_annotations`, which it uses if its
            description has annotations; any other one that is given is an error.
        searches_roots: it looks for images in the image roots; otherwise only links may lead there.
        needs_folder: the input may not be a file.
        untyped: values of features are text, and their types are found from all records.
    """

    name: ClassVar[str]
    description: ClassVar[Description]
    flags: ClassVar[tuple[str, ...]] = ("label_pattern",)
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
        check_selection(config)
        with readable("--input", config.input):
            if self.needs_folder and not is_folder(config.input):
                raise ValueError(f"--input is {config.input!r}, a file; --source {self.name} reads a folder")
            if not self.searches_roots:
                check_roots_used(config, self.name)
            self.check_input(config)

    def _check_flags(self, config: SourceConfig) -> None:
        kinds = self.description.annotations
        used = (*self.flags, "include_annotations") if kinds else self.flags
        check_unused(config, self.name, *(flag for flag in SOURCE_FLAGS if flag not in used))
        given = config.include_annotations
        if given and not set(given) & set(kinds):
            raise ValueError(
                f"--include_annotations has {given[0]!r}; --source {self.name} has {', '.join(kinds)}"
            )

    def check_input(self, config: SourceConfig) -> None:
        """Looks for what makes an existing input unreadable; finds nothing by default.

        Raises:
            ValueError: as `check`.
            OSError: the input cannot be looked at; `check` names it.
        """
        return

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        """The splits that the layout of the input names, whether or not they have a record.

        A record may have no split all the same: an image next to the folders of splits.

        Returns:
            Their names; none where nothing names a split, or only paths of images in annotations do; None
            where a column of the input names them.
        """
        return ()

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        """The schemas that fit the input best, one or several at once: what `--schema auto` writes.

        Returns:
            Their names; none to detect them from the records: detection where there are boxes, and so on.

        Raises:
            OSError: the input cannot be looked at.
        """
        return ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        """Lists the input in an order that depends on its contents alone; `ClassNames` may come anywhere.

        Args:
            config: one that `check` has passed.
            scratch: an existing folder of the run's own, for containers that have to be unpacked.

        Yields:
            A record, an input that is not in the dataset and why, or names of classes. Memory does not grow
                with the input.

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
        return limited(found, config.limit)


def limited(items: Items, limit: int | None) -> Items:
    """The items up to the `limit`-th record; nothing else counts.

    Raises:
        JobError: a fault of the file system that is not one file's own, and has not passed.
    """
    records = 0
    with contextlib.closing(items), listing_faults():
        for item in items:
            yield item
            if limit is not None and isinstance(item, ImageRecord):
                records += 1
                if records >= limit:
                    return


@contextlib.contextmanager
def listing_faults() -> Iterator[None]:
    """Makes a JobError of a fault of the file system that is not one file's own, and has not passed."""
    try:
        yield
    except OSError as error:
        raise JobError(f"the input cannot be listed: {os_error_text(error)}") from error
