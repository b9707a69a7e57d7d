"""The immutable values that flow between the steps of a conversion. Imports no Beam."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from recordmill.transforms.flags import as_parameters

SPLIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
"""The names that a split may have: they are part of shard names and of TFDS's split expressions."""

if TYPE_CHECKING:
    Scalar = str | int | float | bool | bytes
    FeatureValue = Scalar | tuple[Scalar, ...]
else:
    Scalar = FeatureValue = Any  # msgspec decodes no union of text and bytes


_ADDRESS = re.compile(r":? <[^\s<>]+ object at 0x[0-9a-f]+>")


def without_addresses(message: str) -> str:
    """A message of a library, without the objects in it that have an address in memory."""
    return _ADDRESS.sub("", message)


class BadInput(Exception):
    """An input that cannot go into the dataset: the only error that becomes a failed record.

    Args:
        stage: the step that failed: `list`, `manifest`, `annotations`, `load`, `decode`, `map`,
            `encode` or `build`.
        reason: a short sentence, the same for all inputs with the same fault. Failures are counted by it.
        detail: the values of this input, and the remedy if there is one.
        key: the record's key. Code that has only the bytes leaves it empty, and its caller sets it.
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
        return Failure(key or self.key, self.stage, self.reason, self.detail)


class JobError(Exception):
    """The job cannot continue because of the input or the machine.

    Args:
        message: one line. Flags in it are replaced by the parameters of the Python API.
    """

    def __init__(self, message: str) -> None:
        super().__init__(as_parameters(message))


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An input that is not in the dataset: failed, or skipped on purpose.

    Attributes:
        key: key of the record, or name of the file or row that is not a record.
        stage: the step that found the problem.
        reason: one of the reasons in docs/reference/failures.md.
        detail: the values of this input, and often the remedy.
        skipped: the input was left out on purpose.
        kept: the record was written, but one of its annotations was changed or dropped.
    """

    key: str
    stage: str
    reason: str
    detail: str = ""
    skipped: bool = False
    kept: bool = False

    def to_json(self) -> str:
        line: dict[str, str | bool] = {"key": self.key, "stage": self.stage, "reason": self.reason}
        if self.detail:
            line["detail"] = self.detail
        if self.skipped:
            line["skipped"] = True
        if self.kept:
            line["kept"] = True
        return json.dumps(line, ensure_ascii=False)


class _Tagged(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="t", rename=lambda name: name[0]):
    """Encoded as a map with a tag: one of the kinds that `AnnotatedObject.mask` holds."""


class ImageRef(_Tagged, frozen=True, tag=1):
    """The location of the bytes of an image.

    Attributes:
        uri: a local path with all links resolved (`os.path.realpath`), or a URI.
        offset: position of the first byte, for an image inside a container.
        length: number of bytes; None for the complete file.
        pixels: (height, width, channels) of raw uint8 pixels, row by row; None for an encoded image.
        version: a number that changes when the bytes change; 0 if unknown. For a local file, a hash of its
            size and modification time. For an object in a bucket, a hash of its content; for a range of an
            object, its generation. For bytes unpacked from a container, a hash of them, as a negative number.
        wrapping: empty if the bytes are the image itself. `zip:<packed size>:<size>:<CRC-32>` if they are a
            stored or deflated member of a ZIP archive, beginning with its local header; bytes of the next
            member may follow.
    """

    uri: str
    offset: int = 0
    length: int | None = None
    pixels: tuple[int, int, int] | None = None
    version: int = 0
    wrapping: str = ""


BOXES = ("clip", "drop", "fail")
"""How boxes that reach outside their image, or have no area, are treated: `--boxes`."""


class Box(NamedTuple):
    """A box of an object, in the unit of its annotations. In pixels, pixel i covers i to i + 1."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


class Rle(_Tagged, frozen=True, tag=2):
    """A mask as run lengths of COCO, column by column. The first run is of zeros.

    `counts` holds the runs, or the text into which pycocotools compresses them.
    """

    height: int
    width: int
    counts: str | tuple[int, ...]


Polygons = tuple[tuple[float, ...], ...]
"""The outlines of one object's parts, each x, y, x, y, … in the unit of its annotations."""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A part of an object, such as the heads, hands and feet in PASCAL VOC."""

    name: str
    box: Box


class AnnotatedObject(msgspec.Struct, frozen=True, array_like=True):
    """One object in an image.

    Attributes:
        label: class name or id, as in the source.
        box: the box around the object; None if the source has only a mask.
        mask: polygons, run lengths, or an image of the same size with values other than 0 on the object.
        keypoints: x, y and visibility of each, as in COCO: 0 not labelled (x and y are 0), 1 hidden,
            2 visible.
        parts: parts of the object, each with its own box.
        attributes: other values by name: `is_crowd`, `area` (square pixels), `difficult`, …; stored as
            image/object/<name>. A missing value has no entry.
    """

    label: str | int
    box: Box | None = None
    mask: Polygons | Rle | ImageRef | None = None
    keypoints: tuple[tuple[float, float, int], ...] = ()
    parts: tuple[Part, ...] = ()
    attributes: Mapping[str, Scalar] = {}


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """A segment of a panoptic PNG.

    Attributes:
        id: R + 256 G + 65536 B of its pixels.
        label: class name or id, as in the source.
        is_thing: whether the segment is one object; otherwise it is stuff.
    """

    id: int
    label: str | int
    is_thing: bool


IGNORE = 255
"""The class id of pixels that trainers ignore."""


class MaskImage(msgspec.Struct, frozen=True, array_like=True):
    """A mask image: its pixels are classes or objects. It has the size of the image that it belongs to.

    Attributes:
        image: the file: grey or palette if the values are ids, otherwise RGB.
        colors: (0xRRGGBB, class id) of each colour; empty if the values are ids. A colour that is not listed
            fails the record.
        segments: the segments of a panoptic mask.
    """

    image: ImageRef
    colors: tuple[tuple[int, int], ...] = ()
    segments: tuple[Segment, ...] = ()


class Steps(msgspec.Struct, frozen=True, array_like=True):
    """The steps of a SequenceExample.

    Attributes:
        frames: the image of each step; empty if there are no images.
        labels: the class names or ids of each step; empty if there are none. If both `frames` and `labels`
            have items, they have the same length.
        lists: other values by name: a scalar or a tuple for each step. Lists may differ in length.
    """

    frames: tuple[ImageRef, ...] = ()
    labels: tuple[tuple[str | int, ...], ...] = ()
    lists: Mapping[str, tuple[FeatureValue, ...]] = {}


class Annotations(msgspec.Struct, frozen=True, array_like=True):
    """The annotations of an image.

    Attributes:
        labels: class names or ids of the image, as in the source; several for multi-label data.
        features: free features by name, in the order of the source. A missing value has no entry.
        objects: the objects, in the order of the source.
        captions: sentences about the image.
        masks: masks by the kind of their pixels: `class`, `instance` (0 is no object) or `panoptic`.
        size: (height, width) that the annotations were made for; None if the source does not state it. A
            record whose image has another size fails.
        relative: coordinates are normalised to [0, 1]; otherwise they are in pixels.
        upright: coordinates refer to the image after its EXIF rotation; otherwise to the pixels as stored
            in the file. If `size` fits only one of the two, `size` decides.
        source_id: id of the image in the source, if it is not the key.
        steps: the steps of a sequence. The record of a sequence has no `image`.
    """

    labels: tuple[str | int, ...] = ()
    features: Mapping[str, FeatureValue] = {}
    objects: tuple[AnnotatedObject, ...] = ()
    captions: tuple[str, ...] = ()
    masks: Mapping[str, MaskImage] = {}
    size: tuple[int, int] | None = None
    relative: bool = False
    upright: bool = False
    source_id: str = ""
    steps: Steps | None = None

    def __post_init__(self) -> None:
        if len(self.masks) > 1:  # equal annotations are encoded as equal bytes
            msgspec.structs.force_setattr(self, "masks", dict(sorted(self.masks.items())))


@dataclasses.dataclass(frozen=True, slots=True)
class ClassNames:
    """Classes that a source defines. `ReadSource` emits them together with the records.

    Attributes:
        names: class names by the id in the source; --label_offset is added to the stored id.
        texts: display names by class name, for names that are codes (a synset, a Freebase id).
        optional: the names are used only if they contain every label of the dataset.
    """

    names: Mapping[int, str]
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optional: bool = False


def add_classes(
    names: dict[int, str], texts: dict[str, str], found: ClassNames, where: str = "the input"
) -> None:
    """Adds classes to names by id and display texts by name.

    Raises:
        JobError: an id has another name. The message says `where`.
    """
    for number, name in found.names.items():
        if names.setdefault(number, name) != name:
            raise JobError(
                f"class {number} is called {names[number]!r} and {name!r} in {where}; "
                "make them one, or convert the parts of it separately"
            )
    for name, text in found.texts.items():
        texts[name] = min(text, texts.get(name, text))  # whatever the order


class ImageRecord(msgspec.Struct, frozen=True, array_like=True):
    """A reference to one image, or its bytes, and its annotations.

    A record with a reference has a few hundred bytes, for images of any size. `WriteDataset` writes the bytes
    that records bring to files, and holds references to them.

    Attributes:
        key: identifies the record in the dataset, with `/` between parts. It must be unique and stable,
            because it determines split, shard and order.
        image: location of the bytes; None for a record with `data`, for a sequence, and for a record of
            features only.
        split: the split in the source, or None.
        annotations: labels, boxes, free features and so on.
        origin: location of the record in the source (`labels.csv, line 12`), for messages; may be empty.
        size: size of the image file in bytes; 0 if the listing does not contain it.
        data: the bytes of the image, encoded as in a file of its format, such as PNG; empty if there are
            none. A record has either `image` or `data`, or neither.
    """

    key: str
    image: ImageRef | None = None
    split: str | None = None
    annotations: Annotations = Annotations()
    origin: str = ""
    size: int = 0
    data: bytes = b""

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("ImageRecord.key is empty; it must be unique in the dataset")
        if not isinstance(self.data, bytes):
            kind = type(self.data).__name__
            raise TypeError(f"ImageRecord.data is of type {kind}; it must be the bytes of an image file")
        if self.data and (self.image is not None or self.annotations.steps is not None):
            other = "image" if self.image is not None else "annotations.steps"
            raise ValueError(f"ImageRecord {self.key!r} has data and {other}; it may have one of the two")


@dataclasses.dataclass(frozen=True, slots=True)
class Geometry:
    """How the pixels of a file are mapped to the stored image: turned, then scaled, then padded or cropped.

    Sizes are in pixels: after turning, after scaling, and of the stored image. `orientation` is EXIF's, 1 to
    8. `top` and `left` are the stored row and column in which the scaled picture begins; negative if it is
    cropped.
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


class StoredImage(msgspec.Struct, frozen=True):
    """An image as it goes into a record.

    Attributes:
        data: the bytes of image/encoded.
        image_format: `jpeg`, `png`, `gif`, `bmp`, `webp`, `raw` or `tensor`.
        channels: as `tf.io.decode_image` with channels=0 decodes it, or as stored for raw and tensor.
        dtype: of the decoded pixels, `uint8` or `uint16`.
        colorspace: `RGB`, `Grayscale`, `CMYK`, `RGBA` or `GrayscaleAlpha`, of the stored bytes.
        actions: what was done and why; manifest.json counts these names.
        geometry: the mapping of the source's pixels; None if they did not move.
        jpeg_quality: chosen by --target_ssim, 0 if the source was kept; None without --target_ssim.
        flattened_bytes: the size without alpha of an image that is stored with alpha.
        decoded_hash: of the pixels of the source, upright; empty if they were not decoded.
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
    decoded_hash: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class Mapped:
    """Annotations in the coordinates of the stored image.

    Attributes:
        objects: each with its box, in pixels of the stored image and within it.
        masks: encoded as a schema needs them, by name: `class_png`, `class_raw` (height x width uint8),
            `instance_png`, `panoptic_category_png`, `panoptic_instance_png`.
        object_masks: a PNG for each object, 1 inside it and 0 elsewhere; empty if no schema needs them.
        notes: (reason, detail) of each annotation that was clipped or dropped.
    """

    objects: tuple[AnnotatedObject, ...] = ()
    masks: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    object_masks: tuple[bytes, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
