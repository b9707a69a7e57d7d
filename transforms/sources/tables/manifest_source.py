"""What sources of manifests have in common: a manifest is a table whose rows are dicts by column."""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import extension_of
from recordmill.transforms.sources.source import Items, Source
from recordmill.transforms.sources.tables.box_rows import BoxRows
from recordmill.transforms.sources.tables.columns import Columns
from recordmill.transforms.sources.tables.images import ImageFinder
from recordmill.transforms.sources.tables.manifests import (
    PEEKED,
    Manifest,
    check_manifests,
    flag_of,
    manifests,
    splits_by_name,
)
from recordmill.transforms.sources.tables.rows import Row, RowRecords

Values = dict[str, Any]


class Table(abc.ABC):
    """One manifest.

    Attributes:
        manifest: where it is.
        config: of the source.
        where: the flag and the manifest, for messages.
    """

    def __init__(self, manifest: Manifest, config: SourceConfig) -> None:
        self.manifest = manifest
        self.config = config
        self.where = f"{flag_of(config)} is {manifest.path!r}"

    @abc.abstractmethod
    def read(self) -> Iterator[tuple[int, Values | BadInput]]:
        """The rows: the line each starts at, and its values by column or what is wrong with it."""

    @property
    @abc.abstractmethod
    def columns(self) -> Columns:
        """Which column is what. Raises ValueError where they do not fit the flags."""

    @abc.abstractmethod
    def mapper(self) -> Callable[[Values], Row]:
        """What makes a row of values, which it may use up. That raises BadInput."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raises ValueError where the first rows cannot be used."""

    @functools.cached_property
    def first(self) -> list[Values]:
        """The first rows, without those that cannot be read."""
        return [row for _, row in itertools.islice(self.read(), PEEKED) if not isinstance(row, BadInput)]

    @property
    def has_box_rows(self) -> bool:
        """Whether rows are boxes, and several may be about one image."""
        return bool(self.columns.box)

    def first_images(self) -> list[str]:
        """The paths of images in the first rows."""
        return []

    def rows(self) -> Iterator[tuple[int, Row | BadInput]]:
        """The rows: the line each starts at, and itself or what is wrong with it."""
        row_of = self.mapper()
        for line, values in self.read():
            if isinstance(values, BadInput):
                yield line, values
                continue
            try:
                row = row_of(values)
            except BadInput as fault:
                yield line, fault
            else:
                yield line, row

    def may_name_splits(self) -> bool:
        """Whether a row may name a split: ruled out only where the first rows are all, and none does."""
        first = list(itertools.islice(self.rows(), PEEKED + 1))
        return len(first) > PEEKED or any(isinstance(row, Row) and row.split for _, row in first)


class ManifestSource(Source):
    """Lists the rows of manifests.

    Attributes:
        table: reads one of them.
        extensions: of manifests.
        records: makes rows into records.
    """

    table: ClassVar[type[Table]]
    extensions: ClassVar[tuple[str, ...]]
    records: ClassVar[type[RowRecords]] = RowRecords
    flags: ClassVar[tuple[str, ...]] = ("annotations", "image_column", "label_column", "label_pattern")
    searches_roots = True

    def sniff(self, config: SourceConfig) -> str | None:
        paths = config.annotations or (config.input,)
        if any(extension_of(path) not in self.extensions for path in paths):
            return None
        why = f"{paths[0]!r} is a {'CSV' if self.name == 'csv' else 'JSON Lines'} file by name"
        try:
            table = self.table(manifests(config)[0], config)
            described = table.columns.describe()
            folder = ImageFinder(config, table.manifest).find_folder(table.first_images())
        except (OSError, ValueError):  # `check` says what is wrong
            return why
        return f"{why}; {described}" + ("" if folder is None else f"; images are found in {folder!r}")

    def check_input(self, config: SourceConfig) -> None:
        check_manifests(config, self.name, self.extensions)
        for manifest in manifests(config):
            self.table(manifest, config).check()

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        try:
            if any(self.table(manifest, config).may_name_splits() for manifest in manifests(config)):
                return None
            return tuple(sorted(set(splits_by_name(config).values())))
        except (OSError, ValueError):  # `check` says what is wrong
            return None

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        has_boxes = any(self.table(manifest, config).columns.has_boxes for manifest in manifests(config))
        return ("detection",) if has_boxes else ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        tables = [self.table(manifest, config) for manifest in manifests(config)]
        boxes = BoxRows() if any(table.has_box_rows for table in tables) else None
        splits = splits_by_name(config)
        for table in tables:
            names_splits = table.columns.split is not None
            split = None if names_splits else splits.get(table.manifest.path)
            records = self.records(config, table.manifest, split, by_folder=not names_splits)
            records.images.find_folder(table.first_images())
            for line, row in table.rows():
                if isinstance(row, BadInput):
                    yield records.failure(line, row)
                elif boxes is None:
                    yield records.record(row, line)
                elif (item := boxes.add(records, row, line)) is not None:
                    yield item
        if boxes is not None:
            yield from boxes.records()
