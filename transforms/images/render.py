"""Makes the pixels to store: decoded, turned, in sRGB, flattened, recoloured, resized, in this order."""

from __future__ import annotations

import dataclasses

import numpy as np

from recordmill.transforms.images import color, icc
from recordmill.transforms.images.exif import Array, is_transposed
from recordmill.transforms.images.geometry import is_scaled, plan_geometry
from recordmill.transforms.images.hashes import hash_of_picture
from recordmill.transforms.images.picture import OpenedImage, Picture, split_alpha, to_eight_bits
from recordmill.transforms.images.policy import LOSSY, ImagePolicy
from recordmill.transforms.images.resize import resized
from recordmill.transforms.records import BadInput, Geometry

_TRANSPARENT = "transparent"
_REMEDY = "--alpha=flatten lays it on --background, --alpha=keep leaves it in a format that holds it"
_ASKED_FOR = frozenset(("flattened", "recolored", "resized"))


@dataclasses.dataclass(frozen=True, slots=True)
class Rendered:
    """A picture ready to be encoded.

    Attributes:
        picture: has palette indices only if its colours are unchanged.
        geometry: from the file's pixels to these.
        actions: changes of the pixels.
        see_through: whether a pixel is not opaque; False if this was not needed.
        profile: the ICC profile of the colours; None if it is sRGB or unknown.
        decoded_hash: of the upright picture, before its pixels are changed.
    """

    picture: Picture
    geometry: Geometry
    actions: tuple[str, ...] = ()
    see_through: bool = False
    profile: bytes | None = None
    decoded_hash: bytes = b""

    @property
    def is_new(self) -> bool:
        """Whether the policy changed size or colours."""
        return not _ASKED_FOR.isdisjoint(self.actions)

    def with_pixels(self, pixels: Array, *actions: str) -> Rendered:
        """A copy with other pixels (colours, not indices) and the actions that made them."""
        picture = dataclasses.replace(self.picture, pixels=pixels, palette=b"", palette_alpha=b"")
        new = tuple(action for action in actions if action not in self.actions)
        return dataclasses.replace(self, picture=picture, actions=(*self.actions, *new))


def render(image: OpenedImage, orientation: int, policy: ImagePolicy) -> Rendered:
    """The picture, as `policy` requires it, turned by an EXIF orientation.

    Raises:
        BadInput: damaged; or transparent, with --alpha=fail.
    """
    lossy = policy.image_format in LOSSY
    if not (lossy or policy.changes_pixels or policy.alpha != "keep"):
        return _decoded(image, orientation, policy, _profile(image))
    start = _started(image, orientation, policy, is_in_srgb=lossy or policy.changes_pixels)
    colors = start.picture.expanded()
    if lossy:
        colors = to_eight_bits(colors)
    work = start if colors is start.picture.pixels else start.with_pixels(colors)
    if policy.color == "rgb" and image.inks is not None:
        work = work.with_pixels(colors, "recolored")
    for step in (_in_srgb, _on_background, _recolored, _resized):
        work = step(work, policy)
    if lossy or work.is_new or policy.image_format in ("raw", "tensor"):
        return work
    return dataclasses.replace(start, see_through=work.see_through)


def upright_colors(image: OpenedImage, exif: str) -> Rendered:
    """The picture in its own size and depth: upright as `exif` decides, and its colours in sRGB.

    Only 16-bit samples keep their profile.

    Raises:
        BadInput: damaged.
    """
    orientation = image.orientation if exif == "apply" else 1
    policy = ImagePolicy(alpha="flatten", exif=exif)  # converts to sRGB; nothing is flattened here
    start = _started(image, orientation, policy, is_in_srgb=True)
    return _in_srgb(start.with_pixels(start.picture.expanded()), policy)


def is_resized(geometry: Geometry) -> bool:
    """Whether the stored image has another size than the upright one, or is padded or cropped."""
    upright = (geometry.upright_height, geometry.upright_width)
    return is_scaled(geometry) or upright != (geometry.height, geometry.width)


def _profile(image: OpenedImage) -> bytes | None:
    return icc.profile_of(image.data, image.kind) if image.data else image.profile


def _started(image: OpenedImage, orientation: int, policy: ImagePolicy, is_in_srgb: bool) -> Rendered:
    """The upright picture; inks are converted by their profile if the result `is_in_srgb`."""
    profile, start = _profile(image), None
    if image.inks is not None and profile is not None and is_in_srgb:
        start = _printed(image.inks(), orientation, policy, profile)
    return start or _decoded(image, orientation, policy, profile)


def _decoded(image: OpenedImage, orientation: int, policy: ImagePolicy, profile: bytes | None) -> Rendered:
    """The upright picture; it may be scaled down while decoding, but not below the size of its geometry."""
    geometry, picture = None, None
    if policy.resizes and image.decode_scaled is not None and image.kept is not None:
        geometry = plan_geometry(image.kept.height, image.kept.width, orientation, policy)
        height, width = geometry.scaled_height, geometry.scaled_width
        if is_transposed(orientation):
            height, width = width, height
        if height < image.kept.height and width < image.kept.width:
            picture = image.decode_scaled(height, width)
    if picture is None:
        picture = image.decode()
    if geometry is None:
        height, width, _ = picture.pixels.shape
        geometry = plan_geometry(height, width, orientation, policy)
    return _upright(picture, geometry, profile)


def _printed(inks: Array, orientation: int, policy: ImagePolicy, profile: bytes) -> Rendered | None:
    """A CMYK image, converted by its profile: without it, colours would be lost."""
    pixels = icc.to_srgb(inks, profile, cmyk=True)
    if pixels is None:
        return None
    start = _upright(
        Picture(pixels), plan_geometry(pixels.shape[0], pixels.shape[1], orientation, policy), None
    )
    return dataclasses.replace(start, actions=(*start.actions, "srgb"))


def _upright(picture: Picture, geometry: Geometry, profile: bytes | None) -> Rendered:
    actions: tuple[str, ...] = ("first_frame",) if picture.frames > 1 else ()
    if geometry.orientation != 1:
        picture, actions = picture.upright(geometry.orientation), ("rotated", *actions)
    return Rendered(picture, geometry, actions, profile=profile, decoded_hash=hash_of_picture(picture))


def _in_srgb(work: Rendered, policy: ImagePolicy) -> Rendered:
    """Converts to sRGB if colours are encoded again; 16-bit samples keep their profile."""
    pixels = work.picture.pixels
    encodes_colors = policy.image_format in LOSSY or policy.changes_pixels or policy.alpha == "flatten"
    if work.profile is None or pixels.dtype != np.uint8 or not encodes_colors:
        return work
    converted = icc.to_srgb(pixels, work.profile)
    work = dataclasses.replace(work, profile=None)
    return work if converted is None else work.with_pixels(converted, "srgb")


def _on_background(work: Rendered, policy: ImagePolicy) -> Rendered:
    """Removes alpha if all pixels are opaque, or if the policy flattens."""
    if work.picture.pixels.shape[2] in (1, 3):
        return work
    pixels, see_through = split_alpha(work.picture.pixels)
    if not see_through:
        asked_for = policy.color != "keep" and policy.image_format not in LOSSY
        dropped = asked_for and pixels.shape != work.picture.pixels.shape
        return work.with_pixels(pixels, *(("recolored",) if dropped else ()))
    if policy.alpha == "fail":
        raise BadInput("encode", _TRANSPARENT, _REMEDY)
    if policy.alpha == "flatten":
        return work.with_pixels(color.flattened(work.picture.pixels, policy.background), "flattened")
    return dataclasses.replace(work, see_through=True)


def _recolored(work: Rendered, policy: ImagePolicy) -> Rendered:
    channels = work.picture.pixels.shape[2]
    if policy.color == "gray" and channels > 2:
        return work.with_pixels(color.as_gray(work.picture.pixels), "recolored")
    if policy.color == "rgb" and channels <= 2:
        return work.with_pixels(color.as_rgb(work.picture.pixels), "recolored")
    return work


def _resized(work: Rendered, policy: ImagePolicy) -> Rendered:
    if not is_resized(work.geometry):
        return work
    return work.with_pixels(resized(work.picture.pixels, work.geometry, policy.background), "resized")
