"""The settings of an input, and the checks of its paths."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from recordmill.transforms.flag_values import PAIRS, names, pairs
from recordmill.transforms.flags import (
    REQUIRED,
    check_values,
    declares_flags,
    flag,
    flag_with,
    naming_parameters,
    setting,
)
from recordmill.transforms.records import JobError
from recordmill.transforms.sources.names import is_unicode, printable
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_folder, may_be_there
from recordmill.transforms.storage.paths import absolute, expanded, is_absolute, real_path

ANNOTATIONS = ("masks", "keypoints", "captions")
"""Values of `--include_annotations`."""


def _kind(text: str) -> str:
    from recordmill.transforms.sources.registry import SOURCES  # imports all sources

    if text != "auto" and text not in SOURCES:
        near = difflib.get_close_matches(text, SOURCES, 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"{text!r}{meant}; it may be auto, {', '.join(SOURCES)}")
    return text


@declares_flags("input and output")
@dataclasses.dataclass(frozen=True, slots=True)
class SourceConfig:
    """The input and how to read it. Paths are local or `gs://`; `~` is expanded."""

    kind: str = flag(
        REQUIRED,
        "format of the input: a name that `recordmill formats` lists, or auto, which detects it",
        name="source",
        auto=True,
        parse=_kind,
        metavar="NAME",
        pattern="[a-z]+",
    )
    input: str = flag(
        REQUIRED,
        "file or folder to read, local or gs://; `recordmill formats` lists examples",
        required=True,
        path="input",
        metavar="PATH",
    )
    annotations: tuple[str, ...] = flag(
        (), "table or annotation file of the images", path="file", metavar="FILE"
    )
    image_roots: tuple[str, ...] = flag(
        (), "another folder to search for images", name="image_root", path="folder", metavar="FOLDER"
    )
    image_column: str | None = flag(None, "the column of the table with the image paths", metavar="NAME")
    label_column: str | None = flag(
        None,
        "the column or columns of the table with the labels",
        metavar="NAME[,NAME…]",
        pattern="[^,]+(,[^,]+)*",
    )
    label_pattern: str | None = flag(
        None,
        "regular expression for the key: its group named label, or its first group, is the label",
        metavar="REGEX",
        pattern=r".*\(.+\).*",
    )
    include: tuple[str, ...] = flag((), "read only records whose keys match", metavar="GLOB")
    exclude: tuple[str, ...] = flag((), "leave out records whose keys match", metavar="GLOB")
    include_annotations: tuple[str, ...] = flag(
        (),
        f"annotations to store in addition to boxes and labels: {', '.join(ANNOTATIONS)}",
        values=ANNOTATIONS,
        parse=names,
        metavar="KIND[,KIND]",
        pattern="({0})(,({0}))*".format("|".join(ANNOTATIONS)),
    )
    input_features: tuple[tuple[str, str], ...] = flag(
        (),
        "with --source tfrecord: maps features of other programs to ours, such as img=image/encoded",
        parse=pairs,
        metavar="OLD=NEW,…",
        pattern=PAIRS,
    )
    mask_pattern: str | None = flag(
        None,
        "with --source masks: path of the mask of an image, relative to the input, such as "
        "masks/{stem}_mask.png, {folder}/../masks/{name} or gt/{subfolder}/{parent}_{stem}.png",
        metavar="PATTERN",
        pattern=r".*\{(stem|name|folder|parent|subfolder)\}.*",
    )
    limit: int | None = flag(None, "read only the first N records", at_least=1, metavar="N")
    skip_dirs: tuple[str, ...] = setting((), "absolute folders to leave out silently, such as the output")

    @naming_parameters()
    def __post_init__(self) -> None:
        object.__setattr__(self, "input", _expanded("input", self.input))
        for field, name in (("annotations", "annotations"), ("image_roots", "image_root")):
            object.__setattr__(self, field, tuple(_expanded(name, path) for path in getattr(self, field)))
        check_values(self)
        if self.label_column is not None and self.label_pattern is not None:
            given = f"--label_column is {self.label_column!r} and --label_pattern {self.label_pattern!r}"
            raise ValueError(f"{given}, which both determine the label; give one of them")

    def as_json(self) -> dict[str, object]:
        """The settings given, for manifest.json; paths are absolute, except annotations in `input`."""
        fields = dataclasses.asdict(self)
        del fields["skip_dirs"]
        fields["input"] = absolute(self.input)
        fields["annotations"] = tuple(
            absolute(one) if is_absolute(one) or may_be_there(one) else one for one in self.annotations
        )
        fields["image_roots"] = tuple(map(absolute, self.image_roots))
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SourceConfig:
        """The inverse of `as_json`. Raises ValueError for unknown fields, or a value that is not allowed."""
        unknown = sorted(fields.keys() - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(f"the source has the unknown field {unknown[0]!r}")
        return cls(**{name: _with_tuples(value) for name, value in fields.items()})


def _expanded(flag: str, path: str) -> str:
    try:
        return expanded(path)
    except ValueError as error:
        raise ValueError(f"--{flag} is {path!r}: {error}") from error


def _with_tuples(value: Any) -> Any:
    """A JSON value with tuples instead of lists."""
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


def check_input_exists(config: SourceConfig) -> None:
    """Raises ValueError unless `--input` is readable and every `--image_root` exists."""
    with readable("--input", config.input):
        check_path("--input", config.input)
        system = file_system(config.input)
        if not system.is_there(config.input):
            raise ValueError(f"--input is {config.input!r}{_why_missing(config.input)}")
        system.check_readable(config.input)
    for root in config.image_roots:
        with readable("--image_root", root):
            check_path("--image_root", root)
            if not (file_system(root).is_there(root) and is_folder(root)):
                raise ValueError(f"--image_root is {root!r}: there is no such folder")


def _why_missing(path: str) -> str:
    parts = path.split("/")
    first = next((at for at, part in enumerate(parts) if any(mark in part for mark in "*?[")), None)
    if first is None:
        return f": there is no such {file_system(path).missing(path)}"
    folder, pattern = "/".join(parts[:first]) or ("/" if first else "."), "/".join(parts[first:])
    flags = f"{flag_with('--input', folder)} {flag_with('--include', pattern)}"
    return f", a pattern, but --input takes a folder; give {flags}"


def check_path(flag: str, path: str) -> None:
    """Raises ValueError if a path is of an unsupported kind, or cannot be stored in records as UTF-8."""
    if not is_unicode(path):
        raise ValueError(f"{flag} is '{printable(path)}', which is not UTF-8; rename it")
    try:
        file_system(path).check_path(path)
    except ValueError as error:
        raise ValueError(f"{flag} is {path!r}; {error}") from error
    leads_to = real_path(path)
    if not is_unicode(leads_to):
        raise ValueError(f"{flag} is {path!r}, which leads to '{printable(leads_to)}': not UTF-8; rename it")


@contextlib.contextmanager
def readable(flag: str, path: str) -> Iterator[None]:
    """Raises ValueError, naming `flag` and `path`, for an error of the file system."""
    try:
        yield
    except JobError as error:
        raise ValueError(f"{flag} is {path!r}: {error}") from error
    except OSError as error:
        raise ValueError(f"{flag} is {path!r}: {os_error_text(error, path)}") from error


def os_error_text(error: OSError, named: str | None = None) -> str:
    """The reason of the file system, and the file unless it is `named`, which the message has already."""
    reason = (error.strerror or str(error)).lower()
    if error.filename in (None, named):
        return reason
    file = printable(os.fsdecode(error.filename))
    if reason.startswith("it "):  # of `open_regular` and `leads_to`
        return f"{file!r}: {error.strerror}"
    return f"{reason}, reading {file!r}"
