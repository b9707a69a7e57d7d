import csv
import dataclasses
import io
import json

import pytest

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.sweeping.results import Setting
from recordmill.transforms.sweeping.tables import csv_text, json_text, read_json
from tests.sweeping.found import BETTER, EVIL, FILES, RAW, TARGET, WORSE, row, sweep


def lines() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(sweep()))))


def test_csv_has_a_line_a_setting() -> None:
    assert [line["setting"] for line in lines()] == [
        "raw pixels",
        "files as they are",
        "re-encoded, q90",
        "re-encoded, q75",
        "SSIM 0.98",
    ]


def test_csv_figures() -> None:
    assert lines()[2] == {
        "setting": "re-encoded, q90",
        "group": "re-encoded",
        "value": "90",
        "flags": BETTER.flags,
        "images": "10",
        "failed": "3",
        "source_bytes": "10000",
        "tfrecord_bytes": "4000",
        "image_bytes": "3500",
        "ratio": "0.4",
        "bytes_per_image": "400",
        "encode_images_per_second": "2.5",
        "decode_images_per_second": "2000",
        "compared": "10",
        "identical": "0",
        "ssim_mean": "0.99996",
        "ssim_worst": "0.95",
        "ssim_worst_key": EVIL,
        "psnr_mean": "38.25",
    }


def test_csv_leaves_what_is_not_known_empty() -> None:
    assert (lines()[0]["psnr_mean"], lines()[0]["value"]) == ("", "")


def test_json_keys() -> None:
    found = json.loads(json_text(sweep()))
    assert list(found) == [
        "format_version",
        "input",
        "source_kind",
        "images",
        "failures",
        "started",
        "packages",
        "notes",
        "rows",
    ]
    assert found["failures"] == {"empty": 1, f"no image {EVIL}": 2}
    only_json = {"encode_seconds", "decode_seconds", "qualities", "policy"}
    assert set(found["rows"][0]) == set(lines()[0]) | only_json
    assert found["rows"][4]["qualities"] == {"0": 4, "71": 1, "75": 2, "88": 3}
    assert found["rows"][4]["ratio"] == 0.3
    assert found["rows"][2]["policy"]["background"] == [255, 0, 16]
    assert found["rows"][0]["psnr_mean"] is None


def test_json_is_read_back_as_it_was() -> None:
    assert read_json(json_text(sweep())) == dataclasses.replace(sweep(), crops=())


def test_sizes_are_read_back_as_tuples() -> None:
    resized = Setting("resized", "files", None, ImagePolicy(size=(30, 40)))
    before = dataclasses.replace(sweep(), rows=(row(resized, 100, None, None),), crops=())
    assert read_json(json_text(before)) == before


def test_json_of_another_version_is_refused() -> None:
    text = json_text(sweep()).replace('"format_version": 1', '"format_version": 2')
    with pytest.raises(ValueError, match="format_version of sweep.json is 2"):
        read_json(text)


@pytest.mark.parametrize(
    ("setting", "flags"),
    [
        (RAW, "--image_format=raw"),
        (FILES, ""),
        (
            BETTER,
            "--image_format=jpeg --jpeg_quality=90 --reencode=always --alpha=flatten --background=#ff0010",
        ),
        (
            WORSE,
            "--image_format=jpeg --jpeg_quality=75 --reencode=always --alpha=flatten --background=#ff0010",
        ),
        (TARGET, "--image_format=jpeg --target_ssim=0.98"),
        (Setting("small", "files", None, ImagePolicy(size=(30, 40))), "--size=30x40"),
    ],
)
def test_flags(setting: Setting, flags: str) -> None:
    assert setting.flags == flags


def test_a_group_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is 'jpegs'; it may be one of pixels, files"):
        Setting("x", "jpegs", None, ImagePolicy())


def test_figures_of_nothing() -> None:
    nothing = dataclasses.replace(
        row(FILES, 0, None, None), images=0, source_bytes=0, encode_seconds=0.0, decode_seconds=0.0
    )
    figures = (nothing.ratio, nothing.bytes_per_image, nothing.encode_rate, nothing.decode_rate)
    assert figures == (None, None, None, None)
