"""The image step: the bytes of a file in, the image of a record out."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from transforms.images import jpeg, jpeg_header, png, png_pixels
from transforms.images.bmp import open_bmp
from transforms.images.encoded import Encoded
from transforms.images.exif import Array
from transforms.images.gif import open_gif
from transforms.images.jpeg_turn import turned_jpeg
from transforms.images.picture import COLORSPACES, Picture, encode_png, split_alpha, to_eight_bits
from transforms.images.policy import ImagePolicy
from transforms.images.raster import open_raster, open_webp
from transforms.images.reasons import EMPTY, NOT_SUPPORTED, WRONG_LENGTH, undecodable
from transforms.images.sniff import image_kind
from transforms.images.tensor import tensor_bytes
from transforms.records import StoredImage


def store_image(data: bytes, policy: ImagePolicy) -> StoredImage:
    """Turns an image file into what a record stores.

    Actions: what was done to the bytes (`kept`, `reencoded` as JPEG again, `transcoded` to another format,
    `decoded` to pixels), and then, where so, `rotated`, `first_frame`, `alpha_kept` or `not_smaller`.

    Args:
        data: the whole file.
        policy: how images are stored.

    Raises:
        BadInput: stage `decode` or `encode`, with the reason and the remedy.
    """
    if not data:
        raise undecodable(EMPTY)
    image = opened(data)
    orientation = image.orientation if policy.exif == "apply" else 1
    if image.kept is not None:
        if orientation == 1 and _is_as_wanted(image.kept, policy):
            if policy.validate == "decode":
                image.check()
            return image.kept
        if image.kind == "jpeg" and policy.image_format == "keep":
            return _turned(image, ())
    picture = image.decode()
    if orientation != 1:
        picture = picture.upright(orientation)
    if policy.image_format == "jpeg":
        return _store_jpeg(image, picture, policy)
    _refuse_narrowed(picture)
    if policy.image_format in ("raw", "tensor"):
        return _store_decoded(picture.expanded(), policy.image_format, ("decoded", *_notes(picture)))
    return _store_png(picture, ())


def store_pixels(pixels: bytes, shape: tuple[int, int, int], policy: ImagePolicy) -> StoredImage:
    """Turns raw pixels into what a record stores: a PNG in keep mode.

    Args:
        pixels: uint8, row by row.
        shape: height, width, channels (1 to 4).
        policy: how images are stored.

    Raises:
        BadInput: the number of bytes is not the shape's, or (stage `encode`) too large for a JPEG.
    """
    height, width, channels = shape
    if channels not in COLORSPACES or height < 1 or width < 1:
        raise undecodable(
            NOT_SUPPORTED, f"pixels of shape {height}x{width}x{channels}; 1 to 4 channels are stored"
        )
    if len(pixels) != height * width * channels:
        detail = f"{len(pixels):,} bytes for {height}x{width}x{channels} uint8 pixels"
        raise undecodable(WRONG_LENGTH, detail)
    array = np.frombuffer(pixels, np.uint8).reshape(shape)
    if policy.image_format in ("raw", "tensor"):
        action = "kept" if policy.image_format == "raw" else "decoded"
        return _store_decoded(array, policy.image_format, (action,))
    if policy.image_format == "jpeg":
        plain, see_through = split_alpha(array)
        if not see_through:
            return _jpeg_stored(jpeg.encode(plain, policy.jpeg_quality), plain, ("transcoded",))
        return _store_png(Picture(array), ("alpha_kept",))
    return _store_png(Picture(array), ())


def opened(data: bytes) -> Encoded:
    """Reads the header of an image, whatever its format.

    Raises:
        BadInput: as `store_image`.
    """
    kind = image_kind(data)
    if kind == "jpeg":
        return _open_jpeg(data)
    if kind == "png":
        return _open_png(data)
    if kind == "gif":
        return open_gif(data)
    if kind == "bmp":
        return open_bmp(data)
    if kind == "webp":
        return open_webp(data)
    return open_raster(data, kind)


def _open_jpeg(data: bytes) -> Encoded:
    header = jpeg_header.read_header(data)
    kept = None
    if header.storable:
        channels = 1 if len(header.components) == 1 else 3
        kept = StoredImage(
            data, "jpeg", header.height, header.width, channels, "uint8", header.colorspace, ("kept",)
        )
    return Encoded(
        "jpeg",
        kept,
        header.orientation,
        functools.partial(jpeg.check_whole, data, header),
        lambda: Picture(jpeg.decode(data, header)),
    )


def _open_png(data: bytes) -> Encoded:
    header = png.read_header(data)
    stored = data
    actions: tuple[str, ...] = ("kept",)
    if header.animated:
        stored, actions = png.without_animation(data, header), ("transcoded", "first_frame")
    kept = StoredImage(
        stored, "png", header.height, header.width, header.channels, header.dtype, header.colorspace, actions
    )
    frames = 2 if header.animated else 1
    return Encoded(
        "png",
        kept,
        header.orientation,
        functools.partial(png.check_whole, data, header),
        lambda: dataclasses.replace(png_pixels.decode(data, header), frames=frames),
    )


def _is_as_wanted(kept: StoredImage, policy: ImagePolicy) -> bool:
    return policy.image_format in ("keep", kept.image_format) and policy.image_format != "jpeg"


def _store_jpeg(image: Encoded, picture: Picture, policy: ImagePolicy) -> StoredImage:
    """As JPEG; but transparency stays a PNG, and nothing is re-encoded that grows by it."""
    pixels, see_through = split_alpha(picture.expanded())
    own = image.kept if not picture.turned else None
    if see_through:
        if own is not None and own.image_format == "png":
            return _kept_after_all(image, own, "alpha_kept")
        _refuse_narrowed(picture)
        return _store_png(picture, ("alpha_kept",))
    encoded = jpeg.encode(to_eight_bits(pixels), policy.jpeg_quality)
    if own is not None and len(encoded) >= len(own.data):
        return _kept_after_all(image, own, "not_smaller")
    if (
        image.kind == "jpeg"
        and picture.turned
        and image.kept is not None
        and len(encoded) >= len(image.kept.data)
    ):
        turned = _turned(image, ("not_smaller",))
        if len(turned.data) < len(encoded):
            return turned
    action = "reencoded" if image.kind == "jpeg" else "transcoded"
    return _jpeg_stored(encoded, pixels, (action, *_notes(picture)))


def _kept_after_all(image: Encoded, kept: StoredImage, note: str) -> StoredImage:
    if (
        image.kind != "jpeg"
    ):  # A JPEG's decoding has proven it whole; other decoders are laxer than the check.
        image.check()
    return dataclasses.replace(kept, actions=(*kept.actions, note))


def _turned(image: Encoded, notes: tuple[str, ...]) -> StoredImage:
    """A JPEG upright, in its own quality."""
    if image.kept is None:
        raise ValueError("only a JPEG that could be kept can be turned as one")
    header = jpeg_header.read_header(image.kept.data)
    data = turned_jpeg(image.kept.data, header)
    after = jpeg_header.read_header(data)
    return dataclasses.replace(
        image.kept,
        data=data,
        height=after.height,
        width=after.width,
        actions=("reencoded", "rotated", *notes),
    )


def _jpeg_stored(data: bytes, pixels: Array, actions: tuple[str, ...]) -> StoredImage:
    height, width, channels = pixels.shape
    return StoredImage(data, "jpeg", height, width, channels, "uint8", COLORSPACES[channels], actions)


def _store_png(picture: Picture, notes: tuple[str, ...]) -> StoredImage:
    if picture.pixels.dtype == np.uint16:
        data = png_pixels.encode_deep(picture.pixels)
    else:
        data = encode_png(picture.pixels, picture.palette, picture.palette_alpha)
    height, width, channels = picture.pixels.shape
    if picture.palette:
        channels = 4 if picture.palette_alpha else 3
    actions = ("transcoded", *_notes(picture), *notes)
    return StoredImage(
        data, "png", height, width, channels, picture.pixels.dtype.name, COLORSPACES[channels], actions
    )


def _store_decoded(pixels: Array, image_format: str, actions: tuple[str, ...]) -> StoredImage:
    height, width, channels = pixels.shape
    little = pixels.astype(pixels.dtype.newbyteorder("<"), copy=False)
    data = tensor_bytes(pixels) if image_format == "tensor" else little.tobytes()
    return StoredImage(
        data, image_format, height, width, channels, pixels.dtype.name, COLORSPACES[channels], actions
    )


def _notes(picture: Picture) -> tuple[str, ...]:
    return ("rotated",) * picture.turned + ("first_frame",) * (picture.frames > 1)


def _refuse_narrowed(picture: Picture) -> None:
    if picture.narrowed:
        detail = (
            "more than 8 bits a sample, which its decoder cuts: convert it to PNG, or --image_format=jpeg"
        )
        raise undecodable(NOT_SUPPORTED, detail)
