"""Damage of every sort ends in a stored image that decodes, or in a BadInput; nothing else comes out."""

from __future__ import annotations

import io
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput
from tests.images.drawn import deep_png, encoded, gradient, tensorflow_pixels, with_orientation

POLICIES = tuple(ImagePolicy(image_format=name) for name in ("keep", "jpeg", "png", "raw", "tensor"))
REASONS = {"empty file", "not an image", "truncated", "corrupt", "too many pixels", "not supported"}


def samples() -> dict[str, bytes]:
    picture = Image.fromarray(gradient(40, 56))
    indices = picture.convert("P")
    exif = with_orientation(6)
    return {
        "jpeg": encoded(picture, "JPEG"),
        "progressive": encoded(picture, "JPEG", progressive=True, exif=exif),
        "restarts": encoded(picture, "JPEG", restart_marker_rows=1),
        "cmyk": encoded(picture.convert("CMYK"), "JPEG"),
        "png": encoded(picture, "PNG", exif=exif),
        "palette": encoded(indices, "PNG", transparency=3),
        "deep": deep_png(gradient(12, 12, 4, "uint16")),
        "gif": encoded(indices, "GIF"),
        "moving gif": encoded(picture, "GIF", save_all=True, append_images=[indices]),
        "bmp": encoded(picture, "BMP"),
        "palette bmp": encoded(indices, "BMP"),
        "webp": encoded(picture, "WEBP"),
        "lossless webp": encoded(picture.convert("RGBA"), "WEBP", lossless=True),
        "tiff": encoded(picture, "TIFF", compression="tiff_lzw"),
        "jpeg tiff": encoded(picture, "TIFF", compression="jpeg"),
        "avif": encoded(picture, "AVIF"),
        "jpeg2000": encoded(picture, "JPEG2000"),
        "ppm": encoded(picture, "PPM"),
        "tga": encoded(picture, "TGA", compression="tga_rle"),
        "pcx": encoded(picture, "PCX"),
        "sgi": encoded(picture, "SGI"),
        "qoi": encoded(picture, "QOI"),
    }


SAMPLES = samples()


def damaged(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    way = rng.randrange(4)
    if way == 0:
        return bytes(out[: rng.randrange(1, len(out))])
    if way == 1:
        for _ in range(rng.choice((1, 3, 10))):
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    elif way == 2:
        out[rng.randrange(min(len(out), 120))] = rng.choice((0, 255, rng.randrange(256)))
    else:
        start = rng.randrange(len(out))
        del out[start : start + rng.choice((1, 2, 50))]
    return bytes(out)


@pytest.mark.parametrize("name", SAMPLES)
def test_damage(name: str) -> None:
    rng = random.Random(name)
    failed = 0
    for turn in range(100):
        data = damaged(SAMPLES[name], rng)
        policy = POLICIES[0] if turn % 2 else rng.choice(POLICIES)
        try:
            image = store_image(data, policy)
        except BadInput as error:
            assert error.stage == "decode"
            assert error.reason in REASONS and " object at 0x" not in error.detail
            failed += 1
            continue
        if image.image_format not in ("raw", "tensor"):
            pixels = tensorflow_pixels(image.data, image.dtype)
            assert pixels.shape == (image.height, image.width, image.channels)
    assert failed > 0 or name in ("bmp", "ppm")


@given(
    st.sampled_from(sorted(SAMPLES)), st.integers(0, 24), st.binary(max_size=300), st.sampled_from(POLICIES)
)
@settings(max_examples=300, deadline=None)
def test_any_bytes_behind_a_signature(name: str, length: int, rest: bytes, policy: ImagePolicy) -> None:
    try:
        store_image(SAMPLES[name][:length] + rest, policy)
    except BadInput as error:
        assert error.reason in REASONS and " object at 0x" not in error.detail


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"a text, and no image at all\n" * 3, "not an image"),
        (bytes(1000), "not an image"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100), "not supported"),
        (b"\xff\x0a" + bytes(50), "not supported"),
        (b"8BPS\0\1" + bytes(50), "not supported"),
        (b"%PDF-1.7\n", "not supported"),
        (b"GIF89a" + b"\xff\xff\xff\xff" + bytes(20), "too many pixels"),
        (b"P6 9999999 9999999 255\n", "too many pixels"),
        (encoded(gradient()[:, :, 0].astype(np.float32), "TIFF"), "not supported"),
        (encoded(gradient()[:, :, 0].astype(np.int32), "TIFF"), "not supported"),
        (b"P6 2 1 65535\n" + bytes(12), "not supported"),
        (encoded(gradient(), "WEBP")[:-9], "truncated"),
    ],
)
@pytest.mark.parametrize("policy", [ImagePolicy(), ImagePolicy(validate="header")], ids=lambda p: p.validate)
def test_reasons(data: bytes, reason: str, policy: ImagePolicy) -> None:
    if data.startswith(b"RIFF") and policy.validate == "header":
        data = data[:40]
    with pytest.raises(BadInput) as caught:
        store_image(data, policy)
    assert caught.value.reason == reason
    assert reason == "empty file" or caught.value.detail


def test_sixteen_bit_colour_that_its_decoder_cuts_may_still_become_jpeg() -> None:
    data = (
        b"P6 64 64 65535\n" + np.random.default_rng(0).integers(0, 256, 64 * 64 * 6, dtype=np.uint8).tobytes()
    )
    assert store_image(data, ImagePolicy("jpeg")).image_format == "jpeg"


@pytest.mark.slow
def test_nothing_reaches_standard_error_of_a_process_of_ours() -> None:
    tiff = encoded(gradient(), "TIFF", compression="tiff_lzw")
    warned = [
        tiff[:-40],
        tiff.replace(b"\x15\x01\x03\x00", b"\x15\x01\x03\x01"),
        tiff[:400] + b"\xff" * 20 + tiff[420:],  # libtiff says: using code not yet in table
        tiff[:400] + b"\x80" + tiff[401:],
        b"II*\0\x08\0\0\0\x01\0\x15\x01\x03\0\x01\0\0\0\xff\xff\0\0" + bytes(20),
        encoded(Image.new("1", (9500, 9500)), "TIFF", compression="group4"),  # large enough for a warning
        encoded(gradient(), "JPEG")[:-300],
    ]
    program = (
        "import sys, pickle\n"
        "from recordmill.transforms.images.store import store_image\n"
        "from recordmill.transforms.images.policy import ImagePolicy\n"
        "from recordmill.transforms.records import BadInput\n"
        "from recordmill.transforms.workers import own_process\n"
        "own_process.set_up()\n"
        "for data in pickle.load(sys.stdin.buffer):\n"
        "    try: store_image(data, ImagePolicy('raw'))\n"
        "    except BadInput as error: print(error.reason)\n"
    )
    import pickle

    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", program],
        input=pickle.dumps(warned),
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    assert done.stdout


def test_gif_and_bmp_that_tensorflow_would_show_wrongly_are_transcoded() -> None:
    small = io.BytesIO(encoded(Image.fromarray(gradient()).convert("P"), "GIF")).getvalue()
    wide = small[:6] + (40).to_bytes(2, "little") + small[8:]
    image = store_image(wide, ImagePolicy())
    assert (image.image_format, image.width) == ("png", 40)
    bmp = encoded(np.dstack([gradient(), np.zeros((24, 32), np.uint8)]), "BMP")
    image = store_image(bmp, ImagePolicy())
    assert (image.image_format, image.actions) == ("png", ("transcoded",))
    bmp = encoded(gradient(), "BMP") + b"\0"
    assert store_image(bmp, ImagePolicy()).image_format == "png"
