"""Pictures of records, pixel by pixel."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFont

from recordmill.transforms.images.tensor import tensor_bytes
from recordmill.transforms.reading import drawing
from recordmill.transforms.reading.drawing import (
    FAULT_PAPER,
    color_of,
    draw,
    drawable,
    drawn,
    font_of,
    picture_of,
    shortened,
    text_size,
)
from recordmill.transforms.reading.stored_record import StoredImageBytes, StoredObject, StoredRecord
from recordmill.transforms.records import BadInput, Box
from tests.lazy import skimage_color

RNG = np.random.default_rng(3)
GRAY = 120


def encoded(pixels: Any, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(np.asarray(pixels))
    image.save(out, kind, **options)
    return out.getvalue()


def flat(height: int, width: int) -> StoredImageBytes:
    return StoredImageBytes(encoded(np.full((height, width, 3), GRAY, np.uint8)))


def record(height: int, width: int, *objects: StoredObject, **others: Any) -> StoredRecord:
    return StoredRecord("k", (), flat(height, width), (height, width), objects, **others)


def tinted(color: tuple[int, int, int], share: float = 0.4) -> list[int]:
    return [round(GRAY * (1 - share) + value * share) for value in color]


def test_a_small_image_is_enlarged_by_a_whole_factor() -> None:
    pixels = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    picture = draw(StoredRecord("k", (), StoredImageBytes(encoded(pixels))), 30)
    np.testing.assert_array_equal(picture, pixels.repeat(4, axis=0).repeat(4, axis=1))


@pytest.mark.parametrize(
    ("height", "width", "side", "expected"),
    [(600, 900, 100, (67, 100)), (1, 1, 50, (50, 50)), (1, 3000, 100, (1, 100)), (100, 80, 100, (100, 80))],
)
def test_size(height: int, width: int, side: int, expected: tuple[int, int]) -> None:
    image = StoredImageBytes(encoded(np.full((height, width), GRAY, np.uint8), "JPEG"))
    picture = picture_of(image, side)
    assert picture.shape == (*expected, 3)
    assert np.abs(picture.astype(int) - GRAY).max() <= 2


COLORS = np.array([[255, 0, 0], [0, 128, 255]], np.uint8)[None].repeat(2, axis=0)
PALETTE = Image.fromarray(np.array([[0, 1], [0, 1]], np.uint8))
PALETTE.putpalette([255, 0, 0, 0, 128, 255])
TURNED = Image.Exif()
TURNED[0x0112] = 6
CLEAR = np.dstack([COLORS, np.array([[255, 255], [255, 0]], np.uint8)])


@pytest.mark.parametrize(
    "image",
    [
        StoredImageBytes(COLORS.tobytes(), (2, 2, 3)),
        StoredImageBytes(encoded(PALETTE)),
        StoredImageBytes(encoded(PALETTE, "GIF")),
        StoredImageBytes(encoded(PALETTE, "GIF", save_all=True, append_images=[Image.new("P", (2, 2))])),
        StoredImageBytes(encoded(COLORS, "BMP")),
        StoredImageBytes(encoded(COLORS, "TIFF")),
        StoredImageBytes(encoded(COLORS, "WEBP", lossless=True)),
        StoredImageBytes(encoded(COLORS, "PNG", exif=TURNED)),
    ],
    ids=["raw", "palette", "gif", "animated", "bmp", "tiff", "webp", "not turned"],
)
def test_colours_of_any_format(image: StoredImageBytes) -> None:
    np.testing.assert_array_equal(picture_of(image, 2), COLORS)


def test_sixteen_bits_gray_and_inks() -> None:
    deep = StoredImageBytes(encoded(np.array([[0, 65535], [257 * 9, 257 * 200]], np.uint16)))
    assert picture_of(deep, 2)[:, :, 1].tolist() == [[0, 255], [9, 200]]
    inks = StoredImageBytes(encoded(Image.new("CMYK", (8, 8), (255, 0, 0, 0)), "JPEG"))
    cyan = picture_of(inks, 8)
    assert cyan[..., 0].max() < 20 and cyan[..., 1:].min() > 235


def test_transparent_pixels_show_a_checkerboard() -> None:
    pixels = np.zeros((32, 32, 4), np.uint8)
    pixels[:16, :, :] = (10, 20, 30, 255)
    picture = picture_of(StoredImageBytes(encoded(pixels)), 32)
    assert (picture[:16] == (10, 20, 30)).all()
    assert picture[16, :, 0].tolist() == ([255] * 8 + [204] * 8) * 2
    assert picture[24, :, 0].tolist() == ([204] * 8 + [255] * 8) * 2


def test_an_outline_lies_on_its_box() -> None:
    dog = StoredObject("", 2, Box(20, 40, 60, 80))
    picture = draw(record(100, 100, dog), 100)
    color = color_of(2)
    for edge in (picture[40, 20:60], picture[79, 20:60], picture[40:80, 20], picture[40:80, 59]):
        assert (edge == color).all()
    assert (picture[41, 21:59] == 0).all()  # the dark line within
    assert (picture[45:75, 25:55] == GRAY).all()
    outside = picture.copy()
    outside[25:80, 20:60] = GRAY  # what is left of it is below and beside the name
    assert (outside == GRAY).all()


def test_boxes_follow_the_size_of_the_picture() -> None:
    picture = draw(record(400, 800, StoredObject("", 1, Box(400, 0, 800, 200))), 80)
    assert picture.shape == (40, 80, 3)
    assert (picture[0:20, 40] == color_of(1)).all() and (picture[19, 40:] == color_of(1)).all()
    assert (picture[:, :39] == GRAY).all() and (picture[21:] == GRAY).all()


@pytest.mark.parametrize(
    "box",
    [Box(0, 0, 1, 1), Box(-50, -50, 500, 500), Box(3, 3, 3, 3), Box(9, 9, 2, 2), Box(700, 700, 900, 900)],
)
@pytest.mark.parametrize("size", [(1, 1), (1, 90), (10, 10)])
def test_boxes_that_fit_badly(box: Box, size: tuple[int, int]) -> None:
    picture = draw(record(*size, StoredObject("a dog", 1, box)), 10)
    assert (picture == color_of(1)).all(axis=2).any()


def test_a_mask_tints_what_it_covers_and_nothing_else() -> None:
    mask = np.zeros((50, 50), np.uint8)
    mask[10:30, 5:25] = 1
    picture = draw(record(50, 50, StoredObject("", 3, mask=StoredImageBytes(encoded(mask)))), 50)
    inner, color = picture[11:29, 6:24], color_of(3)
    assert (inner == tinted(color)).all()
    assert (picture[10, 5:25] == color).all() and (picture[10:30, 24] == color).all()
    assert (picture[mask == 0] == GRAY).all()


@pytest.mark.parametrize(
    ("height", "width"), [(960, 1280), (961, 1283), (375, 500), (288, 288), (1200, 9), (3, 2000)]
)
def test_a_jpeg_is_scaled_down_while_it_is_decoded(height: int, width: int) -> None:
    smooth = Image.fromarray(RNG.integers(0, 256, (4, 4, 3), dtype=np.uint8)).resize((width, height))
    file = encoded(smooth, "JPEG", quality=95, subsampling=0)
    expected = picture_of(StoredImageBytes(encoded(Image.open(io.BytesIO(file)))), 288)
    picture = picture_of(StoredImageBytes(file), 288)
    assert picture.shape == expected.shape
    # A strip becomes two pixels wide, of a few columns that were scaled before.
    assert np.abs(picture.astype(int) - expected).mean() < (3 if min(height, width) > 9 else 8)


def test_a_picture_needs_fewer_pixels_than_a_stored_image() -> None:
    image = StoredImageBytes(encoded(np.zeros((960, 1280, 3), np.uint8), "JPEG"))
    of_picture, stored = drawing._opened(image).decode_scaled, image.opened().decode_scaled
    assert of_picture is not None
    assert stored is not None
    assert of_picture(216, 288).pixels.shape == (360, 480, 3)
    assert stored(216, 288).pixels.shape == (720, 960, 3)


def test_inks_are_scaled_down_while_they_are_decoded() -> None:
    colors = Image.fromarray(RNG.integers(0, 256, (4, 4, 3), dtype=np.uint8)).resize((1280, 960))
    file = encoded(colors.convert("CMYK"), "JPEG", quality=95)
    image = StoredImageBytes(file)
    scaled = drawing._opened(image).decode_scaled
    assert scaled is not None and scaled(216, 288).pixels.shape == (360, 480, 3)
    expected = picture_of(StoredImageBytes(encoded(Image.open(io.BytesIO(file)).convert("RGB"))), 288)
    assert np.abs(picture_of(image, 288).astype(int) - expected).mean() < 3


def test_a_mask_is_scaled_with_its_image() -> None:
    mask = np.zeros((400, 400), np.uint8)
    mask[:, 200:] = 1
    picture = draw(record(400, 400, StoredObject("", 3, mask=StoredImageBytes(encoded(mask)))), 40)
    assert (picture[:, :20] == GRAY).all() and (picture[:, 21:] == tinted(color_of(3))).all()


@pytest.mark.parametrize(
    ("names", "background"),
    [({}, True), ({0: "Background", 1: "a"}, True), ({0: "road", 1: "a"}, False)],
)
def test_a_class_mask(names: dict[int, str], background: bool) -> None:
    ids = np.repeat(np.array([0, 1, 2, 255], np.uint8), 10)[None].repeat(12, axis=0)
    picture = draw(record(12, 40, class_mask=StoredImageBytes(encoded(ids)), names=names), 40)
    first = [GRAY] * 3 if background else tinted(color_of(0))
    assert (picture[:, 1:9] == first).all()
    assert (picture[:, 11:19] == tinted(color_of(1))).all()
    assert (picture[:, 19] == color_of(1)).all() and (picture[:, 20] == color_of(2)).all()
    assert (picture[:, 21:29] == tinted(color_of(2))).all()
    assert (picture[:, 30:] == GRAY).all()


def test_objects_of_one_class_are_parted() -> None:
    ids, numbers = (
        np.ones((9, 20), np.uint8),
        np.repeat(np.array([1, 2], np.uint8), 10)[None].repeat(9, axis=0),
    )
    masks = {
        "class_mask": StoredImageBytes(encoded(ids)),
        "instance_mask": StoredImageBytes(encoded(numbers)),
    }
    picture = draw(record(9, 20, **masks), 20)
    assert (picture[:, 9:11] == color_of(1)).all()
    assert (picture[:, :9] == tinted(color_of(1))).all() and (picture[:, 11:] == tinted(color_of(1))).all()


def test_keypoints() -> None:
    points = ((15.0, 45.0, 2), (90.0, 90.0, 0))
    picture = draw(record(100, 100, StoredObject("hand", 5, keypoints=points)), 100)
    assert picture[45, 15].tolist() == list(color_of(5))
    assert (picture[80:] == GRAY).all()


def test_names_stand_on_the_colour_of_their_class_and_not_on_each_other() -> None:
    small, large = (
        StoredObject("small", 1, Box(30, 60, 80, 90)),
        StoredObject("large", 3, Box(30, 60, 190, 190)),
    )
    picture = draw(record(200, 200, small, large), 200)
    alone = {one.name: draw(record(200, 200, one), 200) for one in (small, large)}
    # Above its box, if nothing is there yet; the larger object is first.
    across, down = (
        side + margin for side, margin in zip(text_size("small", font_of(10)), (4, 2), strict=True)
    )
    for one in (small, large):
        plate = alone[one.name][60 - down : 60, 30 : 30 + across - 6].reshape(-1, 3)
        assert 0.4 < (plate == color_of(one.label)).all(axis=1).mean() < 0.95
    np.testing.assert_array_equal(picture[:60], alone["large"][:60])
    below = picture[60 : 60 + down, 30 : 30 + across]
    np.testing.assert_array_equal(below, alone["small"][60 - down : 60, 30 : 30 + across])


def test_names_in_letters_that_the_font_lacks_become_ids() -> None:
    cat, number = (record(90, 90, StoredObject(name, 7, Box(9, 40, 80, 80))) for name in ("猫", "#7"))
    np.testing.assert_array_equal(draw(cat, 90), draw(number, 90))


def test_a_colour_for_each_class() -> None:
    assert len({color_of(number) for number in range(100)}) == 100
    assert color_of("dog") == color_of("dog") != color_of("cat")
    for label in (-1, 2**63 - 1, "", "\udcff"):
        assert all(0 <= value <= 255 for value in color_of(label))


def test_the_first_class_ids_have_colours_that_are_clearly_apart() -> None:
    """CIELAB distances; class ids 0 and 1, two reds, were 12 apart. A mask shows 40 % of a colour."""
    colors = skimage_color.rgb2lab(np.array([[color_of(number) for number in range(24)]], np.uint8))[0]
    apart = [np.linalg.norm(one - other) for one, other in itertools.combinations(colors, 2)]
    assert min(apart) > 33


def test_a_sequence_shows_its_first_and_its_last_frame() -> None:
    frames = tuple(StoredImageBytes(encoded(np.full((20, 20), level * 20, np.uint8))) for level in range(10))
    picture = draw(StoredRecord("k", frames=frames), 42)
    assert picture.shape == (42, 42, 3)
    assert [int(picture[row, column, 0]) for row in (5, 30) for column in (5, 30)] == [0, 60, 120, 180]


@pytest.mark.parametrize(
    "stored",
    [
        StoredRecord("k", (), StoredImageBytes(b"no image")),
        StoredRecord("k", (), StoredImageBytes(b"")),
        StoredRecord("k", (), StoredImageBytes(encoded(COLORS)[:50])),
        StoredRecord("k", (), StoredImageBytes(b"123", (2, 2, 1))),
        StoredRecord("k", frames=(StoredImageBytes(b"no image"),) * 3),
        record(9, 9, StoredObject("dog", 1, mask=StoredImageBytes(b"no mask"))),
        record(9, 9, class_mask=StoredImageBytes(encoded(COLORS))),
    ],
)
@pytest.mark.parametrize("side", [1, 5, 120])
def test_what_cannot_be_decoded_says_so(stored: StoredRecord, side: int) -> None:
    picture = draw(stored, side)
    assert picture.shape == (side, side, 3)
    assert (picture == FAULT_PAPER).all(axis=2).any()
    if side == 120:
        assert (picture.sum(axis=2) < 400).sum() > 50  # text
    with pytest.raises(BadInput):
        drawn(stored, side)


def test_a_record_without_an_image_is_told_in_words() -> None:
    told = StoredRecord(
        "k", ("spam",), features={"words": ("buy", "now"), "blob": b"\0" * 99, "long": "x" * 10**6}
    )
    picture = draw(told, 150)
    assert picture.shape == (150, 150, 3) and (picture.sum(axis=2) < 400).sum() > 100


def test_a_tensor_is_drawn() -> None:
    data = tensor_bytes(COLORS)
    image = StoredImageBytes(data[-COLORS.size :], COLORS.shape)
    np.testing.assert_array_equal(picture_of(image, 2), COLORS)


@pytest.mark.parametrize("text", ["Äpfel & naïve", "собака", "plain", "a\nb\tc"])
def test_text_that_the_font_has(text: str) -> None:
    assert drawable(text, "#1") == text.replace("\n", " ").replace("\t", " ")


@pytest.mark.parametrize(("text", "expected"), [("猫", "#1"), ("", "#1"), ("a猫", "a?"), ("\udcff", "\\xff")])
def test_text_that_the_font_lacks(text: str, expected: str) -> None:
    assert drawable(text, "#1") == expected


def test_text_is_shortened_to_a_width() -> None:
    font = font_of(12)
    text = "images/train/a-long-name-0001.jpg"
    for keep_end in (False, True):
        short = shortened(text, font, 90, keep_end)
        assert text_size(short, font)[0] <= 91 and len(short) > 8
        kept = short.removeprefix("...") if keep_end else short.removesuffix("...")
        assert (text.endswith if keep_end else text.startswith)(kept) and kept != short
    assert shortened(text, font, 1000) == text


@pytest.fixture
def without_freetype(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def truetype(*_: object) -> Any:
        raise ImportError("The _imagingft C module is not installed")

    caches = (drawing.font_of, drawing._has_glyph)
    monkeypatch.setattr(ImageFont, "truetype", truetype)
    monkeypatch.setattr(ImageFont, "load_default", ImageFont.load_default_imagefont)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("without_freetype")
def test_the_font_of_a_pillow_without_freetype() -> None:
    boxed = record(100, 100, StoredObject("猫 café, and a very long name", 2, Box(10, 50, 90, 90)))
    picture = draw(boxed, 100)
    assert (picture[38:50, 10:60] == color_of(2)).all(axis=2).sum() > 200


@pytest.mark.corpus
@pytest.mark.parametrize("folder", ["odd_inputs", "pngsuite"])
def test_real_images_are_drawn_or_told_of(corpus: Path, folder: str) -> None:
    files = sorted(path for path in (corpus / folder).rglob("*") if path.is_file())
    assert len(files) > 50
    for path in files:
        picture = draw(StoredRecord(path.name, (), StoredImageBytes(path.read_bytes())), 64)
        assert picture.dtype == np.uint8 and picture.shape[2:] == (3,), path
        assert 1 <= min(picture.shape[:2]) <= max(picture.shape[:2]) <= 64, path
