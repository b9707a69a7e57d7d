"""What calls of `recordmill convert` read, without a conversion; and what their messages lead to."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from recordmill.pipelines.options.convert import parse_convert
from recordmill.transforms.records import (
    AnnotatedObject,
    ClassNames,
    Failure,
    ImageRecord,
    ImageRef,
    JobError,
    MaskImage,
)
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.storage.reader import ImageReader

_FAILURE_RATIO = 0.01  # the default of --max_failure_ratio
_SEVERAL = ("image_root", "annotations", "include", "exclude")
_FOLLOWED = (
    "input",
    "source",
    "image_root",
    "annotations",
    "include_annotations",
    "mask_pattern",
    "label_pattern",
    "label_file",
    "image_column",
    "label_column",
)
_NO_VALUE = frozenset(
    ("is", "may", "has", "have", "reads", "wants", "the", "a", "an", "of", "or", "and", "with")
)
_FLAG = re.compile(r"--(\w+)(?:=|\s+)('[^']*'|\"[^\"]*\"|[^\s;,]+)")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")


@dataclasses.dataclass(frozen=True)
class Content:
    """The contents of a record, without its location.

    Attributes:
        image: digest of the bytes of the image; empty where there is none.
        split: of the record.
        labels: class names, or ids where they have no name.
        objects: class, box, mask, key points and attributes of each.
        masks: kind, digest, colours and segments of each.
        others: features, captions, whether coordinates are relative, and steps.
    """

    image: str
    split: str | None
    labels: tuple[str, ...]
    objects: tuple[tuple[str, ...], ...]
    masks: tuple[tuple[str, ...], ...]
    others: str


@dataclasses.dataclass(frozen=True)
class Reading:
    """The result of a call.

    Attributes:
        argv: of the call.
        status: `read`; `refused` with exit status 2; `failed`: no record, or more failures than
            `--max_failure_ratio` allows; `crashed`: an exception that a user sees as a traceback.
        message: of the refusal or failure; where it was read, the reason for the choice of the source.
        source: its name.
        records: by key.
        failed: inputs that failed, by reason.
    """

    argv: tuple[str, ...]
    status: Literal["read", "refused", "failed", "crashed"]
    message: str = ""
    source: str = ""
    records: Mapping[str, Content] = dataclasses.field(default_factory=dict)
    failed: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def splits(self) -> dict[str | None, int]:
        """Records by split."""
        return dict(collections.Counter(one.split for one in self.records.values()))

    @property
    def labels(self) -> dict[str, int]:
        """Labels of images."""
        return dict(collections.Counter(name for one in self.records.values() for name in one.labels))

    @property
    def boxes(self) -> dict[str, int]:
        """Objects by class."""
        return dict(collections.Counter(found[0] for one in self.records.values() for found in one.objects))

    @property
    def masks(self) -> dict[str, int]:
        """Mask images by kind; the masks of objects as `object`."""
        kinds = [mask[0] for one in self.records.values() for mask in one.masks]
        kinds += ["object" for one in self.records.values() for found in one.objects if found[2] != "None"]
        return dict(collections.Counter(kinds))


def read(argv: Sequence[str]) -> Reading:
    """Parses the call, and lists the source that it names, as the command does."""
    call = tuple(argv)
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                options = parse_convert([*argv, "--output", f"{scratch}/out"], "recordmill convert")
        except SystemExit as end:
            message = said.getvalue().strip()
            return Reading(call, "refused" if end.code == 2 else "crashed", message)
        except Exception as error:
            return Reading(call, "crashed", repr(error))
        config = options.source
        try:
            os.makedirs(f"{scratch}/scratch")
            items = list(source_of(config).read(config, f"{scratch}/scratch"))
            return _reading(call, config.kind, options.source_reason, items)
        except JobError as error:
            return Reading(call, "failed", str(error), config.kind)
        except Exception as error:
            return Reading(call, "crashed", repr(error), config.kind)


def _reading(argv: tuple[str, ...], kind: str, reason: str, items: Sequence[object]) -> Reading:
    names: dict[int, str] = {}
    for one in items:
        if isinstance(one, ClassNames):
            names.update(one.names)
    records = {one.key: _content(one, names) for one in items if isinstance(one, ImageRecord)}
    count = sum(isinstance(one, ImageRecord) for one in items)
    bad = [one for one in items if isinstance(one, Failure) and not one.skipped and not one.kept]
    failed = dict(collections.Counter(one.reason for one in bad))
    if len(records) < count:
        return Reading(argv, "failed", "duplicate keys", kind, records, failed)
    if not records or len(bad) > _FAILURE_RATIO * (len(bad) + count):
        reasons = dict.fromkeys(f"{one.reason}: {one.detail}" for one in bad)
        return Reading(argv, "failed", "; ".join(list(reasons)[:5]) or "no record", kind, records, failed)
    return Reading(argv, "read", reason, kind, records, failed)


def _content(record: ImageRecord, names: Mapping[int, str]) -> Content:
    found = record.annotations
    steps = found.steps
    frames = [] if steps is None else [_digest(frame) for frame in steps.frames]
    lists = {} if steps is None else {"labels": steps.labels, **steps.lists}
    others = (sorted(found.features.items()), found.captions, found.relative, frames, sorted(lists.items()))
    return Content(
        image="" if record.image is None else _digest(record.image),
        split=record.split,
        labels=tuple(_named(label, names) for label in found.labels),
        objects=tuple(_object(one, names) for one in found.objects),
        masks=tuple(_mask(kind, mask, names) for kind, mask in sorted(found.masks.items())),
        others=repr(others),
    )


def _named(label: str | int, names: Mapping[int, str]) -> str:
    return str(names.get(label, label) if isinstance(label, int) else label)


def _object(one: AnnotatedObject, names: Mapping[int, str]) -> tuple[str, ...]:
    mask = _digest(one.mask) if isinstance(one.mask, ImageRef) else one.mask
    box = None if one.box is None else tuple(round(value, 4) for value in one.box)
    others = (one.keypoints, one.parts, sorted(one.attributes.items()))
    return (_named(one.label, names), repr(box), repr(mask), repr(others))


def _mask(kind: str, mask: MaskImage, names: Mapping[int, str]) -> tuple[str, ...]:
    segments = [(one.id, _named(one.label, names), one.is_thing) for one in mask.segments]
    return (kind, _digest(mask.image), repr(sorted(mask.colors)), repr(segments))


def _digest(ref: ImageRef) -> str:
    return hashlib.sha256(ImageReader().read(ref)).hexdigest()[:16] + repr(ref.pixels or "")


def difference(reading: Reading, reference: Reading) -> str:
    """How a reading differs from its reference; empty where they are the same.

    Folders that all keys of a reading begin with are ignored.
    """
    records, right = _by_tail(reading.records), _by_tail(reference.records)
    if (reading.status, records, sum(reading.failed.values())) == (
        reference.status,
        right,
        sum(reference.failed.values()),
    ):
        return ""
    parts = []
    for name in ("source", "splits", "labels", "boxes", "masks", "failed"):
        here, there = getattr(reading, name), getattr(reference, name)
        if here != there:
            parts.append(f"{name} {_short(there)} -> {_short(here)}")
    if len(records) != len(right):
        parts.append(f"records {len(right)} -> {len(records)}")
    elif records.keys() != right.keys():
        first = sorted(records.keys() ^ right.keys())[:4]
        parts.append(f"keys such as {', '.join(first)}")
    return "; ".join(parts) or "the records' contents differ"


def _short(value: object) -> str:
    text = f"{sum(value.values())} {value}" if isinstance(value, dict) and value else str(value)
    return text if len(text) < 90 else f"{text[:90]}…"


def _by_tail(records: Mapping[str, Content]) -> dict[str, Content]:
    """The records by key, without the folders that all keys begin with."""
    folders = [key.rpartition("/")[0] for key in records]
    common = os.path.commonpath(folders) if folders and all(folders) else ""
    return {key[len(common) :].lstrip("/"): one for key, one in records.items()}


def ways_on(reading: Reading, images: str | None = None) -> Iterator[tuple[str, ...]]:
    """The calls that the message of a refusal or failure names, but for `--source folder`.

    Args:
        reading: that was refused or has failed.
        images: the folder that a user knows the images to lie in, where the message asks for it.
    """
    given = _given(reading.argv)
    edits = list(_edits(reading.message))
    if images is not None and re.search(r"--image_root(?!s? is\b)", reading.message):
        edits.append((("image_root", images),))
    useless = re.findall(r"--(\w+) is [^;]*does not use it", reading.message)
    for name in set(useless) & set(given):
        yield tuple(_edited({**given, name: []}, ()))
    quoted = [one or other for one, other in _QUOTED.findall(reading.message)]
    edits += [(("input", path),) for path in dict.fromkeys(quoted) if _is_other_input(path, given)]
    for edit in (*edits, *((*one, *other) for one in edits for other in edits if one != other)):
        if ("source", "folder") not in edit and (argv := _edited(given, edit)) != list(reading.argv):
            yield tuple(argv)


def misleading(reading: Reading, reference: Reading) -> Reading | None:
    """The reading of a call that the message names, where its records differ from the reference's.

    Their keys may differ: they depend on the root that is given.
    """
    given = _given(reading.argv)
    for edit in _edits(reading.message):
        if ("source", "folder") not in edit:
            answer = read(_edited(given, edit))
            if answer.status == "read" and _contents(answer) != _contents(reference):
                return answer
    return None


def _contents(reading: Reading) -> collections.Counter[Content]:
    return collections.Counter(reading.records.values())


def _is_other_input(path: str, given: Mapping[str, list[str]]) -> bool:
    return os.path.isabs(path) and os.path.exists(path) and [path] != given.get("input")


def _edits(message: str) -> Iterator[tuple[tuple[str, str], ...]]:
    """Flags of the message that follow on each other, group by group."""
    group: list[tuple[str, str]] = []
    end = 0
    for found in _FLAG.finditer(message):
        between = message[end : found.start()]
        if group and between.strip():
            yield tuple(group)
            group = []
        end = found.end()
        name, value = found[1], _unquoted(found[2])
        if name in _FOLLOWED and value not in _NO_VALUE:
            group.append((name, value))
    if group:
        yield tuple(group)


def _unquoted(text: str) -> str:
    try:
        (value,) = shlex.split(text)
    except ValueError:
        value = text
    return value.rstrip(".:)")


def _given(argv: Sequence[str]) -> dict[str, list[str]]:
    flags: dict[str, list[str]] = {}
    for name, value in zip(argv[::2], argv[1::2], strict=True):
        flags.setdefault(name.removeprefix("--"), []).append(value)
    return flags


def _edited(given: Mapping[str, list[str]], edit: Sequence[tuple[str, str]]) -> list[str]:
    flags = {name: list(values) for name, values in given.items()}
    for name, value in edit:
        if name not in _SEVERAL:
            flags[name] = [value]
        elif value not in flags.setdefault(name, []):
            flags[name].append(value)
    return [part for name, values in flags.items() for value in values for part in (f"--{name}", value)]


def leads_to(reading: Reading, reference: Reading, images: str | None) -> Reading | None:
    """The first call that gives what the reference gives, following up to three messages; or None."""
    seen = {reading.argv}
    ahead = [reading]
    for _ in range(3):
        found: list[Reading] = []
        for one in ahead:
            for argv in ways_on(one, images):
                if argv in seen or len(seen) > 40:
                    continue
                seen.add(argv)
                answer = read(argv)
                if not difference(answer, reference):
                    return answer
                if answer.status != "read":
                    found.append(answer)
        ahead = found
    return None
