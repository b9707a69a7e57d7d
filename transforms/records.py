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


class BadInput(Exception):
    """An input that cannot go into the dataset: the only error that becomes a failed record.

    Args:
        stage: the step that failed: `list`, `manifest`, `annotations`, `load`, `decode`, `encode` or `build`.
        reason: a short sentence, the same for all inputs that fail alike: failures are counted by it.
        detail: the values of this input, and the remedy if there is one.
        key: the record's key; code that sees only bytes leaves it empty, and its caller sets it.
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
        message: one line that names flags; the error names the parameters of the Python API instead.
    """

    def __init__(self, message: str) -> None:
        super().__init__(as_parameters(message))


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An input that is not in the dataset: failed, or skipped on purpose.

    Attributes:
        key: of the record, or of the file or row that is not a record.
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
    """Where an image's stored bytes are.

    Attributes:
        uri: a local path without links (`os.path.realpath`), or a URI.
        offset: first byte, for an image inside a container.
        length: number of bytes; None for the complete file.
        pixels: (height, width, channels) of raw uint8 pixels, row by row; None for an encoded image.
        version: changes when the stored bytes change. Of a local file, a hash of size and modification time;
            of an object, a hash of its content, and of a range of one, its generation. Negative: minus a
            hash of bytes that were unpacked from a container. 0 if it is unknown.
        wrapping: empty if the bytes are the image's own; `zip:<packed size>:<size>:<CRC-32>` if they are a
            member of a ZIP archive, from its local header on, stored or deflated; bytes of the next member
            may follow.
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
    """A box of an object, in the unit of its annotations: pixel i covers i to i + 1."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


class Rle(_Tagged, frozen=True, tag=2):
    """A mask as COCO's run lengths, column by column, beginning with a run of zeros.

    `counts` are the runs; or text, as pycocotools compresses them.
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
        box: around it; None if only its mask gives its extent.
        mask: polygons, run lengths, or an image of the picture's size that is not 0 where the object is.
        keypoints: x, y and COCO's visibility: 0 not labelled (x and y are 0), 1 hidden, 2 visible.
        parts: with boxes of their own.
        attributes: other values by name: `is_crowd`, `area` (square pixels), `difficult`, …; stored as
            image/object/<name>. An absent value is left out.
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
        is_thing: whether it is one object, not stuff.
    """

    id: int
    label: str | int
    is_thing: bool


IGNORE = 255
"""The class id of pixels that trainers ignore."""


class MaskImage(msgspec.Struct, frozen=True, array_like=True):
    """An image whose pixels are classes or objects, of the size of the picture.

    Attributes:
        image: the file: grey or palette if the values are ids, else RGB.
        colors: (0xRRGGBB, class id) of a mask in colours; empty if the values are ids. Any other colour
            fails the record.
        segments: of a panoptic mask.
    """

    image: ImageRef
    colors: tuple[tuple[int, int], ...] = ()
    segments: tuple[Segment, ...] = ()


class Steps(msgspec.Struct, frozen=True, array_like=True):
    """The steps of a SequenceExample.

    Attributes:
        frames: the image of each step. Empty, or as long as `labels` if there are any.
        labels: of each step; likewise.
        lists: other values by name, a scalar or a tuple for each step; lists may differ in length.
    """

    frames: tuple[ImageRef, ...] = ()
    labels: tuple[tuple[str | int, ...], ...] = ()
    lists: Mapping[str, tuple[FeatureValue, ...]] = {}


class Annotations(msgspec.Struct, frozen=True, array_like=True):
    """The annotations of an image.

    Attributes:
        labels: class names or ids of the image, as the source has them; several for multi-label data.
        features: free features by name, in the order of the source. An absent value is left out, not None.
        objects: in the order of the source.
        captions: sentences.
        masks: by what their pixels are: `class`, `instance` (0 is no object) or `panoptic`.
        size: (height, width) that the annotations were made for; None if the source does not state it. A
            record whose image has another size fails.
        relative: coordinates are normalised to [0, 1]; else in pixels.
        upright: coordinates refer to the picture turned by its EXIF orientation; False if they refer to the
            pixels as the file has them. If `size` fits only one of the two, `size` decides.
        source_id: the source's id of the image, if that is not its key.
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
    """Classes that a source defines: one of the elements that it lists.

    Attributes:
        names: by the source's own id; the stored id is the sum of it and --label_offset.
        texts: display names of classes whose name is a code (a synset, a Freebase id), by name.
        optional: used only if every label of the dataset is among the names.
    """

    names: Mapping[int, str]
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optional: bool = False


def add_classes(names: dict[int, str], texts: dict[str, str], found: ClassNames) -> None:
    """Adds classes to names by id and display texts by name. Raises JobError if an id has another name."""
    for number, name in found.names.items():
        if names.setdefault(number, name) != name:
            raise JobError(
                f"class {number} is called {names[number]!r} and {name!r} in the input; "
                "make them one, or convert the parts of it separately"
            )
    for name, text in found.texts.items():
        texts[name] = min(text, texts.get(name, text))  # whatever the order


class ImageRecord(msgspec.Struct, frozen=True, array_like=True):
    """A reference to one image, and its annotations: a few hundred bytes, whatever the image's size.

    Attributes:
        key: dataset-relative, unique and stable, with `/` between parts: determines split, shard and order.
        image: where its bytes are; None for records of features alone.
        split: the source's own split, or None.
        annotations: labels, boxes, free features and so on.
        origin: where the source lists it (`labels.csv, line 12`), for messages; may be empty.
        size: bytes of the stored image if the listing has them, else 0.
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


@dataclasses.dataclass(frozen=True, slots=True)
class StoredImage:
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
