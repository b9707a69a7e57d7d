"""Small images of every format and kind, for the fuzzer to damage, encoded by Pillow or by hand."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageCms

from tests.images.drawn import chunk, encoded, gradient, rare_jpeg, with_orientation

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def _profile() -> bytes:
    """A profile of sRGB, without the time of its creation (bytes 24 to 35, ICC.1:2022, 7.2)."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile[:24] + bytes(12) + profile[36:]


def seeds() -> dict[str, list[bytes]]:
    """Images by format."""
    return {
        "gif": list(gifs()),
        "png": list(pngs()),
        "webp": list(webps()),
        "bmp": list(bmps()),
        "jpeg": list(jpegs()),
        "other": list(others()),
    }


def picture(height: int = 18, width: int = 23) -> Image.Image:
    """A gradient with some noise in it: neither empty nor beyond compression."""
    noise = np.random.default_rng(7).integers(0, 24, (height, width, 3))
    return Image.fromarray((gradient(height, width) // 2 + noise).astype(np.uint8))


def gif_codes(indices: bytes, bits: int, clear_every: int = 0, at_end: bool = True) -> list[tuple[int, int]]:
    """LZW codes of a GIF's pixels, each with its width."""
    clear, last = 1 << bits, b""
    table: dict[bytes, int] = {}
    out = [(clear, bits + 1)]
    following, width = clear + 2, bits + 1
    for index in indices:
        pixel = bytes((index,))
        if not last or last + pixel in table:
            last += pixel
            continue
        out.append((table[last] if len(last) > 1 else last[0], width))
        if following < 4096:
            table[last + pixel] = following
            following += 1
            width += following > 1 << width and width < 12
        if following == 4096 or (clear_every and following - clear > clear_every):
            out.append((clear, width))
            table, following, width = {}, clear + 2, bits + 1
        last = pixel
    if last:
        out.append((table[last] if len(last) > 1 else last[0], width))
    following += 1
    if at_end:
        out.append((clear + 1, width + (following > 1 << width and width < 12)))
    return out


def packed(codes: list[tuple[int, int]]) -> bytes:
    """Codes as GIF packs them, the lowest bits first."""
    done, value, count = bytearray(), 0, 0
    for code, width in codes:
        value |= (code & ((1 << width) - 1)) << count
        count += width
        while count >= 8:
            done.append(value & 255)
            value, count = value >> 8, count - 8
    return bytes(done) + (bytes((value,)) if count else b"")


def sub_blocks(data: bytes, size: int = 255) -> bytes:
    """A chain of data sub-blocks."""
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(bytes((len(part),)) + part for part in parts) + b"\0"


def gif_frame(
    indices: bytes,
    box: tuple[int, int, int, int],
    bits: int,
    *,
    flags: int = 0,
    palette: bytes = b"",
    **how: int,
) -> bytes:
    """An image block of a GIF."""
    size = how.pop("size", 255)
    head = b"," + struct.pack("<4HB", *box, flags) + palette + bytes((bits,))
    return head + sub_blocks(packed(gif_codes(indices, bits, **how)), size)  # type: ignore[arg-type]


def gif_file(width: int, height: int, colors: int, *blocks: bytes, version: bytes = b"GIF89a") -> bytes:
    """A GIF of 1 << colors colours that all frames share; none where that is 0."""
    palette = bytes((i * 37 + 5 * c) % 256 for i in range(1 << colors) for c in range(3)) if colors else b""
    flags = 0x80 | colors - 1 if colors else 0
    return version + struct.pack("<HHBBB", width, height, flags, 0, 0) + palette + b"".join(blocks) + b";"


def gifs() -> Iterator[bytes]:
    """Still, interlaced, with extensions, local palettes, code sizes, sub-blocks, offsets, and moving."""
    image = picture().quantize(32)
    width, height = image.size
    yield encoded(image, "GIF")
    yield encoded(image, "GIF", interlace=1, comment=b"words")
    yield encoded(image, "GIF", transparency=3)
    yield encoded(image, "GIF", transparency=250)
    yield encoded(picture(), "GIF", save_all=True, append_images=[image, picture().rotate(90)], loop=0)
    yield encoded(picture(120, 160).quantize(200), "GIF")
    whole, control = (0, 0, width, height), b"!\xf9\x04\0\0\0\0\0"
    for bits in (2, 3, 5, 8):
        indices = bytes((x * y) % (1 << bits) for y in range(height) for x in range(width))
        yield gif_file(width, height, bits, gif_frame(indices, whole, bits))
        yield gif_file(
            width, height, 0, gif_frame(indices, whole, bits, flags=0x80 | bits - 1, palette=bytes(3 << bits))
        )
        yield gif_file(width, height, bits, control, gif_frame(indices, whole, bits, clear_every=20, size=7))
        yield gif_file(
            width, height, bits, gif_frame(indices, whole, bits, flags=0x40, at_end=0), version=b"GIF87a"
        )
    ones = bytes(i // 3 % 2 for i in range(width * height))
    text = b"!\x01\x0c" + bytes(12) + sub_blocks(b"plain text")
    empty = b"!\xfe\0"
    loop = b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"
    yield gif_file(width, height, 1, loop, text, gif_frame(ones, whole, 2))
    yield gif_file(width, height, 1, empty, gif_frame(ones, whole, 2))
    yield gif_file(width, height, 1, gif_frame(ones, whole, 2), sub := b"!\xfe" + sub_blocks(b"x" * 300), sub)
    yield gif_file(width + 4, height + 6, 1, gif_frame(ones, (2, 3, width, height), 2))
    yield gif_file(width, height, 1, gif_frame(ones, (0, 0, width, height), 2), gif_frame(ones, whole, 2))
    yield gif_file(width, height, 2, b"!\xf9\x04\x01\0\0\x03\0", control, gif_frame(ones, whole, 2))
    long = bytes(200 * 200)
    yield gif_file(200, 200, 1, gif_frame(long, (0, 0, 200, 200), 2))


def png_file(*chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of its chunks."""
    return PNG_SIGNATURE + b"".join(chunk(*one) for one in chunks)


def png_rows(width: int, height: int, depth: int, color: int, interlace: int, seed: int) -> bytes:
    """Filtered rows of noise, with every filter."""
    rng = random.Random(seed)
    bits = depth * _SAMPLES[color]
    passes = [(width, height)]
    if interlace:
        passes = [(-(-(width - x) // w), -(-(height - y) // h)) for x, y, w, h in _ADAM7]
    parts = []
    for across, down in passes:
        for row in range(down if across > 0 else 0):
            data = rng.randbytes((across * bits + 7) // 8)
            parts.append(bytes((row % 5,)) + (data if row % 3 else bytes(len(data))))
    return b"".join(parts)


def deflated(rows: bytes, wbits: int = 15, level: int = 6) -> bytes:
    """A zlib stream with a window of 2 ** wbits bytes."""
    pack = zlib.compressobj(level, zlib.DEFLATED, wbits)
    return pack.compress(rows) + pack.flush()


def pngs() -> Iterator[bytes]:
    """All colour types and depths, interlaced, with other chunks, split IDATs, small windows, moving."""
    end = (b"IEND", b"")
    palette = (b"PLTE", bytes(range(48)))
    for color, depths in _DEPTHS.items():
        for depth in depths:
            for interlace in (0, 1):
                head = (b"IHDR", struct.pack(">IIBBBBB", 13, 11, depth, color, 0, 0, interlace))
                data = deflated(png_rows(13, 11, depth, color, interlace, depth))
                table = [palette[:1] + (bytes(range(3 << min(depth, 4))),)] if color == 3 else []
                key = {0: b"\0\1", 2: b"\0\1\0\2\0\3", 3: b"\0\x80"}.get(color)
                yield png_file(head, *table, (b"IDAT", data), end)
                if key:
                    yield png_file(
                        head, *table, (b"tRNS", key), (b"IDAT", data[:9]), (b"IDAT", data[9:]), end
                    )
    head = (b"IHDR", struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0))
    rows = png_rows(40, 30, 8, 2, 0, 3)
    for wbits in (9, 11, 15):
        yield png_file(head, (b"IDAT", deflated(rows, wbits)), end)
        yield png_file(head, (b"IDAT", deflated(bytes(len(rows)), wbits)), end)
    yield png_file(
        head, (b"IDAT", b""), *((b"IDAT", deflated(rows)[i : i + 200]) for i in range(0, 4000, 200)), end
    )
    yield png_file(
        head, *ancillary(), (b"IDAT", deflated(rows)), (b"tIME", bytes(7)), (b"tEXt", b"a\0b"), end
    )
    pal = (b"IHDR", struct.pack(">IIBBBBB", 13, 11, 4, 3, 0, 0, 0))
    hist = ((b"hIST", bytes(32)), (b"bKGD", b"\1"), (b"sBIT", b"\5\6\5"), (b"tRNS", b"\0\1\2"))
    yield png_file(pal, palette, *hist, (b"IDAT", deflated(png_rows(13, 11, 4, 3, 0, 1))), end)
    yield encoded(picture(), "PNG", save_all=True, append_images=[picture().rotate(180)])
    yield encoded(picture(), "PNG", exif=with_orientation(6))
    yield encoded(picture(150, 200), "PNG")


def ancillary() -> list[tuple[bytes, bytes]]:
    """One of each chunk that says something beside the pixels of an RGB image."""
    profile = _profile()
    return [
        (b"gAMA", struct.pack(">I", 45455)),
        (b"cHRM", struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)),
        (b"sBIT", b"\5\6\5"),
        (b"iCCP", b"name\0\0" + zlib.compress(profile)),
        (b"bKGD", bytes(6)),
        (b"pHYs", bytes(9)),
        (b"sPLT", b"pal\0\x08" + bytes(12)),
        (b"oFFs", bytes(9)),
        (b"sCAL", b"\x011.5\x002.5"),
        (b"tEXt", b"Title\0words"),
        (b"zTXt", b"Comment\0\0" + zlib.compress(b"more words")),
        (b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0<x/>"),
        (b"eXIf", with_orientation(3).tobytes()[6:]),
        (b"vpAg", bytes(9)),
    ]


def webps() -> Iterator[bytes]:
    """Lossy, lossless, with alpha, with metadata, and moving."""
    image = picture()
    clear = picture().convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    profile = _profile()
    exif = with_orientation(6).tobytes()
    for one in (image, clear):
        yield encoded(one, "WEBP")
        yield encoded(one, "WEBP", lossless=True)
        yield encoded(one, "WEBP", icc_profile=profile, exif=exif, xmp=b"<x/>")
        yield encoded(one, "WEBP", lossless=True, exif=exif)
        yield encoded(one, "WEBP", save_all=True, append_images=[one.rotate(180)], duration=40)
    yield encoded(picture().quantize(8).convert("RGB"), "WEBP", lossless=True)
    yield encoded(picture(90, 130), "WEBP", quality=30, method=6)


def bmps() -> Iterator[bytes]:
    """All depths, and headers by hand: V4, V5, bit masks, top down, run lengths."""
    image = picture()
    for mode in ("RGB", "L", "P", "1", "RGBA"):
        yield encoded(image.convert(mode), "BMP")
    width, height = image.size
    for bits, step in ((24, 3), (32, 4), (16, 2)):
        rows = b"".join(
            bytes((i * y) % 251 for i in range((width * step + 3) // 4 * 4)) for y in range(height)
        )
        for size in (40, 108, 124):
            for sign in (1, -1):
                rest = struct.pack("<HHIIiiII", 1, bits, 0, len(rows), 0, 0, 0, 0) + bytes(size - 40)
                head = struct.pack("<Iii", size, width, sign * height) + rest
                yield b"BM" + struct.pack("<IHHI", 14 + size + len(rows), 0, 0, 14 + size) + head + rows
    table = b"".join(bytes((i, i, i, 0)) for i in range(256))
    lengths = (bytes((width, 7)) + b"\0\0") * height + b"\0\1"
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(lengths), 0, 0, 256, 0)
    yield b"BM" + struct.pack("<IHHI", 54 + 1024 + len(lengths), 0, 0, 54 + 1024) + head + table + lengths


def jpegs() -> Iterator[bytes]:
    """Baseline, progressive, grey, CMYK, subsamplings, restarts, turned, with metadata, rare ones."""
    image = picture(37, 45)
    profile = _profile()
    for options in (
        {},
        {"progressive": True},
        {"subsampling": 0, "quality": 95},
        {"subsampling": 1},
        {"restart_marker_blocks": 2},
        {"restart_marker_rows": 1, "progressive": True},
        {"exif": with_orientation(6), "comment": b"words"},
        {"exif": with_orientation(3), "icc_profile": profile, "xmp": b"<x/>"},
        {"optimize": True, "quality": 20},
    ):
        yield encoded(image, "JPEG", **options)
    yield encoded(image.convert("L"), "JPEG")
    yield encoded(image.convert("L"), "JPEG", progressive=True, restart_marker_blocks=1)
    yield encoded(image.convert("CMYK"), "JPEG")
    yield encoded(picture(200, 240), "JPEG", quality=75)
    for name in ("arithmetic", "lossless", "lossless_gray", "ycck", "sampling_441"):
        yield rare_jpeg(name)


def others() -> Iterator[bytes]:
    """What is always decoded by us, and stored in another format."""
    image = picture()
    for compression in ("raw", "tiff_lzw", "packbits", "tiff_adobe_deflate", "jpeg"):
        yield encoded(image, "TIFF", compression=compression)
    yield encoded(image.convert("1"), "TIFF", compression="group4")
    deep = Image.fromarray(gradient(18, 23, 1, "uint16")[:, :, 0])
    for one, kind in (
        (deep, "TIFF"),
        (deep, "JPEG2000"),
        (image, "JPEG2000"),
        (image.convert("RGBA"), "JPEG2000"),
        (image, "AVIF"),
        (image.convert("RGBA"), "AVIF"),
        (image, "PPM"),
        (image.convert("L"), "PPM"),
        (image.convert("1"), "PPM"),
        (deep, "PPM"),
        (image, "TGA"),
        (image.convert("P"), "TGA"),
        (image, "PCX"),
        (image.convert("P"), "PCX"),
        (image, "SGI"),
        (image, "QOI"),
        (image.convert("RGBA"), "QOI"),
    ):
        yield encoded(one, kind)
    yield encoded(image, "TGA", compression="tga_rle")
    stream = io.BytesIO()
    image.save(stream, "JPEG2000", no_jp2=True)
    yield stream.getvalue()
