"""What is published beside the records for those who look and check: report.json, digests, seals."""

import base64
import collections
import hashlib
import io
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.drawings import draw
from recordmill.transforms.examples.columns import Column
from recordmill.transforms.examples.features import int64_feature
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.examples.schema import FeatureSettings
from recordmill.transforms.examples.schemas import FEATURES_ALONE
from recordmill.transforms.reading.dataset import find_dataset
from recordmill.transforms.reporting.findings import gather
from recordmill.transforms.shards.statistics import CountedFeatures
from recordmill.transforms.storage.sealed import is_sealed
from tests.lazy import skimage_metrics
from tests.pipelines.conversion import by_key, convert, manifest

SIZES = [(120, 90), (90, 120), (64, 64), (33, 150), (150, 20), (96, 40)]


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """36 images with up to four boxes, some as large as the image."""
    folder = tmp_path_factory.mktemp("input")
    rng = np.random.default_rng(7)
    images: list[dict[str, Any]] = []
    boxes: list[dict[str, Any]] = []
    for number in range(36):
        width, height = SIZES[number % len(SIZES)]
        name = f"{number:02d}.png"
        draw("circle", number, width, height).save(folder / name)
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for _ in range(number % 5):
            x, y = rng.uniform(0, width - 9), rng.uniform(0, height - 9)
            box = [x, y, rng.uniform(1, width - x), rng.uniform(1, height - y)]
            boxes.append({"id": len(boxes), "image_id": number, "category_id": number % 3 + 1, "bbox": box})
    classes = [{"id": number, "name": f"class {number}"} for number in (1, 2, 3)]
    found = {"images": images, "annotations": boxes, "categories": classes}
    (folder / "instances_train.json").write_text(json.dumps(found))
    return folder


def published(source: Path, output: Path, *args: object) -> dict[str, Any]:
    """report.json of a conversion."""
    assert convert("--input", source, "--output", output, "--quiet", *args) == 0
    found: dict[str, Any] = json.loads((output / "report.json").read_text())
    return found


def nearest(value: float, to_double: int, low: int, high: int) -> str:
    """The bin whose middle is nearest to a value, by ratio."""
    bins = range(low, high + 1)
    return str(min(bins, key=lambda place: abs(math.log(value) - place / to_double * math.log(2))))


@pytest.mark.slow
def test_figures_of_a_detection_dataset_are_those_of_its_records(coco: Path, tmp_path: Path) -> None:
    rename = "--rename=image/object/class/label=classes,image/width=w"
    figures = published(coco, tmp_path / "out", "--num_shards=2", rename)["splits"]
    counts: dict[str, Counter[str]] = collections.defaultdict(Counter)
    areas = []
    for record in by_key(tmp_path / "out").values():
        (width,), (height,) = record["w"], record["image/height"]
        areas.append([width * height, width, height])
        counts["widths"][nearest(width, 2, 0, 40)] += 1
        counts["heights"][nearest(height, 2, 0, 40)] += 1
        counts["aspects"][nearest(width / height, 4, -12, 12)] += 1
        counts["objects"].update(map(str, record["classes"]))
        counts["boxes_per_image"][str(len(record["classes"]))] += 1
        sides = [record[f"image/object/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")]
        for xmin, ymin, xmax, ymax in zip(*sides, strict=True):
            x, y = xmax - xmin, ymax - ymin
            counts["box_sides"][nearest(math.sqrt(x * y), 2, -16, 0)] += 1
            counts["box_aspects"][nearest(x * width / (y * height), 4, -12, 12)] += 1
    assert figures == {
        "train": {
            "records": 36,
            "images": 36,
            "unlabelled": counts["boxes_per_image"]["0"],
            "least": min(areas)[1:],
            "most": max(areas)[1:],
            "labels": {},
            "pixels": {},
            "pixel_images": {},
            **counts,
        }
    }
    assert sum(counts["objects"].values()) == sum(number % 5 for number in range(36))


@pytest.fixture
def pairs(tmp_path: Path) -> dict[str, Counter[str]]:
    """Images with masks of class ids, in two splits: their pixels, by split."""
    pixels: dict[str, Counter[str]] = {"train": Counter(), "val": Counter()}
    rng = np.random.default_rng(3)
    for number in range(7):
        split = "val" if number > 4 else "train"
        ids = rng.choice([0, 1, 2, 17, 255], (20 + number, 30)).astype(np.uint8)
        for folder in ("images", "masks"):
            (tmp_path / "in" / folder / split).mkdir(parents=True, exist_ok=True)
        draw("circle", number, 30, 20 + number).save(tmp_path / f"in/images/{split}/{number}.jpg")
        Image.fromarray(ids).save(tmp_path / f"in/masks/{split}/{number}.png")
        pixels[split].update(map(str, ids.ravel().tolist()))
    return pixels


@pytest.mark.parametrize(
    "flags",
    [
        (),
        pytest.param(("--schema=plain",), marks=pytest.mark.slow),
        pytest.param(("--writer=beam",), marks=pytest.mark.slow),
        pytest.param(("--schema=classification,segmentation", "--num_shards=3"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_pixels_of_masks_are_those_of_the_source(
    flags: tuple[str, ...], pairs: dict[str, Counter[str]], tmp_path: Path
) -> None:
    found = published(tmp_path / "in", tmp_path / "out", *flags)["splits"]
    assert {split: one["pixels"] for split, one in found.items()} == pairs
    assert found["val"]["pixel_images"] == dict.fromkeys(["0", "1", "2", "17", "255"], 2)
    again = find_dataset(str(tmp_path / "out"))
    counted = gather(again, None, None, has_samples=False).statistics
    assert {split: one.as_json() for split, one in counted.items()} == {
        split: {**one, "reencoded": []} for split, one in found.items()
    }


@pytest.mark.slow
def test_pixels_of_reused_masks_are_counted(pairs: dict[str, Counter[str]], tmp_path: Path) -> None:
    """The second version reuses the whole shard of val, and all masks of train but the one that changes."""
    changed = tmp_path / "in/masks/train/0.png"
    for version in ("1.0.0", "1.0.1"):
        flags = (f"--dataset_version={version}", "--num_shards=1", "--quiet")
        assert convert("--input", tmp_path / "in", "--output", tmp_path / "out", *flags) == 0
        found = json.loads((tmp_path / "out" / version / "report.json").read_text())["splits"]
        assert {split: one["pixels"] for split, one in found.items()} == pairs
        with Image.open(changed) as mask:
            pairs["train"].subtract(map(str, np.asarray(mask).ravel().tolist()))
        Image.fromarray(np.full((20, 30), 2, np.uint8)).save(changed)
        pairs["train"]["2"] += 600
    assert manifest(tmp_path / "out/1.0.1")["provenance"]["work"]["masks"] == 1


@pytest.mark.slow
def test_labels_are_counted_by_split(tmp_path: Path) -> None:
    for name in ("train/a/0", "train/a/1", "train/b/2", "val/b/3"):
        path = tmp_path / "in" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        draw("circle", 1, 40, 20).save(path)
    (tmp_path / "in/val/b/broken.png").write_text("no image")
    ids = {"classification": 0, "plain": 0, "imagenet": 1}
    for writer, schema in (("shards", "plain"), ("shards", "imagenet"), ("beam", "classification")):
        args = ("--max_failure_ratio=0.5", "--num_shards=1", "--image_format=raw", f"--schema={schema}")
        found = published(tmp_path / "in", tmp_path / schema, f"--writer={writer}", *args)
        assert found["crops"] == []
        first, second = str(ids[schema]), str(ids[schema] + 1)
        figures = ("records", "images", "labels")
        assert {name: tuple(map(split.get, figures)) for name, split in found["splits"].items()} == {
            "train": (3, 3, {first: 2, second: 1}),
            "val": (1, 1, {second: 1}),
        }


def test_free_features_are_not_counted(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("key,height,width,depth\na,1,2,3\nb,1,2,4\n")
    figures = published(tmp_path / "in.csv", tmp_path / "out", "--source=csv")["splits"]["train"]
    assert (figures["records"], figures["images"], figures["widths"]) == (2, 0, {})
    counted = CountedFeatures(
        FEATURES_ALONE, FeatureSettings(LabelMap.build([]), {"label": Column("int64", ())})
    )
    assert counted.of({"label": int64_feature(3)}).labels == ()


@pytest.mark.slow
def test_frames_and_labels_of_sequences_are_counted(tmp_path: Path) -> None:
    for clip, frames in (("run/a", 3), ("jump/b", 2)):
        for number in range(frames):
            path = tmp_path / "in" / clip / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            draw("circle", number, 40, 20).save(path)
    args = ("--source=frames", "--image_format=jpeg")
    found = published(tmp_path / "in", tmp_path / "out", *args)
    figures = found["splits"]["train"]
    assert (figures["records"], figures["images"]) == (2, 5)
    assert (figures["least"], figures["most"]) == ([40, 20], [40, 20])
    assert found["crops"] == []


@pytest.mark.slow
def test_it_is_the_same_whoever_writes(coco: Path, tmp_path: Path) -> None:
    """The page too, where the shards are the same: it does not tell when it was made, nor by what."""
    texts, pages = set(), set()
    for number, args in enumerate(
        (
            ["--num_shards=5"],
            ["--num_shards=5", "--direct_num_workers=1"],
            ["--num_shards=1", "--order=key"],
            ["--num_shards=2", "--writer=beam"],
        )
    ):
        output = tmp_path / str(number)
        options = ("--image_format=jpeg", "--splits=train=0.7,val=0.3", "--name=rings")
        published(coco, output, *options, *args)
        texts.add((output / "report.json").read_bytes())
        pages.add((output / "report.html").read_bytes())
    assert (len(texts), len(pages)) == (1, 3)
    found = json.loads(texts.pop())
    assert sum(split["records"] for split in found["splits"].values()) == 36
    assert len(found["crops"]) == 4


@pytest.mark.slow
def test_images_before_and_after_their_encoding(coco: Path, tmp_path: Path) -> None:
    """They are small enough to be shown whole: the source's pixels, and the stored ones."""
    args = ("--image_format=jpeg", "--jpeg_quality=30", "--num_shards=2")
    crops = published(coco, tmp_path / "out", *args)["crops"]
    records = by_key(tmp_path / "out")
    assert len({crop["key"] for crop in crops}) == len(crops) == 4
    for crop in crops:
        (stored,) = records[crop["key"]]["image/encoded"]
        source = (coco / crop["key"]).read_bytes()
        before, after = (pixels(base64.b64decode(crop[name])) for name in ("before", "after"))
        assert np.array_equal(before, pixels(source))
        assert np.array_equal(after, pixels(stored))
        assert (crop["source_bytes"], crop["stored_bytes"]) == (len(source), len(stored))
        one, other = (np.asarray(Image.fromarray(each).convert("L")) for each in (before, after))
        options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
        expected = skimage_metrics.structural_similarity(one, other, data_range=255, **options)  # type: ignore[no-untyped-call]
        assert crop["ssim"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--size=60x80", "--fit=pad"], ["--max_side=50", "--color=gray"]])
def test_resized_images_are_compared_in_the_size_that_is_stored(
    coco: Path, tmp_path: Path, flags: list[str]
) -> None:
    crops = published(coco, tmp_path / "out", "--image_format=jpeg", *flags)["crops"]
    records = by_key(tmp_path / "out")
    assert len(crops) == 4
    for crop in crops:
        record = records[crop["key"]]
        before, after = (Image.open(io.BytesIO(base64.b64decode(crop[name]))) for name in ("before", "after"))
        assert before.size == after.size == (record["image/width"][0], record["image/height"][0])
        assert before.mode == after.mode == ("L" if "--color=gray" in flags else "RGB")
        assert 0.8 < crop["ssim"] < 1


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    """RGB."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.slow
def test_every_file_is_proved_by_the_manifest_or_by_its_own_seal(coco: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    published(coco, output, "--num_shards=2")
    found = manifest(output)
    sealed = ["manifest.json", "report.html"]
    there = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    assert sorted(there) == sorted(found["files"])
    shards = {shard["file"] for split in found["splits"].values() for shard in split["shards"]}
    indexes = {f"index/{name.removesuffix('.tfrecord')}.idx" for name in shards}
    described = there - shards - indexes - set(sealed)
    assert {"failures.jsonl", "label_map.pbtxt", "report.json", "dataset_info.json"} < described
    assert found["digests"] == {
        name: hashlib.sha256((output / name).read_bytes()).hexdigest() for name in described
    }
    for name in sealed:
        data = (output / name).read_bytes()
        assert is_sealed(data)
        assert not is_sealed(data.replace(b"class 1", b"class 2"))
