"""One stored image against its source: the same bytes, the same pixels, or how like they are.

Which of them has to hold follows from the settings that the dataset was made by. Stored bytes are read by
another library than has written them wherever there is one.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np

from recordmill.transforms.images import png
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.geometry import is_identity, plan_geometry
from recordmill.transforms.images.jpeg_header import quantisation_tables, read_header
from recordmill.transforms.images.jpeg_quality import estimated_quality
from recordmill.transforms.images.opened import image_kind, opened, opened_pixels
from recordmill.transforms.images.picture import COLORSPACES, OpenedImage, split_alpha
from recordmill.transforms.images.policy import LOSSY, ImagePolicy
from recordmill.transforms.images.render import render
from recordmill.transforms.images.similarity import Displayed, Similarity, displayed_image, similarity
from recordmill.transforms.images.store import store_image, store_pixels
from recordmill.transforms.reading.against_decoding import decoded_otherwise, tensor_pixels
from recordmill.transforms.reading.against_difference import counted
from recordmill.transforms.records import BadInput, Geometry, StoredImage

# Below this SSIM, or this PSNR in dB, a lossy image is held against its source encoded anew: what is as like
# as that is sound.
_DOUBTFUL = (0.9, 25.0)
# By how much encoders of two versions, and their decoders, may differ.
_TOLERANCE = (0.02, 1.0)
_TARGET_TOLERANCE = 0.001
_LONGEST_SIDE = 65_500

Shape = tuple[int, int, int]


class Fault(NamedTuple):
    """What is wrong with an image.

    Attributes:
        expected: what the source asks for.
        found: what is stored.
        where: the first pixel of those that are wrong; empty for the image as a whole.
    """

    expected: str
    found: str
    where: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ImageMatch:
    """What the comparison of one image with its source has found.

    Attributes:
        stored: as its own bytes tell it, but of the size, and in the place, that the source asks for; None
            where they are no image.
        action: `kept` for the source's bytes, `lossless` for others of the same pixels, `lossy`; empty
            where the image is not the source's.
        likeness: to the source, of a lossy image.
        fault: what is wrong with it; None where nothing is.
    """

    stored: StoredImage | None
    action: str = ""
    likeness: Similarity | None = None
    fault: Fault | None = None


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
    original = Original(opened(source) if shape is None else opened_pixels(source, shape), shape, policy)
    if policy.image_format in ("raw", "tensor"):
        return _match_pixels(stored, original)
    try:
        image = opened(stored)
    except BadInput as error:
        return ImageMatch(None, fault=Fault("an image", str(error)))
    if image.kept is None:
        return ImageMatch(None, fault=Fault("an image that TensorFlow decodes", image_kind(stored).upper()))
    result = original.placed(dataclasses.replace(image.kept, data=stored))
    if result.image_format not in original.formats:
        expected = " or ".join(one.upper() for one in original.formats)
        return ImageMatch(result, fault=Fault(expected, result.image_format.upper()))
    asked = policy.color
    if asked != "keep" and result.image_format != "webp" and (asked == "gray") != (result.channels <= 2):
        expected = "grey pixels" if asked == "gray" else "pixels in colour"
        return ImageMatch(result, fault=Fault(expected, counted(result.channels, "channel")))
    if stored == source and original.may_stay and not original.may_be_clear:
        return ImageMatch(result, "kept")
    return _match_decoded(result, image, original)


class Original:
    """An image of the source, decoded once and only where it has to be; and what the settings ask of it.

    Args:
        image: its header.
        shape: of raw pixels.
        policy: how images were stored.
    """

    def __init__(self, image: OpenedImage, shape: Shape | None, policy: ImagePolicy) -> None:
        self.image = dataclasses.replace(image, decode=functools.cache(image.decode))
        self.policy = policy
        self._shape = shape
        self._orientation = image.orientation if policy.exif == "apply" else 1

    @functools.cached_property
    def geometry(self) -> Geometry:
        """Where its pixels have to go."""
        kept = self.image.kept
        size = self.image.decode().pixels.shape[:2] if kept is None else (kept.height, kept.width)
        return plan_geometry(size[0], size[1], self._orientation, self.policy)

    @property
    def formats(self) -> tuple[str, ...]:
        """Those that it may be stored in."""
        asked = self.policy.image_format
        if asked == "png":
            return ("png",)
        own = () if self.image.kept is None else (self.image.kept.image_format,)
        return tuple(dict.fromkeys((*own, "png") if asked == "keep" else (asked, *own, "png")))

    @functools.cached_property
    def may_stay(self) -> bool:
        """Whether its own pixels have the size, orientation and colours that are asked for."""
        kept, color = self.image.kept, self.policy.color
        if kept is None or not is_identity(self.geometry):
            return False
        is_gray = kept.channels <= 2
        return color == "keep" or (color == "gray") == is_gray and kept.colorspace != "CMYK"

    @property
    def may_be_clear(self) -> bool:
        """Whether it may have pixels that are transparent, and shall not."""
        if self.policy.alpha == "keep" and self.policy.color == "keep":
            return False
        kept = self.image.kept
        if kept is None or kept.channels in (2, 4):
            return True
        return self.image.kind == "png" and bool(png.read_header(self.image.data).transparency)

    @property
    def lossy_format(self) -> str:
        """The format that it may be encoded anew in with loss; empty for none."""
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
        """The same as people see them."""
        policy = self._seen_policy(is_sized=True)
        # Not displayed_image: of a JPEG that is resized, its scaled decode is all that is needed.
        return Displayed(render(self.image, self._orientation, policy).picture.pixels, "uint8")

    def seen_stored(self, image: OpenedImage) -> Displayed:
        """A stored image as people see it: what it is turned by is done, and so is its size."""
        return displayed_image(image, 1, self._seen_policy(is_sized=False))

    def encoded_anew(self) -> StoredImage:
        """What the settings make of it now, where they encode it anew."""
        data, policy = self.image.data, self.policy
        if policy.image_format in LOSSY:
            policy = dataclasses.replace(policy, reencode="always")
        return store_image(data, policy) if self._shape is None else store_pixels(data, self._shape, policy)

    def placed(self, stored: StoredImage) -> StoredImage:
        """A stored image, its size and its place those that this one has to have."""
        geometry = self.geometry
        return dataclasses.replace(
            stored,
            height=geometry.height,
            width=geometry.width,
            geometry=None if is_identity(geometry) else geometry,
            jpeg_quality=None if self.policy.target_ssim is None else 0,
        )

    def _seen_policy(self, is_sized: bool) -> ImagePolicy:
        policy = self.policy
        sizes = ("max_side", "short_side", "size", "fit") if is_sized else ()
        asked = {name: getattr(policy, name) for name in sizes}
        for name in ("max_side", "short_side"):
            if asked.get(name) is not None:  # as large as that, nothing is a JPEG
                asked[name] = min(asked[name], _LONGEST_SIDE)
        return ImagePolicy(
            "jpeg",
            exif=policy.exif,
            color=policy.color,
            alpha="flatten",
            background=policy.background,
            **asked,
        )


def _match_decoded(result: StoredImage, image: OpenedImage, original: Original) -> ImageMatch:
    """The match of a stored image whose pixels have to be looked at."""
    is_own = result.data == original.image.data
    result = _with_quality(result, original)
    try:
        picture = decoded_otherwise(image)
    except BadInput as error:
        return ImageMatch(result, fault=Fault("an image", str(error)))
    colors = picture.expanded()
    if original.may_stay and not original.may_be_clear:
        wanted = original.image.decode().expanded()
        if _is_same(colors, wanted) or _is_same_jpeg(image, original):
            return ImageMatch(result, "kept" if is_own else "lossless")
    if result.image_format != original.lossy_format or (is_own and original.may_be_clear):
        wanted = original.painted()
        if _is_same(colors, wanted):
            return ImageMatch(result, "kept" if is_own else "lossless")
        if result.image_format != original.lossy_format:
            return ImageMatch(result, fault=_pixel_fault(wanted, colors))
    seen = original.seen_stored(dataclasses.replace(image, decode=lambda: picture))
    return _match_lossy(result, seen, original)


def _with_quality(result: StoredImage, original: Original) -> StoredImage:
    """With the quality that was chosen for a JPEG, which its tables tell unless they are the source's."""
    if result.jpeg_quality is None or result.image_format != "jpeg":
        return result
    if original.image.kind == "jpeg" and _has_same_tables(result.data, original):
        return result
    return dataclasses.replace(result, jpeg_quality=estimated_quality(result.data, read_header(result.data)))


def _match_lossy(result: StoredImage, seen: Displayed, original: Original) -> ImageMatch:
    """The match of an image that need not have the source's pixels."""
    source = original.seen()
    found = similarity(source, seen)
    if found is None:
        return ImageMatch(result, fault=Fault(_size(source.pixels), _size(seen.pixels)))
    target = original.policy.target_ssim
    if math.isinf(found.psnr):
        return ImageMatch(result, "lossless")
    fault = None
    if target is not None and found.ssim < target - _TARGET_TOLERANCE:
        fault = Fault(f"an SSIM of {target:g} or more", f"{found.ssim:.4f}")
    elif found.ssim < _DOUBTFUL[0] or found.psnr < _DOUBTFUL[1]:
        fault = _doubt(source, found, original)
    return ImageMatch(result, "" if fault else "lossy", found, fault)


def _doubt(source: Displayed, found: Similarity, original: Original) -> Fault | None:
    """What is wrong with an image that is less like its source than it would be if it was encoded now."""
    anew = original.encoded_anew()
    best = similarity(source, original.seen_stored(opened(anew.data)))
    if best is None:
        return None
    if found.ssim >= best.ssim - _TOLERANCE[0] and found.psnr >= best.psnr - _TOLERANCE[1]:
        return None
    return Fault(
        f"an SSIM of about {best.ssim:.4f}, and a PSNR of {best.psnr:.1f} dB",
        f"{found.ssim:.4f}, and {found.psnr:.1f} dB",
    )


def _match_pixels(stored: bytes, original: Original) -> ImageMatch:
    """The match of pixels that are stored as such."""
    image_format = original.policy.image_format
    wanted = original.painted()
    height, width, channels = wanted.shape
    result = StoredImage(
        stored, image_format, height, width, channels, wanted.dtype.name, COLORSPACES[channels], actions=()
    )
    result = original.placed(result)
    try:
        colors = tensor_pixels(stored) if image_format == "tensor" else _raw_pixels(stored, wanted)
    except BadInput as error:
        return ImageMatch(result, fault=Fault(f"{_size(wanted)} of {channels} channels", str(error)))
    if colors.shape == wanted.shape and colors.dtype == wanted.dtype and np.array_equal(colors, wanted):
        return ImageMatch(result, "kept" if stored == original.image.data else "lossless")
    return ImageMatch(result, fault=_pixel_fault(wanted, colors))


def _raw_pixels(stored: bytes, wanted: Array) -> Array:
    """Raw pixels in the shape that they have to have."""
    if len(stored) != wanted.nbytes:
        raise BadInput("decode", "wrong length", f"{counted(len(stored), 'byte')}, not {wanted.nbytes:,}")
    little = np.frombuffer(stored, wanted.dtype.newbyteorder("<"))
    return little.astype(wanted.dtype).reshape(wanted.shape)


def _is_same_jpeg(image: OpenedImage, original: Original) -> bool:
    """Whether a JPEG has its source's pixels by one decoder, where it has its quantisation tables.

    Two decoders may round otherwise.
    """
    if image.kind != "jpeg" or original.image.kind != "jpeg" or not _has_same_tables(image.data, original):
        return False
    return _is_same(image.decode().expanded(), original.image.decode().expanded())


def _has_same_tables(data: bytes, original: Original) -> bool:
    return quantisation_tables(data) == quantisation_tables(original.image.data)


def _is_same(one: Array, other: Array) -> bool:
    """Whether two pictures have the same pixels; opaque alpha is none, and greys are three equal channels."""
    if one.shape[:2] != other.shape[:2] or one.dtype != other.dtype:
        return False
    if one.shape != other.shape:
        one, other = _alike(one, other)
    return np.array_equal(one, other)


def _alike(one: Array, other: Array) -> tuple[Array, Array]:
    """Two pictures of one size, with as many channels each if that can be without loss."""
    pictures = []
    for pixels in (one, other):
        colors, see_through = split_alpha(pixels)
        pictures.append(pixels if see_through else colors)
    if {picture.shape[2] for picture in pictures} == {1, 3}:
        pictures = [np.broadcast_to(picture, (*picture.shape[:2], 3)) for picture in pictures]
    return pictures[0], pictures[1]


def _pixel_fault(wanted: Array, found: Array) -> Fault:
    """How the pixels that are stored differ from those that are wanted."""
    if wanted.shape[:2] != found.shape[:2]:
        return Fault(_size(wanted), _size(found))
    if wanted.dtype != found.dtype:
        return Fault(f"{wanted.dtype.name} pixels", f"{found.dtype.name} pixels")
    one, other = _alike(wanted, found)
    if one.shape != other.shape:
        return Fault(*(counted(picture.shape[2], "channel") for picture in (one, other)))
    rows, columns = np.nonzero((one != other).any(axis=2))
    row, column = int(rows[0]), int(columns[0])
    values = [",".join(map(str, picture[row, column])) for picture in (one, other)]
    place = f"row {row}, column {column}, the first of {counted(len(rows), 'pixel')}"
    return Fault(f"pixel {values[0]}", f"pixel {values[1]}", place)


def _size(pixels: Array) -> str:
    """Width and height, as people say it."""
    return f"{pixels.shape[1]}x{pixels.shape[0]} pixels"
