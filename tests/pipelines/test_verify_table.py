"""What `recordmill verify` prints of a report."""

import io
from typing import Any

from rich.console import Console

from recordmill.pipelines.verify import MOST_SHOWN, print_verified
from recordmill.transforms.reading.verify_report import MOST_WORST, Fault, Likeness, Tally, report_of


def shown(tally: Tally) -> str:
    out = io.StringIO()
    report: dict[str, Any] = report_of(tally, "/data/[bold]out", "now", "then")
    print_verified(report, Console(file=out, markup=False, highlight=False, emoji=False, width=200))
    return out.getvalue()


def test_faults_are_shown_by_kind_and_the_others_counted() -> None:
    tally = Tally()
    tally.checked.update(records=1000, shards=1, bytes=2_000_000)
    tally.notes.add("the weather")
    for record in range(MOST_SHOWN + 5):
        tally.add(Fault("box outside the image", "a.tfrecord", record, 100 * record, f"k{record}", "x 2"))
    tally.add(Fault("file is missing", "evil\x1b[31m[red].json"))
    text = shown(tally)
    assert "/data/[bold]out" in text and "verified 1 shard, 1,000 records; 2.0 MB read" in text
    assert "not checked: the weather" in text and f"{MOST_SHOWN + 6} faults" in text
    assert "a.tfrecord, record 3 at byte 300, k3: x 2" in text
    assert f"k{MOST_SHOWN - 1}:" in text and f"k{MOST_SHOWN}:" not in text and "… and 5 more" in text
    assert "\x1b" not in text and "[red].json" in text


def test_the_worst_images_are_shown_with_the_distribution() -> None:
    tally = Tally()
    tally.checked.update({"compared": 101, "images lossy": 100, "images kept": 1})
    for part in range(4):
        other = Tally()
        for number in range(25):
            value = 0.9 + (part + 4 * number) / 1000
            other.likeness.add(Likeness(value, 30 + value, f"p{part}/{number}.jpg", "a.tfrecord", number))
        tally.merge(other)
    text = shown(tally)
    assert "1 the same bytes, 100 lossy" in text and "nothing is wrong" in text
    assert "SSIM of 100 lossy images: least 0.9, p1 0.9, p5 0.904, p25 0.924, p50 0.949, p75 0.974" in text
    assert "PSNR of 100 lossy images: least 30.9 dB" in text
    lines = [line for line in text.splitlines() if line.startswith("  SSIM")]
    assert len(lines) == MOST_WORST
    assert lines[0] == "  SSIM 0.9000, PSNR 30.9 dB: p0/0.jpg (a.tfrecord, record 0)"
    assert lines[-1].startswith("  SSIM 0.9090, PSNR 30.9 dB: p1/2.jpg")
