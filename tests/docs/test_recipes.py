"""docs/recipes.md: each recipe runs unchanged, on drawn inputs; its records are compared with the inputs."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import re
import shlex
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from benchmarks.drawings import draw
from recordmill.pipelines import cli
from tests.lazy import tf

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/recipes.md").read_text("utf-8")
SIDE = 28


def section(title: str) -> str:
    """The text of a recipe."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and text of the fenced blocks, in order."""
    return re.findall(r"^```(shell|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths of recipes are relative."""
    monkeypatch.chdir(tmp_path)


def run(title: str) -> dict[str, Any]:
    """Runs a recipe's blocks in order; returns what its Python defines, and as `out` what is printed."""
    made: dict[str, Any] = {"__name__": "recipe"}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for language, text in blocks(section(title)):
            if language == "python":
                exec(compile(text, title, "exec"), made)
                continue
            for line in text.replace("\\\n", " ").splitlines():
                words = shlex.split(line)
                assert words[0] == "recordmill"
                quiet = ["--quiet"] if words[1] == "convert" else []
                assert cli.main([*words[1:], *quiet]) == 0, line
    return {**made, "out": out.getvalue()}


def idx(shape: tuple[int, ...], content: bytes) -> bytes:
    head = struct.pack(">HBB", 0, 8, len(shape)) + b"".join(struct.pack(">I", size) for size in shape)
    return gzip.compress(head + content, mtime=0)


(_CLASSES,) = re.findall(r"one name per line: ([^.]*)\.", PAGE)
CLASSES = " ".join(_CLASSES.split()).split(", ")


def draw_clothes(folder: Path) -> dict[str, tuple[Any, Any]]:
    """Fashion MNIST's files, each class of its own brightness. Returns pixels and labels by split."""
    (folder / "fashion").mkdir()
    drawn = {}
    for split, name, number in (("train", "train", 120), ("test", "t10k", 20)):
        labels = np.arange(number, dtype=np.uint8) % 10
        pixels = np.zeros((number, SIDE, SIDE), np.uint8)
        pixels[:, 4:24, 4:24] = labels[:, None, None] * 25
        pixels[np.arange(number), 0, np.arange(number) % SIDE] = 1 + np.arange(number) // SIDE
        images, ids = (folder / f"fashion/{name}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
        images.write_bytes(idx(pixels.shape, pixels.tobytes()))
        ids.write_bytes(idx(labels.shape, labels.tobytes()))
        drawn[split] = (pixels, labels)
    (folder / "fashion_classes.txt").write_text("\n".join(CLASSES), "utf-8")
    return drawn


@pytest.mark.slow
def test_fashion_mnist(tmp_path: Path) -> None:
    drawn = draw_clothes(tmp_path)
    made = run("Fashion MNIST")
    assert made["train"].class_names == tuple(CLASSES)
    for name, dataset in (("train", made["train"]), ("test", made["test"])):
        found = [
            (x.tobytes(), y)
            for images, labels in dataset
            for x, y in zip(images.numpy(), labels.numpy(), strict=True)
        ]
        pixels, labels = drawn[name]
        assert sorted(found) == sorted((x.tobytes(), y) for x, y in zip(pixels, labels, strict=True))
    losses = made["history"].history["loss"]
    assert len(losses) == 5 and losses[-1] < losses[0]
    assert re.fullmatch(r"\d+% on the test set\n", made["out"])
    pixels, labels = drawn["train"]
    batches = list(made["pixels"].as_numpy_iterator())
    assert [len(batch[0]) for batch in batches] == [32, 32, 32, 24]
    found = [
        (np.rint(x * 255).astype(np.uint8).tobytes(), y)
        for images, ids in batches
        for x, y in zip(images, ids, strict=True)
    ]
    assert sorted(found) == sorted((x.tobytes(), y) for x, y in zip(pixels, labels, strict=True))


@pytest.mark.slow
def test_imagenet(tmp_path: Path) -> None:
    words = {"n01440764": "tench, Tinca tinca", "n01443537": "goldfish, Carassius auratus"}
    folder = tmp_path / "imagenet"
    for synset in words:
        for split, name in (("train", f"{synset}_{{}}"), ("val", "ILSVRC2012_val_0000{}_" + synset)):
            (folder / split / synset).mkdir(parents=True)
            for number in range(3):
                image = draw("circle", number, 300, 200 + 50 * number)
                image.save(folder / split / synset / f"{name.format(number)}.JPEG", "JPEG")
    (folder / "synset_words.txt").write_text("".join(f"{key} {name}\n" for key, name in words.items()))
    made = run("ImageNet")
    assert len(list((tmp_path / "imagenet-records").glob("train-*-of-00004.tfrecord"))) == 4
    batches, same = (list(made[name].as_numpy_iterator()) for name in ("images", "same"))
    assert [[len(images) for images, _ in found] for found in (batches, same)] == [[2, 2, 2]] * 2
    assert {images.shape[1:] for images, _ in (*batches, *same)} == {(224, 224, 3)}
    expected = sorted(
        (
            tf.image.resize_with_crop_or_pad(tf.io.decode_jpeg(path.read_bytes()), 224, 224)
            .numpy()
            .tobytes(),
            label,
        )
        for label, synset in enumerate(sorted(words), 1)
        for path in (folder / "train" / synset).iterdir()
    )
    for found in (batches, same):
        assert (
            sorted((x.tobytes(), y) for images, ids in found for x, y in zip(images, ids, strict=True))
            == expected
        )


@pytest.mark.slow
def test_bounding_boxes(tmp_path: Path) -> None:
    text = section("Bounding boxes")
    lines = re.findall(r"^    ((?:filename|photos/\d).*,.*)$", text, re.MULTILINE)
    (tmp_path / "boxes.csv").write_text("\n".join(lines), "utf-8")
    rows = list(csv.DictReader(lines))
    (tmp_path / "photos").mkdir()
    for name in {row["filename"] for row in rows}:
        draw("circle", int(Path(name).stem), 32, 24).save(tmp_path / name, quality=95)
    made = run("Bounding boxes")
    pictures = {
        name: tf.io.decode_jpeg((tmp_path / name).read_bytes()) for name in ("photos/1.jpg", "photos/2.jpg")
    }
    found = {}
    for one in made["objects"]:
        (name,) = [name for name, image in pictures.items() if np.array_equal(image, one["image"])]
        found[name] = [
            (*box, label.decode())
            for box, label in zip(one["boxes"].numpy(), one["names"].numpy(), strict=True)
        ]
    for name in pictures:
        told = [row for row in rows if row["filename"] == name]
        assert [one[4] for one in found[name]] == [row["class"] for row in told]
        sides = [
            [int(row[side]) / size for side, size in (("ymin", 24), ("xmin", 32), ("ymax", 24), ("xmax", 32))]
            for row in told
        ]
        np.testing.assert_allclose([one[:4] for one in found[name]], sides, rtol=1e-6)
    assert {tuple(one["labels"].numpy()) for one in made["objects"]} == {(2, 1), (1,)}
    assert made["drawn"].shape == (1, 24, 32, 3)
    assert f'label_map_path: "{tmp_path}/boxes-records/label_map.pbtxt"' in made["out"]


def draw_pairs(folder: Path) -> dict[int, tuple[Any, Any]]:
    """VOC's layout: images of different sizes, palette masks. Returns pixels and masks by width."""
    drawn = {}
    for name in ("Annotations", "ImageSets/Segmentation", "JPEGImages", "SegmentationClass"):
        (folder / name).mkdir(parents=True)
    names = []
    for number in range(5):
        width, height, name = 500 - 30 * number, 375, f"2007_0000{number}"
        image = draw("square", number, width, height)
        image.save(folder / f"JPEGImages/{name}.jpg", quality=95)
        mask = Image.new("P", (width, height))
        mask.putpalette([value for n in range(256) for value in (n, 255 - n, n // 2)])
        ImageDraw.Draw(mask).rectangle((40, 30, 200, 200), fill=12, outline=255)
        mask.save(folder / f"SegmentationClass/{name}.png")
        (folder / f"Annotations/{name}.xml").write_text(
            f"<annotation><filename>{name}.jpg</filename><size><width>{width}</width><height>{height}</height>"
            "<depth>3</depth></size><segmented>1</segmented><object><name>dog</name><bndbox><xmin>41</xmin>"
            "<ymin>31</ymin><xmax>201</xmax><ymax>201</ymax></bndbox></object></annotation>"
        )
        names.append(name)
        drawn[width] = (np.asarray(Image.open(folder / f"JPEGImages/{name}.jpg")), np.asarray(mask))
    (folder / "ImageSets/Segmentation/train.txt").write_text("\n".join(names))
    return drawn


@pytest.mark.slow
def test_pascal_voc_pairs(tmp_path: Path) -> None:
    drawn = draw_pairs(tmp_path / "VOC2012")
    made = run("PASCAL VOC pairs")
    pairs = list(made["pairs"].as_numpy_iterator())
    assert len(pairs) == 5
    for image, mask in pairs:
        pixels, classes = drawn[image.shape[1]]
        np.testing.assert_array_equal(image, pixels)
        np.testing.assert_array_equal(mask[:, :, 0], classes)
        assert set(np.unique(mask)) == {0, 12, 255}
    for images, masks in made["batches"]:
        assert (images.shape, masks.shape) == ((2, 384, 384, 3), (2, 384, 384, 1))
    batches = list(made["same"].as_numpy_iterator())
    assert [batch["image_raw"].shape for batch in batches] == [(2, 384, 384, 3)] * 2
    cut = {image.tobytes() for image in (made["cropped"](*pair)[0].numpy() for pair in pairs)}
    assert {image.tobytes() for batch in batches for image in batch["image_raw"]} <= cut


def draw_pets(folder: Path) -> None:
    folder.mkdir()
    draw("circle", 1, 64, 48).save(folder / "cat_0.jpeg", quality=95)
    draw("square", 2, 60, 40).save(folder / "dog_0.jpg", quality=95)
    pixels = np.dstack([np.asarray(draw("circle", 3, 96, 64)), np.full((64, 96), 255, np.uint8)])
    pixels[:10, :, 3] = 0
    Image.fromarray(pixels).save(folder / "cat_1.png")


@pytest.mark.slow
def test_cats_and_dogs(tmp_path: Path) -> None:
    draw_pets(tmp_path / "cats_dogs")
    made = run("Cats and dogs")
    sizes = made["sizes"]
    assert sizes["as-pixels"] > sizes["as-files"] > sizes["as-q100"] > sizes["as-q95"] > sizes["as-q90"]
    assert len(made["out"].splitlines()) == 5 and "100.0%" in made["out"]
    for name, size in sizes.items():
        assert size == sum(path.stat().st_size for path in (tmp_path / name).glob("*.tfrecord"))
        pictures = sorted((tmp_path / "pictures" / name).iterdir())
        assert sorted(path.stem.partition("-")[2] for path in pictures) == ["cat", "cat", "dog"]
    stored = np.asarray(Image.open(tmp_path / "cats_dogs/dog_0.jpg"), np.int16)
    for name in sizes:
        (dog,) = (tmp_path / "pictures" / name).glob("*-dog.png")
        # Decoders of JPEG round differently.
        assert np.abs(np.asarray(Image.open(dog).convert("RGB"), np.int16) - stored).mean() < 2


@pytest.mark.slow
def test_words_and_a_time_series(tmp_path: Path) -> None:
    lines = re.findall(r"^    (\{.*\})$", section("Words and a time series"), re.MULTILINE)
    assert len(lines) == 2
    (tmp_path / "series.jsonl").write_text("\n".join(lines), "utf-8")
    made = run("Words and a time series")
    expected = {}
    for line in map(json.loads, lines):
        expected[line["context"]["locale"]] = (line["context"]["age"], line["feature_lists"])
    assert len(made["sequences"]) == 2
    for context, lists in made["sequences"]:
        age, told = expected[context["locale"].numpy().decode()]
        assert context["age"] == age
        assert [word.decode() for word in lists["word"].numpy()] == told["word"]
        np.testing.assert_allclose(lists["rating"], told["rating"], rtol=1e-6)
    (ragged,), (padded,) = list(made["ragged"]), list(made["padded"])
    assert sorted(ragged["word"].row_lengths().numpy()) == [2, 3]
    words = padded["word"].numpy().reshape(2, 3).tolist()
    assert sorted(words) == [[b"of", b"the", b"ring"], [b"the", b"matrix", b""]]


@pytest.mark.slow
def test_pictures_of_records(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    draw("circle", 1, 32, 24).save(tmp_path / "photos/1.jpg")
    (tmp_path / "boxes.csv").write_text("filename,class,xmin,ymin,xmax,ymax\nphotos/1.jpg,dog,4,2,14,14\n")
    assert cli.main(["convert", "--input", "boxes.csv", "--output", "boxes-records", "--quiet"]) == 0
    run("Pictures of records")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 32 and np.asarray(sheet.convert("RGB")).std() > 10


RECIPES: dict[str, Callable[..., object]] = {
    "Fashion MNIST": test_fashion_mnist,
    "ImageNet": test_imagenet,
    "Bounding boxes": test_bounding_boxes,
    "PASCAL VOC pairs": test_pascal_voc_pairs,
    "Cats and dogs": test_cats_and_dogs,
    "Words and a time series": test_words_and_a_time_series,
    "Pictures of records": test_pictures_of_records,
}


def test_every_recipe_is_run() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == list(RECIPES)


def test_links_lead_somewhere() -> None:
    anchors = {title.lower().replace(" ", "-") for title in RECIPES}
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGE):
        name, _, anchor = target.partition("#")
        assert (ROOT / "docs" / name).exists() if name else anchor in anchors, target


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.skipif("RECORDMILL_CORPUS" not in os.environ, reason="RECORDMILL_CORPUS is unset")
def test_the_table_of_cats_and_dogs(tmp_path: Path) -> None:
    os.symlink(Path(os.environ["RECORDMILL_CORPUS"]) / "cats_dogs", tmp_path / "cats_dogs")
    sizes = run("Cats and dogs")["sizes"]
    told = [int(size.replace(",", "")) for size in re.findall(r"\| ([\d,]+) \|", section("Cats and dogs"))]
    # The bytes of a JPEG are its codec's: other builds differ a little.
    assert told == [pytest.approx(size, rel=0.02) for size in sizes.values()]
