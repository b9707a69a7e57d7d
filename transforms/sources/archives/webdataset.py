"""Source `webdataset`: tar shards whose adjacent members of one basename are a sample.

`0001.jpg`, `0001.cls` and `0001.json` are the sample `0001`; the text after the first dot is the kind of the
member. References point into the shards; only gzip is unpacked, once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from recordmill.transforms.records import (
    Annotations,
    BadInput,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
    MaskImage,
)
from recordmill.transforms.sources.archives.archive import Archive, ArchivesSource
from recordmill.transforms.sources.archives.members import DAMAGED, Member
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import failed, is_image_name, skipped
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.source import Description
from recordmill.transforms.sources.tables.values import flattened

TARS = r"tar|tar\.gz|tgz"
_LABELS = ("cls", "cls.txt")
_CAPTIONS = ("txt", "caption", "cap", "caption.txt")
MASKS = ("seg.png", "mask.png")
WITH_IMAGE = frozenset(("json", *_LABELS, *_CAPTIONS, *MASKS))
_LARGEST_NAMED = 1 << 20  # bytes of a member with one of these extensions, and of any other one
_LARGEST_OTHER = 64 << 10


class WebdatasetSource(ArchivesSource):
    """Lists the samples of tar shards."""

    name = "webdataset"
    description = Description(
        reads="tar shards of samples: `.jpg` (or another image) with `.cls`, `.json`, `.txt`, `.seg.png`, …",
        label="`.cls`, or `label` or `class` in `.json`",
        split="the name of the shard (`imagenet-train-000000.tar`), or its folder",
        key="path of the image in the shard; the name of the shard comes first if there are several",
        example="shards/\n  train-000000.tar\n    0001.jpg\n    0001.cls\n    0001.json\n  train-000001.tar",
        annotations=("masks", "captions"),
    )
    kinds = TARS

    def records(
        self, config: SourceConfig, archive: Archive, members: Iterator[Member | Failure]
    ) -> Iterator[ImageRecord | Failure]:
        selection = Selection(config)
        takes_masks = "masks" in config.include_annotations

        def record(sample: _Sample) -> ImageRecord | Failure:
            if sample.image is None:
                found = ", ".join(f".{extension}" for extension in sample.others) or "nothing that is read"
                fault = BadInput("annotations", "sample without an image", f"it has {found}")
                return failed(archive.prefix + sample.name, fault)
            name, ref, size = sample.image
            key = archive.prefix + name

            def make() -> ImageRecord:
                annotations = _annotations(config, selection, key, sample)
                return ImageRecord(key, ref, archive.split, annotations, archive.name, size)

            return selection.item(key, make)

        sample: _Sample | None = None
        for member in members:
            if isinstance(member, Failure):
                if member.reason == DAMAGED and sample is not None:
                    fault = BadInput("list", "sample may be cut off", member.detail)
                    yield failed(archive.prefix + sample.name, fault)
                    sample = None
                yield member
                continue
            name, extension = sample_name(member.name)
            if sample is None or sample.name != name:
                if sample is not None:
                    yield record(sample)
                sample = _Sample(name)
            try:
                if (reason := sample.add(member, extension, takes_masks)) is not None:
                    yield skipped(archive.prefix + member.name, "member not read", reason)
            except BadInput as fault:
                yield failed(archive.prefix + member.name, fault)
        if sample is not None:
            yield record(sample)


@dataclasses.dataclass(slots=True)
class _Sample:
    """The members listed so far of a sample: adjacent ones whose names start with `name`."""

    name: str
    image: tuple[str, ImageRef, int] | None = None  # name, bytes and size
    mask: ImageRef | None = None
    others: dict[str, bytes] = dataclasses.field(default_factory=dict)  # contents by extension

    def add(self, member: Member, extension: str, takes_masks: bool) -> str | None:
        """Adds a member; returns why it is left out."""
        if extension in MASKS:
            if not takes_masks:
                return "--include_annotations=masks takes it"
            self.mask = member.ref()
        elif is_image_name(member.name):
            if self.image is not None:
                return f"the sample's image is {self.image[0]!r}"
            self.image = (member.name, member.ref(), member.size)
        elif member.size > (_LARGEST_NAMED if extension in WITH_IMAGE else _LARGEST_OTHER):
            return f"it has {member.size} bytes"
        else:
            self.others[extension or "data"] = member.data()
        return None


def sample_name(name: str) -> tuple[str, str]:
    """The part of a name that the members of a sample share, and the extension, after the first dot."""
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return f"{folder}{slash}{stem}", extension.lower()


def _annotations(config: SourceConfig, selection: Selection, key: str, sample: _Sample) -> Annotations:
    labels: tuple[str | int, ...] = ()
    features: dict[str, FeatureValue] = {}
    captions: list[str] = []
    if "json" in sample.others:
        labels, features = flattened(_text(sample.others.pop("json"), "json"))
    for extension, data in sample.others.items():
        if extension in _LABELS:
            labels = (_label(_text(data, extension)),)
        elif extension in _CAPTIONS and "captions" in config.include_annotations:
            captions.append(_text(data, extension).strip())
        else:
            # a member and a value of `.json` may have one name: neither replaces the other
            name = f"{extension}/data" if extension in features else extension
            features[name] = _text(data, extension) if extension in _CAPTIONS else data
    masks = {} if sample.mask is None else {"class": MaskImage(sample.mask)}
    return Annotations(selection.labels(key, labels), features, captions=tuple(captions), masks=masks)


def _text(data: bytes, extension: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput("annotations", "member is not UTF-8", f".{extension}: {error}") from error


def _label(text: str) -> str | int:
    text = text.strip()
    if not text:
        raise BadInput("annotations", "empty label", ".cls has no text")
    try:
        return int(text) if text.lstrip("-").isdecimal() and text.isascii() else text
    except ValueError:  # of thousands of digits
        return text
