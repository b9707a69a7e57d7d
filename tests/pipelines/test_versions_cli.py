"""--dataset_version and --keep_versions: what is refused, what is said at the end, what is kept."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.drawings import draw
from recordmill.pipelines import summary
from recordmill.pipelines.options.convert import ConvertOptions, parse_convert
from tests.dataflow.conftest import submitter as submitter
from tests.dataflow.submitting import IMAGE, Submitter
from tests.patched import patched_site
from tests.pipelines.conversion import by_key, convert, manifest
from tests.pipelines.test_summary import run

ROOT = Path(__file__).parents[2]
AUTO = "--dataset_version=auto"


@pytest.fixture(scope="module")
def home(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with the versions 1.0.0 and 1.0.7; nothing changes it."""
    folder = tmp_path_factory.mktemp("output") / "pets"
    for version in ("1.0.0", "1.0.7"):
        limit = "--limit=2" if version == "1.0.0" else "--limit=3"
        assert convert("--input", photos, "--output", folder, f"--dataset_version={version}", limit) == 0
    return folder


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def error(capfd: pytest.CaptureFixture[str]) -> str:
    """The one line that a bad call has printed."""
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    start = "recordmill convert: error: "
    assert printed.err.startswith(start)
    return printed.err.removeprefix(start).rstrip("\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--dataset_version=1.0"],
            "--dataset_version is '1.0'; it may be auto, or three numbers such as 1.0.0",
        ),
        (
            ["--dataset_version=v2.0.1"],
            "--dataset_version is 'v2.0.1'; it may be auto, or three numbers such as 2.0.1",
        ),
        (
            ["--dataset_version=latest"],
            "--dataset_version is 'latest'; it may be auto, or three numbers such as 1.0.0",
        ),
        (
            ["--dataset_version=1.0.7"],
            "--dataset_version is '1.0.7', and '{home}' has 1.0.7 already; readers take the highest: give "
            "auto, 1.0.8, or a higher one",
        ),
        (
            ["--dataset_version=1.0.3"],
            "--dataset_version is '1.0.3', and '{home}' has 1.0.7 already; readers take the highest: give "
            "auto, 1.0.8, or a higher one",
        ),
        (["--dataset_version="], "--dataset_version is empty; give a value, or remove the flag"),
        (
            [AUTO, "--overwrite"],
            "--overwrite replaces a dataset, and --dataset_version=auto publishes next to those that "
            "exist; give one of them",
        ),
        (
            [AUTO, "--writer=beam"],
            "--writer is 'beam', and --dataset_version=auto reuses shards, which must be the same each "
            "time; remove --writer, or give --writer=shards",
        ),
        ([AUTO, "--keep_versions=0"], "--keep_versions is 0; it may be 1 or more"),
        ([AUTO, "--keep_versions=all"], "--keep_versions is 'all'; it may be 1 or more"),
        (["--keep_versions=3"], "--keep_versions is 3, which needs --dataset_version"),
        (
            [],
            "--output is '{home}', which holds versions of a dataset; --dataset_version=auto publishes the "
            "next one, or give another folder",
        ),
        (
            ["--overwrite"],
            "--output is '{home}', which holds versions of a dataset; --dataset_version=auto publishes the "
            "next one, or give another folder",
        ),
    ],
)
def test_a_bad_call(
    args: list[str], message: str, photos: Path, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = tree(home)
    capfd.readouterr()
    assert convert("--input", photos, "--output", home, *args) == 2
    assert error(capfd) == message.format(home=home)
    assert tree(home) == before


@pytest.mark.slow
def test_a_folder_with_a_dataset_without_versions(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, "--quiet") == 0
    before = tree(output)
    capfd.readouterr()
    assert convert("--input", photos, "--output", output, AUTO) == 2
    assert error(capfd) == (
        f"--output is {str(output)!r}, which holds a dataset without versions; remove --dataset_version, or "
        "give another folder"
    )
    assert tree(output) == before


@pytest.mark.parametrize("name", ["notes.txt", ".recordmill/1.0.0/notes.txt"])
def test_a_folder_with_something_else(
    name: str, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine", "utf-8")
    assert convert("--input", photos, "--output", tmp_path / "out", AUTO) == 2
    said = error(capfd)
    assert said.startswith(f"--output is {str(tmp_path / 'out')!r}"[:-1])
    assert "'notes.txt'" in said
    assert tree(tmp_path / "out").keys() == {name}


@pytest.mark.slow
def test_a_version_that_is_first(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "pets"
    assert convert("--input", photos, "--output", output, AUTO) == 0
    text = capsys.readouterr().out
    assert re.match(r"version +1\.0\.0 *\n", text)
    assert "reused" not in text
    where = f"The dataset is in {output}/1.0.0/. Its report.html describes it."
    assert f"{where} To read the version that {output}/latest.json names:\n" in text
    ours, _, theirs = text.partition("TensorFlow Datasets reads it too:")
    assert len(list(run(ours)["dataset"])) == 12
    assert f"load_dataset({str(output)!r}, " in ours
    assert len(list(run(theirs)["dataset"])) == 12
    assert f"builder_from_directory({str(output / '1.0.0')!r})" in theirs
    # TFDS looks for the versions of a name.
    info = json.loads((output / "1.0.0/dataset_info.json").read_text("utf-8"))
    assert info["name"] == "pets"
    assert json.loads((output / "latest.json").read_text("utf-8")) == {
        "format_version": 1,
        "version": "1.0.0",
    }
    assert sorted(path.name for path in output.iterdir()) == ["1.0.0", "latest.json"]


def test_a_number_is_given_or_is_the_next(photos: Path, home: Path) -> None:
    call = ("--input", photos, "--output", home)
    assert options(*call, AUTO).published == str(home / "1.0.8")
    assert options(*call, "--dataset_version=2.0.0").published == str(home / "2.0.0")
    assert options(*call, "--dataset_version=2.0.0").working == str(home / ".recordmill/2.0.0")


def test_the_writer_is_that_of_whole_shards(photos: Path, home: Path) -> None:
    call = ("--input", photos, "--output", home, AUTO, "--runner=FlinkRunner")
    assert options(*call).dataset.writer == "shards"
    assert options(*call, "--writer=auto", "--keep_versions=2").dataset.keep_versions == 2


def options(*args: object) -> ConvertOptions:
    """The checked call."""
    return parse_convert(list(map(str, args)), "convert")


def test_a_plan(photos: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(home)
    assert convert("--input", photos, "--output", home, AUTO, "--plan") == 0
    text = capsys.readouterr().out
    assert re.match(r"version +1\.0\.8, unless nothing has changed *\n", text)
    assert f"Nothing was written to {home}: this is the plan." in text
    assert tree(home) == before


def test_nothing_has_changed(photos: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(home)
    call = ("--input", photos, "--output", home, AUTO, "--limit=3")
    assert convert(*call) == 0
    assert capsys.readouterr().out == "Nothing has changed since version 1.0.7: nothing is published.\n"
    assert convert(*call, "--quiet") == 0
    printed = capsys.readouterr()
    assert printed.out + printed.err == ""
    assert tree(home) == before


@pytest.mark.slow
def test_something_has_changed(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "photos", tmp_path / "out"
    shutil.copytree(photos, source)
    call = ("--input", source, "--output", output, AUTO, "--keep_versions=2", "--num_shards=1")
    assert convert(*call) == 0
    (source / "circle/circle_000.jpg").unlink()
    draw("circle", 77).save(source / "circle/more.png")
    capsys.readouterr()
    assert convert(*call) == 0
    text = capsys.readouterr().out
    assert re.match(r"version +1\.0\.1 *\n", text)
    assert re.search(r"^reused +11 records of version 1\.0\.0 *$", text, re.M)
    assert re.search(r"^work +1 file of the source read, 1 image prepared *$", text, re.M)
    assert convert(*call, "--validate=header") == 0
    text = capsys.readouterr().out
    reused = r'^reused +nothing of version 1\.0\.1: --validate was "decode", is "header" *$'
    assert re.search(reused, text, re.M)
    assert "\nwork " not in text
    assert sorted(path.name for path in output.iterdir()) == ["1.0.1", "1.0.2", "latest.json"]


@pytest.mark.parametrize(
    ("taken", "rows"),
    [
        (None, []),
        (
            {"from": "1.0.0", "records": 0, "shards": 0, "reason": "--jpeg_quality was 90, is 80"},
            ["reused       nothing of version 1.0.0: --jpeg_quality was 90, is 80"],
        ),
        (
            {"from": "1.0.0", "records": 0, "shards": 0, "reason": ""},
            ["reused       nothing of version 1.0.0: no unchanged image"],
        ),
        (
            {"from": "1.0.0", "records": 1, "shards": 0, "reason": ""},
            [
                "reused       1 record of version 1.0.0",
                "work         1,200 files of the source read, 600 images and 1 mask prepared",
            ],
        ),
        (
            {"from": "1.2.3", "records": 9800, "shards": 1, "reason": ""},
            [
                "reused       9,800 records of version 1.2.3; 1 complete shard",
                "work         1,200 files of the source read, 600 images and 1 mask prepared",
            ],
        ),
    ],
)
def test_what_is_said_of_reuse(
    taken: object, rows: list[str], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = manifest(home / "1.0.7")
    found["provenance"]["taken_over"] = taken
    found["provenance"]["work"] = {"source_reads": 1200, "images": 600, "masks": 1}
    path = tmp_path / "1.0.7" / "manifest.json"
    path.parent.mkdir()
    path.write_text(json.dumps(found), "utf-8")
    summary.print_result(str(path))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith(("reused", "work"))] == rows


@pytest.mark.slow
def test_a_version_that_fails(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "photos", tmp_path / "out"
    shutil.copytree(photos, source)
    (source / "circle/broken.jpg").write_bytes(b"\xff\xd8\xff no more")
    call = ("--input", source, "--output", output, AUTO)
    assert convert(*call, "--quiet") == 1
    said = capfd.readouterr().err
    assert f"{output}/.recordmill/1.0.0/failures.jsonl" in said
    assert convert(*call) == 1
    kept = "1 finished shard is kept: the same command reuses it, also with another "
    assert f"\n{kept}--max_failure_ratio, or without --strict\n" in capfd.readouterr().err
    assert not (output / "latest.json").exists()
    assert convert(*call, "--max_failure_ratio=0.1") == 0
    assert manifest(output / "1.0.0")["provenance"]["reused_shards"] == 1
    assert sorted(path.name for path in output.iterdir()) == ["1.0.0", "latest.json"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            "_rename",
            "nothing is published in {output}/1.0.0\n"
            "the new dataset is complete in {output}/.recordmill/1.0.0: the next job publishes it\n",
        ),
        (
            "_write_latest",
            "the new dataset is published in {output}/1.0.0\n"
            "latest.json does not name it yet: the next job updates it\n",
        ),
    ],
)
def test_interrupted_while_a_version_is_shown(
    function: str, told: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    patch = (
        "import os, signal\n"
        "def patch(module):\n"
        f"    module.{function} = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{patched_site(tmp_path, 'recordmill.transforms.storage.versions', patch)}:{ROOT}",
    }
    call = ["--input", str(photos), "--output", str(output), AUTO, "--num_shards=1"]
    done = subprocess.run(
        [sys.executable, "-m", "recordmill.pipelines.convert", *call, "--quiet"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (130, f"\ninterrupted; {told.format(output=output)}")
    assert convert(*call) == 0
    assert capsys.readouterr().out == "Nothing has changed since version 1.0.0: nothing is published.\n"
    assert len(by_key(output / "1.0.0")) == 12
    assert sorted(path.name for path in output.iterdir()) == ["1.0.0", "latest.json"]


@pytest.mark.slow
def test_versions_in_a_bucket(photos: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    call = ("--input", photos, "--output", f"{bucket}/pets/", AUTO, "--num_shards=1")
    assert convert(*call) == 0
    text = capsys.readouterr().out
    assert re.match(r"version +1\.0\.0 *\n", text)
    assert f"The dataset is in {bucket}/pets/1.0.0/." in text
    assert f"load_dataset('{bucket}/pets', " in text
    assert convert(*call) == 0
    assert capsys.readouterr().out == "Nothing has changed since version 1.0.0: nothing is published.\n"


def test_a_bucket_that_is_not_there(photos: Path, bucket: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert convert("--input", photos, "--output", "gs://elsewhere/pets", AUTO) == 2
    assert error(capfd) == "--output is 'gs://elsewhere/pets', and there is no bucket 'elsewhere'"


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("google.cloud.dataflow") is None, reason="Beam's parts for Google Cloud"
)
def test_a_job_at_dataflow(submitter: Submitter, home: Path) -> None:
    submitter.buckets.upload_folder(home, "gs://pictures/out")
    flags = (AUTO, f"--sdk_container_image={IMAGE}")
    left = submitter.run(*flags, "--async")
    assert left.status == 0, left.err
    assert left.out.endswith(
        "  its result will be gs://pictures/out/1.0.8/manifest.json, and failures.jsonl next to it\n"
        "                     (neither, if nothing has changed since the previous version)\n"
    )
    # It has published none.
    submitter.dataflow.states = ["JOB_STATE_RUNNING", "JOB_STATE_DONE"]
    followed = submitter.run(*flags)
    assert followed.status == 0, followed.err
    assert followed.out == "Nothing has changed since version 1.0.7: nothing is published.\n"
    quiet = submitter.run(*flags, "--quiet")
    assert (quiet.status, quiet.out, quiet.err) == (0, "", "")
    # It has.
    submitter.dataflow.on_job = lambda job: submitter.buckets.upload_folder(
        home / "1.0.7", "gs://pictures/out/1.0.8"
    )
    followed = submitter.run(*flags)
    assert followed.status == 0, followed.err
    assert "The dataset is in gs://pictures/out/1.0.8/." in followed.out
