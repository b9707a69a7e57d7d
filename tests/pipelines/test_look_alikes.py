"""Files, folders, links and objects that look like ours, and are not: no command touches one of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recordmill.transforms.storage import lock, scratch
from recordmill.transforms.storage.owner import MARKER
from tests.buckets.server import BucketServer
from tests.conftest import Figure
from tests.pipelines.conversion import command, convert, manifest
from tests.pipelines.faulty import Killed

# What the program writes: in an output or next to versions, under `.recordmill`, and in TMPDIR.
IN_OUTPUT = (
    "train-00000-of-00099.tfrecord",
    "train-00000-of-00001.tfrecord.part",
    "train-00000-0123456789ab.tfrecord",
    "index/train-00000-of-00099.idx",
    "index/mine.idx",
    "state/mine.rows.gz",
    "manifest.json.part",
    "manifest.json.0123456789ab.part",
    "failures.jsonl.part",
    "latest.json.part",
    "publishing.json",
    "run.json",
    "lock",
    "clock",
    "sweep.csv",
    "sweep.html.part",
    ".sweep-0123/photo.jpg",
    "verify.json",
    "beam-temp-0123/photo.jpg",
    "scratch/photo.jpg",
    "shards/photo.jpg",
    f"scratch/{MARKER}",
    "recordmill-scratch-0/photo.jpg",
)
UNDER_RUNS = (
    ".recordmill/0123456789abcdef/scratch/photo.jpg",
    ".recordmill/0123456789abcdef/shards/train-00000-0123456789ab.tfrecord",
    ".recordmill/0123456789abcdef/run.json",
    ".recordmill/0123456789abcdef/sample.json",
    ".recordmill/0123456789abcdef/publishing.json",
    ".recordmill/0123456789abcdef/tfrecord-0123/train/photo.jpg",
)
REFUSED = (
    ".recordmill/lock",
    ".recordmill/clock",
    ".recordmill/latest.json",
    ".recordmill/photos/photo.jpg",
    ".recordmill/1.0.0/photo.jpg",
    "manifest.json",
    "failures.jsonl",
    "dataset_info.json",
    "report.html",
    "index/photo.jpg",
    "train-00000-of-00001.tfrecord",
)
VERSIONS = (
    "9.9.9/photo.jpg",
    "0.0.1/manifest.json",
    ".recordmill/9.9.9/photo.jpg",
    ".recordmill/9.9.8/manifest.json",
    ".recordmill/9.9.8/train-00000-of-00001.tfrecord",
    ".recordmill/9.9.7/.recordmill/0123456789abcdef/shards/train-00000-0123456789ab.tfrecord",
    ".recordmill/latest.json.0123456789ab.part",
    ".recordmill/exposing.json.0123456789ab.part",
)
IN_TMPDIR = (
    "recordmill-out/manifest.json",
    "recordmill-0123/photo.jpg",
    ".new-recordmill-0123/photo.jpg",
    "recordmill-notes",
    "recordmill-scratch-54321/tmp01234567/photo.jpg",
    f"recordmill-scratch-{os.getuid()}/photos/photo.jpg",
    f"recordmill-scratch-{os.getuid()}/tmp01234567/spool-01234567",
    f"recordmill-scratch-{os.getuid()}/tmp76543210/{MARKER}",
    f"recordmill-scratch-{os.getuid()}/tmpabcdefgh",
)
MINE = "somebody's, not a program's"


class Planted:
    """Look-alikes below folders, each with a link to a folder next to it, and what has to become of them."""

    def __init__(self, outside: Path) -> None:
        self._outside = outside / "outside"
        self._outside.mkdir()
        (self._outside / "photo.jpg").write_text(MINE)
        self._files: list[Path] = [self._outside / "photo.jpg"]
        self._links: list[Path] = []

    def plant(self, folder: Path, names: tuple[str, ...], link: str = "") -> None:
        """Plants files under names below a folder, and a link."""
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(MINE)
            self._files.append(path)
        if link:
            (folder / link).symlink_to(self._outside)
            self._links.append(folder / link)

    def check(self) -> None:
        """All of them are as they were."""
        assert [path for path in self._files if not path.is_file() or path.read_text() != MINE] == []
        assert [path for path in self._links if not path.is_symlink()] == []


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planted]:
    """Look-alikes in the temporary folder, in which this process has no scratch folder yet."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("atexit.register", lambda *_: None)
    scratch.scratch_folder.cache_clear()
    found = Planted(tmp_path)
    found.plant(temporary, IN_TMPDIR, link="recordmill-link")
    (temporary / f"recordmill-scratch-{os.getuid()}").chmod(0o700)
    yield found
    scratch._remove_own(scratch.scratch_folder(), os.getpid())
    found.check()
    scratch.scratch_folder.cache_clear()


def failing(photos: Path, folder: Path) -> Path:
    """An input of which one image is damaged."""
    shutil.copytree(photos, folder)
    path = next(folder.rglob("*.jpg"))
    path.write_bytes(path.read_bytes()[:100])
    return folder


def dying(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """The next call of a function of publishing ends the job as a kill would."""

    def killed(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr(f"recordmill.transforms.publish.{function}", killed)


@pytest.mark.slow
def test_next_to_a_dataset(photos: Path, tmp_path: Path, planted: Planted, figure: Figure) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output) == 0
    planted.plant(output, IN_OUTPUT + UNDER_RUNS, link="linked")
    figure("files", len(IN_OUTPUT + UNDER_RUNS))
    damaged = failing(photos, tmp_path / "damaged")
    call = ("--input", damaged, "--output", output, "--overwrite")
    for flags, status in (
        (("--max_failure_ratio=0",), 1),  # keeps its shards
        (("--max_failure_ratio=0.5", "--num_shards=train=3"), 0),
        (("--max_failure_ratio=0.5", "--writer=beam"), 0),
    ):
        assert convert(*call, *flags) == status
        planted.check()
    for other in (
        ("verify", output),
        ("verify", output, "--input", damaged, "--report", output / "verify.json"),
        ("report", output),
        ("report", output, "--output", output / "sweep.html.part"),
        ("inspect", output, "--images", output / "sheet.png"),
        ("inspect", output, "--images", output / "sheet.png"),
        ("schema", output),
        ("sweep", "--input", photos, "--output", output, "--overwrite", "--qualities=80"),
        ("formats",),
    ):
        command(*other)
        planted.check()
    assert manifest(output)["counts"]["failed"] == 1


@pytest.mark.parametrize(
    "function",
    ["commit", "write_journal", "unpublish", "complete_moves", "write_metadata_files"],
)
@pytest.mark.slow
def test_where_a_job_was_killed(
    function: str, photos: Path, tmp_path: Path, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    call = ("--input", photos, "--output", output)
    with monkeypatch.context() as patch:
        dying(patch, function)
        with pytest.raises((Killed, RuntimeError)):
            convert(*call)
    lock.release_all()
    names = [name for name in UNDER_RUNS + IN_OUTPUT + REFUSED if not (output / name).exists()]
    folders = {folder.name for folder in (output / ".recordmill").iterdir()}
    planted.plant(output, tuple(name for name in names if name.split("/")[0] not in folders))
    convert(*call)
    planted.check()


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("flags", [(), ("--overwrite",), ("--dataset_version=auto", "--keep_versions=1")])
def test_what_is_refused(
    name: str, flags: tuple[str, ...], photos: Path, tmp_path: Path, planted: Planted
) -> None:
    output = tmp_path / "out"
    planted.plant(output, (name,))
    convert("--input", photos, "--output", output, *flags, "--plan")
    status = convert("--input", photos, "--output", output, *flags)
    planted.check()
    # Where versions are made, the name of an unfinished latest.json is left alone.
    is_accepted = name == ".recordmill/latest.json" and "--dataset_version=auto" in flags
    assert status == (0 if is_accepted else 2)


@pytest.mark.slow
def test_next_to_versions(photos: Path, tmp_path: Path, planted: Planted) -> None:
    home, changing = tmp_path / "home", tmp_path / "photos"
    shutil.copytree(photos, changing)
    call = ("--input", changing, "--output", home, "--dataset_version=auto", "--keep_versions=1")
    assert convert(*call) == 0
    planted.plant(home, VERSIONS + UNDER_RUNS, link="linked")
    planted.plant(home / "1.0.0", IN_OUTPUT)
    for change in ("one", "two"):
        shutil.copy(next(photos.rglob("*.jpg")), changing / f"circle/{change}.jpg")
        convert(*call)
        planted.check()


@pytest.mark.parametrize("flags", [("--overwrite",), ("--dataset_version=auto", "--keep_versions=1")])
@pytest.mark.slow
def test_objects(
    flags: tuple[str, ...], photos: Path, bucket: str, bucket_server: BucketServer, planted: Planted
) -> None:
    output = f"{bucket}/out"
    assert convert("--input", photos, "--output", output, *flags) == 0
    names = VERSIONS + UNDER_RUNS + IN_OUTPUT
    for name in names:
        bucket_server.put(f"{output}/{name}", MINE.encode())
    convert("--input", photos, "--output", output, *flags, "--num_shards=train=3")
    for other in (("verify", output), ("report", output), ("inspect", output)):
        command(*other)
    convert("--input", photos, "--output", output, *flags, "--num_shards=train=2")
    assert [name for name in names if bucket_server.get(f"{output}/{name}") != MINE.encode()] == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [(".recordmill/lock", 1), (".recordmill/clock", 0)])
def test_objects_that_look_like_locks(
    name: str, status: int, photos: Path, bucket: str, bucket_server: BucketServer
) -> None:
    bucket_server.put(f"{bucket}/out/{name}", MINE.encode())
    assert convert("--input", photos, "--output", f"{bucket}/out") == status
    assert bucket_server.get(f"{bucket}/out/{name}") == MINE.encode()


Made = Callable[[Path], None]


def test_a_file_that_is_named_and_is_not_ours(
    photos: Path, tmp_path: Path, planted: Planted, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert("--input", photos, "--output", tmp_path / "out") == 0
    planted.plant(tmp_path / "mine", ("photo.png", "photo.png.part"))
    for name, flag in (("inspect", "--images"), ("report", "--output"), ("verify", "--report")):
        assert command(name, tmp_path / "out", flag, tmp_path / "mine/photo.png") == 2
        assert "photo.png" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [("inspect", "--images"), ("report", "--output"), ("verify", "--report")],
    ids=lambda args: args[0],
)
def test_a_link_or_a_pipe_that_is_named(args: tuple[str, str], photos: Path, tmp_path: Path) -> None:
    output, made, pipe = tmp_path / "out", tmp_path / "made.png", tmp_path / "pipe.png"
    assert convert("--input", photos, "--output", output) == 0
    name, flag = args
    assert command(name, output, flag, made) == 0
    assert command(name, output, flag, made) == 0
    os.mkfifo(pipe)
    links = {"nowhere.png": "none.png", "leads.png": made.name, "device.png": "/dev/null"}
    for link, target in links.items():
        (tmp_path / link).symlink_to(target)
    for path in (*links, pipe.name):
        assert command(name, output, flag, tmp_path / path) == 2
    assert {link: os.readlink(tmp_path / link) for link in links} == links
    assert pipe.is_fifo() and not (tmp_path / "none.png").exists()


@pytest.mark.slow
def test_a_manifest_is_no_page(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output) == 0
    before = (output / "manifest.json").read_bytes()
    assert command("report", output, "--output", output / "manifest.json") == 2
    assert (output / "manifest.json").read_bytes() == before
