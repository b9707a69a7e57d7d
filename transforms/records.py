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
"""What may be a split's name: part of its shards' names, and of TFDS's split expressions."""

if TYPE_CHECKING:
    Scalar = str | int | float | bool | bytes
    FeatureValue = Scalar | tuple[Scalar, ...]
else:
    Scalar = FeatureValue = Any  # msgspec decodes no union of text and bytes


class BadInput(Exception):
    """One input that cannot go into the dataset, and why: the only error that becomes a failed record.

    Args:
        stage: what was being done: `list`, `manifest`, `annotations`, `load`, `decode`, `encode` or `build`.
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
    """The job cannot continue because of the input or the machine.

    Args:
        message: one line, with flags; in the error they are parameters of the Python API.
    """

    def __init__(self, message: str) -> None:
        super().__init__(as_parameters(message))


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An input that is not in the dataset: failed, or skipped on purpose.

    Attributes:
        key: of the record, or of the file or row that is none.
        stage: what was being done.
        reason: without particulars.
        detail: the particulars.
        skipped: it was left out on purpose.
        kept: the record is in the dataset; an annotation of it is not, or was changed.
    """

    key: str
    stage: str
    reason: str
    detail: str = ""
    skipped: bool = False
    kept: bool = False

    def to_json(self) -> str:
        """This failure as a line of failures.jsonl, without the line end."""
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
    """Where an image's stored bytes are.

    Attributes:
        uri: a local path without links (`os.path.realpath`), or a URI.
        offset: first byte, for an image inside a container.
        length: number of bytes; None for a whole file.
        pixels: (height, width, channels) where the bytes are raw uint8 pixels, row by row; None
            where they are an encoded image.
        version: tells one state of the stored bytes from another: a number of a local file's size and time of
            modification; of an object one of its bytes, or for a range of it its generation; below 0 one of
            the bytes themselves, which have left their container; 0 where it is not known.
        wrapping: empty where the bytes are the image's own; `zip:<packed size>:<size>:<CRC-32>` where they
            are a member of a ZIP archive, from its local header on, stored or deflated, and maybe with bytes
            of the next one behind it.
    """

    uri: str
    offset: int = 0
    length: int | None = None
    pixels: tuple[int, int, int] | None = None
    version: int = 0
    wrapping: str = ""


BOXES = ("clip", "drop", "fail")
"""What becomes of boxes that reach outside their image, or have no area: `--boxes`."""


class Box(NamedTuple):
    """A box of an object, in the unit of its annotations: pixel i covers i to i + 1."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


class Rle(_Tagged, frozen=True, tag=2):
    """A mask as COCO's run lengths, column by column, beginning with a run of zeros.

    Attributes:
        height: pixels.
        width: pixels.
        counts: the runs; or, as text, what pycocotools compresses them to.
    """

    height: int
    width: int
    counts: str | tuple[int, ...]


Polygons = tuple[tuple[float, ...], ...]
"""The outlines of one object's parts, each x, y, x, y, … in the unit of its annotations."""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A part of an object, as PASCAL VOC has heads, hands and feet."""

    name: str
    box: Box


class AnnotatedObject(msgspec.Struct, frozen=True, array_like=True):
    """One object in an image.

    Attributes:
        label: class name or id, as the source has it.
        box: around it; None where its mask alone tells.
        mask: polygons, run lengths, or an image of the picture's size that is not 0 where the object is.
        keypoints: x, y and COCO's visibility: 0 not labelled (x and y are 0), 1 hidden, 2 seen.
        parts: with boxes of their own.
        attributes: what else is known of it, by name: `is_crowd`, `area` (square pixels), `difficult`, …;
            stored as image/object/<name>. A value that is absent is left out.
    """

    label: str | int
    box: Box | None = None
    mask: Polygons | Rle | ImageRef | None = None
    keypoints: tuple[tuple[float, float, int], ...] = ()
    parts: tuple[Part, ...] = ()
    attributes: Mapping[str, Scalar] = {}


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """What one id of a panoptic PNG stands for.

    Attributes:
        id: R + 256 G + 65536 B of its pixels.
        label: class, as the source has it.
        is_thing: it is one object, not stuff.
    """

    id: int
    label: str | int
    is_thing: bool


IGNORE = 255
"""The class id of pixels that no trainer shall look at."""


class MaskImage(msgspec.Struct, frozen=True, array_like=True):
    """An image whose pixels are classes or objects, of the size of the picture.

    Attributes:
        image: the file: grey or palette where the values are ids, else RGB.
        colors: (0xRRGGBB, class id) of a mask in colours; empty where the values are ids. A colour that is
            not among them fails the record.
        segments: of a panoptic mask.
    """

    image: ImageRef
    colors: tuple[tuple[int, int], ...] = ()
    segments: tuple[Segment, ...] = ()


class Steps(msgspec.Struct, frozen=True, array_like=True):
    """What a SequenceExample has at each step.

    Attributes:
        frames: the image of each step; none, or one a step of every other list that has any.
        labels: of each step; likewise.
        lists: other values by name, a scalar or a tuple a step; lists may differ in length.
    """

    frames: tuple[ImageRef, ...] = ()
    labels: tuple[tuple[str | int, ...], ...] = ()
    lists: Mapping[str, tuple[FeatureValue, ...]] = {}


class Annotations(msgspec.Struct, frozen=True, array_like=True):
    """What is known of an image beside its pixels.

    Attributes:
        labels: class names or ids of the whole image, as the source has them; several for multi-label data.
        features: free features by name, in the order of the source. A value that is absent is
            left out, not None.
        objects: in the order of the source.
        captions: sentences.
        masks: by what their pixels are: `class`, `instance` (0 is no object) or `panoptic`.
        size: (height, width) that the annotations were made for; None where the source does not tell. A
            record whose image has another one fails.
        relative: coordinates are shares of width and height, 0 to 1; else pixels.
        upright: coordinates are those of the picture turned by its EXIF orientation; False where they are
            of the pixels as the file has them. `size` decides where it fits one of the two alone.
        source_id: what the source calls the image, where that is not its key.
        steps: of a sequence, whose `image` is None.
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
    """Classes that a source defines beside its records: one of the things it lists.

    Attributes:
        names: by the source's own id, which is the stored one but for --label_offset.
        texts: what people call a class whose name is a code (a synset, a Freebase id), by name.
        optional: heeded only where every label of the dataset is among the names.
    """

    names: Mapping[int, str]
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optional: bool = False


class ImageRecord(msgspec.Struct, frozen=True, array_like=True):
    """A reference to one image, and its annotations: a few hundred bytes, whatever the image's size.

    Attributes:
        key: dataset-relative, unique and stable, with `/` between parts: decides split, shard and order.
        image: where its bytes are; None for records that are features alone.
        split: the source's own split, or None.
        annotations: labels, boxes, free features and what else there is.
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


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """Annotations where they lie in the stored image, and what became of those that did not fit.

    Attributes:
        objects: those that are left, each with its box, in pixels of the stored image: within it.
        masks: encoded as a schema needs them, by name: `class_png`, `class_raw` (height x width uint8),
            `instance_png`, `panoptic_category_png`, `panoptic_instance_png`.
        object_masks: a PNG for each object, 1 where it is and 0 elsewhere; empty where no schema needs them.
        notes: (reason, detail) of each annotation that was clipped or dropped.
    """

    objects: tuple[AnnotatedObject, ...] = ()
    masks: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    object_masks: tuple[bytes, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
