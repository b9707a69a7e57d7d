"""One stored image against its source: the same bytes, the same pixels, or similar pixels.

The settings of the dataset decide which of them is required. Stored bytes are decoded by another library than
the one that wrote them, if there is one.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import math
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from recordmill.transforms.examples.wire import Span, read_tensor
from recordmill.transforms.images import png
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.geometry import is_identity, plan_geometry
from recordmill.transforms.images.jpeg_header import quantisation_tables, read_header
from recordmill.transforms.images.jpeg_quality import estimated_quality
from recordmill.transforms.images.opened import image_kind, opened
from recordmill.transforms.images.picture import COLORSPACES, OpenedImage, Picture, split_alpha
from recordmill.transforms.images.pillow import DECODER_ERRORS, named
from recordmill.transforms.images.policy import LOSSY, ImagePolicy
from recordmill.transforms.images.reasons import CORRUPT, undecodable
from recordmill.transforms.images.render import render
from recordmill.transforms.images.similarity import Displayed, Similarity, displayed_image, similarity
from recordmill.transforms.images.store import store_image
from recordmill.transforms.reading.against_features import Difference, counted
from recordmill.transforms.records import BadInput, Geometry, StoredImage

# Below this SSIM, or this PSNR in dB, a lossy image is compared with its source encoded again.
_DOUBTFUL = (0.9, 25.0)
# Two versions of an encoder, and their decoders, may differ by this.
_TOLERANCE = (0.02, 1.0)
_TARGET_TOLERANCE = 0.001
# Qualities that Pillow encodes; simplejpeg encodes all others (see `images.jpeg.encode`).
_WRITTEN_BY_PILLOW = range(91, 96)
# DataType numbers of tensorflow/core/framework/types.proto.
_DTYPES: dict[int, np.dtype[Any]] = {4: np.dtype("<u1"), 17: np.dtype("<u2")}
_LONGEST_SIDE = 65_500

Shape = tuple[int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class ImageMatch:
    """What the comparison of one image with its source has found.

    Attributes:
        stored: the stored image, with the size and geometry that the source asks for; None if it is no image.
        action: `kept` for the source's bytes, `lossless` for other bytes of the same pixels, `lossy`; empty
            if the image is not the source's.
        likeness: of a lossy image to its source.
        difference: from what the source asks for; None if there is none.
    """

    stored: StoredImage | None
    action: str = ""
    likeness: Similarity | None = None
    difference: Difference | None = None


def match_image(stored: bytes, source: bytes, shape: Shape | None, policy: ImagePolicy) -> ImageMatch:
    """Whether a stored image is what the settings make of its source.

    Args:
        stored: bytes of the record.
        source: bytes of the source.
        shape: of a source of raw pixels: height, width, channels.
        policy: how images were stored.

    Raises:
        BadInput: the source cannot be decoded.
    """
    original = Original(opened(source, shape), shape, policy)
    if policy.image_format in ("raw", "tensor"):
        return _match_pixels(stored, original)
    try:
        image = opened(stored)
    except BadInput as error:
        return _wrong(None, "an image", str(error))
    if image.kept is None:
        return _wrong(None, "an image that TensorFlow decodes", image_kind(stored).upper())
    result = original.placed(msgspec.structs.replace(image.kept, data=stored))
    if result.image_format not in original.formats:
        expected = " or ".join(one.upper() for one in original.formats)
        return _wrong(result, expected, result.image_format.upper())
    asked = policy.color
    if asked != "keep" and result.image_format != "webp" and (asked == "gray") != (result.channels <= 2):
        expected = "grey pixels" if asked == "gray" else "pixels in colour"
        return _wrong(result, expected, counted(result.channels, "channel"))
    if stored == source and original.may_stay:
        return ImageMatch(result, "kept")
    return _match_decoded(result, image, original)


class Original:
    """An image of the source, decoded at most once, and what the settings ask of it."""

    def __init__(self, image: OpenedImage, shape: Shape | None, policy: ImagePolicy) -> None:
        self.image = msgspec.structs.replace(image, decode=functools.cache(image.decode))
        self.policy = policy
        self._shape = shape
        self._orientation = image.orientation if policy.exif == "apply" else 1

    @functools.cached_property
    def geometry(self) -> Geometry:
        """Size and position of its pixels in the stored image."""
        kept = self.image.kept
        size = self.image.decode().pixels.shape[:2] if kept is None else (kept.height, kept.width)
        return plan_geometry(size[0], size[1], self._orientation, self.policy)

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats that it may be stored in."""
        asked = self.policy.image_format
        if asked == "png":
            return ("png",)
        own = () if self.image.kept is None else (self.image.kept.image_format,)
        return tuple(dict.fromkeys((*own, "png") if asked == "keep" else (asked, *own, "png")))

    @functools.cached_property
    def may_stay(self) -> bool:
        """Whether its own pixels have the requested size, orientation, colours and opacity."""
        kept, color = self.image.kept, self.policy.color
        if kept is None or not is_identity(self.geometry) or self.may_be_clear:
            return False
        is_gray = kept.channels <= 2
        return color == "keep" or (color == "gray") == is_gray and kept.colorspace != "CMYK"

    @functools.cached_property
    def may_be_clear(self) -> bool:
        """Whether it may have transparent pixels, which the settings forbid."""
        if self.policy.alpha == "keep" and self.policy.color == "keep":
            return False
        kept = self.image.kept
        if kept is None or kept.channels in (2, 4):
            return True
        return self.image.kind == "png" and bool(png.read_header(self.image.data).transparency)

    @property
    def lossy_format(self) -> str:
        """The lossy format that it may be encoded in again; empty for none."""
        policy = self.policy
        if policy.image_format in LOSSY:
            return policy.image_format
        changed = policy.changes_pixels or self._orientation != 1
        return "jpeg" if policy.image_format == "keep" and self.image.kind == "jpeg" and changed else ""

    def painted(self) -> Array:
        """Its pixels as the settings ask for them.

        Raises:
            BadInput: damaged, or refused by the settings.
        """
        return render(self.image, self._orientation, self.policy).picture.expanded()

    def seen(self) -> Displayed:
        """Its pixels as people see them, in the stored size."""
        policy = self.policy
        # No JPEG is longer than _LONGEST_SIDE.
        sides = {
            name: min(side, _LONGEST_SIDE)
            for name in ("max_side", "short_side")
            if (side := getattr(policy, name)) is not None
        }
        seen = dataclasses.replace(self._seen_policy(), size=policy.size, fit=policy.fit, **sides)
        # Not displayed_image: a JPEG that is resized needs only a scaled decode.
        return Displayed(render(self.image, self._orientation, seen).picture.pixels, "uint8")

    def seen_stored(self, image: OpenedImage) -> Displayed:
        """A stored image, which is already turned and resized, as people see it."""
        return displayed_image(image, 1, self._seen_policy())

    def _seen_policy(self) -> ImagePolicy:
        policy = self.policy
        return ImagePolicy(
            "jpeg", exif=policy.exif, color=policy.color, alpha="flatten", background=policy.background
        )

    def encoded_again(self) -> StoredImage:
        """What the settings make of it if they encode it again."""
        data, policy = self.image.data, self.policy
        if policy.image_format in LOSSY:
            policy = dataclasses.replace(policy, reencode="always")
        return store_image(data, policy, self._shape)

    def placed(self, stored: StoredImage) -> StoredImage:
        """A stored image with the size and geometry that this one requires."""
        geometry = self.geometry
        return msgspec.structs.replace(
            stored,
            height=geometry.height,
            width=geometry.width,
            geometry=None if is_identity(geometry) else geometry,
            jpeg_quality=None if self.policy.target_ssim is None else 0,
        )


def _wrong(stored: StoredImage | None, expected: str, found: str, where: str = "") -> ImageMatch:
    return ImageMatch(stored, difference=Difference("", expected, found, where))


def _match_decoded(result: StoredImage, image: OpenedImage, original: Original) -> ImageMatch:
    is_own = result.data == original.image.data
    result = _with_quality(result, original)
    try:
        picture = _decoded(image)
    except BadInput as error:
        return _wrong(result, "an image", str(error))
    colors = picture.expanded()
    if original.may_stay:
        wanted = original.image.decode().expanded()
        if _is_same(colors, wanted) or _is_same_jpeg(image, original):
            return ImageMatch(result, "kept" if is_own else "lossless")
    if result.image_format != original.lossy_format or (is_own and original.may_be_clear):
        wanted = original.painted()
        if _is_same(colors, wanted):
            return ImageMatch(result, "kept" if is_own else "lossless")
        if result.image_format != original.lossy_format:
            return _wrong_pixels(result, wanted, colors)
    seen = original.seen_stored(msgspec.structs.replace(image, decode=lambda: picture))
    return _match_lossy(result, seen, original)


def _with_quality(result: StoredImage, original: Original) -> StoredImage:
    """With the chosen JPEG quality, estimated from the tables unless they are the source's."""
    if result.jpeg_quality is None or result.image_format != "jpeg":
        return result
    if original.image.kind == "jpeg" and _has_same_tables(result.data, original):
        return result
    return msgspec.structs.replace(
        result, jpeg_quality=estimated_quality(result.data, read_header(result.data))
    )


def _match_lossy(result: StoredImage, seen: Displayed, original: Original) -> ImageMatch:
    """The match of an image whose pixels may differ from the source's."""
    source = original.seen()
    found = similarity(source, seen)
    if found is None:
        return _wrong(result, _size(source.pixels), _size(seen.pixels))
    if math.isinf(found.psnr):
        return ImageMatch(result, "lossless")
    target = original.policy.target_ssim
    expected, shown = "", f"{found.ssim:.4f}"
    if target is not None and found.ssim < target - _TARGET_TOLERANCE:
        expected = f"an SSIM of {target:g} or more"
    elif found.ssim < _DOUBTFUL[0] or found.psnr < _DOUBTFUL[1]:
        # An image is sound if it is as similar as its source encoded now.
        best = similarity(source, original.seen_stored(opened(original.encoded_again().data)))
        if best and (found.ssim < best.ssim - _TOLERANCE[0] or found.psnr < best.psnr - _TOLERANCE[1]):
            expected = f"an SSIM of about {best.ssim:.4f}, and a PSNR of {best.psnr:.1f} dB"
            shown = f"{found.ssim:.4f}, and {found.psnr:.1f} dB"
    if expected:
        return ImageMatch(result, "", found, Difference("", expected, shown))
    return ImageMatch(result, "lossy", found)


def _match_pixels(stored: bytes, original: Original) -> ImageMatch:
    """The match of pixels that are stored without an image format."""
    image_format = original.policy.image_format
    wanted = original.painted()
    height, width, channels = wanted.shape
    result = StoredImage(
        stored, image_format, height, width, channels, wanted.dtype.name, COLORSPACES[channels], actions=()
    )
    result = original.placed(result)
    try:
        colors = _tensor_pixels(stored) if image_format == "tensor" else _raw_pixels(stored, wanted)
    except BadInput as error:
        return _wrong(result, f"{_size(wanted)} of {channels} channels", str(error))
    if colors.shape == wanted.shape and colors.dtype == wanted.dtype and np.array_equal(colors, wanted):
        return ImageMatch(result, "kept" if stored == original.image.data else "lossless")
    return _wrong_pixels(result, wanted, colors)


def _raw_pixels(stored: bytes, wanted: Array) -> Array:
    if len(stored) != wanted.nbytes:
        raise BadInput("decode", "wrong length", f"{counted(len(stored), 'byte')}, not {wanted.nbytes:,}")
    little = np.frombuffer(stored, wanted.dtype.newbyteorder("<"))
    return little.astype(wanted.dtype).reshape(wanted.shape)


def _tensor_pixels(data: bytes) -> Array:
    """The pixels of a serialised tensor, as tf.io.parse_tensor reads it."""
    number, shape, content = read_tensor(data, Span(0, len(data)))
    dtype = _DTYPES.get(number)
    size = math.prod(shape) if shape else 0
    if dtype is None or not size or size * dtype.itemsize != content.stop - content.start:
        raise undecodable(CORRUPT, f"a tensor of DataType {number}, shape {shape}")
    pixels: Array = np.frombuffer(data, dtype, size, content.start).reshape(shape)
    return pixels


def _decoded(image: OpenedImage) -> Picture:
    """The pixels of a stored image. A JPEG that simplejpeg may have written is decoded by Pillow."""
    if image.kind != "jpeg":
        return image.decode()
    header = read_header(image.data)
    # Pillow and TensorFlow decode CMYK differently.
    if len(header.components) == 4 or estimated_quality(image.data, header) in _WRITTEN_BY_PILLOW:
        return image.decode()
    try:
        with Image.open(io.BytesIO(image.data), formats=("JPEG",)) as decoded:
            pixels: Array = np.asarray(decoded)
    except DECODER_ERRORS as error:
        raise named(error) from error
    return Picture(pixels[:, :, None] if pixels.ndim == 2 else pixels)


def _is_same_jpeg(image: OpenedImage, original: Original) -> bool:
    """Whether two JPEGs with the same quantisation tables have the same pixels for one decoder.

    Two decoders may round differently.
    """
    if image.kind != "jpeg" or original.image.kind != "jpeg" or not _has_same_tables(image.data, original):
        return False
    return _is_same(image.decode().expanded(), original.image.decode().expanded())


def _has_same_tables(data: bytes, original: Original) -> bool:
    return quantisation_tables(data) == quantisation_tables(original.image.data)


def _is_same(one: Array, other: Array) -> bool:
    """Whether two pictures look the same: opaque alpha is ignored, and grey equals three equal channels."""
    if one.shape[:2] != other.shape[:2] or one.dtype != other.dtype:
        return False
    return np.array_equal(one, other) if one.shape == other.shape else np.array_equal(*_alike(one, other))


def _alike(one: Array, other: Array) -> tuple[Array, Array]:
    """Two pictures of one size, with the same number of channels if that loses nothing."""
    pictures = []
    for pixels in (one, other):
        colors, see_through = split_alpha(pixels)
        pictures.append(pixels if see_through else colors)
    if {picture.shape[2] for picture in pictures} == {1, 3}:
        pictures = [np.broadcast_to(picture, (*picture.shape[:2], 3)) for picture in pictures]
    return pictures[0], pictures[1]


def _wrong_pixels(result: StoredImage, wanted: Array, found: Array) -> ImageMatch:
    if wanted.shape[:2] != found.shape[:2]:
        return _wrong(result, _size(wanted), _size(found))
    if wanted.dtype != found.dtype:
        return _wrong(result, f"{wanted.dtype.name} pixels", f"{found.dtype.name} pixels")
    one, other = _alike(wanted, found)
    if one.shape != other.shape:
        return _wrong(result, *(counted(picture.shape[2], "channel") for picture in (one, other)))
    rows, columns = np.nonzero((one != other).any(axis=2))
    row, column = int(rows[0]), int(columns[0])
    values = [",".join(map(str, picture[row, column])) for picture in (one, other)]
    place = f"row {row}, column {column}, the first of {counted(len(rows), 'pixel')}"
    return _wrong(result, f"pixel {values[0]}", f"pixel {values[1]}", place)


def _size(pixels: Array) -> str:
    return f"{pixels.shape[1]}x{pixels.shape[0]} pixels"
