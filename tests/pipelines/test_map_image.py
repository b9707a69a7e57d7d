"""Conversions with a function of the user: both writers, resumed jobs, versions, changes of its source."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.annotations.sample import Sample
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.read import ReadSource
from recordmill.transforms.records import ImageRecord, ImageRef
from recordmill.transforms.shards import tasks
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.write import WriteDataset
from tests.images.drawn import Array, tensorflow_pixels
from tests.pipelines.conversion import by_key, command, convert, digests, failures, manifest

STEP = """
import os

from recordmill import Sample


def step(sample: Sample):
    number = int(sample.key[:2])
    if number == 3:
        return "three"
    if number == 4:
        raise ValueError("four")
    if number == 5:
        os.abort()
    if number % 2:
        return sample
    return halves(sample)


def halves(sample: Sample):
    height, width = sample.pixels.shape[:2]
    for left in (0, width // 2):
        part = sample.crop(left, 0, left + width // 2, height)
        yield part.with_pixels(part.pixels + SHADE)


SHADE = 1
"""
FLAGS = ("--max_failure_ratio=0.5", "--image_format=png", "--quiet", "--direct_num_workers=1")


def pixels_of(number: int) -> Array:
    return np.random.default_rng(number).integers(0, 200, (6, 8, 3)).astype(np.uint8)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve images in the working directory, next to the module of the function."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "photos").mkdir()
    for number in range(12):
        Image.fromarray(pixels_of(number)).save(tmp_path / f"photos/{number:02}.png")
    return tmp_path / "photos"


def write_step(folder: Path, shade: int = 1) -> None:
    # Of another size: Python may take a file of the same second and size as unchanged.
    (folder / "own_step.py").write_text(STEP.replace("SHADE = 1", f"SHADE = {' + '.join('1' * shade)}"))
    sys.modules.pop("own_step", None)
    importlib.invalidate_caches()


def check(output: Path, shade: int = 1) -> None:
    """Every record against the images."""
    found = by_key(output)
    expected = {}
    for number in range(12):
        pixels, key = pixels_of(number), f"{number:02}.png"
        if number % 2 == 0 and number != 4:
            expected |= {f"{key}#0": pixels[:, :4] + shade, f"{key}#1": pixels[:, 4:] + shade}
        elif number not in (3, 4, 5):
            expected[key] = pixels
    assert found.keys() == expected.keys()
    for key, pixels in expected.items():
        np.testing.assert_array_equal(tensorflow_pixels(found[key]["image/encoded"][0]), pixels)
    made = manifest(output)
    assert made["counts"] == {"read": 12, "written": 14, "failed": 2, "skipped": 1, "added": 5}
    assert re.fullmatch("own_step:step@sha256:[0-9a-f]{16}", made["config"]["map_image"])
    lines = {
        one["key"]: (one["reason"], one["detail"], one.get("skipped", False)) for one in failures(output)
    }
    assert lines == {
        "03.png": ("left out by map_image", "own_step:step: three", True),
        "04.png": ("map_image raised an exception", "own_step:step: ValueError: four", False),
        "05.png": (
            "map_image crashes",
            "own_step:step: its process was ended by SIGABRT, two times",
            False,
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["shards", "beam"])
def test_both_writers(writer: str, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import jsonschema

    write_step(photos.parent)
    flags = [f"--writer={writer}", "--num_shards=2", *FLAGS]
    for name in ("one", "two"):
        call = ["--input", photos, "--output", name, "--map_image=own_step:step", *flags]
        assert convert(*call) == 0
        check(photos.parent / name)
    if writer == "shards":
        assert digests(photos.parent / "one") == digests(photos.parent / "two")
    schema = json.loads((Path(tasks.__file__).with_name("manifest.schema.json")).read_text("utf-8"))
    jsonschema.validate(manifest(photos.parent / "one"), schema)
    assert command("verify", "one", "--quiet") == 0
    capsys.readouterr()
    assert command("verify", "one", "--input", photos) == 2
    assert "was made with --map_image=own_step:step@sha256" in capsys.readouterr().err


@pytest.mark.slow
def test_a_version_reuses_what_the_same_function_made(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    output, folder = photos.parent / "out", photos.parent
    call = ["--input", photos, "--output", output, "--map_image=own_step:step", "--dataset_version=auto"]
    call += ["--num_shards=3", *FLAGS]
    write_step(folder)
    assert convert(*call) == 0
    check(output / "1.0.0")
    first = manifest(output / "1.0.0")["config"]["map_image"]

    # Nothing has changed: the records that failed or were left out are so again.
    assert convert(*call) == 0
    assert not (output / "1.0.1").exists()

    # One image has changed: the other shards are those of the previous version.
    Image.fromarray(pixels_of(11)).save(photos / "11.png", compress_level=1)
    assert convert(*call) == 0
    check(output / "1.0.1")
    reused = manifest(output / "1.0.1")["provenance"]["taken_over"]
    assert (reused["shards"], reused["reason"]) == (2, "")
    scratch = folder / "scratch"
    assert convert("--input", photos, "--output", scratch, *call[4:5], "--num_shards=3", *FLAGS) == 0
    assert digests(scratch) == digests(output / "1.0.1")

    # The source of the function has changed: nothing is reused, and the job says why.
    write_step(folder, shade=7)
    assert convert(*call) == 0
    check(output / "1.0.2", shade=7)
    reused = manifest(output / "1.0.2")["provenance"]["taken_over"]
    second = manifest(output / "1.0.2")["config"]["map_image"]
    assert reused == {
        "from": "1.0.1",
        "records": 0,
        "shards": 0,
        "reason": f'--map_image was "{first}", is "{second}"',
    }
    assert first != second
    assert "nothing of version 1.0.1 is reused: --map_image was" in caplog.text


@pytest.mark.slow
def test_a_resumed_job_reuses_what_the_same_function_made(photos: Path) -> None:
    """A job that fails at the end leaves its shards; only a call with the same function takes them."""
    folder = photos.parent
    write_step(folder)
    call = ["--input", photos, "--map_image=own_step:step", "--num_shards=3", *FLAGS[1:]]
    for shade, reused in ((1, 3), (7, 0)):
        output = folder / f"out{shade}"
        write_step(folder)
        assert convert(*call, "--output", output) == 1  # above --max_failure_ratio
        write_step(folder, shade)
        assert convert(*call, "--output", output, FLAGS[0]) == 0
        check(output, shade)
        assert manifest(output)["provenance"]["reused_shards"] == reused


def darker(sample: Sample) -> Sample:
    return sample.with_pixels(sample.pixels // 2)


@pytest.mark.slow
def test_a_function_of_a_pipeline(photos: Path) -> None:
    output = photos.parent / "out"
    config = DatasetConfig(ImagePolicy("jpeg", reencode="always"), num_shards=1)
    with beam.Pipeline("FnApiRunner") as pipeline:
        source = ReadSource(SourceConfig(kind="folder", input=str(photos)))
        _ = pipeline | source | WriteDataset(str(output), config, map_image=darker)
    made = manifest(output)
    assert made["config"]["map_image"].startswith(f"{__name__}:darker@sha256:")
    assert made["counts"] == {"read": 12, "written": 12, "failed": 0, "skipped": 0, "added": 0}
    # The report shows what the function made, before and after its encoding.
    crops = json.loads((output / "report.json").read_text("utf-8"))["crops"]
    assert len(crops) == 4
    for crop in crops:
        assert 0.5 < crop["ssim"] < 1


def test_a_missing_function_is_a_wrong_call(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["--input", photos, "--output", "out"]
    assert convert(*call, "--map_image=no_step:step") == 2
    assert "--map_image is 'no_step:step': there is no module 'no_step'" in capsys.readouterr().err
    write_step(photos.parent)
    assert convert(*call, "--map_image=own_step:no") == 2
    assert "own_step.py has no 'no'" in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "other"), [(("a", "a#0"), "a#0"), (("a", "a#x#0"), "a#x#0"), (("b#0", "b#1", "a"), "")]
)
def test_keys_that_could_meet(names: tuple[str, ...], other: str, photos: Path) -> None:
    """A key that an added record of another image could get is refused."""
    records = [
        ImageRecord(name, ImageRef(str(photos / f"{number:02}.png"))) for number, name in enumerate(names)
    ]
    write = WriteDataset(str(photos.parent / "out"), DatasetConfig(num_shards=1), map_image=darker)
    message = rf"key 'a' is not unique: .*00.png; .*01.png, whose key '{other}' could also be"
    with pytest.raises(Exception, match=message) if other else contextlib.nullcontext():
        with beam.Pipeline("FnApiRunner") as pipeline:
            _ = pipeline | beam.Create(records) | write
        assert set(by_key(photos.parent / "out")) == set(names)


SCRIPT = """
import apache_beam as beam
from recordmill import DatasetConfig, ReadSource, Sample, SourceConfig, WriteDataset

SHADE = 3


def shaded(sample: Sample) -> Sample:
    return sample.with_pixels(sample.pixels + SHADE)


with beam.Pipeline("FnApiRunner") as pipeline:
    source = ReadSource(SourceConfig(kind="folder", input="photos"))
    pipeline | source | WriteDataset("out", DatasetConfig(num_shards=1), map_image=shaded)
"""


@pytest.mark.slow
def test_a_function_of_a_script(photos: Path) -> None:
    (photos.parent / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "script.py"], check=True, capture_output=True, timeout=100)
    for key, one in by_key(photos.parent / "out").items():
        pixels = tensorflow_pixels(one["image/encoded"][0])
        np.testing.assert_array_equal(pixels, pixels_of(int(key[:2])) + 3)
    assert manifest(photos.parent / "out")["config"]["map_image"].startswith("__main__:shaded@sha256:")
