"""Source `parquet`: tables of images, as Hugging Face datasets has them.

Images are bytes in the table, or paths beside it. A table is read a few rows at a time; the bytes of its
images are unpacked once.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import re
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput, Failure, ImageRecord, JobError
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.names import (
    failed,
    is_image_name,
    one_line,
    skipped,
    split_named,
    splits_in,
)
from recordmill.transforms.sources.outline import left_out
from recordmill.transforms.sources.selection import check_selection
from recordmill.transforms.sources.source import (
    Description,
    Item,
    Items,
    Source,
    listing_faults,
)
from recordmill.transforms.sources.tables.parquet_columns import (
    TableColumns,
    is_binary,
    is_float_label,
    is_image_struct,
    looks_like_image,
    pick,
)
from recordmill.transforms.sources.tables.parquet_rows import TableRows, cells, not_parquet
from recordmill.transforms.sources.tables.rows import is_missing
from recordmill.transforms.sources.tree import Tree
from recordmill.transforms.storage.files import is_file, open_file, status_of
from recordmill.transforms.storage.paths import real_path
from recordmill.transforms.storage.spool import Spool

if TYPE_CHECKING:
    import pyarrow.parquet

_NOT_PARQUET = "not a Parquet file by name"
_SHARD = re.compile(r"(.+?)-\d{5}-of-\d{5}.*")
_SNIFFED = 1_000
_PEEKED = 8
_PEEKED_LABELS = 1024
_BUFFER = 1 << 20


class Table(NamedTuple):
    """One Parquet file.

    Attributes:
        path: real path, or URI.
        key: path below the input, without its extension.
        split: that its name, or a folder that it is in, names.
        version: of the whole file, as of `Status`.
    """

    path: str
    key: str
    split: str | None
    version: int


class ParquetSource(Source):
    """Lists the rows of Parquet files."""

    name = "parquet"
    description = Description(
        reads="Parquet tables with images as `{bytes, path}` or bytes: Hugging Face datasets",
        label="`label`, or another ClassLabel, with its names; classes in `objects` beside their `bbox`",
        split="the file's name (`train-00000-of-00002.parquet`), or its folder",
        key="file and row: `data/train-00000-of-00002/00000042`",
        example="dataset/\n  data/\n    train-00000-of-00002.parquet\n    train-00001-of-00002.parquet\n"
        "    test-00000-of-00001.parquet",
        annotations=("masks",),
    )

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        check_unused(config, self.name, "annotations", "input_features", "mask_pattern")
        check_selection(config)
        with readable("--input", config.input):
            self._first_columns(config)

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            tables = [item for item in _tables(config) if isinstance(item, Table)]
        return tuple(sorted({table.split for table in tables if table.split is not None}))

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return () if self._first_columns(config).objects is None else ("detection",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _items(config, scratch, _tables(config))

    def parts(self, config: SourceConfig, most: int) -> Iterator[Table | Failure]:
        with listing_faults():
            yield from _tables(config)

    def part_items(self, config: SourceConfig, scratch: str, part: Table | Failure) -> Items:
        yield from _items(config, scratch, (part,))

    def _first_columns(self, config: SourceConfig) -> TableColumns:
        """The columns of the first table. Raises ValueError where it is none, or they do not fit."""
        first = next((item for item in _tables(config) if isinstance(item, Table)), None)
        if first is None:
            hint = "; convert .arrow files to Parquet" if _has_arrow(config) else ""
            raise ValueError(
                f"--input is {config.input!r}: no file there is called .parquet{hint or left_out(config)}"
            )
        try:
            with open_table(first.path) as table:
                return columns_of(table, config)
        except _faults() as error:
            if type(error) is ValueError or (isinstance(error, OSError) and error.errno is not None):
                raise
            what = one_line(error)
            raise ValueError(f"{first.path!r} is not a Parquet file that can be read: {what}") from error


def _has_arrow(config: SourceConfig) -> bool:
    found = itertools.islice(_tables(config), _SNIFFED)
    return any(isinstance(item, Failure) and item.key.lower().endswith(".arrow") for item in found)


def _tables(config: SourceConfig) -> Iterator[Table | Failure]:
    """The tables of a call, and what else lies there."""
    if is_file(config.input):
        path = real_path(config.input)
        yield _table(path, path.rpartition("/")[2], status_of(path).version)
        return
    for file in Tree(config.input, config.image_roots, config.skip_dirs).files():
        yield file if isinstance(file, Failure) else _table(file.path, file.key, file.version)


def _table(path: str, key: str, version: int) -> Table | Failure:
    stem, dot, extension = key.rpartition(".")
    if not dot or extension.lower() not in ("parquet", "pq"):
        return skipped(key, _NOT_PARQUET)
    return Table(path, stem, _split_of(stem), version)


def _split_of(key: str) -> str | None:
    """The split of a file: `train` of `train-00000-of-00002`, of `x-train` or of `train/0000`."""
    *folders, name = key.split("/")
    shard = _SHARD.fullmatch(name)
    named = splits_in(name)
    if len(named) == 1:
        return named.pop()
    found = next(filter(None, map(split_named, reversed(folders))), None)
    if found is None and shard is not None and re.fullmatch(r"[A-Za-z0-9_]+", shard[1]):
        return shard[1] if shard[1] not in ("data", "part") else None
    return found


@contextlib.contextmanager
def open_table(path: str) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Opens a Parquet file so that little of it is held at a time."""
    import pyarrow.parquet

    with (
        open_file(path) as stream,
        pyarrow.parquet.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False) as table,
    ):
        yield table


def columns_of(table: pyarrow.parquet.ParquetFile, config: SourceConfig) -> TableColumns:
    """What the columns of a table are. Raises ValueError where the flags do not fit them."""
    schema = table.schema_arrow
    asked = config.image_column
    if twice := sorted(name for name, count in collections.Counter(schema.names).items() if count > 1):
        raise ValueError(f"--input is {config.input!r}: two columns are called {twice[0]!r}; rename one")
    binary = [name for name in schema.names if is_binary(schema.field(name).type)]
    peeked = [name for name in schema.names if name in binary or _is_text(schema, name)]
    rows = next(table.iter_batches(_PEEKED, columns=peeked, use_threads=False), None) if peeked else None
    seen = {name: rows.column(name).to_pylist() for name in peeked} if rows is not None else {}
    images = [name for name in binary if any(map(looks_like_image, seen.get(name, ())))]
    found = pick(schema, images, asked, config.label_column, _whole_floats(table))
    if asked is not None and not (
        asked in binary or asked in peeked or is_image_struct(schema.field(asked).type)
    ):
        raise ValueError(
            f"--image_column is {asked!r}, of type {schema.field(asked).type}: no images, nor paths of them"
        )
    if found.image is None:
        if found.unread:
            raise ValueError(
                f"--input is {config.input!r}: no column has images, and {found.unread[0]!r} has lists of "
                "them; save a row for each image"
            )
        for name in peeked:
            values = [value for value in seen.get(name, ()) if isinstance(value, str) and value]
            if 2 * sum(map(is_image_name, values)) > len(values):
                raise ValueError(
                    f"--input is {config.input!r}: no column has images, and {name!r} has names of "
                    f"some, such as {values[0][:100]!r}; give {flag_with('--image_column', name)}"
                )
        if config.image_roots:
            listed = ", ".join(schema.names)[:1000]
            raise ValueError(f"--image_root is given, and no column has images; the columns are {listed}")
    return found


def _whole_floats(table: pyarrow.parquet.ParquetFile) -> list[str]:
    """Columns of floats with names of labels whose first values are integers: pandas stores them so."""
    names = [name for name in table.schema_arrow.names if is_float_label(table.schema_arrow.field(name))]
    rows = next(table.iter_batches(_PEEKED_LABELS, columns=names, use_threads=False), None) if names else None
    found = {} if rows is None else {name: rows.column(name).to_pylist() for name in names}
    values = {name: [one for one in column if not is_missing(one)] for name, column in found.items()}
    return [name for name, column in values.items() if column and all(map(float.is_integer, column))]


def _is_text(schema: pyarrow.Schema, name: str) -> bool:
    return str(schema.field(name).type) in ("string", "large_string", "string_view")


def _items(
    config: SourceConfig, scratch: str, found: Iterable[Table | Failure]
) -> Generator[Item, None, None]:
    told: set[tuple[str, ...]] = set()
    for item in found:
        if isinstance(item, Failure):
            yield item
            continue
        try:
            yield from _table_items(item, config, scratch, told)
        except _faults() as error:
            yield _damaged(item, error)


def _faults() -> tuple[type[Exception], ...]:
    """What pyarrow raises of a damaged table, or of values that Python has not.

    An OSError with a number is the file system's.
    """
    return (*not_parquet(), ValueError, OSError, MemoryError, OverflowError)


def _damaged(table: Table, error: Exception) -> Failure:
    """The failure of a damaged table. Raises `error` where it is the file system's."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error
    return failed(table.key, BadInput("list", "damaged Parquet file", f"{table.path}: {one_line(error)}"))


def _table_items(
    table: Table, config: SourceConfig, scratch: str, told: set[tuple[str, ...]]
) -> Iterator[Item]:
    """The records of one table, and the classes it names. Raises one of `not_parquet()`."""
    with open_table(table.path) as opened:
        try:
            columns = columns_of(opened, config)
        except ValueError as error:
            if type(error) is not ValueError:
                raise
            raise JobError(f"{table.path!r}: {error}") from error
        rows = TableRows(table.path, table.key, table.split, columns, config)
        yield from rows.classes(told)
        for name in columns.unread:
            yield skipped(f"{table.key}:{name}", "column not read", "it has further images")
        # By the key too: what is taken of a table that has two, by a link, differs between them.
        with Spool(scratch, f"{table.path}\0{table.key}", table.version) as spool:
            try:
                yield from _rows(opened, rows, spool)
            except _faults() as error:  # here, so that what is before stays unpacked
                yield _damaged(table, error)


def _rows(
    opened: pyarrow.parquet.ParquetFile, rows: TableRows, spool: Spool
) -> Iterator[ImageRecord | Failure]:
    number = 0
    for batch in opened.iter_batches(rows.batch_rows, columns=rows.wanted, use_threads=False):
        values = {name: cells(batch.column(name)) for name in rows.wanted}
        for at in range(batch.num_rows):
            yield rows.item(number, {name: column[at] for name, column in values.items()}, spool)
            number += 1
