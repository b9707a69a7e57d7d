"""Source `parquet`: tables of images, in the format of Hugging Face datasets.

An image is a struct of `bytes` and `path`, or bytes. A table is read a few rows at a time, and the bytes of
its images are unpacked once. The metadata of the schema names the classes of a ClassLabel.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    ClassNames,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
    JobError,
    MaskImage,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.look import left_out
from recordmill.transforms.sources.names import (
    extension_of,
    failed,
    one_line,
    skipped,
    split_named,
    splits_in,
    stem_of,
)
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.source import Description, Items, Source, listing_faults
from recordmill.transforms.sources.tables.columns import (
    LABEL_COLUMNS,
    asked_labels,
    asked_name,
    check_no_names,
    usual_name,
)
from recordmill.transforms.sources.tables.values import (
    Labels,
    as_integer,
    box_in,
    feature_value,
    is_label,
    is_missing,
)
from recordmill.transforms.sources.tree import TreeFile, input_files
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_file, open_file
from recordmill.transforms.storage.paths import real_path
from recordmill.transforms.storage.spool import Spool

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

_SHARD = re.compile(r"(.+?)-\d{5}-of-\d{5}.*")
_SNIFFED = 1_000
_PEEKED = 8
_PEEKED_LABELS = 1024
_BUFFER = 1 << 20
_BATCH_ROWS = 16
_BATCH_FEATURES = 1024
_LABELS = ("label", "labels", "class", "fine_label", "coarse_label", *LABEL_COLUMNS)
_MASKS = frozenset(("mask", "annotation", "segmentation_mask", "semantic_mask", "seg", "label"))
_CATEGORIES = ("category", "categories", "label", "labels", "category_id", "class")
_BOXES = ("bbox", "bboxes", "boxes")
_OF_JSON = (str, int, float, bytes, list, dict)
_BINARY = ("binary", "large_binary")
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"II*\0", b"MM\0*")


class ParquetSource(Source):
    """Lists the rows of Parquet files."""

    name = "parquet"
    description = Description(
        reads="Parquet tables with images as `{bytes, path}` or bytes: Hugging Face datasets",
        label="`label`, or another ClassLabel, with its names; classes in `objects` next to their `bbox`",
        split="the name of the file (`train-00000-of-00002.parquet`), or its folder",
        key="file and row: `data/train-00000-of-00002/00000042`",
        example="dataset/\n  data/\n    train-00000-of-00002.parquet\n    train-00001-of-00002.parquet\n"
        "    test-00000-of-00001.parquet",
        annotations=("masks",),
    )
    flags = ("image_column", "label_column", "label_pattern")
    searches_roots = True

    def check_input(self, config: SourceConfig) -> None:
        self._first_columns(config)

    def splits(self, config: SourceConfig) -> set[str | None]:
        return {_split_of(item.key) for item in _tables(config) if isinstance(item, TreeFile)}

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return () if self._first_columns(config).objects is None else ("detection",)

    def parts(self, config: SourceConfig, most: int) -> Iterator[TreeFile | Failure]:
        with listing_faults():
            yield from _tables(config)

    def part_items(self, config: SourceConfig, scratch: str, part: TreeFile | Failure) -> Items:
        if isinstance(part, Failure):
            yield part
            return
        try:
            # With the key: a link can give a table two keys, of which different rows may be selected.
            name = f"{part.path}\0{stem_of(part.key)}"
            with _open(part.path) as opened, Spool(scratch, name, part.version) as spool:
                rows = _Table(part, opened, config, spool)
                try:
                    yield from rows.items()
                except _faults() as error:  # inside, so that the spool keeps the rows before
                    yield _damaged(part, error)
        except _faults() as error:
            yield _damaged(part, error)

    def _first_columns(self, config: SourceConfig) -> _Columns:
        """The columns of the first table. Raises ValueError if there is none, or they do not fit."""
        first = next((item for item in _tables(config) if isinstance(item, TreeFile)), None)
        if first is None:
            others = itertools.islice(_tables(config), _SNIFFED)
            has_arrow = any(item.key.lower().endswith(".arrow") for item in others)
            hint = "; convert .arrow files to Parquet" if has_arrow else left_out(config)
            raise ValueError(f"--input is {config.input!r}: no file there is called .parquet{hint}")
        try:
            with _open(first.path) as table:
                return _columns_of(table, config)
        except _faults() as error:
            if type(error) is ValueError or (isinstance(error, OSError) and error.errno is not None):
                raise
            reason = one_line(error)
            raise ValueError(f"{first.path!r} is not a Parquet file that can be read: {reason}") from error


def _tables(config: SourceConfig) -> Iterator[TreeFile | Failure]:
    """The tables of a call, and failures for other files."""
    for file in input_files(config):
        is_table = isinstance(file, Failure) or extension_of(file.key) in ("parquet", "pq")
        yield file if is_table else skipped(file.key, "not a Parquet file by name")


def _split_of(key: str) -> str | None:
    """The split of a file: `train` of `train-00000-of-00002`, of `x-train` or of `train/0000`."""
    *folders, name = stem_of(key).split("/")
    shard = _SHARD.fullmatch(name)
    named = splits_in(name)
    if len(named) == 1:
        return named.pop()
    found = next(filter(None, map(split_named, reversed(folders))), None)
    if found is None and shard is not None and re.fullmatch(r"[A-Za-z0-9_]+", shard[1]):
        return shard[1] if shard[1] not in ("data", "part") else None
    return found


@contextlib.contextmanager
def _open(path: str) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Opens a Parquet file so that little of it is held at a time."""
    import pyarrow.parquet

    with (
        open_file(path) as stream,
        pyarrow.parquet.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False) as table,
    ):
        yield table


def _faults() -> tuple[type[Exception], ...]:
    """The exceptions for a damaged table, or for values that Python cannot hold."""
    import pyarrow

    return (pyarrow.ArrowException, EOFError, ValueError, OSError, MemoryError, OverflowError)


def _damaged(table: TreeFile, error: Exception) -> Failure:
    """The failure of a damaged table. Raises `error` if it is the file system's."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error
    fault = BadInput("list", "damaged Parquet file", f"{table.path}: {one_line(error)}")
    return failed(stem_of(table.key), fault)


class _Columns(NamedTuple):
    """The meaning of the columns of a table."""

    image: str | None  # None if rows are features alone
    labels: tuple[str, ...]
    objects: str | None  # lists of structs, or structs of lists, of boxes and classes
    box: str  # the name of boxes in `objects`
    category: str | None  # the name of classes in `objects`
    mask: str | None  # images whose pixels are classes
    unread: tuple[str, ...]  # further images, and lists of images
    classes: Mapping[str, tuple[str, ...]]  # their names, by column


class _Table:
    """The rows of one table as records. Raises JobError if its columns do not fit the flags."""

    def __init__(
        self, table: TreeFile, opened: pyarrow.parquet.ParquetFile, config: SourceConfig, spool: Spool
    ) -> None:
        try:
            columns = _columns_of(opened, config)
        except ValueError as error:
            if type(error) is not ValueError:
                raise
            raise JobError(f"{table.path!r}: {error}") from error
        self._key = stem_of(table.key)
        self._split = _split_of(table.key)
        self._opened = opened
        self._spool = spool
        self._columns = columns
        self._mask = columns.mask if "masks" in config.include_annotations else None
        self._labels = () if config.label_pattern else columns.labels
        unread = {*columns.unread, columns.mask, *columns.labels} - {self._mask, *self._labels}
        self._wanted = [name for name in opened.schema_arrow.names if name not in unread]
        self._selection = Selection(config)
        folder = os.path.dirname(table.path)
        root = folder if is_file(config.input) else real_path(config.input)
        self._bases = tuple(dict.fromkeys((folder, root, *map(real_path, config.image_roots))))
        self._confinement = Confinement(self._bases if folder.startswith(root) else self._bases[1:])

    def items(self) -> Iterator[ImageRecord | Failure | ClassNames]:
        """The classes that the table names, the columns that are not read, and the records."""
        columns = self._columns
        named = (columns.classes.get(column or "", ()) for column in (*columns.labels, columns.objects))
        for names in dict.fromkeys(filter(None, named)):
            yield ClassNames(dict(enumerate(names)))
        for name in columns.unread:
            yield skipped(f"{self._key}:{name}", "column not read", "it has further images")
        count = _BATCH_FEATURES if columns.image is None else _BATCH_ROWS
        number = 0
        for batch in self._opened.iter_batches(count, columns=self._wanted, use_threads=False):
            values = {name: _cells(batch.column(name)) for name in self._wanted}
            for at in range(batch.num_rows):
                row = {name: column[at] for name, column in values.items()}
                key = f"{self._key}/{number:08}"
                yield self._selection.item(key, functools.partial(self._record, key, number, row))
                number += 1

    def _record(self, key: str, number: int, values: dict[str, Any]) -> ImageRecord:
        """The record of a row; its values are used up. Raises BadInput."""
        columns = self._columns
        mask = None if self._mask is None else values.pop(self._mask)
        stored = None if columns.image is None else values.pop(columns.image)
        objects = () if columns.objects is None else self._objects(values.pop(columns.objects))
        found = tuple(one for name in self._labels for one in self._labels_in(values.pop(name, None), name))
        features: dict[str, FeatureValue] = {
            name: feature_value(value if isinstance(value, _OF_JSON) else _text(value))
            for name, value in values.items()
            if value is not None
        }
        labels = self._selection.labels(key, found)
        masks = {} if mask is None else {"class": MaskImage(self._stored(mask)[0])}
        image, size = (None, 0) if columns.image is None else self._stored(stored)
        annotations = Annotations(labels, features, objects, masks=masks)
        return ImageRecord(key, image, self._split, annotations, f"{self._key}, row {number}", size)

    def _objects(self, parts: Any) -> tuple[AnnotatedObject, ...]:
        """The objects of a cell: a list of structs, or a struct of lists."""
        columns, column = self._columns, self._columns.objects or ""
        if isinstance(parts, dict):
            lists = {name: values for name, values in parts.items() if values is not None}
            if not all(isinstance(values, list) for values in lists.values()):
                raise BadInput("annotations", "objects are not lists of values", column)
            if len(set(map(len, lists.values()))) > 1:
                raise BadInput("annotations", "lists of objects differ in length", column)
            steps = zip(*lists.values(), strict=True) if columns.box in lists else ()
            parts = [dict(zip(lists, values, strict=True)) for values in steps]
        objects = []
        for part in parts or ():
            if not isinstance(part, dict):
                raise BadInput("annotations", "object is not a struct", repr(part)[:100])
            box = box_in(part.pop(columns.box, None), sides=True)
            value = part.pop(columns.category, None)
            labels = self._labels_in(value, column)
            if len(labels) != 1:
                detail = f"{columns.category or 'no column'}: {value!r}"
                raise BadInput("annotations", "object without a class", detail)
            attributes = {
                "is_crowd" if name == "iscrowd" else name: value
                for name, value in part.items()
                if isinstance(value, str | int | float | bytes)
            }
            objects.append(AnnotatedObject(labels[0], box, attributes=attributes))
        return tuple(objects)

    def _labels_in(self, value: Any, column: str) -> Labels:
        """The labels in a value: names, if the column names its classes; null or then -1 is no label."""
        names = self._columns.classes.get(column, ())
        found: list[str | int] = []
        for label in map(as_integer, value if isinstance(value, list) else [value]):
            if is_missing(label) or (names and label == -1):
                continue
            if not is_label(label):
                reason = "label is neither whole number nor text"
                raise BadInput("annotations", reason, f"{column}: {label!r}")
            if names and isinstance(label, int):
                if not 0 <= label < len(names):
                    detail = f"{column}: {label} of {len(names)} classes"
                    raise BadInput("annotations", "label without a name", detail)
                label = names[label]
            found.append(label)
        return tuple(found)

    def _stored(self, value: Any) -> tuple[ImageRef, int]:
        """The reference to an image, and its size: of the bytes in the cell, or of the file at its path."""
        data, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
        if isinstance(data, str):
            data, path = None, data
        if data:
            return self._spool.add(data), len(data)
        if not path:
            raise BadInput("annotations", "no image", "the row has neither bytes nor path")
        if not isinstance(path, str):
            raise BadInput("annotations", "path is not text", repr(path)[:100])
        found = self._confinement.find(path, self._bases)
        return ImageRef(found.path, version=found.version), found.size


def _cells(column: pyarrow.Array) -> list[Any]:
    """The values of a column; nanoseconds, which `datetime` does not support, as text."""
    kind = column.type
    if _is(kind, "timestamp") and kind.unit == "ns":
        return [text and text.replace(" ", "T", 1) for text in column.cast("string").to_pylist()]
    if _is(kind, "time64", "duration") and kind.unit == "ns":
        column = column.cast("int64")
    return list(column.to_pylist())


def _text(value: Any) -> str:
    """Text of a date, decimal and the like."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _columns_of(table: pyarrow.parquet.ParquetFile, config: SourceConfig) -> _Columns:
    """The columns of a table, by the flags, or else by type and name. Raises ValueError as `find_columns`."""
    schema = table.schema_arrow
    where = f"--input is {config.input!r}"
    if twice := sorted(name for name, count in collections.Counter(schema.names).items() if count > 1):
        raise ValueError(f"{where}: two columns are called {twice[0]!r}; rename one")
    types = {name: schema.field(name).type for name in schema.names}
    binary = [name for name, kind in types.items() if _is(kind, *_BINARY)]
    texts = [name for name, kind in types.items() if str(kind) in ("string", "large_string", "string_view")]
    seen = _first_values(table, [name for name in types if name in (*binary, *texts)], _PEEKED)
    looking = {name for name in binary if any(map(_looks_like_image, seen.get(name, ())))}
    images = [name for name, kind in types.items() if name in looking or _is_image_struct(kind)]
    image = asked_name(config.image_column, "--image_column", schema.names, config.input)
    if image is not None and image not in (*images, *binary, *texts):
        raise ValueError(f"--image_column is {image!r}, of type {types[image]}: not images or their paths")
    image = image or next(iter(images), None)
    objects, box, category = _objects_in(types) if image is not None else (None, "", None)
    described = _hugging_face_features(schema)
    classes = {name: found for name in types if (found := _class_names(described.get(name)))}
    if objects is not None and category is not None:
        classes[objects] = _class_names(described.get(objects), category)
    others = [name for name in images if name != image]
    mask = next((name for name in others if name.lower() in _MASKS), None)
    free = [name for name in types if name not in (image, objects, *others)]
    lists = [name for name in free if _is_image_struct(_inner(types[name]))]
    unread = (*(name for name in others if name != mask), *lists)
    rest = [name for name in free if name not in lists]
    labels = asked_labels(config, rest, config.input)
    if config.label_column is None and image is not None and objects is None:
        floats = [name for name in rest if name.lower() in _LABELS and _is(types[name], "floating")]
        values = _first_values(table, floats, _PEEKED_LABELS)
        fitting = [name for name in rest if _is_label_type(types[name]) or _are_whole(values.get(name, ()))]
        named = [name for name in rest if name in classes]
        label = usual_name(_LABELS, named) or next(iter(named), None) or usual_name(_LABELS, fitting)
        labels = () if label is None else (label,)
    if image is None:
        _check_no_images(types, unread, {name: seen.get(name, []) for name in texts}, config)
    return _Columns(image, labels, objects, box, category, mask, unread, classes)


def _check_no_images(
    names: Iterable[str], unread: Sequence[str], texts: Mapping[str, list[Any]], config: SourceConfig
) -> None:
    """Raises ValueError if a table without a column of images seems to have images."""
    where = f"--input is {config.input!r}: no column has images"
    if unread:
        raise ValueError(f"{where}, and {unread[0]!r} has lists of them; save a row for each image")
    check_no_names(where, texts)
    if config.image_roots:
        shown = ", ".join(names)[:1000]
        raise ValueError(f"--image_root is given, and no column has images; the columns are {shown}")


def _first_values(table: pyarrow.parquet.ParquetFile, columns: list[str], count: int) -> dict[str, list[Any]]:
    """The values of columns in the first rows."""
    batches = table.iter_batches(count, columns=columns, use_threads=False) if columns else iter(())
    rows = next(batches, None)
    return {} if rows is None else {name: rows.column(name).to_pylist() for name in columns}


def _are_whole(values: Sequence[Any]) -> bool:
    """Whether all floats are integers: pandas stores integers as floats if some are missing."""
    present = [value for value in values if not is_missing(value)]
    return bool(present) and all(map(float.is_integer, present))


def _looks_like_image(data: bytes | None) -> bool:
    return data is not None and (
        data.startswith(_MAGIC) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP") or data[4:8] == b"ftyp"
    )


def _is(kind: pyarrow.DataType | None, *names: str) -> bool:
    """Whether a type is one of pyarrow's types of these names."""
    import pyarrow

    return kind is not None and any(getattr(pyarrow.types, f"is_{name}")(kind) for name in names)


def _inner(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type of the values of lists; any other type unchanged."""
    return kind.value_type if _is(kind, "list", "large_list") else kind


def _fields(kind: pyarrow.DataType) -> dict[str, pyarrow.DataType]:
    """The fields of a struct; none of any other type."""
    return {field.name: field.type for field in kind} if _is(kind, "struct") else {}


def _is_image_struct(kind: pyarrow.DataType) -> bool:
    fields = _fields(kind)
    return fields.keys() <= {"bytes", "path"} and _is(fields.get("bytes"), *_BINARY)


def _is_label_type(kind: pyarrow.DataType) -> bool:
    kind = _inner(kind)
    return _is(kind.value_type if _is(kind, "dictionary") else kind, "string", "large_string", "integer")


def _objects_in(types: Mapping[str, pyarrow.DataType]) -> tuple[str | None, str, str | None]:
    """The column of objects, and the names of boxes and classes in it."""
    for name, kind in types.items():
        fields = _fields(_inner(kind))
        if (box := usual_name(_BOXES, fields)) is not None:
            return name, box, usual_name(_CATEGORIES, fields)
    return None, "", None


def _hugging_face_features(schema: pyarrow.Schema) -> dict[str, Any]:
    """The features by column in Hugging Face's metadata; empty if there is none."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def _class_names(feature: Any, inner: str | None = None) -> tuple[str, ...]:
    """The names of a ClassLabel, or of a list of them; with `inner`, of that field of a struct."""
    if isinstance(feature, list) and len(feature) == 1:
        feature = feature[0]
    if not isinstance(feature, dict):
        return ()
    if inner is not None and inner in feature:
        return _class_names(feature[inner])
    if inner is None and feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list):
        return tuple(map(str, feature["names"]))
    return _class_names(feature["feature"], inner) if "feature" in feature else ()
