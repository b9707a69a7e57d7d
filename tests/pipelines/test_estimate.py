"""What a plan costs on Dataflow: numbers worked out by hand."""

from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from recordmill.pipelines import estimate as estimates
from recordmill.pipelines import summary
from recordmill.pipelines.estimate import Machine, Workers, estimate, machine_of, workers_of
from recordmill.transforms.images.policy import IMAGE_FORMATS
from tests.pipelines.conversion import convert

FOUR = Machine("e2-standard-4", 4, 16.0, 50)


def planned(records: int, size: int = 67_000, shards: int = 100, **more: Any) -> dict[str, Any]:
    """A plan in words, for images of `size` bytes that are stored as they are."""
    total = records * size
    return {
        "records": records,
        "has_images": size > 0,
        "source_bytes": total,
        "estimated_bytes": total,
        "schema": "classification",
        "labels": 3,
        "classes": {},
        "warnings": [],
        "columns": {},
        "splits": {"train": {"records": records, "bytes": total, "shards": shards}},
        "repeated_keys": 0,
        "previous_version": "",
        "not_reused": "",
        "memory_warning": None,
        "left_out": [],
        "identify": {"listed": 0, "cached": 0, "read": 0, "read_bytes": 0},
        **more,
    }


def test_worker_hours_and_dollars_where_codecs_decide() -> None:
    # 1/30 s + 4 ms each: 11,200 s of vCPUs, 2,800 s of machines: 5 of them, each for 10 minutes.
    found = estimate(planned(300_000), "png", "decode", "shards", Workers(FOUR, 10))
    assert found.workers == 5
    assert found.worker_hours == approx(11_200 / 4 / 0.7 / 3600 + 5 * 240 / 3600)
    assert found.worker_hours == approx(1.444444, abs=1e-6)
    assert found.hours == approx(0.288889, abs=1e-6)
    # 4 x 0.056 + 16 x 0.003557 + 50 x 0.000054 dollars an hour.
    assert found.compute == approx(1.444444 * 0.283612, abs=1e-6)
    # 300 bytes a reference, in and out.
    assert found.shuffle == approx(0.18 * 0.011)
    # 300 pages and 600 requests about shards at 5 cents for 10,000; 300,000 reads at 0.4.
    assert found.requests == approx(900 * 5e-6 + 300_000 * 4e-7)
    assert found.stored == approx(20.1 * 0.02)
    assert found.total == approx(found.compute + found.shuffle + found.requests)


def test_worker_hours_where_the_bucket_decides() -> None:
    # 50 ms, eight at a time, are more than 1/946 s + 4 ms.
    found = estimate(planned(1_000_000), "keep", "decode", "shards", Workers(FOUR, 10))
    assert found.workers == 3
    assert found.worker_hours == approx(6250 / 4 / 0.7 / 3600 + 3 * 240 / 3600)


def test_larger_images_take_longer_and_smaller_ones_as_long() -> None:
    def hours(size: int) -> float:
        return estimate(planned(1000, size), "png", "decode", "shards", Workers(FOUR, 1, True)).worker_hours

    start = 240 / 3600
    assert hours(1000) == hours(67_000) == approx(1000 * (1 / 30 + 0.004) / 4 / 0.7 / 3600 + start)
    assert hours(134_000) == approx(1000 * (2 / 30 + 0.004) / 4 / 0.7 / 3600 + start)


def test_images_that_are_read_before_writing_are_requested_twice() -> None:
    once = estimate(planned(10_000_000), "keep", "decode", "shards", Workers(FOUR, 100))
    work = {"listed": 0, "cached": 0, "read": 10_000_000, "read_bytes": 670_000_000_000}
    twice = estimate(planned(10_000_000, identify=work), "keep", "decode", "shards", Workers(FOUR, 100))
    assert twice.requests - once.requests == approx(10_000_000 * 0.004 / 10_000)
    # 50 ms for each request, eight at a time; 4 cores, 70 % busy.
    assert twice.worker_hours - once.worker_hours == approx(10_000_000 * 0.050 / 8 / 4 / 0.7 / 3600, rel=0.01)


def test_the_beam_writer_shuffles_the_records_too() -> None:
    found = estimate(planned(1_000_000, shards=0), "keep", "decode", "beam", Workers(FOUR, 10))
    assert found.shuffle == approx(2 * (67.0 + 0.3) * 0.011)


def test_features_alone_are_not_read_one_by_one() -> None:
    found = estimate(planned(2_000_000, 0), "keep", "decode", "shards", Workers(FOUR, 10))
    assert found.worker_hours == approx(100 / 4 / 0.7 / 3600 + 240 / 3600)
    assert found.requests == approx(600 * 5e-6)


@pytest.mark.parametrize(
    ("shards", "most", "fixed", "workers"),
    [(100, 10, False, 5), (100, 3, False, 3), (6, 10, False, 2), (100, 10, True, 10), (0, 10, False, 5)],
)
def test_workers(shards: int, most: int, fixed: bool, workers: int) -> None:
    plan = planned(300_000, shards=shards)
    assert estimate(plan, "png", "decode", "shards", Workers(FOUR, most, fixed)).workers == workers


def test_header_validation_counts_for_kept_images_only() -> None:
    small = Workers(FOUR, 1, True)
    plan = planned(100_000, 670_000)
    kept = estimate(plan, "keep", "header", "shards", small)
    assert kept.worker_hours < estimate(plan, "keep", "decode", "shards", small).worker_hours
    assert estimate(plan, "jpeg", "header", "shards", small) == estimate(
        plan, "jpeg", "decode", "shards", small
    )


@pytest.mark.parametrize(
    ("flags", "workers"),
    [
        ([], Workers(Machine("e2-standard-4", 4, 16.0, 50), 10)),
        (["--max_num_workers=50", "--num_workers=2"], Workers(FOUR, 50)),
        (["--autoscaling_algorithm", "NONE", "--num_workers", "3"], Workers(FOUR, 3, True)),
        (
            ["--worker_machine_type=n1-highmem-8", "--disk_size_gb=200", "--runner=DataflowRunner"],
            Workers(Machine("n1-highmem-8", 8, 52.0, 200), 10),
        ),
    ],
)
def test_the_workers_are_those_of_the_flags(flags: list[str], workers: Workers) -> None:
    assert workers_of(flags) == workers


@pytest.mark.parametrize(
    ("name", "vcpus", "memory"),
    [
        ("n2-standard-16", 16, 64),
        ("n1-standard-4", 4, 15),
        ("c3-highcpu-8", 8, 8),
        ("e2-custom-6-24576", 6, 24),
        ("custom-2-8192-ext", 2, 8),
        ("e2-medium", 1, 4),
    ],
)
def test_machines(name: str, vcpus: int, memory: float) -> None:
    assert machine_of(name, 50) == Machine(name, vcpus, memory, 50)


def test_every_image_format_has_its_rate() -> None:
    assert set(estimates.IMAGES_PER_SECOND) == {"header", *IMAGE_FORMATS}


def test_every_price_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(300_000)
    cost = estimate(plan, "png", "decode", "shards", Workers(FOUR, 10))
    summary.print_plan(plan, {}, "gs://bucket/out", cost)
    text = capsys.readouterr().out
    told = " ".join(text.split())
    assert "worker hours about 1.44: 5 workers for about 17 minutes" in told
    assert "cost about $0.54: workers $0.41, shuffle $0.00, requests $0.12" in told
    assert "to keep the dataset $0.40 a month" in told
    for price in ("0.056", "0.003557", "0.000054", "0.011", "0.05,", "0.004;", "0.02 "):
        assert f"${price}" in text, price
    assert "us-central1 in 2025" in text
    assert "e2-standard-4: 4 vCPUs, 16 GB of memory, 50 GB of disk" in text


def test_on_this_machine_nothing_is_said_of_money(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert("--input", photos, "--output", tmp_path / "out", "--plan") == 0
    text = capsys.readouterr().out
    assert "records" in text
    assert "$" not in text
    assert "worker hours" not in text
