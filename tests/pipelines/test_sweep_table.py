import dataclasses
import io

import pytest
from rich.console import Console

from recordmill.pipelines.sweep_table import print_table
from recordmill.transforms.sweeping.results import Sweep
from tests.sweeping.found import EVIL, sweep


def printed(found: Sweep, width: int) -> list[str]:
    """What a terminal of that width shows."""
    out = io.StringIO()
    terminal = Console(file=out, width=width, force_terminal=True, color_system=None, markup=False)
    print_table(found, terminal)
    return out.getvalue().splitlines()


def test_wide() -> None:
    lines = printed(sweep(), 200)
    assert lines[2:9] == [
        "                   TFRecord     ratio  an image    encode    decode    SSIM    SSIM  PSNR",
        "setting               bytes  to files     bytes  images/s  images/s    mean   worst    dB",
        "raw pixels           83,000     8.300     8,300       2.5     2,000       1       1     -",
        "files as they are    10,500     1.050     1,050       2.5     2,000       1       1     -",
        "re-encoded, q90       4,000     0.400       400       2.5     2,000  0.9999  0.9500  38.2",
        "re-encoded, q75       2,500     0.250       250       2.5     2,000  0.9000  0.7000  38.2",
        "SSIM 0.98             3,000     0.300       300       2.5     2,000  0.9850  0.9800  38.2",
    ]
    assert "3 refused by re-encoded, q90" in lines
    assert not any("room" in line for line in lines)


def test_less_room_is_for_rounded_figures_under_headings() -> None:
    lines = printed(sweep(), 75)
    assert lines[2:11] == [
        "                  TFRecord ratio an image encode decode   SSIM   SSIM PSNR",
        "setting              bytes          bytes  img/s  img/s   mean  worst   dB",
        "raw pixels         83.0 kB 8.300   8.3 kB    2.5  2,000      1      1    -",
        "files as they are  10.5 kB 1.050   1.1 kB    2.5  2,000      1      1    -",
        "re-encoded",
        "  q90               4.0 kB 0.400    400 B    2.5  2,000 0.9999 0.9500 38.2",
        "  q75               2.5 kB 0.250    250 B    2.5  2,000 0.9000 0.7000 38.2",
        "target SSIM",
        "  SSIM 0.98         3.0 kB 0.300    300 B    2.5  2,000 0.9850 0.9800 38.2",
    ]
    assert "3 refused by re-encoded, q90" in lines


def test_eighty_columns_hold_the_longest_names_and_figures_of_a_large_set() -> None:
    names = ("raw pixels", "lossless, progressive", "re-encoded, q90", "re-encoded, q75", "SSIM 0.98")
    large = [
        dataclasses.replace(
            row,
            setting=dataclasses.replace(row.setting, name=name),
            source_bytes=12_000_000_000,
            tfrecord_bytes=123_456_789_012,
            images=120_001,
            encode_seconds=0.01,
            decode_seconds=5.0,
        )
        for row, name in zip(sweep().rows, names, strict=True)
    ]
    lines = printed(dataclasses.replace(sweep(), rows=tuple(large)), 80)
    assert max(map(len, lines)) <= 80
    assert sum("123.5 GB" in line and "12.0M" in line and "  24k" in line for line in lines) == 5
    assert not any("room" in line for line in lines)


def test_fifty_columns_hold_what_matters_and_say_so() -> None:
    lines = printed(sweep(), 50)
    assert lines[3:6] == [
        "                  TFRecord ratio   SSIM   SSIM",
        "setting              bytes         mean  worst",
        "raw pixels         83.0 kB 8.300      1      1",
    ]
    assert max(map(len, lines)) <= 50
    said = " ".join(line.strip() for line in lines)
    assert "Not shown on this narrow terminal: PSNR, an image, decode" in said


def test_piped_output_is_wide_and_plain(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    print_table(sweep())
    text = capsys.readouterr().out
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[2:][:7] == printed(sweep(), 200)[2:9]
    assert any(line.startswith("- Transparent") and line.endswith("their transparency.") for line in lines)


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(dataclasses.replace(sweep(), input="photos/[red]:smile:"))
    text = capsys.readouterr().out
    assert "10 images of folder photos/[red]:smile:" in text
    assert f"2 not measured: no image {EVIL}" in text
    assert f"- note {EVIL}" in text
