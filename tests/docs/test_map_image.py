"""The recipes of docs/guides/map-image.md, unchanged: every record against the input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from recordmill.transforms.images.mask import encode_mask
from tests.docs.pages import arguments, blocks, commands, text_of, write_modules
from tests.images.drawn import Array, tensorflow_pixels
from tests.lazy import tf
from tests.pipelines.conversion import by_key, command, failures, manifest

pytestmark = pytest.mark.slow

PAGE = "docs/guides/map-image.md"
# COCO's: x, y, width, height, and the number of the category.
BOXES = [((3, 5, 400, 300), 1), ((500.5, 440.25, 90, 60.5), 2), ((0, 0, 900, 700), 1)]
WIDTH, HEIGHT, SIDE, STEP = 900, 700, 512, 448


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the modules of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_modules(text_of(PAGE), tmp_path)
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)
    return tmp_path


def run(module: str, *more: str) -> dict[str, dict[str, list[object]]]:
    """The records of the command that names a module."""
    every = [
        words for one in blocks(text_of(PAGE)) if one.language == "shell" for words in commands(one.text)
    ]
    (words,) = (words for words in every if any(word.startswith(f"{module}:") for word in words))
    given = arguments(words)
    assert given is not None
    assert command(*given, *more, "--quiet", "--progress=none", "--direct_num_workers=1") == 0
    return by_key(Path(given[given.index("--output") + 1]))


def noise(height: int, width: int) -> Array:
    return np.random.default_rng(0).integers(0, 255, (height, width, 3)).astype(np.uint8)


def draw_scenes(folder: Path, name: str = "a.png") -> Array:
    """A COCO dataset of one image with `BOXES`, and one without."""
    (folder / "scenes").mkdir()
    pixels = noise(HEIGHT, WIDTH)
    Image.fromarray(pixels).save(folder / "scenes" / name, compress_level=1)
    Image.fromarray(pixels[:20, :30]).save(folder / "scenes" / "empty.png")
    images = [
        {"id": 1, "file_name": name, "width": WIDTH, "height": HEIGHT},
        {"id": 2, "file_name": "empty.png", "width": 30, "height": 20},
    ]
    annotations = [
        {"id": number, "image_id": 1, "category_id": category, "bbox": box}
        for number, (box, category) in enumerate(BOXES, 1)
    ]
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    coco = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "scenes/instances.json").write_text(json.dumps(coco))
    return pixels


@pytest.mark.slow
def test_crops(folder: Path) -> None:
    pixels = draw_scenes(folder)
    found = run("crops")
    assert set(found) == {"a.png#0", "a.png#1", "a.png#2"}
    windows = [np.s_[5:305, 3:403], np.s_[440:501, 500:591], np.s_[:, :]]
    for number, (window, (_, category)) in enumerate(zip(windows, BOXES, strict=True)):
        one = found[f"a.png#{number}"]
        np.testing.assert_array_equal(tensorflow_pixels(one["image/encoded"][0]), pixels[window])
        assert one["image/class/text"] == [[b"cat", b"dog"][category - 1]]
    made = manifest(folder / "cropped")
    assert made["counts"] == {"read": 2, "written": 3, "failed": 0, "skipped": 1, "added": 2}
    (skipped,) = failures(folder / "cropped")
    assert (skipped["key"], skipped["reason"]) == ("empty.png", "left out by map_image")
    # One label each: the source has none, and TFDS needs the shape of those that are stored.
    assert made["features"]["image/class/label"]["shape"] == []


def test_tiles(folder: Path) -> None:
    """Every pixel and every box of an image whose sides the tiles do not divide."""
    pixels = draw_scenes(folder)
    found = run("tiles")
    corners = [(top, left) for top in (0, STEP) for left in (0, STEP)]
    assert set(found) == {f"a.png#{top}_{left}" for top, left in corners} | {"empty.png#0_0"}
    for top, left in corners:
        one = found[f"a.png#{top}_{left}"]
        height, width = min(SIDE, HEIGHT - top), min(SIDE, WIDTH - left)
        np.testing.assert_array_equal(
            tensorflow_pixels(one["image/encoded"][0]), pixels[top : top + height, left : left + width]
        )
        expected = []
        for (x, y, across, down), category in BOXES:
            xmin, xmax = max(x - left, 0), min(x + across - left, width)
            ymin, ymax = max(y - top, 0), min(y + down - top, height)
            if xmin < xmax and ymin < ymax:
                expected.append((category, xmin / width, xmax / width, ymin / height, ymax / height))
        sides = [one[f"image/object/bbox/{side}"] for side in ("xmin", "xmax", "ymin", "ymax")]
        boxes = list(zip(one["image/object/class/label"], *sides, strict=True))
        np.testing.assert_allclose(boxes, expected, rtol=1e-6)
    assert manifest(folder / "tiled")["counts"]["added"] == 3


@pytest.mark.slow
def test_tiles_of_masks(folder: Path) -> None:
    """The same recipe on images with masks of classes."""
    for name in ("images", "masks"):
        (folder / "scenes" / name).mkdir(parents=True)
    pixels = noise(HEIGHT, WIDTH)
    classes = np.random.default_rng(1).choice([0, 1, 2, 255], (HEIGHT, WIDTH)).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "scenes/images/a.png", compress_level=1)
    (folder / "scenes/masks/a.png").write_bytes(encode_mask(classes))
    found = run("tiles", "--source=masks")
    assert len(found) == 4
    for top, left in ((0, 0), (0, STEP), (STEP, 0), (STEP, STEP)):
        (one,) = (one for key, one in found.items() if key.endswith(f"#{top}_{left}"))
        window = np.s_[top : top + SIDE, left : left + SIDE]
        mask = tensorflow_pixels(one["image/segmentation/class/encoded"][0])[:, :, 0]
        np.testing.assert_array_equal(mask, classes[window])
        np.testing.assert_array_equal(tensorflow_pixels(one["image/encoded"][0]), pixels[window])


@pytest.mark.slow
def test_contrast(folder: Path) -> None:
    from skimage import exposure

    (folder / "photos").mkdir()
    image = Image.new("RGB", (64, 48), (90, 100, 110))
    ImageDraw.Draw(image).rectangle((8, 8, 40, 30), fill=(120, 110, 100))
    image.save(folder / "photos/rgb.png")
    image.convert("L").save(folder / "photos/grey.png")
    image.convert("LA").save(folder / "photos/alpha.png")
    found = run("contrast", "--image_format=png")
    for name, source in (("rgb", np.asarray(image)), ("grey", np.asarray(image.convert("L"))[:, :, None])):
        stored = tf.io.decode_image(found[f"{name}.png"]["image/encoded"][0]).numpy()
        expected = np.rint(exposure.equalize_adapthist(source.squeeze()) * 255).reshape(source.shape)
        np.testing.assert_array_equal(stored, expected)
        assert np.ptp(stored) > np.ptp(source) + 20
    alpha = tensorflow_pixels(found["alpha.png"]["image/encoded"][0])
    grey = tensorflow_pixels(found["grey.png"]["image/encoded"][0])
    np.testing.assert_array_equal(alpha, np.concatenate([grey, np.full_like(grey, 255)], axis=2))


@pytest.mark.slow
def test_the_first_example(folder: Path) -> None:
    (folder / "photos").mkdir()
    pixels = noise(8, 9)
    Image.fromarray(pixels).save(folder / "photos/a.png")
    found = run("invert")
    np.testing.assert_array_equal(tensorflow_pixels(found["a.png"]["image/encoded"][0]), 255 - pixels)
