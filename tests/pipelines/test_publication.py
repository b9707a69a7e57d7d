"""Jobs that are killed, or meet a fault, at every single operation on files: readers see nothing of it."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.local import LocalFileSystem
from tests.conftest import Figure
from tests.pipelines.faulty import Job, Killed, Machine, contents

# Number of shards of the dataset that is there, none for no dataset; and of the one that the job writes.
SCENES = {"first": (0, 2), "more": (1, 3), "fewer": (3, 1), "equal": (2, 2)}
# Files that are not of a dataset, under names that look so; those that may lie next to a dataset only.
LOOK_ALIKES = (
    "notes.txt",
    "index/notes.txt",
    "train-00000-of-00009.tfrecord",
    "index/train-00000-of-00009.idx",
    "train-00000-0123456789ab.tfrecord",
    "manifest.json.part",
    "failures.jsonl.part",
    "latest.json",
    "lock",
    "made-by-recordmill.json",
)
LATE = (
    ".recordmill/0123456789abcdef/scratch/photo.jpg",
    ".recordmill/0123456789abcdef/shards/train-00000-0123456789ab.tfrecord",
    ".recordmill/0123456789abcdef/publishing.json",
)
FAULTS = (errno.EIO, errno.ENOSPC, errno.EACCES)


@pytest.fixture(autouse=True)
def _no_lock_is_left() -> None:
    lock.release_all()


class Scene:
    """An output, what is beside it, and what it has to be in the end."""

    def __init__(self, folder: Path, before: int, after: int) -> None:
        self.output = folder / "out"
        self.overwrite = before > 0
        self._pixels = folder / "pixels"
        self._pixels.write_bytes(bytes(range(12 * 5)))  # of the last image there is nothing
        self.after = after
        self.expected, self.shards = self.undisturbed(after)
        self.old: dict[str, str] = {}
        self._template = folder / "template"
        self._template.mkdir()
        if before:
            (folder / "older").write_bytes(bytes(range(100, 100 + 12 * 5)))
            Job(self._template, before, folder / "older")()
            self.old = contents(self._template)
            for name in LOOK_ALIKES:
                (self._template / name).write_text("not ours")
        for name in LATE:
            (self._template / name).parent.mkdir(parents=True, exist_ok=True)
            (self._template / name).write_text("not ours")
        self.foreign = {name: sha for name, sha in contents(self._template).items() if name not in self.old}
        shutil.copytree(self._template, folder / "out-small")
        self._beside = contents(folder / "out-small")
        self.operations = self._operations()

    def undisturbed(self, num_shards: int) -> tuple[dict[str, str], int]:
        """The dataset as it has to be, and the number of shards that hold a record."""
        folder = self.output.parent / f"undisturbed-{num_shards}"
        job = Job(folder, num_shards, self._pixels)
        job()
        return contents(folder), job.written

    def reset(self) -> None:
        """The output as it was."""
        shutil.rmtree(self.output, ignore_errors=True)
        shutil.copytree(self._template, self.output)

    def job(self, num_shards: int | None = None) -> Job:
        """The same call, made again; or one with another number of shards."""
        return Job(self.output, num_shards or self.after, self._pixels, self.overwrite)

    def interrupted(self, at: int, error: int | None = None, num_shards: int | None = None) -> bool:
        """Runs a job on a machine that fails; returns whether the job noticed."""
        try:
            with Machine(self.output, at, error).running():
                self.job(num_shards)()
        except Killed:
            lock._forget()
            return True
        except JobError as message:
            assert "\n" not in str(message)
            assert error is None or os.strerror(error) in str(message)
            lock.release_all()
            return True
        return False

    def check_in_between(self) -> bool:
        """The old dataset is whole, or none is there, or the new one is; returns whether it is the new."""
        found = contents(self.output)
        assert {name: found.get(name) for name in self.foreign} == self.foreign
        assert contents(self.output.parent / "out-small") == self._beside
        if "manifest.json" not in found:
            self._check_without_manifest(found)
            return False
        visible = {
            name: sha for name, sha in found.items() if not name.startswith(".recordmill/") or name in LATE
        }
        assert visible in ({**self.old, **self.foreign}, {**self.expected, **self.foreign})
        return found["manifest.json"] == self.expected["manifest.json"]

    def _check_without_manifest(self, found: dict[str, str]) -> None:
        """TFDS does without a manifest: a dataset that its file describes is whole."""
        described = found.get("dataset_info.json")
        whole = [
            dataset
            for dataset in (self.old, self.expected)
            if all(found.get(name) == sha for name, sha in dataset.items() if name != "manifest.json")
        ]
        assert described is None or described in [dataset.get("dataset_info.json") for dataset in whole]

    def check_again(self) -> None:
        """The same call goes to its end, and writes no finished shard again."""
        published = self.check_in_between()
        job = self.job()
        finished = len(list(Path(job.run.shards).glob("*.state")))
        if published and not self.overwrite:
            with pytest.raises(JobError, match="holds a dataset already"):
                job()
            return
        job()
        assert published or job.written == self.shards - finished
        assert contents(self.output) == {**self.expected, **self.foreign}
        assert [path.name for path in (self.output / ".recordmill").iterdir()] == ["0123456789abcdef"]

    def _operations(self) -> list[str]:
        """All that an undisturbed job does."""
        self.reset()
        machine = Machine(self.output)
        with machine.running():
            self.job()()
        assert contents(self.output) == {**self.expected, **self.foreign}
        return machine.operations


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_killed_at_every_operation(name: str, tmp_path: Path, figure: Figure) -> None:
    scene = Scene(tmp_path, *SCENES[name])
    figure("kills", len(scene.operations))
    for at in range(len(scene.operations)):
        scene.reset()
        assert scene.interrupted(at)
        scene.check_again()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first", "equal"])
def test_a_fault_at_every_operation(name: str, tmp_path: Path, figure: Figure) -> None:
    scene = Scene(tmp_path, *SCENES[name])
    figure("errors", len(scene.operations))
    committed = max(at for at, what in enumerate(scene.operations) if what.endswith("manifest.json.part"))
    for at in range(len(scene.operations)):
        scene.reset()
        noticed = scene.interrupted(at, FAULTS[at % len(FAULTS)])
        assert not (noticed and at > committed)
        scene.check_again()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "step", "other"),
    [
        ("more", "replace {}/shards/train-00001-", None),
        ("equal", "replace {}/manifest.json.part", None),
        ("fewer", "replace {}/features.json.part", 2),
        ("equal", "replace {}/shards/train-00001-", 1),
    ],
)
def test_killed_again_at_every_operation(
    name: str, step: str, other: int | None, tmp_path: Path, figure: Figure
) -> None:
    """A publication is cut off, and then the job that settles it: the same call, or another one."""
    scene = Scene(tmp_path, *SCENES[name])
    run = scene.job().run.folder
    first = next(at for at, what in enumerate(scene.operations) if what.startswith(step.format(run)))
    if other is not None:
        scene.after = other
        scene.expected, scene.shards = scene.undisturbed(other)
    at = 0
    again = True
    while again:
        scene.reset()
        assert scene.interrupted(first, num_shards=SCENES[name][1])
        assert not (scene.output / "manifest.json").exists()
        again = scene.interrupted(at)
        if again:
            scene.check_again()
        at += 1
    assert at > 50
    figure("kills", at - 1)


@pytest.mark.parametrize("name", SCENES)
def test_each_step_may_be_repeated(name: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, *SCENES[name])
    scene.reset()
    scene.job()(times=2)
    assert contents(scene.output) == {**scene.expected, **scene.foreign}
    assert [path.name for path in (scene.output / ".recordmill").iterdir()] == ["0123456789abcdef"]


class Disk:
    """Notes what a loss of power would leave: files that were synced, and names whose folders were not."""

    def __init__(self, output: Path, patch: pytest.MonkeyPatch) -> None:
        self.output = str(output)
        self.synced: set[int] = set()
        self.loose: dict[str, str] = {}
        self.published = 0
        self._fsync, self._replace, self._remove = os.fsync, os.replace, os.remove
        for name in ("fsync", "replace", "remove"):
            patch.setattr(os, name, getattr(self, name))

    def fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        inode = os.fstat(descriptor).st_ino
        self.synced.add(inode)
        self.loose = {name: path for name, path in self.loose.items() if os.stat(path).st_ino != inode}

    def replace(self, source: str, target: str) -> None:
        assert os.stat(source).st_ino in self.synced, source
        if target == f"{self.output}/manifest.json":
            assert self.loose == {}
            self.published += 1
        self._replace(source, target)
        self._touch(target)

    def remove(self, path: str) -> None:
        inode = os.stat(path).st_ino
        if path == f"{self.output}/dataset_info.json":
            assert self.loose == {}
        self._remove(path)
        self.synced.discard(inode)
        self._touch(path)

    def _touch(self, path: str) -> None:
        """A name of the dataset has come or gone; old ones may as well come back, but for these."""
        inside = path.startswith(self.output) and "/." not in path
        if inside and (os.path.exists(path) or path.endswith(("manifest.json", "dataset_info.json"))):
            self.loose[path] = os.path.dirname(path)
        if path.endswith(".tfrecord"):
            assert f"{self.output}/manifest.json" not in self.loose


def test_all_is_on_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = tmp_path / "pixels"
    pixels.write_bytes(bytes(12 * 5))
    disk = Disk(tmp_path / "out", monkeypatch)
    for published, num_shards in enumerate([3, 2], 1):
        Job(tmp_path / "out", num_shards, pixels, overwrite=True)()
        assert disk.published == published
        assert disk.loose == {}
        assert all(
            path.stat().st_ino in disk.synced for path in (tmp_path / "out").rglob("*") if path.is_file()
        )


def test_finished_shards_need_no_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, *SCENES["first"])
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda *_: 10)
    scene.reset()
    with pytest.raises(JobError, match=r"about 3.0 kB will be written, and 10 bytes are free there"):
        scene.job()()
    monkeypatch.undo()
    lock.release_all()
    publishes = next(at for at, what in enumerate(scene.operations) if what.endswith("publishing.json.part"))
    scene.reset()
    assert scene.interrupted(publishes)
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda *_: 10)
    scene.check_again()


def test_a_job_whose_output_is_gone_says_so(tmp_path: Path) -> None:
    scene = Scene(tmp_path, *SCENES["first"])
    job = scene.job()

    def remove(*_: object) -> None:
        shutil.rmtree(scene.output)

    scene.reset()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(JobError) as gone:
        patch.setattr("recordmill.transforms.publish.recheck_output", remove)
        job()
    assert str(scene.output) in str(gone.value)
    assert "No such file or directory" in str(gone.value)
    scene.reset()
    scene.check_again()


@pytest.mark.parametrize(
    "step", ["recordmill.transforms.plan._check_space", "tests.pipelines.faulty.move_file"]
)
def test_a_job_that_was_taken_over_publishes_nothing(step: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, *SCENES["equal"])
    scene.reset()
    first = scene.job()

    def take_over(*_: object) -> None:
        lock.acquire(str(scene.output), "second")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(JobError, match="another job has taken over"):
        patch.setattr(step, take_over)
        first()
    assert (contents(scene.output).items() >= {**scene.old, **scene.foreign}.items()) == ("plan" in step)
    assert (scene.output / "manifest.json").exists() == ("plan" in step)
