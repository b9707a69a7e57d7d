"""The flags about images on the command line: what they make of a dataset, and what is told of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.filesize import decimal

from benchmarks.drawings import draw
from recordmill.pipelines.options.convert import parse_convert
from recordmill.transforms.images.policy import ImagePolicy
from tests.lazy import jsonschema, tf, tfds
from tests.pipelines.conversion import by_key, convert, digests, examples, failures, manifest

SCHEMA = Path(__file__).parents[2] / "transforms" / "shards" / "manifest.schema.json"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four JPEGs of quality 97, and two transparent PNGs."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    folder.mkdir()
    for index in range(4):
        draw("circle", index, 96, 72, noise=5).save(folder / f"{index}.jpg", quality=97, subsampling="4:4:4")
    for index in range(2):
        image = draw("square", index, 96, 72)
        image.putalpha(Image.linear_gradient("L").resize(image.size))
        image.save(folder / f"clear {index}.png")
    return folder


@pytest.mark.slow
def test_what_transparency_costs_is_told(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert("--input", photos, "--output", tmp_path / "kept", "--image_format=jpeg") == 0
    said = " ".join(capsys.readouterr().out.split())
    kept = manifest(tmp_path / "kept")
    assert kept["actions"] == {"reencoded": 4, "kept": 2, "alpha_kept": 2}
    flags = ("--image_format=jpeg", "--alpha=flatten", "--background=#fff")
    assert convert("--input", photos, "--output", tmp_path / "flat", *flags) == 0
    flat = manifest(tmp_path / "flat")
    assert flat["actions"] == {"reencoded": 4, "transcoded": 2, "flattened": 2}
    assert flat["alpha"] == {"images": 0, "bytes": 0, "flattened_bytes": 0}
    transparent = [path.stat().st_size for path in photos.glob("*.png")]
    saved = kept["bytes"]["encoded"] - flat["bytes"]["encoded"]
    assert kept["alpha"] == {
        "images": 2,
        "bytes": sum(transparent),
        "flattened_bytes": sum(transparent) - saved,
    }
    assert "2 images kept theirs, in " in said
    assert f"--alpha flatten would save {decimal(saved)}" in said
    assert "would save" not in capsys.readouterr().out
    jsonschema.validate(kept, json.loads(SCHEMA.read_text("utf-8")))


@pytest.mark.slow
def test_transparent_images_fail_where_they_shall(photos: Path, tmp_path: Path) -> None:
    flags = ("--alpha=fail", "--max_failure_ratio=0.5")
    assert convert("--input", photos, "--output", tmp_path / "out", *flags) == 0
    found = {failure["key"]: (failure["stage"], failure["reason"]) for failure in failures(tmp_path / "out")}
    assert found == dict.fromkeys(("clear 0.png", "clear 1.png"), ("encode", "transparent"))


@pytest.mark.parametrize("schema", ["classification", pytest.param("plain", marks=pytest.mark.slow)])
def test_chosen_qualities_are_in_the_records_and_in_the_manifest(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], schema: str
) -> None:
    output = tmp_path / "out"
    flags = ("--image_format=jpeg", "--target_ssim=0.97", "--label_pattern=([a-z0-9]+)", f"--schema={schema}")
    assert convert("--input", photos, "--output", output, *flags) == 0
    prefix = "" if schema == "plain" else "image/"
    image = "image_raw" if schema == "plain" else "image/encoded"
    qualities = []
    for one in examples(output):
        (quality,) = one[f"{prefix}jpeg_quality"]
        qualities.append(quality)
        expected = io.BytesIO()
        Image.new("RGB", (8, 8)).save(expected, "JPEG", quality=quality or 97)
        if one[image][0].startswith(b"\xff\xd8"):
            tables = [
                Image.open(io.BytesIO(data)).quantization for data in (one[image][0], expected.getvalue())
            ]
            assert tables[0] == tables[1]
        else:
            assert quality == 0
    told = manifest(output)["jpeg_qualities"]
    assert told == {str(quality): qualities.count(quality) for quality in sorted(set(qualities))}
    assert told["0"] == 2
    assert "JPEG quality" in capsys.readouterr().out
    dataset = tfds.builder_from_directory(str(output)).as_dataset(split="train")
    read = [int(one[f"{prefix}jpeg_quality"]) for one in dataset]
    assert sorted(read) == sorted(qualities)


@pytest.mark.slow
def test_plain_is_pixels_unless_told_otherwise(photos: Path, tmp_path: Path) -> None:
    call = ("--input", str(photos), "--output", str(tmp_path / "out"), "--schema=plain")
    assert convert(*call) == 0
    for one in examples(tmp_path / "out"):
        assert len(one["image_raw"][0]) == 96 * 72 * one["depth"][0]
    told = parse_convert([*call, "--overwrite", "--image_format=keep"], "convert")
    assert told.dataset.policy.image_format == "keep"


@pytest.mark.slow
def test_every_flag_at_once_gives_the_same_bytes_twice(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (
        *(
            "--image_format=jpeg",
            "--jpeg_quality=80",
            "--subsampling=422",
            "--reencode=smaller",
            "--size=40x60",
        ),
        *("--fit=pad", "--background=navy", "--color=rgb", "--alpha=flatten", "--optimize=lossless"),
        *("--metadata=strip", "--exif=apply", "--validate=decode", "--num_shards=2"),
    )
    for name in ("one", "two"):
        assert convert("--input", photos, "--output", tmp_path / name, *flags) == 0
    assert "times as long" not in capsys.readouterr().out
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    for one in by_key(tmp_path / "one").values():
        pixels = tf.io.decode_jpeg(one["image/encoded"][0]).numpy()
        assert pixels.shape == (40, 60, 3)
        assert np.abs(pixels[:, 0].astype(int) - (0, 0, 128)).mean() < 6
    told = manifest(tmp_path / "one")["config"]
    assert (told["subsampling"], told["size"], told["background"]) == ("422", [40, 60], [0, 0, 128])


@pytest.mark.slow
def test_the_price_of_progressive_jpegs_is_told(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert("--input", photos, "--output", tmp_path / "a", "--optimize=lossless-progressive") == 0
    assert "2.1 to 2.6 times as long" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--jpeg_quality=90"], "--jpeg_quality is 90, which only --image_format=jpeg or webp uses"),
        (["--image_format=png", "--jpeg_quality=80"], "; --image_format is png"),
        (["--image_format=jpeg", "--target_ssim=0.9", "--jpeg_quality=90"], "--target_ssim chooses for each"),
        (["--target_ssim=0.9"], "--target_ssim is 0.9, which only --image_format=jpeg uses"),
        (["--image_format=jpeg", "--target_ssim=0"], "--target_ssim is 0; it may be above 0 and at most 1"),
        (["--image_format=jpeg", "--target_ssim=nan"], "--target_ssim is nan"),
        (
            ["--image_format=webp", "--subsampling=420"],
            "--subsampling is 420, which only --image_format=jpeg",
        ),
        (
            ["--image_format=png", "--reencode=smaller"],
            "--reencode is smaller, which only --image_format=jpeg",
        ),
        (["--max_side=9", "--short_side=9"], "--max_side and --short_side both decide the size"),
        (["--short_side=9", "--size=9x9"], "--short_side and --size both decide the size"),
        (["--metadata=keep"], "--metadata is 'keep'; it may be auto or strip"),
        (["--max_side=0"], "--max_side is 0; it may be 1 or more"),
        (["--size=9"], "argument --size: '9' is not a size; write HEIGHTxWIDTH in pixels, such as 224x320"),
        (["--size=0x9"], "--size has 0 pixels"),
        (["--image_format=webp", "--size=9x20000"], "with --image_format=webp a side may have 1 to 16,383"),
        (["--size=100000x100000"], "--size is 100000x100000; it may have 178,956,970 pixels"),
        (["--max_side=9", "--fit=pad"], "--fit is pad, which needs --size, which is not given"),
        (["--background=red"], "--background is 255,0,0, which only --alpha=flatten and --fit=pad use"),
        (["--alpha=flatten", "--background=nice"], "argument --background: "),
        (["--image_format=raw", "--optimize=lossless"], "--optimize is lossless, which makes JPEGs and PNGs"),
        (["--image_format=png", "--optimize=lossless-progressive"], "--optimize=lossless is for PNGs"),
        (["--image_format=tensor", "--optimize=lossless"], "--optimize is lossless, which makes JPEGs"),
        (["--image_format=webp", "--optimize=lossless"], "--optimize is lossless, which makes JPEGs"),
        *(
            (
                ["--image_format=jpeg", f"--reencode={way}", f"--alpha={alpha}", "--optimize=lossless"],
                f"is for PNGs, and --image_format is jpeg, --reencode {way} and --alpha {alpha}, which leave",
            )
            for way in ("always", "needed")
            for alpha in ("flatten", "fail")
        ),
        (["--image_format=tensor", "--metadata=strip"], "--metadata is strip, which pixels cannot carry"),
        (["--color=grey"], "--color is 'grey'; it may be keep, rgb or gray"),
    ],
)
def test_bad_calls(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, *flags) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    "flags",
    [
        ["--alpha=flatten"],
        ["--reencode=always"],
        ["--reencode=always", "--alpha=flatten", "--target_ssim=0.9"],
    ],
)
def test_lossless_optimization_where_pngs_may_stay(photos: Path, tmp_path: Path, flags: list[str]) -> None:
    call = ["--input", str(photos), "--output", str(tmp_path / "out"), "--image_format=jpeg", *flags]
    options = parse_convert([*call, "--optimize=lossless"], "convert")
    assert options.dataset.policy.optimize == "lossless"


def test_defaults(photos: Path, tmp_path: Path) -> None:
    options = parse_convert(["--input", str(photos), "--output", str(tmp_path / "out")], "convert")
    assert options.dataset.policy == ImagePolicy()
