"""Metadata: every kind of block is removed, and no pixel changes."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.transforms.images import gif, jpeg_header, png
from recordmill.transforms.images.metadata import stripped
from recordmill.transforms.images.raster import open_webp
from recordmill.transforms.records import BadInput
from tests.images.drawn import Array, chunk, encoded, gradient, tensorflow_pixels

SECRET = b"N 52 31 12 E 13 24 36"
PROFILE = b"a colour profile" * 5000  # two segments of a JPEG
XMP = (
    b'<x:xmpmeta><rdf:Description tiff:Orientation="6" exif:PixelXDimension="32">' + SECRET + b"</x:xmpmeta>"
)
THUMBNAIL = b"\xff\xd8 small picture \xff\xd9"
READERS: dict[str, Callable[[bytes], object]] = {
    "jpeg": jpeg_header.read_header,
    "png": png.read_header,
    "webp": open_webp,
    "gif": gif.read_header,
}


def test_text_of_a_png_is_inflated_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    inflated: list[int] = []
    inflate = png._inflated
    monkeypatch.setattr(png, "_inflated", lambda packed: inflated.append(len(packed)) or inflate(packed))
    bomb = zlib.compress(bytes(1 << 25))
    data = encoded(gradient(4, 4, 3), "PNG")
    names = (b"Raw profile type exif", b"Raw profile type iptc", b"Author", b"Comment")
    texts = b"".join(chunk(b"zTXt", name + b"\0\0" + bomb) for name in names) * 100
    data = data[:33] + texts + data[33:]
    assert png.read_header(data).orientation == 1
    assert len(inflated) == 1


def exif_block(order: str = "<", orientation: int = 6) -> bytes:
    """EXIF with orientation, size, a position, a maker note that ends in an offset, and a thumbnail."""
    first, inner, gps, second = 8, 62, 92, 110
    maker, place, small = 140, 160, 160 + len(SECRET)
    ifd0 = [
        *((0x100, 4, 1, 24), (0x112, 3, 1, orientation)),
        *((0x8769, 4, 1, inner), (0x8825, 4, 1, gps)),
    ]
    ifd1 = [(0x201, 4, 1, small), (0x202, 4, 1, len(THUMBNAIL))]
    block = bytearray(small)
    block[:8] = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, first)
    for start, entries, following in (
        (first, ifd0, second),
        (inner, [(0xA002, 3, 1, 32), (0x927C, 7, 20, maker)], 0),
        (gps, [(0x1D, 2, len(SECRET), place)], 0),
        (second, ifd1, 0),
    ):
        at = start + 2
        struct.pack_into(order + "H", block, start, len(entries))
        for tag, kind, count, value in entries:
            short = kind == 3
            struct.pack_into(order + ("HHIHxx" if short else "HHII"), block, at, tag, kind, count, value)
            at += 12
        struct.pack_into(order + "I", block, at, following)
    block[maker : maker + 20] = b"maker's notes at\0\0\0\x8c"
    block[place:small] = SECRET
    return bytes(block) + THUMBNAIL


def segment(marker: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, 2 + len(payload)) + payload


def planted_segments() -> bytes:
    """One of every kind that is cut."""
    unknown = b"".join(segment(marker, b"Whatever\0" + SECRET) for marker in range(0xE0, 0xF0))
    named = (
        *((0xE0, b"JFXX\0\x13" + SECRET), (0xE1, b"Exif\0\0" + exif_block())),
        *((0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP), (0xE2, b"MPF\0" + SECRET)),
        (0xE1, b"http://ns.adobe.com/xmp/extension/\0" + bytes(40) + SECRET),
        *((0xE2, b"FPXR\0" + SECRET), (0xED, b"Photoshop 3.0\x008BIM\x04\x04" + SECRET), (0xFE, SECRET)),
    )
    return unknown + b"".join(segment(marker, payload) for marker, payload in named)


def jpeg_file(mode: str = "RGB", **options: object) -> bytes:
    return encoded(Image.fromarray(gradient(40, 56)).convert(mode), "JPEG", icc_profile=PROFILE, **options)


def planted_jpeg(bare: bytes) -> bytes:
    """Metadata before the first scan, before each further one, before the end marker and behind it."""
    jfif = bare[6:11] == b"JFIF\0"
    head = 20 if jfif else 2
    first = segment(0xE0, bare[6:18] + b"\1\7" + SECRET) if jfif else b""
    scan = jpeg_header.read_header(bare).scan
    later = bare[scan + 2 : -2].replace(b"\xff\xda", segment(0xFE, SECRET) + b"\xff\xda")
    start = bare[:2] + first + planted_segments() + SECRET  # the last between segments
    adobe = bare.find(b"\xff\xee", 2, scan)
    body = bare[head:scan]
    if adobe >= 0:
        body = (
            bare[head:adobe] + segment(0xEE, bare[adobe + 4 : adobe + 16] + SECRET) + bare[adobe + 16 : scan]
        )
    return start + body + b"\xff\xda" + later + segment(0xFE, SECRET) + b"\xff\xd9" + THUMBNAIL + SECRET


BARE_JPEGS = {
    "baseline": jpeg_file(),
    "progressive": jpeg_file(progressive=True),
    "restarts": jpeg_file(restart_marker_rows=1),
    "grey": jpeg_file("L"),
    "cmyk": jpeg_file("CMYK"),
    "rgb": jpeg_file(keep_rgb=True),
}


def same_pixels(one: bytes, other: bytes) -> None:
    np.testing.assert_array_equal(tensorflow_pixels(one), tensorflow_pixels(other))
    with Image.open(io.BytesIO(one)) as left, Image.open(io.BytesIO(other)) as right:
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))
        assert left.info.get("icc_profile") == right.info.get("icc_profile")


@pytest.mark.parametrize("name", BARE_JPEGS)
def test_a_stripped_jpeg_is_the_file_before_anything_was_planted(name: str) -> None:
    bare = BARE_JPEGS[name]
    data = planted_jpeg(bare)
    assert data.count(SECRET) >= 28
    assert stripped(data, "jpeg") == bare
    same_pixels(data, bare)


def test_a_jfif_thumbnail_that_is_announced_only() -> None:
    bare = BARE_JPEGS["baseline"]
    assert stripped(bare[:18] + b"\3\5" + bare[20:], "jpeg") == bare


def test_what_follows_a_damaged_scan_stays() -> None:
    """Without the marker behind it, what looks like a comment may be image data."""
    data = BARE_JPEGS["baseline"]
    middle = (jpeg_header.read_header(data).scan + len(data)) // 2
    damaged = data[:middle] + segment(0xFE, SECRET) + data[middle:]
    assert stripped(damaged, "jpeg") is damaged


def bare_png() -> tuple[bytes, bytes, bytes]:
    """A PNG's start through IHDR, the chunks that stay, and the end from IDAT on."""
    data = encoded(gradient(20, 30), "PNG")
    at = data.index(b"IDAT") - 4
    kept = {
        b"gAMA": struct.pack(">I", 45455),
        b"cHRM": struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000),
        b"sBIT": b"\x08\x08\x08",
        b"iCCP": b"ICC\0\0" + zlib.compress(b"a profile"),
        b"bKGD": bytes(6),
        b"pHYs": struct.pack(">IIB", 2835, 2835, 1),
        b"tRNS": bytes((0, 1, 0, 2, 0, 3)),
        b"cICP": b"\x01\x0d\x00\x01",
        b"mDCV": bytes(24),
        b"cLLI": bytes(8),
        b"sPLT": b"few\0\x08" + bytes(6),
    }
    return data[:33], b"".join(chunk(kind, payload) for kind, payload in kept.items()), data[at:]


def planted_png() -> bytes:
    head, kept, body = bare_png()
    plain = zlib.compress(SECRET, 0)
    texts = (
        *((b"tEXt", b"Comment\0" + SECRET), (b"zTXt", b"Author\0\0" + plain)),
        *((b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP), (b"iTXt", b"Title\0\1\0de\0Titel\0" + plain)),
        *((b"eXIf", exif_block()), (b"tIME", b"\x07\xea\x01\x02\x03\x04\x05"), (b"prVt", SECRET)),
        (b"iDOT", SECRET),
    )
    planted = [chunk(kind, payload) for kind, payload in texts]
    end = body[:-12] + chunk(b"tEXt", b"Comment\0" + SECRET) + body[-12:] + SECRET
    return head + b"".join(planted[:4]) + kept + b"".join(planted[4:]) + end


def test_a_stripped_png_is_the_file_before_anything_was_planted() -> None:
    bare, data = b"".join(bare_png()), planted_png()
    assert data.count(SECRET) == 9
    assert stripped(data, "png") == bare
    same_pixels(data, bare)


def test_frames_that_no_still_image_shows_go() -> None:
    head, kept, body = bare_png()
    frames = chunk(b"acTL", struct.pack(">II", 1, 0)) + chunk(b"fcTL", bytes(26)) + chunk(b"fdAT", SECRET)
    assert stripped(head + kept + frames + body, "png") == head + kept + body


def webp_file(kind: str, **options: object) -> bytes:
    picture = Image.fromarray(gradient(21, 30, 4))
    if kind == "extended":
        return encoded(picture, "WEBP", icc_profile=PROFILE, **options)
    return encoded(
        picture.convert("RGB") if kind == "lossy" else picture,
        "WEBP",
        lossless=kind == "lossless",
        **options,
    )


def riff(data: bytes, *added: tuple[bytes, bytes], flags: int) -> bytes:
    """A WebP with a VP8X chunk, with chunks more, and these flags more."""
    parts = [name + struct.pack("<I", len(load)) + load + b"\0" * (len(load) % 2) for name, load in added]
    body = data[12:20] + bytes([data[20] | flags]) + data[21:] + b"".join(parts)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def test_a_stripped_webp_is_the_file_before_anything_was_planted() -> None:
    bare = webp_file("extended")
    blocks = ((b"EXIF", exif_block()), (b"XMP ", XMP), (b"priv", SECRET))
    data = riff(bare, *blocks, flags=0x0C) + SECRET
    assert data.count(SECRET) == 4
    assert stripped(data, "webp") == bare
    same_pixels(data, bare)


def test_a_stripped_gif_is_the_file_before_anything_was_planted() -> None:
    bare = encoded(Image.fromarray(gradient(20, 30)).convert("P"), "GIF", transparency=3)
    at = 13 + 3 * (2 << (bare[10] & 7))
    sub = bytes([len(SECRET)]) + SECRET + b"\0"
    loop = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
    profile = b"!\xff\x0bICCRGBG1012\x09a profile\x00"
    bare = bare[:at] + loop + profile + bare[at:]
    planted = (
        *(b"!\xfe" + sub, b"!\xff\x0bXMP DataXMP" + sub, b"!\xff\x0bMGK8BIM0000" + sub),
        *(b"!\x01\x0c" + bytes(12) + sub, b"!\x99" + sub),
    )
    data = bare[:at] + b"".join(planted) + bare[at:-1] + b"!\xfe" + sub + b";" + SECRET
    assert data.count(SECRET) == 7
    assert stripped(data, "gif") == bare
    same_pixels(data, bare)


BARE = {
    **{f"{name} jpeg": ("jpeg", data) for name, data in BARE_JPEGS.items()},
    "png": ("png", b"".join(bare_png())),
    **{f"{name} webp": ("webp", webp_file(name)) for name in ("lossy", "lossless", "extended")},
    "gif": ("gif", encoded(Image.fromarray(gradient()).convert("P"), "GIF")),
    "bmp": ("bmp", encoded(gradient(), "BMP") + SECRET),
}
WRITABLE = [name for name, (kind, _) in BARE.items() if kind in ("jpeg", "png", "webp")]


@pytest.mark.parametrize("name", BARE)
def test_where_there_is_nothing_to_cut_nothing_is_copied(name: str) -> None:
    kind, data = BARE[name]
    assert stripped(data, kind) is data


@pytest.mark.parametrize("name", [name for name in BARE if name != "bmp"])
def test_bytes_behind_the_end_go(name: str) -> None:
    kind, data = BARE[name]
    assert stripped(data + SECRET, kind) == data


def planted(name: str) -> bytes:
    """A file of BARE with metadata."""
    kind, bare = BARE[name]
    if kind == "webp":
        return webp_file(name.removesuffix(" webp"), exif=exif_block(), xmp=XMP)
    return planted_jpeg(bare) if kind == "jpeg" else planted_png()


@pytest.mark.parametrize("name", WRITABLE)
@pytest.mark.parametrize("orientation", [2, 8])
def test_the_orientation_alone_can_stay(name: str, orientation: int) -> None:
    kind, bare = BARE[name]
    data = planted(name)
    result = stripped(data, kind, orientation)
    assert SECRET in data and SECRET not in result
    with Image.open(io.BytesIO(result)) as image:
        assert dict(image.getexif()) == {0x0112: orientation}
    READERS[kind](result)
    same_pixels(result, bare)
    if bare[6:11] == b"JFIF\0":
        assert result[:20] == bare[:20]
    if kind == "webp":
        assert result[12:16] == b"VP8X"
        assert (result[20] & 0x1C, result[24:30]) == (8 | 0x10 * (name != "lossy webp"), b"\x1d\0\0\x14\0\0")
    assert stripped(result, kind, orientation) is result
    assert stripped(bare, kind, orientation) == result


SAMPLES = {
    **{f"jpeg {name}": ("jpeg", planted_jpeg(BARE_JPEGS[name])) for name in ("baseline", "progressive")},
    "png": ("png", planted_png()),
    "webp": ("webp", riff(webp_file("extended"), (b"EXIF", exif_block()), (b"XMP ", XMP), flags=0x0C)),
    "gif": ("gif", encoded(Image.fromarray(gradient()).convert("P"), "GIF", comment=SECRET)),
}


def accepted(data: bytes, kind: str) -> bool:
    try:
        READERS[kind](data)
    except BadInput:
        return False
    return True


def decoded(data: bytes) -> Array | None:
    try:
        return tensorflow_pixels(data)
    except Exception:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=120, deadline=None)
@given(st.data())
def test_of_damaged_files_no_pixel_changes_either(name: str, data: st.DataObject) -> None:
    kind, whole = SAMPLES[name]
    damaged = bytearray(whole)
    # Headers more often than their share: most of a file is image data.
    span = data.draw(st.sampled_from((400, len(whole))))
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(3, span - 1), st.integers(0, 255)), max_size=4)
    ):
        damaged[at] = value
    cut = data.draw(st.sampled_from((0, 0, 0, 1, 2, 40)))
    del damaged[span - cut : span]
    file = bytes(damaged)
    try:
        orientation = data.draw(st.sampled_from((1, 6))) if kind != "gif" else 1
        result = stripped(file, kind, orientation)
    except BadInput:
        assert not accepted(file, kind)
        return
    # libwebp reads damaged image data on into the chunk behind it.
    image = whole[whole.find(b"ALPH") : whole.find(b"EXIF")] if kind == "webp" else b""
    if accepted(file, kind) and image in file:
        before, after = decoded(file), decoded(result)
        assert (before is None) == (after is None)
        assert before is None or after is None or np.array_equal(before, after)


CORPUS = os.environ.get("RECORDMILL_CORPUS", "")


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="RECORDMILL_CORPUS names no folder of real inputs")
@pytest.mark.parametrize("folder", ["exif_orientation", "pngsuite", "odd_inputs", "cats_dogs"])
def test_of_real_files_no_pixel_changes(folder: str) -> None:
    kinds = {
        ".jpg": "jpeg",
        ".jpeg": "jpeg",
        ".png": "png",
        ".apng": "png",
        ".gif": "gif",
        ".webp": "webp",
        ".mpo": "jpeg",
    }
    checked = 0
    for path in sorted((Path(CORPUS) / folder).iterdir()):
        data, kind = path.read_bytes(), kinds.get(path.suffix.lower(), "")
        if not kind or not accepted(data, kind):
            continue
        before = decoded(data)
        if before is not None:
            np.testing.assert_array_equal(decoded(stripped(data, kind)), before, err_msg=str(path))
            checked += 1
    assert checked >= 10
