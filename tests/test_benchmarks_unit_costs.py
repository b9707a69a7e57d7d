"""What `benchmarks.unit_costs` counts, against what is known beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import unit_costs, unit_costs_jobs
from benchmarks.inputs import draw_jpegs
from benchmarks.unit_costs_bucket import LISTED, counted_buckets
from benchmarks.unit_costs_jobs import request_costs
from benchmarks.unit_costs_lists import listed, made_records, reference_costs, write_manifest
from benchmarks.unit_costs_scale import RUNS, SIZES, Size, cost_of, cost_table, size_table
from benchmarks.unit_costs_shards import shard_costs
from recordmill.pipelines import convert
from recordmill.transforms.storage import objects

PAGE = (Path(__file__).parents[1] / "docs/scale.md").read_text("utf-8")
IMAGES = 24


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs") / "photos"
    draw_jpegs(folder, IMAGES)
    return folder


@pytest.mark.parametrize(("value", "text"), [(1234.5, "1,234"), (0.12345, "0.123"), (12.3456, "12.3")])
def test_figures(value: float, text: str) -> None:
    assert unit_costs.figure(value) == text


@pytest.mark.slow
def test_every_image_of_a_folder_and_of_a_manifest_is_listed(photos: Path, tmp_path: Path) -> None:
    write_manifest(photos, tmp_path / "rows.csv")
    for kind, source in (("folder", photos), ("csv", tmp_path / "rows.csv")):
        entries, seconds, _ = listed(kind, str(source))
        assert (entries, seconds > 0) == (IMAGES, True)


def test_a_bucket_is_listed_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.cloud.storage", reason="the extra gcp is not installed")
    with counted_buckets(listed=2500) as buckets:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", buckets.host)
        names = [entry.name for entry in objects.list_folder(f"gs://{LISTED}")]
        assert len(set(names)) == 2500 and names == sorted(names)
        assert buckets.take() == {"list": 3}
        assert not buckets.take()


def test_requests_are_told_apart(photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("google.cloud.storage", reason="the extra gcp is not installed")
    with counted_buckets() as buckets:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", buckets.host)
        buckets.hold(photos, "in")
        assert not buckets.requests
        first = sorted(photos.rglob("*.jpg"))[0]
        uri = f"{buckets.uri}/in/{first.relative_to(photos)}"
        assert objects.read(uri) == first.read_bytes()
        assert objects.stat(uri) is not None
        objects.write(f"{buckets.uri}/one", b"1")
        objects.move(f"{buckets.uri}/one", f"{buckets.uri}/two")
        expected = {"read": 1, "look at one": 1, "write": 1, "copy": 1, "delete": 1}
        assert buckets.take() == expected
        (tmp_path / "empty").mkdir()
        buckets.hold(tmp_path / "empty", "in")
        assert objects.stat(uri) is None


def test_references_are_those_of_a_bucket() -> None:
    records = list(made_records(5, 8))
    assert [record.key for record in records] == [f"class-000{n}/photo-00000000000{n}.jpg" for n in (5, 6, 7)]
    found = {cost.name: cost.value for cost in reference_costs(300)}
    assert 100 < found["a reference"] < 300
    assert found["survey: totals, hash and reference"] > 0


@pytest.mark.slow
def test_costs_of_shards_are_of_each() -> None:
    found = {(cost.name, cost.each): cost.value for cost in shard_costs(160)}
    assert 200 < found["manifest.json", "shard, of 160"] < 600
    assert {each for _, each in found} == {"shard, of 20", "shard, of 160", "shard"}


def test_the_page_has_the_tables_of_the_model() -> None:
    for table in (size_table(), *map(cost_table, SIZES)):
        assert table in PAGE


def test_each_run_takes_less_than_the_one_before() -> None:
    for size in SIZES:
        totals = [cost_of(size, run).total for run in RUNS]
        assert totals == sorted(totals, reverse=True)
        assert [cost_of(size, run).images > 0 for run in RUNS] == [True, True, True, False]


def test_ten_new_images_touch_ten_shards() -> None:
    size = Size("1 million", 10**6, 10)
    first, hundredths, ten, nothing = RUNS
    assert first.touched(size) == size.shards == 746
    assert round(hundredths.touched(size)) == 746
    assert 9.9 < ten.touched(size) < 10
    assert nothing.touched(size) == 0


def test_parts_cost_what_the_whole_does() -> None:
    _, part, whole = SIZES
    for run in RUNS[:2]:
        assert 50 * cost_of(part, run).total == pytest.approx(cost_of(whole, run).total, rel=0.6)


@pytest.mark.slow
def test_requests_of_an_image_and_of_a_shard(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs run in this process: what their processes take is none of it."""
    pytest.importorskip("google.cloud.storage", reason="the extra gcp is not installed")

    def run(job: list[str]) -> None:
        assert convert.main([*job[2:], "--direct_num_workers=1"]) == 0

    monkeypatch.setattr(unit_costs_jobs, "wall_seconds", run)
    jobs = {name: unit_costs_jobs._JOBS[name] for name in ("first run", "nothing changed")}
    monkeypatch.setattr(unit_costs_jobs, "_JOBS", jobs)
    found = {(cost.name, cost.each): cost.value for cost in request_costs(photos, tmp_path)}
    assert found["first run: read, look at one", "image"] >= 1
    assert found["nothing changed: read, look at one", "image"] == 0
    assert found["first run: list, write, copy", "shard"] >= 5
    assert found["nothing changed: list, write, copy", "shard"] <= 1  # a listing for each bundle of shards
