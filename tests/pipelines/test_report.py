"""`recordmill report`: the page that convert publishes, made again; and that of anybody's TFRecords."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.drawings import draw_folder
from recordmill.pipelines import report
from recordmill.transforms.reading.dataset import find_dataset
from recordmill.transforms.reading.shard import frames
from recordmill.transforms.reading.stored_record import stored_record
from recordmill.transforms.reporting.findings import gather
from recordmill.transforms.storage.sealed import is_sealed
from tests.buckets.server import BucketServer
from tests.pipelines.conversion import convert, manifest
from tests.sweeping.test_page import Page


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images of three labels, one failure, two splits."""
    root = tmp_path_factory.mktemp("report")
    assert len(list(draw_folder(root / "in", each=10))) == 30
    (root / "in/circle/<b>broken.jpg").write_bytes(b"\xff\xd8\xff nothing of the kind")
    flags = ("--splits=train=0.7,val=0.3", "--num_shards=2", "--max_failure_ratio=1", "--image_format=jpeg")
    assert convert("--input", root / "in", "--output", root / "out", *flags) == 0
    return root / "out"


@pytest.fixture
def dataset(published: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(published, tmp_path / "out"))


def run(*args: object) -> int:
    try:
        return report.main([*map(str, args)], "recordmill report")
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        return stop.code


def labels_of(output: Path, split: str) -> list[str]:
    """Of each record, read one after the other."""
    records = (frame.payload for path in output.glob(f"{split}-*.tfrecord") for frame in frames(str(path)))
    return [label for payload in records for label in stored_record(payload, {}, {}).labels]


def words(path: Path) -> str:
    return "".join(Page(path.read_text("utf-8")).texts)


@pytest.mark.slow
def test_it_is_the_page_that_convert_published(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = dataset / "report.html"
    before = page.read_bytes()
    page.unlink()
    assert run(dataset) == 0
    assert page.read_bytes() == before and is_sealed(before)
    assert capsys.readouterr().out == f"The page is {page}\n"
    assert run(dataset, "--output", dataset.parent / "again.html") == 0
    assert (dataset.parent / "again.html").read_bytes() == before


def test_it_tells_what_the_dataset_holds(published: Path) -> None:
    found = words(published / "report.html")
    told = manifest(published)
    assert f"read{told['counts']['read']}" in found and "failed1" in found
    assert "circle/<b>broken.jpg" in found
    for split, described in told["splits"].items():
        assert f"{split} {described['records']}" in found
        for shard in described["shards"]:
            assert shard["file"] in found and shard["sha256"][:12] in found
    table = (published / "report.html").read_text()
    for split, column in (("train", 0), ("val", 1)):
        labels = labels_of(published, split)
        for name in set(labels):
            row = re.search(rf"<tr><th scope=\"row\"><bdi>{name}</bdi></th>(.*?)</tr>", table)
            assert row is not None
            counts = re.findall(r"<b>(\d+)</b>", row[1])
            assert int(counts[column]) == labels.count(name)


def test_counted_from_the_shards_the_figures_are_the_same(dataset: Path) -> None:
    (dataset / "report.json").unlink()
    found = find_dataset(str(dataset))
    counted = gather(found, None, None).statistics
    original = (dataset / "report.html").read_text()
    assert run(dataset) == 0
    again = (dataset / "report.html").read_text()
    assert sum(one.records for one in counted.values()) == 30

    def section(text: str, name: str) -> str:
        return text[text.index(f'<section id="{name}">') :].split("</section>")[0]

    for name in ("outcome", "size", "classes", "images", "shards"):
        assert section(again, name) == section(original, name)


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"splits": {"train": {"records": "x"}}}', b"[" * 100_000])
def test_a_damaged_report_json(dataset: Path, capsys: pytest.CaptureFixture[str], damage: bytes) -> None:
    (dataset / "report.json").write_bytes(damage)
    assert run(dataset) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"recordmill report: {dataset}/report.json is damaged, so the records were counted"
    )
    assert "21" in words(dataset / "report.html")


def test_a_damaged_list_of_failures(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (dataset / "failures.jsonl").write_text("{}\n")
    assert run(dataset) == 1
    assert "failures.jsonl' is damaged" in capsys.readouterr().err
    assert "decode:" in words(dataset / "report.html")


def test_a_damaged_shard_is_named(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (dataset / "report.json").unlink()
    shard = sorted(dataset.glob("train-*"))[0]
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    shard.write_bytes(data)
    sorted(dataset.glob("val-*"))[0].unlink()
    assert run(dataset) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"recordmill report: {shard.name}: record 0 at byte 0: its ")
    assert second == "recordmill report: val-00000-of-00002.tfrecord: missing"
    assert "val-00000-of-00002.tfrecord: missing" in words(dataset / "report.html")


def test_tfrecords_of_others(published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for shard in published.glob("*.tfrecord"):
        shutil.copy(shard, folder)
    assert run(folder) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"PATH is {str(folder)!r}" in line and "--output FILE" in line
    (folder / "image.class.label.labels.txt").write_text("round\nsquare\nflat\n")
    assert run(folder, "--output", tmp_path / "page.html") == 0
    found = words(tmp_path / "page.html")
    assert "30 records · 4 shards" in found and "Labels of images" in found and "round" in found
    assert not list(folder.glob("*.html"))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["{out}/none"], "is not there"),
        (["{out}", "--output", "{out}"], "which is a folder; give a file"),
        (["{out}", "--output", ""], "which is a folder; give a file"),
        (["{out}", "--output", "{out}/manifest.json"], "a file that recordmill did not write"),
        ([], "PATH"),
        (["{out}", "--colour"], "--colour"),
    ],
)
def test_a_wrong_call(
    published: Path, capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in published.iterdir()}
    assert run(*(one.format(out=published) for one in args)) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert {path.name: path.stat().st_mtime_ns for path in published.iterdir()} == before


def test_a_page_that_cannot_be_written(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(published, "--output", published / "none/page.html") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "none/page.html" in line and "No such file or directory" in line


@pytest.mark.slow
def test_from_a_bucket_into_a_bucket(published: Path, bucket: str, bucket_server: BucketServer) -> None:
    bucket_server.upload_folder(published, f"{bucket}/out")
    page = (published / "report.html").read_bytes()
    assert run(f"{bucket}/out", "--output", f"{bucket}/pages/one.html") == 0
    assert bucket_server.get(f"{bucket}/pages/one.html") == page
    assert run(f"{bucket}/out") == 0
    assert bucket_server.get(f"{bucket}/out/report.html") == page


def test_neither_beam_nor_tensorflow_is_imported(published: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pipelines import report; "
        f"status = report.main([{str(published)!r}, '--output', {str(tmp_path / 'x.html')!r}]); "
        "print(status, [name for name in ('apache_beam', 'tensorflow', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_help_tells_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    assert "exit status: 0" in " ".join(capsys.readouterr().out.split())
