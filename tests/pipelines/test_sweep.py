"""`recordmill sweep` from end to end: its figures against `convert`, its files, and what is refused."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.drawings import draw
from recordmill.pipelines.options.convert import parse_convert
from recordmill.transforms.images.store import store_image
from recordmill.transforms.sweeping.output import NAMES
from recordmill.transforms.sweeping.results import Setting
from recordmill.transforms.sweeping.settings import SweepConfig, settings
from tests.buckets.server import BucketServer
from tests.images.drawn import tensorflow_pixels
from tests.lazy import skimage_metrics
from tests.patched import patched_site
from tests.pipelines.conversion import command, convert, manifest

ROOT = Path(__file__).parents[2]
FEW = ("--qualities=80", "--target_ssim=0.9")
CONFIG = SweepConfig(qualities=(80,), targets=(0.9,))


def sweep(*args: object) -> int:
    """Exit status of `recordmill sweep`."""
    return command("sweep", *args, "--progress=none")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEGs, PNGs with and without alpha, and a damaged file, in folders of labels."""
    folder = tmp_path_factory.mktemp("input")
    for shape in ("circle", "square"):
        (folder / shape).mkdir()
        for number in range(3):
            draw(shape, number, 96, 64).save(folder / shape / f"{number}.jpg", quality=95)
        image = draw(shape, 7, 96, 64)
        image.save(folder / shape / "opaque.png")
        alpha = Image.fromarray(np.tile(np.linspace(0, 255, 96).astype(np.uint8), (64, 1)))
        image.putalpha(alpha)
        image.save(folder / shape / "clear.png")
    damaged = folder / "circle" / "damaged.jpg"
    damaged.write_bytes((folder / "circle" / "0.jpg").read_bytes()[:-300])
    return folder


@pytest.fixture(scope="module")
def swept(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("output") / "sweep"
    assert sweep("--input", photos, "--output", output, *FEW, "--worst=2", "--quiet") == 0
    return output


def figures(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "sweep.json").read_text())
    return found


def rows(output: Path) -> dict[str, dict[str, Any]]:
    return {row["setting"]: row for row in figures(output)["rows"]}


@pytest.mark.slow
def test_what_lies_in_the_folder(swept: Path) -> None:
    assert sorted(path.name for path in swept.iterdir()) == sorted(NAMES)
    found = figures(swept)
    assert found["images"] == 10
    assert found["failures"] == {"decode: truncated": 1}
    assert found["source_kind"] == "folder"
    assert list(rows(swept)) == [row.name for row in settings(CONFIG)]
    with open(swept / "sweep.csv", newline="") as lines:
        assert [line["setting"] for line in csv.DictReader(lines)] == list(rows(swept))
    assert Image.open(swept / "sweep.png").format == "PNG"
    page = (swept / "sweep.html").read_text()
    assert sum(page.count(f'<h3><bdi dir="ltr">{name}/') for name in ("circle", "square")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("row", settings(CONFIG), ids=lambda row: row.name)
def test_the_images_are_those_that_convert_stores(
    row: Setting, photos: Path, swept: Path, tmp_path: Path
) -> None:
    call = ["--input", str(photos), "--output", str(tmp_path / "out"), *row.flags.split()]
    policy = parse_convert(call, "convert").dataset.policy
    sources = [path.read_bytes() for path in photos.rglob("*.*") if path.name != "damaged.jpg"]
    found = rows(swept)[row.name]
    assert found["image_bytes"] == sum(len(store_image(data, policy).data) for data in sources)
    assert found["source_bytes"] == sum(map(len, sources))
    assert (found["images"], found["failed"]) == (10, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PNG to JPEG, q80, optimised", "SSIM 0.9"])
def test_the_bytes_are_those_that_convert_writes(
    name: str, photos: Path, swept: Path, tmp_path: Path
) -> None:
    found = rows(swept)[name]
    output = tmp_path / "out"
    args = ("--input", photos, "--output", output, "--num_shards=2", "--max_failure_ratio=1", "--quiet")
    assert convert(*args, *found["flags"].split()) == 0
    shards = list(output.glob("*.tfrecord"))
    assert len(shards) == 2
    assert found["tfrecord_bytes"] == sum(path.stat().st_size for path in shards)
    told = manifest(output)["bytes"]
    assert (found["image_bytes"], found["source_bytes"]) == (told["encoded"], told["source"])


@pytest.mark.slow
def test_the_quality_is_what_another_program_finds(photos: Path, swept: Path) -> None:
    policy = next(row.policy for row in settings(CONFIG) if row.name == "re-encoded, q80")
    found = {}
    for path in photos.rglob("*.*g"):
        if path.name == "damaged.jpg":
            continue
        source = Image.open(path).convert("RGBA")
        flat = Image.alpha_composite(Image.new("RGBA", source.size, "white"), source).convert("L")
        stored = Image.fromarray(tensorflow_pixels(store_image(path.read_bytes(), policy).data)).convert("L")
        found[f"{path.parent.name}/{path.name}"] = skimage_metrics.structural_similarity(
            np.asarray(flat),
            np.asarray(stored),
            data_range=255,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
    row = rows(swept)["re-encoded, q80"]
    assert row["compared"] == 10 and row["identical"] == 0
    assert row["ssim_mean"] == pytest.approx(np.mean(list(found.values())), abs=1e-3)
    assert row["ssim_worst"] == pytest.approx(min(found.values()), abs=2e-3)
    assert found[row["ssim_worst_key"]] == pytest.approx(row["ssim_worst"], abs=2e-3)


@pytest.mark.slow
def test_jpegs_alone_have_no_rows_that_convert_pngs(photos: Path, tmp_path: Path) -> None:
    call = ("--input", photos, "--output", tmp_path / "out", "--include=*/1.jpg", "--quiet")
    assert sweep(*call, "--qualities=80", "--target_ssim=none", "--worst=1") == 0
    expected = [row.name for row in settings(CONFIG)[:-1] if "PNG" not in row.name]
    assert list(rows(tmp_path / "out")) == expected and len(expected) == 7
    page = (tmp_path / "out" / "sweep.html").read_text()
    assert page.count("PNG to JPEG") == 1  # the note
    assert "<li>PNG to JPEG is left out: it converts no image of this input.</li>" in page
    assert (
        "PNG to JPEG is left out: it converts no image of this input." in figures(tmp_path / "out")["notes"]
    )


def test_lossless_rows_and_the_target(swept: Path) -> None:
    found = rows(swept)
    for name in ("raw pixels", "files as they are", "lossless", "lossless, progressive"):
        assert (found[name]["identical"], found[name]["ssim_worst"], found[name]["psnr_mean"]) == (
            10,
            1,
            None,
        )
    assert found["lossless"]["tfrecord_bytes"] < found["files as they are"]["tfrecord_bytes"]
    assert found["PNG to JPEG, q80"]["identical"] == 6
    target = found["SSIM 0.9"]
    assert target["ssim_worst"] >= 0.9
    assert sum(target["qualities"].values()) == 10


@pytest.mark.slow
def test_options_act(photos: Path, swept: Path, tmp_path: Path) -> None:
    def changed(*args: str) -> dict[str, dict[str, Any]]:
        call = ("--input", photos, "--output", tmp_path / "out", "--overwrite", "--quiet")
        assert sweep(*call, "--qualities=80", "--target_ssim=none", *args) == 0
        return rows(tmp_path / "out")

    before = rows(swept)["re-encoded, q80"]
    finer = changed("--subsampling=444", "--background=red", "--exclude=*damaged*")["re-encoded, q80"]
    assert finer["tfrecord_bytes"] > before["tfrecord_bytes"] and finer["psnr_mean"] > before["psnr_mean"]
    assert finer["policy"]["background"] == [255, 0, 0]
    assert figures(tmp_path / "out")["failures"] == {}
    refused = changed("--alpha=fail", "--include=*clear*", "--limit=1", "--worst=0")
    assert refused["raw pixels"]["images"] == 1
    assert [refused["re-encoded, q80"][name] for name in ("images", "failed")] == [0, 1]
    assert (
        "Refused by a setting (images, at most 1): encode: transparent." in figures(tmp_path / "out")["notes"]
    )
    assert "<figure>" not in (tmp_path / "out" / "sweep.html").read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "--input and --output must be given"),
        (("--input=nowhere", "--output={out}"), "--input is 'nowhere': there is no such file or folder"),
        (("--input={photos}", "--output={out}", "--qualities=high"), "'high' is no list of numbers"),
        (("--input={photos}", "--output={out}", "--qualities=0"), "--qualities has 0; each may be 1 to 100"),
        (("--input={photos}", "--output={out}", "--target_ssim=2"), "--target_ssim is 2; it may be above 0"),
        (("--input={photos}", "--output={out}", "--worst=-1"), "--worst is -1; it may be 0 or more"),
        (("--input={photos}", "--output={out}", "--qualites=9"), "did you mean --qualities?"),
        (("--input={photos}", "--output={out}", "--image_format=raw"), "--image_format is not a flag"),
        (("--input={photos}", "--output={out}", "--quiet", "--verbose"), "--verbose and --quiet are both"),
        (("--input={photos}", "--output={photos}"), "which is --input; give another folder"),
        (("--input={photos}", "--output={photos}", "--overwrite"), "which is --input; give another folder"),
        (
            ("--input={photos}", "--output=s3://bucket/out"),
            "--output is 's3://bucket/out'; local folders and",
        ),
    ],
)
def test_bad_calls(
    args: tuple[str, ...], message: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"photos": photos, "out": tmp_path / "out"}
    assert sweep(*(arg.format(**places) for arg in args)) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_no_image_at_all_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(b"nothing")
    assert sweep("--input", tmp_path / "in", "--output", tmp_path / "out", "--quiet") == 1
    said = capsys.readouterr().err
    assert "error: there is no image to measure: 1 inputs failed; most often, 1 times, decode: " in said
    assert said.count("\n") == 1
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_a_sweep_is_replaced_when_asked_and_the_table_is_printed(
    photos: Path, swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    shutil.copytree(swept, output)
    (output / "mine.txt").write_text("mine")
    (output / "sweep.png.part").write_bytes(b"mine")
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    call = ("--input", photos, "--output", output, "--qualities=80", "--target_ssim=none", "--limit=2")
    assert sweep(*call) == 2
    assert "which holds a sweep already; --overwrite replaces it" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    assert sweep(*call, "--overwrite") == 0
    assert (output / "mine.txt").read_text() == "mine"
    assert sorted(path.name for path in output.iterdir()) == sorted((*NAMES, "mine.txt", "sweep.png.part"))
    assert figures(output)["images"] == 2
    said = capsys.readouterr()
    lines = said.out.split("\n")
    for row in rows(output).values():
        assert any(row["setting"] in line and f"{row['tfrecord_bytes']:,}" in line for line in lines)
    assert f"{output}/: sweep.html" in said.out
    assert said.err.startswith("source: folder (")


@pytest.mark.slow
def test_as_a_module_with_the_threads_of_beam(photos: Path, swept: Path, tmp_path: Path) -> None:
    call = [
        sys.executable,
        "-m",
        "recordmill.pipelines.sweep",
        "--input",
        photos,
        "--output",
        tmp_path / "out",
        "--quiet",
    ]
    args = (*FEW, "--worst=1", "--runner=DirectRunner", "--direct_running_mode=multi_threading")
    done = subprocess.run([*map(str, call), *args], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, "")
    one, other = rows(swept), rows(tmp_path / "out")
    for name, row in one.items():
        for figure in (
            "tfrecord_bytes",
            "ssim_mean",
            "ssim_worst",
            "ssim_worst_key",
            "psnr_mean",
            "qualities",
        ):
            assert row[figure] == other[name][figure]


@pytest.mark.slow
def test_an_interruption_leaves_nothing(photos: Path, tmp_path: Path) -> None:
    patch = (
        "import os, signal\n"
        "def patch(module):\n"
        "    module.write_files = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
    )
    site = patched_site(tmp_path, "recordmill.transforms.sweep", patch)
    environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}"}
    call = [
        sys.executable,
        "-m",
        "recordmill.pipelines.cli",
        "sweep",
        "--input",
        photos,
        "--output",
        tmp_path / "out",
    ]
    done = subprocess.run(
        [*map(str, call), "--qualities=80", "--target_ssim=none", "--limit=2", "--quiet"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 130
    assert done.stderr == f"\ninterrupted; nothing new is written to {tmp_path / 'out'}\n"
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_from_a_bucket_into_a_bucket(
    photos: Path, swept: Path, bucket: str, bucket_server: BucketServer
) -> None:
    pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", reason="the extra gcp is not installed")
    bucket_server.upload_folder(photos, f"{bucket}/in")
    bucket_server.put(f"{bucket}/out-small/mine.txt", b"mine")
    bucket_server.clear()
    call = ("--input", f"{bucket}/in", "--output", f"{bucket}/out", *FEW, "--worst=2", "--quiet")
    assert sweep(*call) == 0
    reads = Counter(one.name for one in bucket_server.requests if one.kind == "get-media")
    images = [count for name, count in reads.items() if name.startswith("in/")]
    # The two worst, for their crops; and two that detection compares, since their names are the same.
    assert sorted(images)[:7] == [1] * 7 and len(images) == 11 and max(images) <= 3
    assert sorted(bucket_server.names(f"{bucket}/out/")) == [f"{bucket}/out/{name}" for name in sorted(NAMES)]
    found = json.loads(bucket_server.get(f"{bucket}/out/sweep.json"))["rows"]
    for one, other in zip(found, figures(swept)["rows"], strict=True):
        for figure in ("tfrecord_bytes", "ssim_worst_key", "ssim_mean", "psnr_mean"):
            assert one[figure] == other[figure]
    assert sweep(*call) == 2
    assert sweep(*call, "--overwrite", "--limit=2") == 0
    assert json.loads(bucket_server.get(f"{bucket}/out/sweep.json"))["images"] == 2
    assert bucket_server.get(f"{bucket}/out-small/mine.txt") == b"mine"
