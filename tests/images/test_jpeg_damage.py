"""JPEGs that are odd and sound, odd and damaged: a harmless warning never hides damage behind it."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput
from tests.images.drawn import Array, encoded, gradient, rare_jpeg, tensorflow_pixels
from tests.lazy import tf

KEEP = ImagePolicy()
SCAN = b"\xff\xda"


def refusal(data: bytes, policy: ImagePolicy = KEEP) -> str:
    """Why an image is refused; empty where it is stored."""
    try:
        store_image(data, policy)
    except BadInput as error:
        assert error.stage == "decode"
        return error.reason
    return ""


def tensorflow_decodes(data: bytes) -> bool:
    try:
        tensorflow_pixels(data)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def stray_bytes(data: bytes) -> bytes:
    return data.replace(b"\xff\xc4", b"\x17\0\xff\0\xff\xc4", 1)


def unknown_jfif(data: bytes) -> bytes:
    start = data.index(b"JFIF\0") + 5
    return data[:start] + b"\x07" + data[start + 1 :]


def unknown_adobe(data: bytes) -> bytes:
    """A colour transform that no standard knows; libjpeg takes YCbCr, or YCCK."""
    if b"Adobe" in data:
        start = data.index(b"Adobe") + 11
        return data[:start] + b"\x09" + data[start + 1 :]
    return data.replace(b"\xff\xdb", b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\x09\xff\xdb", 1)


def odd_scan(data: bytes) -> bytes:
    """A first and a last coefficient that mean nothing in a sequential scan."""
    start = data.index(SCAN) + 5 + 2 * data[data.index(SCAN) + 4]
    return data[:start] + b"\x01\x05\x10" + data[start + 3 :]


def padded(data: bytes) -> bytes:
    return data[:-2] + bytes(20) + data[-2:]


def all_at_once(data: bytes) -> bytes:
    return padded(odd_scan(unknown_adobe(unknown_jfif(stray_bytes(data)))))


ODDITIES = [stray_bytes, unknown_jfif, unknown_adobe, odd_scan, padded, all_at_once]
odd = pytest.mark.parametrize("oddity", ODDITIES, ids=lambda oddity: oddity.__name__)


@odd
@pytest.mark.parametrize("policy", [KEEP, ImagePolicy(validate="header")], ids=lambda policy: policy.validate)
def test_an_odd_jpeg_is_kept(oddity: Callable[[bytes], bytes], policy: ImagePolicy) -> None:
    data = encoded(gradient(), "JPEG")
    assert oddity(data) != data
    image = store_image(oddity(data), policy)
    assert (image.data, image.actions) == (oddity(data), ("kept",))
    np.testing.assert_array_equal(tensorflow_pixels(image.data), tensorflow_pixels(data))


@odd
def test_the_pixels_of_an_odd_jpeg(oddity: Callable[[bytes], bytes]) -> None:
    data = oddity(encoded(gradient(), "JPEG"))
    assert store_image(data, ImagePolicy("raw")).data == tensorflow_pixels(data).tobytes()


def test_an_unknown_transform_of_four_components_is_ycck() -> None:
    data = unknown_adobe(rare_jpeg("ycck"))
    assert store_image(data, KEEP).data == data
    assert store_image(data, ImagePolicy("raw")).data == tensorflow_pixels(data).tobytes()


@odd
def test_damage_behind_an_oddity_is_seen(oddity: Callable[[bytes], bytes]) -> None:
    """0xff in a scan makes a marker of it, whose segment TensorFlow may then look for beyond the file."""
    data = encoded(gradient(16, 24), "JPEG", restart_marker_rows=1)
    whole = oddity(data)
    start = whole.index(SCAN) + 14
    padding = whole.count(bytes(20)) * 20
    refused_by_tensorflow = 0
    for position in range(start, len(whole) - 2 - padding):
        damaged = whole[:position] + b"\xff" + whole[position + 1 :]
        plain = position - len(whole) + padding
        without = data[:plain] + b"\xff" + data[len(data) + plain + 1 :]
        if not padding:  # a decoder that has lost its step may take padding for data
            assert bool(refusal(damaged)) == bool(refusal(without)), position
        if not tensorflow_decodes(damaged):
            refused_by_tensorflow += 1
            assert refusal(damaged), position
    assert refused_by_tensorflow


def test_random_damage_behind_oddities() -> None:
    rng = random.Random(0)
    outcomes = set()
    for turn in range(600):
        data = ODDITIES[turn % len(ODDITIES)](encoded(gradient(), "JPEG", restart_marker_rows=turn % 2))
        damaged = bytearray(data)
        start = data.index(SCAN) + 2 if turn % 3 else 2
        position = rng.randrange(start, len(data) - 2)
        damaged[position : position + rng.randrange(3)] = bytes((rng.choice((0xFF, 0, rng.randrange(256))),))
        outcomes.add(refusal(bytes(damaged)))
        assert refusal(bytes(damaged)) or tensorflow_decodes(bytes(damaged))
    assert {"", "corrupt"} <= outcomes


@pytest.mark.parametrize(
    ("left_over", "expected"),
    [(bytes(9), ""), (bytes(8) + b"\xff\xff", ""), (b"\xa5" * 9, "corrupt"), (b"\x01" + bytes(8), "corrupt")],
    ids=["zeros", "fill", "data", "data and zeros"],
)
def test_what_is_left_over_is_padding_only_where_it_is_zero(left_over: bytes, expected: str) -> None:
    """A decoder that has lost its step leaves data over: the usual trace of a wrong bit in a JPEG."""
    # The decoder reads up to eight bytes ahead, and does not miss them.
    data = encoded(gradient(), "JPEG")[:-2] + bytes(8) + left_over + b"\xff\xd9"
    assert refusal(data) == refusal(data, ImagePolicy("raw")) == expected
    assert tensorflow_decodes(data)


def sequential_scans(planes: Array) -> tuple[bytes, list[bytes]]:
    """A JPEG with a scan a component: its header, and each scan from its marker on."""
    files = [encoded(planes[:, :, i], "JPEG") for i in range(3)]
    before, frame, after = files[0].partition(b"\xff\xc0")
    scan = after.index(SCAN)
    tables, size = after[11:scan], after[3:7]
    head = frame + b"\0\x11\x08" + size + b"\x03" + b"".join(bytes((i, 0x11, 0)) for i in (1, 2, 3))
    scans = []
    for number, data in enumerate(files, 1):
        content = data[data.index(SCAN) + 10 : -2]
        scans.append(SCAN + b"\0\x08\x01" + bytes((number, 0, 0, 63, 0)) + content)
    return before + head + tables, scans


def test_a_scan_that_is_lost_is_no_stray_bytes() -> None:
    head, scans = sequential_scans(gradient())
    whole = head + b"".join(scans) + b"\xff\xd9"
    assert refusal(whole) == ""
    assert store_image(whole, ImagePolicy("raw")).data == tensorflow_pixels(whole).tobytes()
    assert refusal(stray_bytes(whole)) == "corrupt"  # one cannot tell it from the next
    for lost in range(3):
        damaged = head + b"".join(
            (b"\0" if i == lost else b"\xff") + scan[1:] for i, scan in enumerate(scans)
        )
        assert refusal(damaged + b"\xff\xd9") == "corrupt"


def test_a_lost_scan_of_a_progressive_jpeg_is_seen() -> None:
    data = encoded(gradient(), "JPEG", progressive=True)
    places = [i for i in range(len(data)) if data.startswith(SCAN, i)]
    assert len(places) > 5
    for place in places:
        assert refusal(data[:place] + b"\0" + data[place + 1 :]) == "corrupt"


def test_a_cut_in_a_scan_whose_subsampling_simplejpeg_does_not_know() -> None:
    """Pillow decodes it, and says nothing of a marker in the middle."""
    data = bytearray(encoded(gradient(), "JPEG", subsampling="4:4:4"))
    data[data.index(b"\xff\xc0") + 17] = 0x21
    assert refusal(bytes(data)) == ""
    start = data.index(SCAN) + 14
    refused_by_tensorflow = 0
    for position in range(start, len(data) - 3):
        damaged = bytes(data[:position]) + b"\xff\xed" + bytes(data[position + 2 :])
        assert refusal(damaged) == "corrupt"
        refused_by_tensorflow += not tensorflow_decodes(damaged)
    assert refused_by_tensorflow


def test_restarts_where_simplejpeg_does_not_know_the_subsampling() -> None:
    data = bytearray(encoded(gradient(80, 64), "JPEG", subsampling="4:4:4", restart_marker_blocks=4))
    data[data.index(b"\xff\xc0") + 17] = 0x21
    # The scan was written for another subsampling; neither Pillow nor TensorFlow minds.
    third = data.rindex(b"\xff\xd2")
    assert refusal(bytes(data[:third] + b"\xff\xd6" + data[third + 2 :])) == "corrupt"
    assert refusal(bytes(data)) == ""


def test_lossless_ycbcr_is_not_supported() -> None:
    data = bytearray(rare_jpeg("lossless"))
    start = data.index(b"Adobe") + 11
    assert refusal(bytes(data), ImagePolicy("raw")) == ""
    data[start] = 1
    assert refusal(bytes(data)) == refusal(bytes(data), ImagePolicy("raw")) == "not supported"


def test_cmyk_with_an_odd_header() -> None:
    data = stray_bytes(encoded(Image.fromarray(gradient()).convert("CMYK"), "JPEG"))
    assert store_image(data, KEEP).data == data
    assert store_image(data, ImagePolicy("raw")).data == tensorflow_pixels(data).tobytes()
