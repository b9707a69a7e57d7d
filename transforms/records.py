"""The frozen dataclasses that flow between the steps of a conversion. Imports no Beam."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping

SPLIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
"""What may be a split's name: part of its shards' names, and of TFDS's split expressions."""

Scalar = str | int | float | bool | bytes
FeatureValue = Scalar | tuple[Scalar, ...]


class BadInput(Exception):
    """One input that cannot go into the dataset, and why: the only error that becomes a failed record.

    Args:
        stage: what was being done: `list`, `manifest`, `load`, `decode`, `encode` or `build`.
        reason: a short sentence without particulars, the same for all inputs that fail alike:
            failures are counted by it.
        detail: the particulars, and the remedy where there is one.
        key: the record's key; left empty by code that only sees bytes, filled in by its caller.
    """

    def __init__(self, stage: str, reason: str, detail: str = "", key: str = "") -> None:
        super().__init__(stage, reason, detail, key)
        self.stage = stage
        self.reason = reason
        self.detail = detail
        self.key = key

    def __str__(self) -> str:
        text = f"{self.stage}: {self.reason}"
        if self.detail:
            text += f" ({self.detail})"
        return f"{self.key}: {text}" if self.key else text

    def failure(self, key: str = "") -> Failure:
        """This error as the failed record of `key`."""
        return Failure(key or self.key, self.stage, self.reason, self.detail)


class JobError(Exception):
    """The whole job cannot go on, through a fault of the input or of the machine; one clear line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """An input that is not in the dataset: failed, or skipped on purpose."""

    key: str
    stage: str
    reason: str
    detail: str = ""
    skipped: bool = False

    def to_json(self) -> str:
        """This failure as a line of failures.jsonl, without the line end."""
        line: dict[str, str | bool] = {"key": self.key, "stage": self.stage, "reason": self.reason}
        if self.detail:
            line["detail"] = self.detail
        if self.skipped:
            line["skipped"] = True
        return json.dumps(line, ensure_ascii=False)


@dataclasses.dataclass(frozen=True, slots=True)
class ImageRef:
    """Where an image's stored bytes are.

    Attributes:
        uri: a local path or a URI.
        offset: first byte, for an image inside an uncompressed container.
        length: number of bytes; None for a whole file.
        pixels: (height, width, channels) where the bytes are raw uint8 pixels, row by row; None
            where they are an encoded image.
        version: tells one state of the stored bytes from another: the modification time of a local
            file, in nanoseconds; 0 where it is not known.
    """

    uri: str
    offset: int = 0
    length: int | None = None
    pixels: tuple[int, int, int] | None = None
    version: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Annotations:
    """What is known of an image beside its pixels.

    Attributes:
        labels: class names or ids, as the source has them; several for multi-label data.
        features: free features by name, in the order of the source. A value that is absent is
            left out, not None.
    """

    labels: tuple[str | int, ...] = ()
    features: Mapping[str, FeatureValue] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class ImageRecord:
    """A reference to one image, and its annotations: a few hundred bytes, whatever the image's size.

    Attributes:
        key: dataset-relative, unique and stable, with `/` between parts: decides split, shard and order.
        image: where its bytes are; None for records that are features alone.
        split: the source's own split, or None.
        annotations: labels and free features.
        origin: where the source lists it (`labels.csv, line 12`), for messages; may be empty.
        size: bytes of the stored image where the listing tells, else 0.
    """

    key: str
    image: ImageRef | None
    split: str | None = None
    annotations: Annotations = Annotations()
    origin: str = ""
    size: int = 0

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("ImageRecord.key is empty; it must be unique in the dataset")


@dataclasses.dataclass(frozen=True, slots=True)
class Geometry:
    """How the pixels of a file came to lie in the stored image: turned, then scaled, then padded or cropped.

    Attributes:
        orientation: EXIF, 1 to 8: how the file's pixels were turned.
        upright_height: pixels, once turned.
        upright_width: pixels, once turned.
        scaled_height: pixels, once resized.
        scaled_width: pixels, once resized.
        top: row of the stored image in which the resized picture begins; negative where it is cropped.
        left: column in which it begins.
        height: pixels of the stored image.
        width: pixels of the stored image.
    """

    orientation: int
    upright_height: int
    upright_width: int
    scaled_height: int
    scaled_width: int
    top: int
    left: int
    height: int
    width: int


@dataclasses.dataclass(frozen=True, slots=True)
class StoredImage:
    """An image as it goes into a record.

    Attributes:
        data: the bytes of image/encoded.
        image_format: `jpeg`, `png`, `gif`, `bmp`, `webp`, `raw` or `tensor`: what the bytes are.
        height: pixels.
        width: pixels.
        channels: as `tf.io.decode_image` decodes it with channels=0, or as stored for raw and tensor.
        dtype: of the decoded pixels, `uint8` or `uint16`.
        colorspace: `RGB`, `Grayscale`, `CMYK`, `RGBA` or `GrayscaleAlpha`, of the stored bytes.
        actions: what was done and why, each a name that manifest.json counts.
        geometry: where the pixels of the source went; None where they are where they were.
        jpeg_quality: that --target_ssim chose, 0 where the source was kept; None where it was not asked for.
        flattened_bytes: what an image that is stored with its alpha would take without.
    """

    data: bytes
    image_format: str
    height: int
    width: int
    channels: int
    dtype: str
    colorspace: str
    actions: tuple[str, ...]
    geometry: Geometry | None = None
    jpeg_quality: int | None = None
    flattened_bytes: int | None = None
