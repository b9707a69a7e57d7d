"""--mask_values and --ignore_label: masks against numpy, names, reports, reruns and versions."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.lazy import tf
from tests.pipelines.conversion import by_key, command, convert, digests, failures, manifest
from tests.pipelines.versions.homes import latest, work

CORPUS = os.environ.get("RECORDMILL_CORPUS", "")
NAMES = ("background", "road", "car", "truck", "void")
MAP = {2: 1, 3: 1, 4: 255}
FLAGS = ("--mask_values=car=road,3=1", "--ignore_label=void")


def roads(folder: Path, count: int = 4) -> Path:
    """Images with masks of the ids 0 to 4, and 255; and their names."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
    draw = np.random.default_rng(7)
    for number in range(count):
        Image.fromarray(draw.integers(0, 256, (8, 10, 3), np.uint8)).save(folder / f"images/{number}.png")
        ids = draw.choice(np.array([0, 1, 2, 3, 4, 255], np.uint8), (8, 10))
        Image.fromarray(ids).save(folder / f"masks/{number}.png")
    (folder / "classes.txt").write_text("\n".join(NAMES))
    return folder


def drawn_mask(path: Path, replaced: Mapping[int, int] = MAP) -> np.ndarray:
    """A mask of the source, with other values."""
    ids = np.asarray(Image.open(path)).astype(int)
    return np.select([ids == old for old in replaced], list(replaced.values()), ids)


def test_classes_are_merged_and_ignored(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, output = roads(tmp_path / "in"), tmp_path / "out"
    assert convert("--input", source, "--output", output, *FLAGS) == 0
    table = [" ".join(line.split()) for line in capfd.readouterr().out.splitlines()]
    found = by_key(output)
    assert len(found) == 4
    total = np.zeros(256, np.int64)
    images = np.zeros(256, np.int64)
    for key, example in found.items():
        expected = drawn_mask(source / key.replace("images", "masks"))
        pixels = tf.io.decode_png(example["image/segmentation/class/encoded"][0]).numpy()[:, :, 0]
        np.testing.assert_array_equal(pixels, expected)
        counts = np.bincount(expected.ravel(), minlength=256)
        total, images = total + counts, images + (counts > 0)
    (counted,) = json.loads((output / "report.json").read_text())["splits"].values()
    assert counted["pixels"] == {str(one): int(total[one]) for one in np.flatnonzero(total)}
    assert counted["pixel_images"] == {str(one): int(images[one]) for one in np.flatnonzero(total)}
    road, other = (f"{100 * total[one] / total[:2].sum():.0f} %" for one in (1, 0))
    at = table.index(f"pixels {road} 'road' in {images[1]} images")
    ignored = f"{100 * total[255] / total.sum():.0f} % of all pixels are ignored, in {images[255]} images"
    assert table[at + 1 : at + 3] == [f"{other} 'background' in {images[0]} images", ignored]
    made = manifest(output)
    assert made["labels"] == {"0": "background", "1": "road"}
    assert made["config"]["mask_values"] == {"car": "road", "3": "1", "void": "255"}
    assert made["warnings"] == []
    assert "no pixel at all" not in (output / "report.html").read_text()
    assert command("verify", output, "--input", source) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--ignore_label=viod"], "'viod' is no class; the classes are background, road, car, truck, void"),
        (["--mask_values=car=2"], "--mask_values has car=2: both are one class"),
        (["--mask_values=car=1", "--schema=detection"], "changes masks, and --schema=detection stores none"),
        (["--mask_values=255=1"], "--mask_values has 255=1: 255 is ignored already"),
    ],
)
def test_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[str], message: str) -> None:
    source, output = roads(tmp_path / "in", 1), tmp_path / "out"
    assert convert("--input", source, "--output", output, *flags) in (1, 2)
    assert message in capfd.readouterr().err
    assert not list(tmp_path.glob("out/*.tfrecord"))


@pytest.mark.slow
def test_images_without_masks_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in/cat").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(tmp_path / "in/cat/1.png")
    assert convert("--input", tmp_path / "in", "--output", tmp_path / "out", "--ignore_label=1") == 1
    assert "schema 'classification' stores none of classes from this input" in capfd.readouterr().err


@pytest.mark.slow
def test_a_label_file_has_the_id_of_a_background_that_no_mask_has(tmp_path: Path) -> None:
    source, names = roads(tmp_path / "in"), tmp_path / "three.txt"
    names.write_text("truck\nroad\ncar\n")
    for background in ("background", "0"):
        output = tmp_path / background
        flags = (f"--label_file={names}", f"--ignore_label={background},void")
        assert convert("--input", source, "--output", output, *flags) == 0
        assert manifest(output)["labels"] == {"0": "truck", "1": "road", "2": "car"}
        for key, example in by_key(output).items():
            expected = drawn_mask(source / key.replace("images", "masks"), {0: 255, 3: 0, 4: 255})
            data = example["image/segmentation/class/encoded"][0]
            np.testing.assert_array_equal(tf.io.decode_png(data).numpy()[:, :, 0], expected)


@pytest.mark.slow
def test_shards_of_other_values_are_not_reused(tmp_path: Path) -> None:
    source = roads(tmp_path / "in")
    (source / "images/3.png").write_bytes(b"damaged")

    def call(output: str, *flags: str) -> tuple[int, Path]:
        given = ("--input", source, "--num_shards=2", *flags)
        return convert(*given, "--output", tmp_path / output), tmp_path / output

    assert call("plain", "--ignore_label=void", "--max_failure_ratio=1")[0] == 0
    assert call("out", *FLAGS, "--max_failure_ratio=0")[0] == 1
    status, output = call("out", "--ignore_label=4", "--max_failure_ratio=1")
    assert (status, manifest(output)["provenance"]["reused_shards"]) == (0, 0)
    assert digests(output) == digests(tmp_path / "plain")
    assert call("again", *FLAGS, "--max_failure_ratio=0")[0] == 1
    status, output = call("again", *FLAGS, "--max_failure_ratio=1")
    assert (status, manifest(output)["provenance"]["reused_shards"]) == (0, 2)


@pytest.mark.slow
def test_versions_with_other_values_share_images_alone(tmp_path: Path) -> None:
    source, home = roads(tmp_path / "in", 12), tmp_path / "out"
    call = ("--input", source, "--num_shards=2", "--image_format=png", "--max_side=6")
    for number, flags in enumerate([(), FLAGS, ("--ignore_label=void",), ()]):
        version = f"1.0.{number}"
        assert convert(*call, *flags, "--output", home, "--dataset_version=auto") == 0
        assert latest(home) == version
        assert work(home / version)[1:] == (0 if number else 12, 12)
        assert convert(*call, *flags, "--output", tmp_path / f"plain{number}") == 0
        assert digests(home / version) == digests(tmp_path / f"plain{number}")
        assert convert(*call, *flags, "--output", home, "--dataset_version=auto") == 0
        assert latest(home) == version  # the same values publish nothing


def polygons(folder: Path, names: list[str]) -> Path:
    """COCO: a square of each class, with its box, in each image; the last image is empty."""
    (folder / "images").mkdir(parents=True)
    images, annotations = [], []
    for number in range(3):
        Image.new("RGB", (20, 20)).save(folder / f"images/{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": 20, "width": 20})
        for at, _ in enumerate(names if number < 2 else ()):
            left, top, right, bottom = (5 * at, 2, 5 * at + 5, 6 + number)
            outline = [left, top, right, top, right, bottom, left, bottom]
            one = {"id": len(annotations) + 1, "image_id": number, "category_id": at + 1}
            size = {"bbox": [left, top, right - left, bottom - top], "area": 20, "iscrowd": 0}
            annotations.append({**one, **size, "segmentation": [outline]})
    categories = [{"id": at, "name": name} for at, name in enumerate(names, 1)]
    described = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "instances_train.json").write_text(json.dumps(described))
    return folder


@pytest.mark.slow
def test_masks_of_objects_change_and_boxes_do_not(tmp_path: Path) -> None:
    source = polygons(tmp_path / "in", ["cat", "dog", "blur"])
    call = ("--input", source, "--include_annotations=masks", "--schema=detection,segmentation")
    assert convert(*call, "--output", tmp_path / "plain") == 0
    flags = ("--mask_values=cat=2", "--ignore_label=blur")
    assert convert(*call, *flags, "--output", tmp_path / "out") == 0
    plain, changed = by_key(tmp_path / "plain"), by_key(tmp_path / "out")
    for key, example in changed.items():
        before = tf.io.decode_png(plain[key].pop("image/segmentation/class/encoded")[0]).numpy().astype(int)
        after = tf.io.decode_png(example.pop("image/segmentation/class/encoded")[0]).numpy()
        expected = np.select([before == old for old in (1, 3)], [2, 255], before)
        np.testing.assert_array_equal(after, expected)
        assert example == plain[key]
    # Boxes use the names.
    assert manifest(tmp_path / "out")["labels"] == {"1": "cat", "2": "dog", "3": "blur"}
    assert manifest(tmp_path / "out")["warnings"] == manifest(tmp_path / "plain")["warnings"]
    alone = ("--schema=segmentation", "--ignore_label=blur", "--output", tmp_path / "alone")
    assert convert("--input", source, *alone) == 0
    assert manifest(tmp_path / "alone")["labels"] == {"1": "cat", "2": "dog"}
    assert command("verify", tmp_path / "out", "--input", source) == 0


@pytest.mark.slow
def test_versions_of_drawn_masks(tmp_path: Path) -> None:
    """The background is of no object, and changes the mask of an image without one."""
    source, home = polygons(tmp_path / "in", ["cat", "dog"]), tmp_path / "out"
    call = ("--input", source, "--schema=detection,segmentation", "--include_annotations=masks")
    for number, flags in enumerate([(), ("--ignore_label=background",), ("--mask_values=cat=dog",)]):
        assert convert(*call, *flags, "--output", home, "--dataset_version=auto") == 0
        assert convert(*call, *flags, "--output", tmp_path / f"plain{number}") == 0
        assert latest(home) == f"1.0.{number}"
        assert digests(home / f"1.0.{number}") == digests(tmp_path / f"plain{number}")


def camvid(folder: Path, colors: Mapping[int, tuple[int, int, int]] | None = None) -> dict[str, np.ndarray]:
    """CamVid as it is downloaded: folders of splits, lists with paths of another computer; ids by image."""
    draw, found = np.random.default_rng(3), {}
    for split in ("train", "val", "test"):
        lines = []
        for number in range(2):
            name = f"{split}/{number}.png"
            found[name] = ids = draw.integers(0, 12, (6, 9), np.uint8)
            pixels = ids if colors is None else np.array([colors[one] for one in range(12)], np.uint8)[ids]
            mask = name.replace("/", "annot/")
            for path, image in ((name, draw.integers(0, 256, (6, 9, 3), np.uint8)), (mask, pixels)):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(folder / path)
            lines.append(f"/SegNet/CamVid/{name} /SegNet/CamVid/{mask}")
        (folder / f"{split}.txt").write_text("\n".join(lines))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("in_colors", [False, True])
def test_camvid_as_it_lies(tmp_path: Path, in_colors: bool) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    colors = {number: (20 * number, 7, 255 - number) for number in range(12)} if in_colors else None
    drawn = camvid(source, colors)
    names = ["Sky", "Building", *(f"class {number}" for number in range(2, 11)), "Void"]
    if colors is not None:
        rows = (f"{' '.join(map(str, colors[number]))}\t\t{name}" for number, name in enumerate(names))
        (source / "label_colors.txt").write_text("\n".join(rows))
    flag = "--mask_values=Void=255,Sky=Building" if in_colors else "--mask_values=0=1,11=255"
    assert convert("--input", source, "--output", output, flag) == 0
    found = by_key(output)
    assert found.keys() == drawn.keys()
    for key, example in found.items():
        pixels = tf.io.decode_png(example["image/segmentation/class/encoded"][0]).numpy()[:, :, 0]
        expected = np.select([drawn[key] == 0, drawn[key] == 11], [1, 255], drawn[key].astype(int))
        np.testing.assert_array_equal(pixels, expected)
    labels = {str(number): name for number, name in enumerate(names) if name not in ("Sky", "Void")}
    assert manifest(output)["labels"] == (labels if in_colors else {})
    assert set(manifest(output)["splits"]) == {"train", "val", "test"}
    assert command("verify", output, "--input", source) == 0


needs_corpus = pytest.mark.skipif(not CORPUS, reason="RECORDMILL_CORPUS names no folder of real inputs")


@pytest.mark.slow
@pytest.mark.corpus
@needs_corpus
def test_real_panoptic_segments(tmp_path: Path) -> None:
    folder = Path(CORPUS) / "coco64"
    listed = json.loads((folder / "panoptic/panoptic_val2017.json").read_text())
    names = {one["id"]: one["name"] for one in listed["categories"]}
    things = {one["id"] for one in listed["categories"] if one["isthing"]}
    numbers = {name: number for number, name in names.items()}
    replaced = {numbers["person"]: 255, numbers["car"]: numbers["truck"], numbers["sky-other-merged"]: 255}
    flags = ("--ignore_label=person,sky-other-merged", f"--mask_values=car={numbers['truck']}")
    source, output = tmp_path / "in", tmp_path / "out"
    (source / "annotations").mkdir(parents=True)
    for name in ("panoptic_val2017.json", "panoptic_val2017"):
        (source / "annotations" / name).symlink_to(folder / "panoptic" / name)
    (source / "val2017").symlink_to(folder / "images/val2017")
    call = ("--input", source, "--image_root", folder, "--schema=panoptic", "--output", output)
    assert convert(*call, *flags, "--max_failure_ratio=1") == 0
    found = {Path(key).stem: example for key, example in by_key(output).items()}
    assert len(found) == 64 - len({Path(one["key"]).stem for one in failures(output)} & set(found))
    seen = set()
    for one in listed["annotations"]:
        stem = Path(one["file_name"]).stem
        if stem not in found:
            continue
        with Image.open(folder / "panoptic/panoptic_val2017" / one["file_name"]) as file:
            codes = np.asarray(file.convert("RGB")).astype(np.int64) @ [1, 256, 65536]
        category, instance = np.full(codes.shape, 255), np.zeros(codes.shape)
        for number, segment in enumerate(one["segments_info"], 1):
            own = segment["category_id"]
            seen.add(own)
            category[codes == segment["id"]] = replaced.get(own, own)
            if own in things and replaced.get(own) != 255:
                instance[codes == segment["id"]] = number
        for layer, expected in (("category", category), ("instance", instance)):
            data = found[stem][f"image/panoptic/{layer}/encoded"][0]
            np.testing.assert_array_equal(tf.io.decode_png(data).numpy()[:, :, 0], expected)
    assert replaced.keys() <= seen
    labels = manifest(output)["labels"]
    assert labels == {str(number): names[number] for number in sorted(names) if number not in replaced}


@pytest.mark.slow
@pytest.mark.corpus
@needs_corpus
def test_real_masks_of_classes(tmp_path: Path) -> None:
    folder = Path(CORPUS) / "coco64"
    masks = {path.stem: path for path in (folder / "semantic").rglob("*.png")}
    pixels = np.zeros(256, np.int64)
    for path in masks.values():
        pixels += np.bincount(np.asarray(Image.open(path)).ravel(), minlength=256)
    most = [int(one) for one in np.argsort(-pixels) if one != 255][:4]
    replaced = {most[0]: 255, most[1]: most[2], most[3]: 200}
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "images").symlink_to(folder / "images/val2017")
    (source / "masks").symlink_to(next(iter(masks.values())).parent)
    flags = (f"--ignore_label={most[0]}", f"--mask_values={most[1]}={most[2]},{most[3]}=200")
    call = ("--input", source, "--image_root", folder, "--output", output, "--source=masks")
    assert convert(*call, *flags, "--max_failure_ratio=1") == 0
    found = by_key(output)
    assert len(found) == 64
    for key, example in found.items():
        data = example["image/segmentation/class/encoded"][0]
        expected = drawn_mask(masks[Path(key).stem], replaced)
        np.testing.assert_array_equal(tf.io.decode_png(data).numpy()[:, :, 0], expected)


@pytest.mark.slow
@pytest.mark.corpus
@needs_corpus
def test_a_real_tree_of_camvid(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    shutil.copytree(Path(CORPUS) / "layouts/camvid_dataset", source)
    colors = np.concatenate([np.asarray(Image.open(path))[0] for path in source.glob("*annot/*.png")])
    distinct = sorted({tuple(map(int, color)) for color in colors})
    names = {color: f"class {at}" if at else "Void" for at, color in enumerate(distinct)}
    rows = ("{},#{:02x}{:02x}{:02x}".format(name, *color) for color, name in names.items())
    (source / "colors.csv").write_text("\n".join(rows))
    assert convert("--input", source, "--output", output, "--ignore_label=Void") == 0
    found = by_key(output)
    assert len(found) == 4
    for key, example in found.items():
        mask = np.asarray(Image.open(source / key.replace("/", "annot/")))
        expected = [[distinct.index(color) or 255 for color in map(tuple, mask[0])]]
        data = example["image/segmentation/class/encoded"][0]
        np.testing.assert_array_equal(tf.io.decode_png(data).numpy()[:, :, 0], expected)
    assert "Void" not in manifest(output)["labels"].values()
