"""Converts the bytes of an image file into the image of a record."""

from __future__ import annotations

import msgspec
import numpy as np

from recordmill.transforms.images import icc, jpeg, jpeg_header, png, webp
from recordmill.transforms.images.color import flattened
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.geometry import is_identity, plan_geometry
from recordmill.transforms.images.jpeg import turned_jpeg
from recordmill.transforms.images.jpeg_quality import saved_at_or_below
from recordmill.transforms.images.metadata import stripped
from recordmill.transforms.images.opened import opened
from recordmill.transforms.images.optimise import optimised
from recordmill.transforms.images.picture import COLORSPACES, OpenedImage, Picture, encode_png
from recordmill.transforms.images.policy import LOSSY, ImagePolicy
from recordmill.transforms.images.reasons import NOT_SUPPORTED, undecodable
from recordmill.transforms.images.render import Rendered, is_resized, render
from recordmill.transforms.images.target import encode_to_target
from recordmill.transforms.images.tensor import tensor_bytes
from recordmill.transforms.records import StoredImage

_ALPHA = "alpha_kept"


def store_image(data: bytes, policy: ImagePolicy, shape: tuple[int, int, int] | None = None) -> StoredImage:
    """Converts an image file, or raw pixels of a `shape` as in `opened`, into the image of a record.

    Actions: first the kind of the result: `kept`, `reencoded` (in the same format), `transcoded` to another
    format, `decoded` to pixels. Then changes of the pixels: `rotated`, `first_frame`, `srgb` (converted from
    another profile), `flattened`, `recolored`, `resized`. Then the reason why the file was not encoded again,
    or is not in the requested format: `coarse_enough` (saved at or below the quality), `not_smaller`,
    `alpha_kept`, `ssim_missed` (no quality reaches the target). Then `stripped` of its metadata, and
    `optimized`, or `optimize_differed` if that would have changed a pixel and was not done.

    Raises:
        BadInput: stage `decode` or `encode`, with the reason and the remedy.
    """
    return store_opened(opened(data, shape), policy)


def store_opened(image: OpenedImage, policy: ImagePolicy) -> StoredImage:
    """As `store_image`, for an image that is already opened."""
    orientation = image.orientation if policy.exif == "apply" else 1
    stored = _stored(image, orientation, policy)
    stored = _with_metadata(stored, image, policy)
    if policy.optimize != "none" and stored.image_format in ("jpeg", "png"):
        data, action = optimised(stored.data, stored.image_format, policy.optimize)
        stored = _noted(stored, action, data=data)
    if policy.target_ssim is not None and stored.jpeg_quality is None:
        stored = msgspec.structs.replace(stored, jpeg_quality=0)
    return stored


def _stored(image: OpenedImage, orientation: int, policy: ImagePolicy) -> StoredImage:
    """The file unchanged if it meets the policy, else encoded again."""
    own = _untouched(image, orientation, policy)
    looks = policy.alpha != "keep" or policy.color != "keep"
    if own is not None and not (looks and _may_be_clear(image, own)):
        notes = _as_wanted(own, policy)
        if notes is not None:
            if policy.validate == "decode":
                image.check()
            return _noted(own, *notes)
    if orientation != 1 and (notes := _only_turned(image, policy)) is not None:
        return _turned(image, notes)
    work = render(image, orientation, policy)
    if work.is_new:
        own = None
    elif own is not None and (notes := _as_wanted(own, policy)) is not None:
        return msgspec.structs.replace(_left_alone(image, own, *notes), decoded_hash=work.decoded_hash)
    stored = _encoded(image, own, work, policy)
    geometry = stored.geometry if is_identity(work.geometry) else work.geometry
    return msgspec.structs.replace(stored, geometry=geometry, decoded_hash=work.decoded_hash)


def _untouched(image: OpenedImage, orientation: int, policy: ImagePolicy) -> StoredImage | None:
    """The file unchanged, unless the policy changes its size, orientation or colours."""
    kept = image.kept
    if kept is None or orientation != 1:
        return None
    gray = kept.channels <= 2
    recolored = (policy.color == "gray" and not gray) or (
        policy.color == "rgb" and (gray or kept.colorspace == "CMYK")
    )
    resized = policy.resizes and is_resized(plan_geometry(kept.height, kept.width, 1, policy))
    return None if recolored or resized else kept


def _may_be_clear(image: OpenedImage, own: StoredImage) -> bool:
    """Whether pixels may be transparent, also by the transparent colour of a PNG."""
    return own.channels in (2, 4) or (image.kind == "png" and bool(png.read_header(image.data).transparency))


def _as_wanted(own: StoredImage, policy: ImagePolicy) -> tuple[str, ...] | None:
    """The reasons to keep the file; None if its pixels must be decoded first."""
    if policy.image_format in ("keep", "png"):
        return () if policy.image_format in ("keep", own.image_format) else None
    if policy.image_format != own.image_format or policy.reencode == "always":
        return None
    if policy.reencode == "needed":
        return ()
    if own.image_format != "jpeg" or policy.target_ssim is not None:
        return None
    header = jpeg_header.read_header(own.data)
    return ("coarse_enough",) if saved_at_or_below(own.data, header, policy.jpeg_quality) else None


def _only_turned(image: OpenedImage, policy: ImagePolicy) -> tuple[str, ...] | None:
    """The reasons to keep a JPEG if it were upright: then it is only turned; None if there are none."""
    own = _untouched(image, 1, policy) if image.kind == "jpeg" else None
    return None if own is None else _as_wanted(own, policy)


def _turned(image: OpenedImage, notes: tuple[str, ...]) -> StoredImage:
    """A JPEG turned upright, at its own quality."""
    if image.kept is None:
        raise ValueError("only a JPEG that could be kept can be turned as one")
    header = jpeg_header.read_header(image.kept.data)
    data = turned_jpeg(image.kept.data, header)
    after = jpeg_header.read_header(data)
    geometry = plan_geometry(header.height, header.width, header.orientation, ImagePolicy())
    return msgspec.structs.replace(
        image.kept,
        data=data,
        height=after.height,
        width=after.width,
        actions=("reencoded", "rotated", *notes),
        geometry=geometry,
    )


def _encoded(image: OpenedImage, own: StoredImage | None, work: Rendered, policy: ImagePolicy) -> StoredImage:
    """The image encoded again, unless that is worse than `own`, the file, if the policy allows that."""
    image_format = policy.image_format
    if image_format == "keep":
        image_format = image.family
    if image_format == "jpeg" and work.see_through:
        flat = flattened(work.picture.pixels, policy.background)
        data, _ = _jpeg(flat, policy)
        stored = _as_png(work, _ALPHA) if own is None else _left_alone(image, own, _ALPHA)
        return msgspec.structs.replace(stored, flattened_bytes=len(data or encode_png(flat)))
    if image_format in LOSSY:
        return _as_lossy(image, image_format, own, work, policy)
    _refuse_narrowed(work.picture)
    if image_format == "png":
        return _as_png(work)
    action = "kept" if image.kind == "pixels" and image_format == "raw" and not work.actions else "decoded"
    return _as_pixels(work.picture.expanded(), image_format, (action, *work.actions))


def _as_lossy(
    image: OpenedImage, image_format: str, own: StoredImage | None, work: Rendered, policy: ImagePolicy
) -> StoredImage:
    pixels = work.picture.pixels
    quality, size = None, None
    if image_format == "webp":
        data = webp.encode(pixels, policy.jpeg_quality)
        colors = 4 if work.see_through else 3
        if work.see_through:
            size = len(webp.encode(flattened(pixels, policy.background), policy.jpeg_quality))
    else:
        data, quality = _jpeg(pixels, policy)
        colors = pixels.shape[2]
        if not data:
            return _left_alone(image, own, "ssim_missed") if own is not None else _as_png(work, "ssim_missed")
    actions = ("reencoded" if image.kind == image_format else "transcoded", *work.actions)
    new = msgspec.structs.replace(_of(pixels, data, image_format, colors, actions), jpeg_quality=quality)
    stored = _not_larger(image, own, work, new, policy) if policy.reencode == "smaller" else new
    if not work.see_through:
        return stored
    return _noted(msgspec.structs.replace(stored, flattened_bytes=size), _ALPHA)


def _jpeg(pixels: Array, policy: ImagePolicy) -> tuple[bytes, int | None]:
    """A JPEG and the quality that was chosen for it; no bytes if none reaches the target."""
    if policy.target_ssim is None:
        return jpeg.encode(pixels, policy.jpeg_quality, policy.subsampling), None
    found = encode_to_target(pixels, policy.target_ssim, policy.subsampling)
    return (b"", None) if found is None else (found.data, found.quality)


def _not_larger(
    image: OpenedImage, own: StoredImage | None, work: Rendered, new: StoredImage, policy: ImagePolicy
) -> StoredImage:
    """The smaller of `new` and the file; the file is turned at its own quality if it is not upright."""

    def size(stored: StoredImage) -> int:
        return len(_with_metadata(stored, image, policy).data)

    if own is not None:
        return _left_alone(image, own, "not_smaller") if size(new) >= size(own) else new
    # Turning at its own quality is lossy too, and its loss has not been compared with the target.
    if image.kind != "jpeg" or image.kept is None or work.is_new or policy.target_ssim is not None:
        return new
    if size(new) < size(image.kept):
        return new
    turned = _turned(image, ("not_smaller",))
    return turned if size(turned) < size(new) else new


def _left_alone(image: OpenedImage, own: StoredImage, *notes: str) -> StoredImage:
    """The file unchanged, after its pixels were decoded."""
    # Decoding a JPEG detects all damage; the decoders of other formats are less strict than the check.
    if image.kind != "jpeg":
        image.check()
    return _noted(own, *notes)


def _noted(stored: StoredImage, *notes: str | None, data: bytes | None = None) -> StoredImage:
    added = tuple(note for note in notes if note is not None)
    if not added:
        return stored
    return msgspec.structs.replace(
        stored, actions=(*stored.actions, *added), data=stored.data if data is None else data
    )


def _as_png(work: Rendered, *notes: str) -> StoredImage:
    picture = work.picture
    _refuse_narrowed(picture)
    channels = picture.pixels.shape[2]
    if picture.pixels.dtype == np.uint16:
        data = png.encode_deep(picture.pixels)
    else:
        data = encode_png(picture.pixels, picture.palette, picture.palette_alpha)
    if work.profile is not None:
        data = icc.png_with_profile(data, work.profile)
    if picture.palette:
        channels = 4 if picture.palette_alpha else 3
    return _of(picture.pixels, data, "png", channels, ("transcoded", *work.actions, *notes))


def _as_pixels(pixels: Array, image_format: str, actions: tuple[str, ...]) -> StoredImage:
    little = pixels.astype(pixels.dtype.newbyteorder("<"), copy=False)
    data = tensor_bytes(pixels) if image_format == "tensor" else little.tobytes()
    return _of(pixels, data, image_format, pixels.shape[2], actions)


def _of(
    pixels: Array, data: bytes, image_format: str, channels: int, actions: tuple[str, ...]
) -> StoredImage:
    height, width = pixels.shape[:2]
    dtype, colorspace = pixels.dtype.name, COLORSPACES[channels]
    return StoredImage(data, image_format, height, width, channels, dtype, colorspace, actions)


def _with_metadata(stored: StoredImage, image: OpenedImage, policy: ImagePolicy) -> StoredImage:
    """Removes metadata from a kept file; adds the orientation to an encoded one that is not upright."""
    from_file = image.kept is not None and stored.data is image.kept.data
    orientation = image.orientation if policy.exif == "ignore" else 1
    if from_file and policy.metadata != "strip":
        return stored
    if from_file:
        data = stripped(stored.data, stored.image_format, orientation)
        if data is stored.data:
            return stored
        if stored.image_format == "webp":
            opened(data).check()  # libwebp reads damaged pixels on into the metadata after them
        return _noted(stored, "stripped", data=data)
    if orientation == 1 or stored.image_format not in ("jpeg", "png", "webp"):
        return stored
    return msgspec.structs.replace(stored, data=stripped(stored.data, stored.image_format, orientation))


def _refuse_narrowed(picture: Picture) -> None:
    if picture.narrowed:
        detail = "more than 8 bits a sample, which its decoder cuts"
        raise undecodable(NOT_SUPPORTED, f"{detail}: convert it to PNG, or --image_format=jpeg")
