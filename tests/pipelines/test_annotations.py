"""Annotations through whole conversions: what is drawn in an image is what its boxes and masks surround."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from tests.lazy import tf
from tests.pipelines.conversion import by_key, convert, digests, examples, failures, manifest

SIDES = ("xmin", "ymin", "xmax", "ymax")
COLORS = {"car": (200, 0, 0), "dog": (0, 200, 0)}


def jpeg(height: int, width: int, boxes: dict[str, tuple[int, int, int, int]], orientation: int = 1) -> bytes:
    """A black picture with a filled box a class, and an EXIF orientation that turns nothing."""
    pixels = np.zeros((height, width, 3), np.uint8)
    for name, (left, top, right, bottom) in boxes.items():
        pixels[top:bottom, left:right] = COLORS[name]
    exif = Image.Exif()
    exif[0x112] = orientation
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=95, subsampling=0, exif=exif)
    return stream.getvalue()


def coco_file(images: list[dict[str, Any]], annotations: list[dict[str, Any]]) -> str:
    names = {3: "car", 18: "dog"}
    categories = [{"id": number, "name": name} for number, name in names.items()]
    for number, annotation in enumerate(annotations, 1):
        left, top, width, height = annotation["bbox"]
        corners = [left, top, left + width, top, left + width, top + height, left, top + height]
        annotation.update(id=number, area=width * height, iscrowd=0, segmentation=[corners])
    return json.dumps({"images": images, "annotations": annotations, "categories": categories})


@pytest.fixture
def turned(tmp_path: Path) -> Path:
    """A COCO dataset of eight pictures, one of each EXIF orientation, each with a car and a dog."""
    folder = tmp_path / "coco"
    (folder / "images").mkdir(parents=True)
    images, annotations = [], []
    for orientation in range(1, 9):
        boxes = {"car": (20, 10, 70, 60), "dog": (120, 30, 180, 90)}
        name = f"{orientation}.jpg"
        (folder / "images" / name).write_bytes(jpeg(120, 200, boxes, orientation))
        images.append({"id": 100 + orientation, "file_name": name, "height": 120, "width": 200})
        for label, (left, top, right, bottom) in boxes.items():
            box = [left, top, right - left, bottom - top]
            category = {"car": 3, "dog": 18}[label]
            annotations.append({"image_id": 100 + orientation, "category_id": category, "bbox": box})
    (folder / "instances_train2017.json").write_text(coco_file(images, annotations))
    return folder


def boxes_of(example: dict[str, list[Any]]) -> dict[str, tuple[float, float, float, float]]:
    """Corners in pixels, by class."""
    height, width = example["image/height"][0], example["image/width"][0]
    corners = zip(*(example[f"image/object/bbox/{side}"] for side in SIDES), strict=True)
    scaled = [(x0 * width, y0 * height, x1 * width, y1 * height) for x0, y0, x1, y1 in corners]
    names = [name.decode() for name in example["image/object/class/text"]]
    return dict(zip(names, scaled, strict=True))


def painted(example: dict[str, list[Any]], name: str) -> np.ndarray:
    """Where the picture of a record has the colour of a class."""
    pixels = tf.io.decode_image(example["image/encoded"][0], expand_animations=False).numpy().astype(int)
    found: np.ndarray = np.abs(pixels - COLORS[name]).max(axis=2) < 80
    return found


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), marks=pytest.mark.slow),
        pytest.param(("--short_side=60",), marks=pytest.mark.slow),
        pytest.param(("--size=90x90", "--fit=stretch"), marks=pytest.mark.slow),
        pytest.param(("--size=150x110", "--fit=pad", "--background=#404040"), marks=pytest.mark.slow),
        ("--size=100x100", "--fit=crop"),
        pytest.param(("--exif=ignore", "--max_side=100"), marks=pytest.mark.slow),
    ],
)
def test_boxes_and_masks_surround_what_is_drawn(turned: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    output = tmp_path / "out"
    given = ("--input", turned, "--output", output, "--include_annotations=masks", *flags)
    assert convert(*given, "--jpeg_quality=95" if flags else "--validate=header") == 0
    found = by_key(output)
    assert len(found) == 8
    for key, example in found.items():
        boxes = boxes_of(example)
        masks = dict(zip(boxes, example["image/object/mask"], strict=True))
        for name, box in boxes.items():
            rows, columns = np.nonzero(painted(example, name))
            drawn = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert np.abs(np.subtract(box, drawn)).max() <= 1.5, (key, name, box, drawn)
            mask = tf.io.decode_png(masks[name]).numpy()[:, :, 0]
            assert mask.shape == (example["image/height"][0], example["image/width"][0])
            assert set(np.unique(mask)) <= {0, 1}
            different = (mask == 1) != painted(example, name)
            assert different.sum() <= 3 * 2 * (box[2] - box[0] + box[3] - box[1]), (key, name)
        if "--fit=crop" not in flags:
            assert set(boxes) == {"car", "dog"}


@pytest.mark.slow
def test_ids_names_and_sources_of_coco(turned: Path, tmp_path: Path) -> None:
    import tensorflow_datasets as tfds

    output = tmp_path / "out"
    assert convert("--input", turned, "--output", output) == 0
    one = by_key(output)["images/1.jpg"]
    assert one["image/object/class/label"] == [3, 18]
    assert one["image/object/class/text"] == [b"car", b"dog"]
    assert one["image/source_id"] == [b"101"]
    assert one["image/object/area"] == [2500.0, 3600.0]
    assert one["image/object/is_crowd"] == [0, 0]
    items = (output / "label_map.pbtxt").read_text().split()
    assert " ".join(items) == "item { id: 3 name: 'car' } item { id: 18 name: 'dog' }"
    names = tfds.builder_from_directory(output).info.features["image/object/class/label"].feature.names
    assert (len(names), names[3], names[18]) == (19, "car", "dog")
    (example,) = tfds.builder_from_directory(output).as_dataset(split="train").take(1)
    assert example["image/object/bbox/xmin"].shape == (2,)
    assert manifest(output)["annotations"] == {"stored": {"objects": 16}, "changed": {}}


@pytest.mark.slow
def test_the_published_spec_of_the_object_detection_api_reads_it(turned: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert convert("--input", turned, "--output", output, "--include_annotations=masks") == 0
    text, numbers, floats = (tf.io.VarLenFeature(kind) for kind in (tf.string, tf.int64, tf.float32))
    spec = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/format": tf.io.FixedLenFeature((), tf.string, default_value="jpeg"),
        "image/filename": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/key/sha256": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/source_id": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/height": tf.io.FixedLenFeature((), tf.int64, default_value=1),
        "image/width": tf.io.FixedLenFeature((), tf.int64, default_value=1),
        **{f"image/object/bbox/{side}": floats for side in SIDES},
        "image/object/class/label": numbers,
        "image/object/class/text": text,
        "image/object/area": floats,
        "image/object/is_crowd": numbers,
        "image/object/mask": text,
    }
    paths = sorted(str(path) for path in output.glob("*.tfrecord"))
    for record in tf.data.TFRecordDataset(paths):
        parsed = tf.io.parse_single_example(record, spec)
        assert parsed["image/object/class/label"].values.numpy().tolist() == [3, 18]
        assert (tf.sparse.to_dense(parsed["image/object/bbox/xmax"]) <= 1).numpy().all()
        assert tf.io.decode_jpeg(parsed["image/encoded"]).shape[0] == parsed["image/height"]


@pytest.fixture
def odd_boxes(tmp_path: Path) -> Path:
    """A table of boxes: within, partly outside, wholly outside, without an area."""
    folder = tmp_path / "odd"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.jpg").write_bytes(jpeg(100, 100, {}))
    rows = ["filename,width,height,class,xmin,ymin,xmax,ymax", "a.jpg,100,100,car,10,20,30,40"]
    rows += ["b.jpg,100,100,car,50,50,150,80", "b.jpg,100,100,dog,200,10,300,20", "b.jpg,100,100,dog,5,5,5,9"]
    rows += ["b.jpg,100,100,dog,1,2,3,4"]
    (folder / "boxes.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize(
    ("rule", "kept", "reasons"),
    [
        (
            "clip",
            {"car": (50, 50, 100, 80), "dog": (1, 2, 3, 4)},
            {"box clipped": 1, "box outside the image dropped": 1, "box without an area": 1},
        ),
        ("drop", {"dog": (1, 2, 3, 4)}, {"box outside the image dropped": 2, "box without an area": 1}),
    ],
)
def test_boxes_that_do_not_fit_are_counted_and_named(
    odd_boxes: Path, tmp_path: Path, rule: str, kept: dict[str, Any], reasons: dict[str, int]
) -> None:
    output = tmp_path / "out"
    assert convert("--input", odd_boxes / "boxes.csv", "--output", output, "--boxes", rule) == 0
    found = boxes_of(by_key(output)["b.jpg"])
    assert {name: pytest.approx(box, abs=1e-4) for name, box in found.items()} == kept
    told = manifest(output)
    assert told["annotations"]["changed"] == reasons
    assert told["counts"] == {"read": 2, "written": 2, "failed": 0, "skipped": 0}
    lines = failures(output)
    assert {(line["key"], line["kept"], line["stage"]) for line in lines} == {("b.jpg", True, "annotations")}
    assert sorted(line["reason"] for line in lines) == sorted(
        reason for reason, count in reasons.items() for _ in range(count)
    )
    assert any("object 1 'dog': 200,10,300,20" in line["detail"] for line in lines)


@pytest.mark.slow
def test_boxes_that_do_not_fit_fail_their_record(odd_boxes: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    given = ("--input", odd_boxes / "boxes.csv", "--output", output, "--boxes=fail")
    assert convert(*given) == 1
    assert convert(*given, "--max_failure_ratio=0.5") == 0
    assert set(by_key(output)) == {"a.jpg"}
    (line,) = failures(output)
    assert (line["key"], line["stage"]) == ("b.jpg", "annotations")


def voc_tree(folder: Path, masks: dict[str, np.ndarray]) -> None:
    """PASCAL VOC pairs: JPEGImages, and palette PNGs in SegmentationClass."""
    for name in ("JPEGImages", "SegmentationClass"):
        (folder / name).mkdir(parents=True)
    palette = np.random.default_rng(0).integers(0, 256, 768, dtype=np.uint8).tobytes()
    for stem, ids in masks.items():
        height, width = ids.shape
        (folder / "JPEGImages" / f"{stem}.jpg").write_bytes(jpeg(height, width, {"car": (5, 5, 20, 20)}))
        image = Image.fromarray(ids, "P")
        image.putpalette(palette)
        image.save(folder / "SegmentationClass" / f"{stem}.png")


@pytest.fixture
def pairs(tmp_path: Path) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    masks = {f"2007_{n:06}": random.integers(0, 21, (40 + n, 60), dtype=np.uint8) for n in range(3)}
    for ids in masks.values():
        ids[0] = 255
    voc_tree(tmp_path / "voc", masks)
    return masks


@pytest.mark.slow
def test_the_classic_pairs_of_pascal_voc(pairs: dict[str, np.ndarray], tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert convert("--input", tmp_path / "voc", "--output", output, "--schema=plain") == 0
    spec = {
        "height": tf.io.FixedLenFeature([], tf.int64),
        "width": tf.io.FixedLenFeature([], tf.int64),
        "image_raw": tf.io.FixedLenFeature([], tf.string),
        "mask_raw": tf.io.FixedLenFeature([], tf.string),
    }
    seen = []
    for record in tf.data.TFRecordDataset(sorted(str(path) for path in output.glob("*.tfrecord"))):
        parsed = tf.io.parse_single_example(record, spec)
        shape = (int(parsed["height"]), int(parsed["width"]))
        (stem,) = (stem for stem, ids in pairs.items() if ids.shape == shape)
        image = tf.reshape(tf.io.decode_raw(parsed["image_raw"], tf.uint8), (*shape, 3)).numpy()
        mask = tf.reshape(tf.io.decode_raw(parsed["mask_raw"], tf.uint8), shape).numpy()
        with Image.open(tmp_path / f"voc/JPEGImages/{stem}.jpg") as expected:
            assert np.abs(image.astype(int) - np.asarray(expected)).max() <= 1
        np.testing.assert_array_equal(mask, pairs[stem])
        seen.append(stem)
    assert sorted(seen) == sorted(pairs)


@pytest.mark.slow
def test_the_published_spec_of_deeplab_reads_it(pairs: dict[str, np.ndarray], tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert convert("--input", tmp_path / "voc", "--output", output) == 0
    spec = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/filename": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/format": tf.io.FixedLenFeature((), tf.string, default_value="jpeg"),
        "image/height": tf.io.FixedLenFeature((), tf.int64, default_value=0),
        "image/width": tf.io.FixedLenFeature((), tf.int64, default_value=0),
        "image/segmentation/class/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/segmentation/class/format": tf.io.FixedLenFeature((), tf.string, default_value="png"),
    }
    for record in tf.data.TFRecordDataset(sorted(str(path) for path in output.glob("*.tfrecord"))):
        parsed = tf.io.parse_single_example(record, spec)
        mask = tf.io.decode_png(parsed["image/segmentation/class/encoded"], channels=1).numpy()[:, :, 0]
        np.testing.assert_array_equal(mask, pairs[Path(parsed["image/filename"].numpy().decode()).stem])
        assert parsed["image/segmentation/class/format"] == b"png"


@pytest.mark.slow
def test_white_is_a_class_where_masks_are_black_and_white(tmp_path: Path) -> None:
    for name in ("images", "masks"):
        (tmp_path / "in" / name).mkdir(parents=True)
    drawn = np.zeros((30, 40), np.uint8)
    drawn[5:20, 5:20] = 255
    for number in range(3):
        (tmp_path / f"in/images/{number}.jpg").write_bytes(jpeg(30, 40, {"car": (5, 5, 20, 20)}))
        Image.fromarray(drawn).save(tmp_path / f"in/masks/{number}.png")
    output = tmp_path / "out"
    assert convert("--input", tmp_path / "in", "--output", output) == 0
    for example in examples(output):
        mask = tf.io.decode_png(example["image/segmentation/class/encoded"][0]).numpy()[:, :, 0]
        np.testing.assert_array_equal(mask, drawn == 255)
    assert manifest(output)["labels"] == {"0": "background", "1": "foreground"}


@pytest.mark.slow
def test_both_writers_and_both_places_of_annotations_agree(turned: Path, tmp_path: Path) -> None:
    """Large annotations are spooled on the way, and come out as they went in."""
    path = turned / "instances_train2017.json"
    found = json.loads(path.read_text())
    for annotation in found["annotations"]:
        left, top, width, height = annotation["bbox"]
        angles = np.linspace(0, 2 * np.pi, 300)
        points = np.stack(
            [left + width / 2 * (1 + np.cos(angles)), top + height / 2 * (1 + np.sin(angles))], 1
        )
        annotation["segmentation"] = [points.ravel().tolist()]
    path.write_text(json.dumps(found))
    given = ("--input", turned, "--include_annotations=masks", "--num_shards=2")
    for name, flags in {"shards": (), "again": (), "beam": ("--writer=beam",)}.items():
        assert convert(*given, "--output", tmp_path / name, *flags) == 0
    assert digests(tmp_path / "shards") == digests(tmp_path / "again")
    assert by_key(tmp_path / "shards") == by_key(tmp_path / "beam")
    one = by_key(tmp_path / "shards")["images/1.jpg"]
    for number, annotation in enumerate(found["annotations"][:2]):
        run_lengths = coco_mask.merge(coco_mask.frPyObjects(annotation["segmentation"], 120, 200))
        stored = tf.io.decode_png(one["image/object/mask"][number]).numpy()[:, :, 0]
        np.testing.assert_array_equal(stored, coco_mask.decode(run_lengths))
    assert not (tmp_path / "shards/.recordmill").exists()


@pytest.mark.slow
def test_detection_records_come_back_as_they_were(turned: Path, tmp_path: Path) -> None:
    """Records that we have written are a source like any other: ids, names and boxes stay."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert convert("--input", turned, "--output", first) == 0
    assert convert("--input", first, "--output", second) == 0
    assert by_key(second) == by_key(first)
    assert (second / "label_map.pbtxt").read_text() == (first / "label_map.pbtxt").read_text()


@pytest.mark.slow
def test_an_image_of_another_size_than_its_annotations_say_fails(turned: Path, tmp_path: Path) -> None:
    (turned / "images/2.jpg").write_bytes(jpeg(60, 100, {}))
    output = tmp_path / "out"
    assert convert("--input", turned, "--output", output, "--max_failure_ratio=0.5") == 0
    (line,) = failures(output)
    assert (line["key"], line["reason"]) == (
        "images/2.jpg",
        "image of another size than its annotations",
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--schema=detection,plain",), "'plain' cannot be combined"),
        (("--schema=detektion",), "--schema is 'detektion'"),
        (("--boxes=keep",), "--boxes is 'keep'; it may be clip, drop or fail"),
        (
            ("--include_annotations=boxes",),
            "--include_annotations has 'boxes'; each may be masks, keypoints or captions",
        ),
        (("--source=cocoa",), "'cocoa' (did you mean coco?)"),
        (("--mask_pattern=masks/{stem}.png",), "--mask_pattern is 'masks/{stem}.png', and --source coco"),
        (("--input_features=a=b",), "--input_features"),
    ],
)
def test_wrong_calls(
    turned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], message: str
) -> None:
    assert convert("--input", turned, "--output", tmp_path / "out", *flags) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_clips_are_sequence_examples(tmp_path: Path) -> None:
    for clip in ("jump/a", "run/b"):
        folder = tmp_path / "clips" / clip
        folder.mkdir(parents=True)
        for number in range(3):
            (folder / f"frame_{number:04}.jpg").write_bytes(jpeg(20, 30, {}))
        (folder / "timestamps.txt").write_text("0.0\n0.5\n1.0\n")
    output = tmp_path / "out"
    assert convert("--input", tmp_path / "clips", "--output", output) == 0
    assert not (output / "dataset_info.json").exists()
    told = manifest(output)
    assert told["config"]["schema"] == "sequence"
    assert set(told["feature_lists"]) >= {"image/encoded", "image/timestamp"}
    found = {}
    for record in tf.data.TFRecordDataset(sorted(str(path) for path in output.glob("*.tfrecord"))):
        context, sequence = tf.io.parse_single_sequence_example(
            record,
            {"image/class/text": tf.io.VarLenFeature(tf.string)},
            {
                "image/encoded": tf.io.FixedLenSequenceFeature([], tf.string),
                "image/timestamp": tf.io.FixedLenSequenceFeature([], tf.int64),
            },
        )
        name = context["image/class/text"].values.numpy()[0].decode()
        found[name] = [sequence[f"image/{key}"].numpy().tolist() for key in ("timestamp", "encoded")]
    stored = (tmp_path / "clips/jump/a/frame_0000.jpg").read_bytes()
    assert found == {name: [[0, 500_000, 1_000_000], [stored] * 3] for name in ("jump", "run")}


@pytest.mark.slow
def test_an_area_is_one_of_the_stored_image(odd_boxes: Path, tmp_path: Path) -> None:
    (odd_boxes / "boxes.csv").write_text(
        "filename,class,xmin,ymin,xmax,ymax,area\na.jpg,car,10,20,30,40,400\na.jpg,dog,0,0,9,9,81\n"
    )
    given = ("--input", odd_boxes / "boxes.csv", "--output", tmp_path / "out", "--max_side=50")
    assert convert(*given) == 0
    (one,) = examples(tmp_path / "out")
    assert one["image/object/area"] == [100.0, 20.25]


@pytest.mark.slow
def test_examples_have_the_same_keys(odd_boxes: Path, tmp_path: Path) -> None:
    (odd_boxes / "boxes.csv").write_text(
        "filename,class,xmin,ymin,xmax,ymax,difficult\na.jpg,car,1,2,3,4,1\nb.jpg,,,,,,\n"
    )
    assert convert("--input", odd_boxes / "boxes.csv", "--output", tmp_path / "out") == 0
    one, other = examples(tmp_path / "out")
    assert set(one) == set(other)
    assert sorted(len(example["image/object/bbox/xmin"]) for example in (one, other)) == [0, 1]
    assert manifest(tmp_path / "out")["annotations"]["stored"] == {"images_without_objects": 1, "objects": 1}
