"""Source `webdataset`: tar shards whose adjacent members of one basename are a sample.

The format is WebDataset's: `0001.jpg`, `0001.cls` and `0001.json` are the sample `0001`; what follows the
first dot of a name tells what a member is. Nothing is extracted: references lead into the shards, but for
gzip, which is unpacked once.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Generator, Iterable, Iterator

import msgspec

from recordmill.transforms.records import (
    Annotations,
    BadInput,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
    MaskImage,
)
from recordmill.transforms.sources.archives.archive import (
    Archive,
    archive_splits,
    archives,
    check_archives,
    first_archive,
    first_bytes,
    first_names,
)
from recordmill.transforms.sources.archives.tar_members import DAMAGED, TarMember, is_gzip, tar_members
from recordmill.transforms.sources.config import SourceConfig, readable
from recordmill.transforms.sources.names import failed, is_image_name, printable, skipped
from recordmill.transforms.sources.selection import EXCLUDED, Selection, label_pattern
from recordmill.transforms.sources.source import (
    Description,
    Items,
    Source,
    listing_faults,
)
from recordmill.transforms.sources.tables.values import flattened
from recordmill.transforms.storage.spool import Spool

_TARS = r"tar|tar\.gz|tgz"
_LABELS = ("cls", "cls.txt")
_CAPTIONS = ("txt", "caption", "cap", "caption.txt")
_MASKS = ("seg.png", "mask.png")
_TOLD = frozenset(("json", *_LABELS, *_CAPTIONS, *_MASKS))
_LARGEST_TOLD = 1 << 20  # bytes of a member that is known by its extension, and of any other one
_LARGEST_OTHER = 64 << 10
_NOT_READ = "member not read"


class WebdatasetSource(Source):
    """Lists the samples of tar shards."""

    name = "webdataset"
    description = Description(
        reads="tar shards of samples: `.jpg` (or another image) with `.cls`, `.json`, `.txt`, `.seg.png`, …",
        label="`.cls`, or `label` or `class` in `.json`",
        split="the shard's name (`imagenet-train-000000.tar`), or its folder",
        key="path of the image in the shard, below the shard's own name where there are several",
        example="shards/\n  train-000000.tar\n    0001.jpg\n    0001.cls\n    0001.json\n  train-000001.tar",
        annotations=("masks", "captions"),
    )

    def sniff(self, config: SourceConfig) -> str | None:
        if config.annotations:
            return None
        with readable("--input", config.input):
            archive = first_archive(config, _TARS)
            names = [] if archive is None else first_names(archive)
        images = {sample_name(name)[0] for name in names if _is_image(name)}
        for name in names:
            sample, extension = sample_name(name)
            if extension in _TOLD and sample in images and archive is not None:
                if extension == "json" and _is_labelme(first_bytes(archive, name)):
                    return None
                shard = archive.path.rpartition("/")[2]
                return f"{shard!r} is a tar with an image and {name!r}, which goes with it"
        return None

    def check(self, config: SourceConfig) -> None:
        check_archives(config, self.name, _TARS, "label_column")

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        return archive_splits(config, _TARS)

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _items(config, scratch, archives(config, _TARS))

    def parts(self, config: SourceConfig, most: int) -> Iterator[Archive | Failure]:
        with listing_faults():
            yield from archives(config, _TARS)

    def part_items(self, config: SourceConfig, scratch: str, part: Archive | Failure) -> Items:
        yield from _items(config, scratch, (part,))


@dataclasses.dataclass(slots=True)
class _Sample:
    """What is known of a sample so far.

    Attributes:
        name: what its members have in common.
        image: name, place and size of its image.
        mask: of its classes.
        told: contents of the other members, by extension.
    """

    name: str
    image: tuple[str, ImageRef, int] | None = None
    mask: ImageRef | None = None
    told: dict[str, bytes] = dataclasses.field(default_factory=dict)


def sample_name(name: str) -> tuple[str, str]:
    """What the members of a sample have in common, and the extension, from the first dot on."""
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return f"{folder}{slash}{stem}", extension.lower()


def _is_labelme(data: bytes) -> bool:
    """Whether the JSON of an image is a LabelMe annotation: those are read from folders only."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("shapes"), list)


def _is_image(name: str) -> bool:
    return is_image_name(name) and sample_name(name)[1] not in _MASKS


def _items(
    config: SourceConfig, scratch: str, found: Iterable[Archive | Failure]
) -> Generator[ImageRecord | Failure, None, None]:
    shards = _Shards(config)
    for item in found:
        if isinstance(item, Failure):
            yield item
        elif is_gzip(item.path):
            with Spool(scratch, item.path, item.version) as spool:
                yield from shards.items(item, tar_members(item.path, item.prefix, spool))
        else:
            yield from shards.items(item, tar_members(item.path, item.prefix))


class _Shards:
    """Makes the members of shards into records; holds one sample."""

    def __init__(self, config: SourceConfig) -> None:
        self._selection = Selection(config)
        self._label_pattern = label_pattern(config)
        self._takes_masks = "masks" in config.include_annotations
        self._takes_captions = "captions" in config.include_annotations

    def items(
        self, shard: Archive, members: Iterator[TarMember | Failure]
    ) -> Iterator[ImageRecord | Failure]:
        """The records of one shard."""
        sample: _Sample | None = None
        for member in members:
            if isinstance(member, Failure):
                if member.reason == DAMAGED and sample is not None:
                    fault = BadInput("list", "sample may be cut off", member.detail)
                    yield failed(shard.prefix + sample.name, fault)
                    sample = None
                yield member
                continue
            name, extension = sample_name(member.name)
            if sample is None or sample.name != name:
                if sample is not None:
                    yield self._record(shard, sample)
                sample = _Sample(name)
            try:
                failure = self._add(sample, member, extension)
            except BadInput as fault:
                yield failed(shard.prefix + member.name, fault)
                continue
            if failure is not None:
                yield skipped(shard.prefix + member.name, _NOT_READ, failure)
        if sample is not None:
            yield self._record(shard, sample)

    def _add(self, sample: _Sample, member: TarMember, extension: str) -> str | None:
        """Adds a member to its sample; or why it is left out."""
        if extension in _MASKS:
            if self._takes_masks:
                sample.mask = member.ref()
            return None if self._takes_masks else "--include_annotations=masks takes it"
        if is_image_name(member.name):
            if sample.image is not None:
                return f"the sample's image is {sample.image[0]!r}"
            sample.image = (member.name, member.ref(), member.size)
            return None
        if member.size > (_LARGEST_TOLD if extension in _TOLD else _LARGEST_OTHER):
            return f"it has {member.size} bytes"
        sample.told[extension or "data"] = member.data()
        return None

    def _record(self, shard: Archive, sample: _Sample) -> ImageRecord | Failure:
        if sample.image is None:
            found = (
                f"it has {', '.join(f'.{extension}' for extension in sample.told) or 'nothing that is read'}"
            )
            fault = BadInput("annotations", "sample without an image", found)
            return failed(shard.prefix + sample.name, fault)
        name, image, size = sample.image
        key = shard.prefix + name
        if not self._selection.takes(key):
            return skipped(key, EXCLUDED)
        try:
            annotations = self._annotations(sample)
            if self._label_pattern is not None:
                annotations = msgspec.structs.replace(annotations, labels=(self._label_pattern.label(key),))
        except BadInput as fault:
            return failed(key, fault)
        return ImageRecord(
            key, image, shard.split, annotations, printable(shard.path.rpartition("/")[2]), size
        )

    def _annotations(self, sample: _Sample) -> Annotations:
        labels: tuple[str | int, ...] = ()
        features: dict[str, FeatureValue] = {}
        captions: list[str] = []
        if "json" in sample.told:
            labels, features = flattened(_text(sample.told.pop("json"), "json"))
        for extension, data in sample.told.items():
            if extension in _LABELS:
                labels = (_label(_text(data, extension)),)
            elif extension in _CAPTIONS and self._takes_captions:
                captions.append(_text(data, extension).strip())
            else:
                text = _text(data, extension) if extension in _CAPTIONS else data
                # A member and what `.json` has may be called alike: neither replaces the other.
                name = f"{extension}/data" if extension in features else extension
                features[name] = text
        masks = {} if sample.mask is None else {"class": MaskImage(sample.mask)}
        return Annotations(labels, features, captions=tuple(captions), masks=masks)


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
