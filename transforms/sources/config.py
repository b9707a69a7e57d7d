"""What a call says of its input, and whether that can be read."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
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
"""What `--include_annotations` may name."""


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
    """Where the input is, and how it is read. Paths are local or `gs://`; `~` is expanded."""

    kind: str = flag(
        REQUIRED,
        "what the input is; auto detects it; one that `recordmill formats` lists",
        name="source",
        auto=True,
        parse=_kind,
        metavar="NAME",
        pattern="[a-z]+",
    )
    input: str = flag(
        REQUIRED,
        "what to read, as `recordmill formats` lists it; local or gs://",
        required=True,
        path="input",
        metavar="PATH",
    )
    annotations: tuple[str, ...] = flag(
        (), "manifest or annotations of the images", path="file", metavar="FILE"
    )
    image_roots: tuple[str, ...] = flag(
        (), "a folder in which images are also looked for", name="image_root", path="folder", metavar="FOLDER"
    )
    image_column: str | None = flag(None, "the manifest's column of image paths", metavar="NAME")
    label_column: str | None = flag(
        None, "the manifest's column, or columns, of labels", metavar="NAME[,NAME…]", pattern="[^,]+(,[^,]+)*"
    )
    label_pattern: str | None = flag(
        None,
        "takes the label from the key: its group named label, or its first group",
        metavar="REGEX",
        pattern=r".*\(.+\).*",
    )
    include: tuple[str, ...] = flag((), "take only keys that match", metavar="GLOB")
    exclude: tuple[str, ...] = flag((), "leave out keys that match", metavar="GLOB")
    include_annotations: tuple[str, ...] = flag(
        (),
        f"what is stored of {', '.join(ANNOTATIONS)}, in addition to boxes and labels",
        values=ANNOTATIONS,
        parse=names,
        metavar="KIND[,KIND]",
        pattern="({0})(,({0}))*".format("|".join(ANNOTATIONS)),
    )
    input_features: tuple[tuple[str, str], ...] = flag(
        (),
        "with --source tfrecord: which features of foreign records are ours, as img=image/encoded",
        parse=pairs,
        metavar="OLD=NEW,…",
        pattern=PAIRS,
    )
    mask_pattern: str | None = flag(
        None,
        "with --source masks: where an image's mask lies below the input, as masks/{stem}_mask.png",
        metavar="PATTERN",
        pattern=r".*\{(stem|name)\}.*",
    )
    limit: int | None = flag(None, "take the first N records only", at_least=1, metavar="N")
    skip_dirs: tuple[str, ...] = setting((), "absolute folders to leave out silently, such as the output")

    @naming_parameters()
    def __post_init__(self) -> None:
        object.__setattr__(self, "input", _expanded("input", self.input))
        object.__setattr__(self, "annotations", _each_expanded("annotations", self.annotations))
        object.__setattr__(self, "image_roots", _each_expanded("image_root", self.image_roots))
        check_values(self)
        if self.label_column is not None and self.label_pattern is not None:
            raise ValueError(
                f"--label_column is {self.label_column!r} and --label_pattern {self.label_pattern!r}, "
                "which both tell the label; give one of them"
            )

    def as_json(self) -> dict[str, object]:
        """The settings as manifest.json has them: those that were given.

        Paths are absolute, but for annotations that lie in `input` and are told from there: they go with it.
        """
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
        """The inverse of `as_json`.

        Raises:
            ValueError: fields that this version does not know, or a value that may not be.
        """
        unknown = sorted(fields.keys() - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(f"the source has {unknown[0]!r}, which this version does not know")
        return cls(**{name: _with_tuples(value) for name, value in fields.items()})


def _each_expanded(flag: str, paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(_expanded(flag, path) for path in paths)


def _expanded(flag: str, path: str) -> str:
    try:
        return expanded(path)
    except ValueError as error:
        raise ValueError(f"--{flag} is {path!r}: {error}") from error


def _with_tuples(value: Any) -> Any:
    """A value of JSON whose lists are tuples."""
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


def check_input_exists(config: SourceConfig) -> None:
    """Raises ValueError unless `--input` is there and readable, and every `--image_root` is there."""
    with readable("--input", config.input):
        check_path("--input", config.input)
        system = file_system(config.input)
        if not system.is_there(config.input):
            _refuse_pattern(config.input)
            raise ValueError(f"--input is {config.input!r}: there is no such {system.missing(config.input)}")
        system.check_readable(config.input)
    for root in config.image_roots:
        with readable("--image_root", root):
            check_path("--image_root", root)
            if not (file_system(root).is_there(root) and is_folder(root)):
                raise ValueError(f"--image_root is {root!r}: there is no such folder")


def _refuse_pattern(path: str) -> None:
    """Raises ValueError if a path that does not exist is a pattern."""
    parts = path.split("/")
    first = next((at for at, part in enumerate(parts) if any(mark in part for mark in "*?[")), None)
    if first is not None:
        folder, pattern = "/".join(parts[:first]) or ("/" if first else "."), "/".join(parts[first:])
        raise ValueError(
            f"--input is {path!r}, a pattern, but --input takes a folder; give "
            f"{flag_with('--input', folder)} {flag_with('--include', pattern)}"
        )


def check_path(flag: str, path: str) -> None:
    """Raises ValueError where a path is of a kind that is not read, or is not UTF-8 as records hold it."""
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
    """Makes a ValueError that names `flag` and `path` of what the file system has against reading it."""
    try:
        yield
    except JobError as error:
        raise ValueError(f"{flag} is {path!r}: {error}") from error
    except OSError as error:
        if error.filename == path:
            raise ValueError(f"{flag} is {path!r}: {_reason(error)}") from error
        raise ValueError(f"{flag} is {path!r}: {os_error_text(error)}") from error


def os_error_text(error: OSError) -> str:
    """What the file system said, and of which file, for messages."""
    if error.filename is None:
        return _reason(error)
    if _reason(error).startswith("it "):  # of `open_regular` and `leads_to`
        return f"{printable(os.fsdecode(error.filename))!r}: {error.strerror}"
    return f"{_reason(error)}, reading {printable(os.fsdecode(error.filename))!r}"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def check_unused(config: SourceConfig, source: str, *flags: str) -> None:
    """Raises ValueError where one of `flags`, which `source` has no use for, is set."""
    for name in flags:
        field = "image_roots" if name == "image_root" else name
        if value := getattr(config, field):
            shown = ", ".join(map(_shown, value)) if isinstance(value, tuple) else value
            raise ValueError(f"--{name} is {shown!r}, and --source {source} does not use it")


def _shown(value: str | tuple[str, str]) -> str:
    return value if isinstance(value, str) else "=".join(value)
