"""The benchmarks measure what they say, and the programs that are compared do the same work."""

from __future__ import annotations

import collections
import dataclasses
import io
import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image, ImageCms
from PIL.JpegImagePlugin import JpegImageFile

from benchmarks import compare, works
from benchmarks.inputs import draw_digits, draw_jpegs, draw_manifest
from benchmarks.measure import ROOT, run, run_python
from benchmarks.peers import beam_pipeline, process_loop
from benchmarks.peers.items import list_items, read_rows
from benchmarks.performance_page import OURS, ratio, seconds_beyond_startup, update_page
from benchmarks.photographs import draw_boxes, draw_photographs, draw_pngs, draw_small
from benchmarks.readers import READERS, Reader, Reading, check_same, time_epochs
from benchmarks.report import markdown_table
from benchmarks.works import PROGRAMS, WORKS, convert, link_images
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from tests.lazy import tf

IMAGES = 24
SIZES = {"kept": IMAGES, "boxes": 12, "png": 10, "small": 20, "rows": 30}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The input of each work; works on photographs share one."""
    folder = tmp_path_factory.mktemp("inputs")
    found = {}
    for work in WORKS:
        if work.name in SIZES:
            found[work.name] = folder / f"{work.name}{'.csv' if work.name == 'rows' else ''}"
            work.draw(found[work.name], SIZES[work.name])
    return found | {"q90": found["kept"], "side256": found["kept"]}


@pytest.mark.slow
def test_photographs_are_of_many_kinds(inputs: dict[str, Path]) -> None:
    kinds: collections.Counter[str] = collections.Counter()
    files = sorted(inputs["kept"].rglob("*.*"))
    assert len({path.read_bytes() for path in files}) == len(files) == IMAGES
    for path in files:
        with Image.open(path) as image:
            image.load()
            assert 49_000 < image.width * image.height < 12_100_000
            kinds[f"{image.format} {image.mode}"] += 1
            kinds["exif"] += bool(image.getexif())
            if profile := image.info.get("icc_profile"):
                kinds["profile"] += 1
                opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
                red = Image.new("RGB", (1, 1), (200, 40, 40))
                srgb = ImageCms.profileToProfile(red, opened, ImageCms.createProfile("sRGB"))
                assert srgb is not None and srgb.getpixel((0, 0)) != (200, 40, 40)
            if isinstance(image, JpegImageFile) and image.mode == "RGB":
                kinds[simplejpeg.decode_jpeg_header(path.read_bytes())[3]] += 1
    assert kinds == {
        "JPEG RGB": 18,
        "JPEG L": 2,
        "JPEG CMYK": 2,
        "PNG RGB": 2,
        "exif": 20,
        "profile": 6,
        "444": 10,
        "420": 8,
    }


def test_jpegs_of_one_size(tmp_path: Path) -> None:
    draw_jpegs(tmp_path / "photos", 6)
    for path in (tmp_path / "photos").rglob("*.jpg"):
        assert 50_000 < path.stat().st_size < 90_000
        assert simplejpeg.decode_jpeg_header(path.read_bytes()) == (360, 480, "YCbCr", "420")
        with Image.open(path) as image:
            assert image.info["comment"] == path.stem.encode()


@pytest.mark.slow
def test_inputs_are_taken_for_what_they_are(inputs: dict[str, Path], tmp_path: Path) -> None:
    draw_digits(tmp_path / "digits", 20)
    draw_manifest(tmp_path / "rows.csv", 20)
    assert detect(SourceConfig("auto", str(tmp_path / "digits")))[0] == "idx"
    kind, why, _ = detect(SourceConfig("auto", str(tmp_path / "rows.csv")))
    assert kind == "csv" and "features alone" in why
    assert detect(SourceConfig("auto", str(inputs["boxes"])))[0] == "coco"
    assert detect(SourceConfig("auto", str(inputs["small"])))[0] == "folder"


@pytest.mark.slow
def test_images_of_ones_own(inputs: dict[str, Path], tmp_path: Path) -> None:
    link_images(inputs["kept"])(tmp_path / "own", 5)
    copies = sorted(path.read_bytes() for path in (tmp_path / "own").rglob("*.*"))
    assert copies == sorted(path.read_bytes() for path in sorted(inputs["kept"].rglob("*.*"))[:5])
    with pytest.raises(SystemExit, match=r"--input .*: no \.jpg, \.jpeg or \.png in it"):
        link_images(inputs["rows"].parent / "nothing")(tmp_path / "none", 5)


def records_of(folder: Path) -> list[Any]:
    files = sorted(str(path) for path in folder.rglob("*") if "tfrecord" in path.name)
    return [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(files)]


def values(example: Any, *names: str) -> list[Any]:
    """The values of the first of these features that the Example has."""
    feature = next(example.features.feature[name] for name in names if name in example.features.feature)
    return list(getattr(feature, feature.WhichOneof("kind")).value)


def image_of(example: Any) -> bytes:
    [data] = values(example, "image/encoded", "image")
    assert isinstance(data, bytes)
    return data


def outputs(work: str, inputs: dict[str, Path], output: Path) -> dict[str, list[Any]]:
    """The records of all programs but img2dataset; other programs run in this process."""
    one = next(found for found in WORKS if found.name == work)
    found = {}
    for program in PROGRAMS:
        if program.name in ("codecs", "img2dataset") or (program.works and work not in program.works):
            continue
        target = output / program.name
        _, _, module, *arguments = program.command(one, inputs[work], target)
        if module == "recordmill":
            run_python(["-m", module, *arguments])
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", [module, *arguments])
                runpy.run_module(module, run_name="__main__", alter_sys=True)
        found[program.name] = records_of(target)
        shutil.rmtree(target)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("work", ["kept", "small", "boxes"])
def test_programs_keep_the_same_images(work: str, inputs: dict[str, Path], tmp_path: Path) -> None:
    files = sorted(path.read_bytes() for path in inputs[work].rglob("*.*") if path.suffix != ".json")
    found = outputs(work, inputs, tmp_path)
    assert {"recordmill", "header", "beam", "tfds", "tfds_beam", "tensorflow", "loop"} <= set(found)
    for name, records in found.items():
        assert sorted(map(image_of, records)) == files, name
    if work == "boxes":
        boxes = {image_of(record): values(record, "image/object/bbox/ymin") for record in found["recordmill"]}
        assert {len(edges) for edges in boxes.values()} == {7}
        for name in ("beam", "tensorflow", "loop"):
            for record in found[name]:
                edges = values(record, "image/object/bbox/ymin")
                assert np.allclose(edges, boxes[image_of(record)], atol=1e-6), name


@pytest.mark.slow
@pytest.mark.parametrize("work", ["q90", "side256", "png"])
def test_programs_encode_the_same_images(work: str, inputs: dict[str, Path], tmp_path: Path) -> None:
    found = outputs(work, inputs, tmp_path)
    number = SIZES["png" if work == "png" else "kept"]
    sizes = {}
    for name, records in found.items():
        stored = [simplejpeg.decode_jpeg_header(image_of(record)) for record in records]
        sizes[name] = sorted(header[:2] for header in stored)
        assert len(records) == number, name
        if name in ("recordmill", "beam", "loop"):
            assert all(header[3] in ("420", "Gray") for header in stored), name
    assert len({tuple(each) for each in sizes.values()}) == 1
    if work != "side256":  # which we scale after another decode
        assert sorted(map(image_of, found["loop"])) == sorted(map(image_of, found["recordmill"]))


@pytest.mark.slow
def test_programs_write_the_same_rows(inputs: dict[str, Path], tmp_path: Path) -> None:
    expected = {row.customer: row for row in read_rows(inputs["rows"])}
    assert len(expected) == SIZES["rows"]
    for name, records in outputs("rows", inputs, tmp_path).items():
        for record in records:
            row = expected[values(record, "customer")[0]]
            assert values(record, "score") == [np.float32(row.score)], name
            assert values(record, "note") == [row.note.encode()], name
        assert len(records) == len(expected), name


@pytest.mark.slow
def test_loops_write_images_and_boxes(inputs: dict[str, Path], tmp_path: Path) -> None:
    items = list_items(inputs["boxes"])
    process_loop.write_shard("boxes", items, tmp_path / "train.tfrecord")
    assert (tmp_path / "train.tfrecord").stat().st_size > sum(
        Path(item.path).stat().st_size for item in items
    )
    row = next(read_rows(inputs["rows"]))
    assert row.city.encode() in beam_pipeline.example(row, "rows")
    process_loop.call_codecs("kept", items)
    process_loop.call_codecs("side256", items[:3])


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="status 3:\nno such luck"):
        run_python(["-c", "import sys; print('no such luck'); sys.exit(3)"])


@pytest.mark.slow
def test_time_and_memory_are_of_all_processes() -> None:
    hold = "import time; held = b'x' * 100_000_000; time.sleep(0.6)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    alone, both = run([sys.executable, "-c", hold]), run_python(["-c", parent])
    assert 100_000_000 < alone.rss < 140_000_000
    assert alone.rss < both.rss < 160_000_000
    assert both.seconds > 0.6


def test_tables_are_markdown() -> None:
    assert markdown_table(("a", "b"), [("c", "1")]) == "| a | b |\n| --- | ---: |\n| c | 1 |"


def runs(few: float, *everything: float) -> dict[str, Any]:
    return {
        "few": [{"seconds": few, "rss": 1}],
        "all": [{"seconds": seconds, "rss": 250_000_000} for seconds in everything],
        "bytes": 3_000_000,
    }


def test_ratios_are_beyond_startup_with_their_range() -> None:
    seconds = seconds_beyond_startup
    assert ratio(seconds(runs(1, 3, 5, 4)), seconds(runs(2, 8, 8, 8))) == "2.00 (1.50 to 3.00)"
    assert ratio(seconds(runs(1, 3)), seconds(runs(2, 3))) == "0.50"
    assert ratio(seconds(runs(1, 3, 3)), seconds(runs(2, 3, 2.5))) == "–"  # as long as start-ups vary


def test_the_page_says_who_is_ahead(tmp_path: Path) -> None:
    names = ("machine", "conversions", "behind", "programs", "readers")
    page = tmp_path / "performance.md"
    parts = "".join(f"Of {name}:\n<!-- measured: {name} -->old\n<!-- end of measured -->\n" for name in names)
    page.write_text(parts.replace("-->old", "-->\nold"))
    (tmp_path / "images").mkdir()
    programs = {
        OURS: runs(1, 3),
        "header": runs(1, 2.5),
        "beam": runs(1, 9),
        "loop": runs(0.5, 2),
        "tfds": runs(9, 10),
    }
    reading = {"items": 100, "readers": {reader.title: [1.0, 2.0, 2.0] for reader in READERS}}
    found = {
        "machine": "a machine",
        "works": {"kept": {"items": 1000, "size": 4_000_000, "programs": programs}},
        "readers": {"PNGs": reading},
    }
    for _ in range(2):  # it is replaced, not added
        update_page(page, found)
    text = page.read_text()
    assert "old" not in text and text.count("a machine.") == 1
    assert "### Photographs, kept\n\n1,000 items, 4 MB; 1 round." in text
    assert "| Recordmill | 500 | 1 | 1.0 | 250 MB | 3 MB |" in text
    assert "| plain Beam, `WriteToTFRecord` | 125 | 4.00 | 1.0 | 250 MB | 3 MB |" in text
    assert "| TFDS builder | – | – | 9.0 | 250 MB | 3 MB |" in text
    loop = (
        "- photographs, kept: loop without TensorFlow, all cores (0.75 of its speed; 1.00 with Recordmill, "
    )
    assert f"{loop}`--validate header`)" in text
    assert text.count("of its speed") == 1
    assert "| `load_dataset` | 50 | 1 |" in text
    assert "| tf.data, written by hand | 50 | 1.00 (1.00 to 1.00) |" in text
    assert (tmp_path / "images/performance.svg").read_text().startswith("<?xml")


def test_the_page_has_all_parts() -> None:
    page = (ROOT / "docs/performance.md").read_text("utf-8")
    for name in ("machine", "conversions", "behind", "programs", "readers"):
        assert page.count(f"<!-- measured: {name} -->") == 1
    assert page.count("<!-- end of measured -->") == 5


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the programs, which are run above."""

    def cheap(work: works.Work, source: Path, output: Path) -> list[str]:
        code = "import pathlib, sys; path = pathlib.Path(sys.argv[1]); path.mkdir(); "
        code += "(path / 'a.tfrecord').write_text('xy')"
        return [sys.executable, "-c", code, str(output)]

    monkeypatch.setattr(compare, "PROGRAMS", [dataclasses.replace(one, command=cheap) for one in PROGRAMS])
    page = tmp_path / "page.md"
    page.write_text("<!-- measured: conversions -->\n<!-- end of measured -->\n")
    (tmp_path / "images").mkdir()
    call = ["--images", "40", "--small", "40", "--rows", "40", "--repeats", "2", "--page", str(page)]
    compare.main([*call, "--work", str(tmp_path / "work"), "--works", "small,rows"])
    compare.main([*call, "--work", str(tmp_path / "work"), "--works", "png", "--programs", "recordmill,beam"])
    found = json.loads((tmp_path / "work/results.json").read_text())["works"]
    assert {name: work["items"] for name, work in found.items()} == {"small": 40, "rows": 40, "png": 10}
    assert found["rows"]["programs"].keys() == {one.name for one in PROGRAMS if not one.works}
    assert [len(found["small"]["programs"]["img2dataset"][part]) for part in ("few", "all")] == [2, 2]
    assert found["png"]["programs"]["beam"]["bytes"] == 2
    assert page.read_text().count("### ") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--images", "10"), "--images, --small and --rows must be at least 40"),
        (("--repeats", "0"), "--repeats at least 1"),
        (("--input", "no/folder"), "--input no/folder: not a folder"),
        (("--page", "no.md"), "--page no.md: no file; give a page like docs/performance.md"),
        (("--works", "kept,mp3"), "mp3: not one of kept, q90, side256, png, small, rows, boxes"),
        (("--programs", "dali"), "dali: not one of recordmill, header,"),
    ],
)
def test_a_wrong_call(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        compare.main(arguments)
    assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    folder = tmp_path_factory.mktemp("reading")
    draw_small(folder / "small", 40)
    run_python(convert(folder / "small", folder / "records", "--quiet", "--num_shards=2"))
    return Reading("small", folder / "records", None)


@pytest.mark.slow
def test_readers_do_the_same_work(reading: Reading) -> None:
    assert check_same(reading) == 40
    assert {len(each) for each in time_epochs(reading, 2).values()} == {2}
    call = [sys.executable, "-m", "benchmarks.peers.pytorch_reader", str(reading.folder), "0", "2"]
    assert len(json.loads(subprocess.check_output(call, cwd=ROOT))) == 2


@pytest.mark.slow
def test_a_reader_that_does_less_is_found(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    less = Reader("less", lambda one: READERS[0].dataset(one).take(1))
    monkeypatch.setattr("benchmarks.readers.READERS", (READERS[0], less))
    with pytest.raises(RuntimeError, match="small: the readers yield different images or labels"):
        check_same(reading)


def test_drawings_do_not_depend_on_their_number(tmp_path: Path) -> None:
    for draw, suffix in ((draw_pngs, "png"), (draw_small, "png")):
        draw(tmp_path / f"a{draw.__name__}", 3)
        draw(tmp_path / f"b{draw.__name__}", 4)
        first = tmp_path / f"a{draw.__name__}/circle/00000000.{suffix}"
        assert first.read_bytes() == (tmp_path / f"b{draw.__name__}/circle/00000000.{suffix}").read_bytes()
    draw_boxes(tmp_path / "boxes", 2)
    assert len(json.loads((tmp_path / "boxes/annotations.json").read_text())["annotations"]) == 14
    draw_photographs(tmp_path / "photographs", 2)
    assert len(list((tmp_path / "photographs").rglob("*.jpg"))) == 2
