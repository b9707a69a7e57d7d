"""What an output folder may hold before a run, and what a run leaves in it."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import Failure, JobError
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.layout import Run, check_name
from recordmill.transforms.storage.output import check_output, write_failures
from recordmill.transforms.storage.owner import make_marked_folder
from recordmill.transforms.storage.publication import (
    Move,
    move_file,
    published_dataset,
    unpublish,
    write_journal,
)
from recordmill.transforms.storage.runs import (
    end_run,
    failures_path,
    finished_shards,
    kept_bytes,
    mark_run,
    recover_runs,
)
from recordmill.transforms.storage.sealed import PLACEHOLDER, seal, with_digest

FILES = ["train-00000-of-00001.tfrecord", "index/train-00000-of-00001.idx", "dataset_info.json"]
ALL_FILES = sorted([*FILES, "failures.jsonl", "manifest.json"])


def run_of(output: Path, digest: str = "a" * 64, token: str = "token") -> Run:
    return Run(str(output), digest, token)


def put(output: Path, *names: str, text: str = "") -> None:
    for name in names:
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or f"contents of {name}")


def put_dataset(output: Path, **changes: object) -> None:
    put(output, *FILES, "failures.jsonl")
    manifest = {"format_version": 1, "files": ALL_FILES, **changes}
    (output / "manifest.json").write_text(json.dumps(manifest))


def everything(output: Path) -> dict[str, str]:
    """Path below `output` and text of every file, and of every empty folder."""
    found = {}
    for folder, folders, files in os.walk(output):
        for name in files:
            path = Path(folder, name)
            found[str(path.relative_to(output))] = path.read_text(errors="backslashreplace")
        if not folders and not files:
            found[str(Path(folder).relative_to(output))] = "(empty folder)"
    return found


def begun(output: Path, digest: str = "a" * 64) -> Run:
    """A run that is marked, with nothing written yet."""
    output.mkdir(exist_ok=True)
    run = run_of(output, digest)
    mark_run(run, "1.0")
    return run


def expected(run: Run) -> str:
    """sha256 of the manifest that is there."""
    present = published_dataset(run.output)
    return present.sha256 if present is not None else ""


def add_shard(run: Run, shard: int = 0, size: int = 5) -> list[Move]:
    """A finished shard with its state, and the moves that publish it."""
    name = f"train-{shard:05d}"
    put(Path(run.shards), f"{name}-x.tfrecord", text="r" * size)
    put(Path(run.shards), f"{name}-x.idx")
    state = {"sizes": {f"{name}-x.tfrecord": size, f"{name}-x.idx": 1}}
    Path(run.shards, f"{name}.state").write_bytes(with_digest(msgspec.msgpack.encode(state)))
    published = f"{name}-of-00001"
    sha256 = hashlib.sha256(b"r" * size).hexdigest()
    return [
        Move(f"{run.shards}/{name}-x.tfrecord", f"{run.output}/{published}.tfrecord", sha256),
        Move(f"{run.shards}/{name}-x.idx", f"{run.output}/index/{published}.idx", None),
    ]


@pytest.mark.parametrize("overwrite", [False, True])
def test_outputs_that_can_take_a_dataset(overwrite: bool, tmp_path: Path) -> None:
    check_output(str(tmp_path / "none/yet"), overwrite)
    check_output(str(tmp_path), overwrite)
    (tmp_path / "index").mkdir()
    check_output(str(tmp_path), overwrite)
    # What a job makes before it is a run, and a lock.
    put(
        tmp_path,
        ".recordmill/0123456789abcdef/scratch/x",
        ".recordmill/0123456789abcdef/tfrecord-a/train/x",
    )
    (tmp_path / ".recordmill/lock").touch()
    check_output(str(tmp_path), overwrite)
    run = begun(tmp_path)
    add_shard(run)
    write_failures(run, [Failure("a", "load", "not found")])
    check_output(str(tmp_path), overwrite)


@pytest.mark.parametrize(
    "names",
    [
        ("notes.txt",),
        (".hidden",),
        ("train-00000-of-00001.tfrecord",),
        ("failures.jsonl",),
        ("index/notes.txt",),
        ("index",),
        (".recordmill/lock",),
        (".recordmill/notes.txt",),
        (".recordmill/theirs/notes.txt",),
        (".recordmill/theirs/shards/train-00000-x.tfrecord",),
        (".recordmill",),
    ],
    ids=lambda names: names[0],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_outputs_with_files_that_no_run_left(names: tuple[str, ...], overwrite: bool, tmp_path: Path) -> None:
    put(tmp_path, *names)
    before = everything(tmp_path)
    shown = names[0] if not names[0].startswith(".recordmill/theirs/") else ".recordmill/theirs"
    with pytest.raises(ValueError) as refused:
        check_output(str(tmp_path), overwrite)
    assert str(refused.value) == (
        f"--output is {str(tmp_path)!r}, which is not empty ({shown!r}); give an empty or new folder"
    )
    assert everything(tmp_path) == before


def test_links_under_the_runs_are_nobodys(tmp_path: Path) -> None:
    (tmp_path / "elsewhere/run").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/.recordmill").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"not empty \('.recordmill'\)"):
        check_output(str(tmp_path / "out"))
    (tmp_path / "out/.recordmill").unlink()
    (tmp_path / "out/.recordmill").mkdir()
    (tmp_path / "out/.recordmill/run").symlink_to(tmp_path / "elsewhere/run")
    with pytest.raises(ValueError, match=r"not empty \('.recordmill/run'\)"):
        check_output(str(tmp_path / "out"), overwrite=True)


def test_a_dataset_is_replaced_only_if_that_was_asked_for(tmp_path: Path) -> None:
    put_dataset(tmp_path)
    put(tmp_path, "notes.txt", "index/notes.txt")
    with pytest.raises(ValueError, match="holds a dataset already; --overwrite replaces it, or give another"):
        check_output(str(tmp_path))
    check_output(str(tmp_path), overwrite=True)
    put(tmp_path, ".recordmill/theirs/notes.txt")
    with pytest.raises(ValueError, match="not empty"):
        check_output(str(tmp_path), overwrite=True)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("", "does not list the dataset's files"),
        ("[]", "does not list"),
        ("null", "does not list"),
        ("\xff", "does not list"),
        ("{}", "does not list"),
        ('{"format_version": 1}', "does not list"),
        ('{"format_version": 2, "files": []}', "does not list"),
        ('{"format_version": 1, "files": "manifest.json"}', "does not list"),
        ('{"format_version": 1, "files": [1]}', "names 1, which is no file's name"),
        ('{"format_version": 1, "files": ["../x"]}', "names '../x', which is no file of a dataset"),
        ('{"format_version": 1, "files": ["/etc/passwd"]}', "'/etc/passwd', which is no file of a dataset"),
        ('{"format_version": 1, "files": ["index/../../x"]}', "which is no file of a dataset"),
        ('{"format_version": 1, "files": [".recordmill/x"]}', "which is no file of a dataset"),
        ('{"format_version": 1, "files": ["linked/x"]}', "'linked/x', which leads outside the folder"),
        ('{"format_version": 1, "files": ["folder"]}', "'folder', which is a folder"),
        ('{"format_version": 1, "files": ["file/x"]}', "'file/x', where 'file' is no folder"),
    ],
)
def test_a_manifest_that_cannot_be_trusted(manifest: str, message: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    put(output, "folder/x", "file")
    put(tmp_path, "x", "elsewhere/x")
    (output / "linked").symlink_to(tmp_path / "elsewhere")
    (output / "manifest.json").write_text(manifest, encoding="latin-1")
    before = everything(tmp_path)
    with pytest.raises(ValueError) as refused:
        check_output(str(output), overwrite=True)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert everything(tmp_path) == before


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b.c", ".recordmill", "a\0"]), max_size=4).map("/".join))
def test_a_name_is_that_of_a_file_below_the_folder(name: str) -> None:
    try:
        check_name("/out", name)
    except ValueError:
        clean = name and not any(part in ("", ".", "..", "a\0") for part in name.split("/"))
        assert not clean or name.startswith(".recordmill")
    else:
        assert os.path.normpath(f"/out/{name}") == f"/out/{name}"
        assert not name.startswith(".recordmill")


def test_faults_of_the_folder_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: str) -> list[str]:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(os, "scandir", fails)
    with pytest.raises(ValueError, match=f"--output is {str(tmp_path)!r}: .*: Input/output error"):
        check_output(str(tmp_path))


def test_a_run_that_starts_removes_what_others_left_and_keeps_its_finished_shards(tmp_path: Path) -> None:
    run = begun(tmp_path)
    add_shard(run, 0)
    add_shard(run, 2)
    kept = everything(tmp_path)
    put(
        Path(run.shards),
        "train-00001-y.tfrecord",
        "train-00001.state.0a1b.part",
        "train-00009-empty.idx",
    )
    put(Path(run.shards), "train-00003.state", text="{")
    put(Path(run.folder), "failures.jsonl", "run.json.0a1b.part", "tfrecord-older/train/x")
    other = begun(tmp_path, "b" * 64)
    add_shard(other, 0)
    make_marked_folder(str(tmp_path / ".recordmill/cccccccccccccccc/scratch"))
    put(tmp_path, ".recordmill/cccccccccccccccc/scratch/x")
    foreign = [
        f".recordmill/{'a' * 16}/notes.txt",
        f".recordmill/{'a' * 16}/shards/notes.txt",
        f".recordmill/{'b' * 16}/mine.jpg",
        ".recordmill/dddddddddddddddd/scratch/x",
        ".recordmill/dddddddddddddddd/shards/train-00001-y.tfrecord",
        ".recordmill/eeeeeeeeeeeeeeee/publishing.json",
    ]
    put(tmp_path, *foreign)
    mine = {
        **{name: f"contents of {name}" for name in foreign},
        f".recordmill/{'a' * 16}/scratch/x": "contents of scratch/x",
        f".recordmill/{'a' * 16}/sample.json": "contents of sample.json",
        f".recordmill/{'a' * 16}/tfrecord-token/train/x": "contents of tfrecord-token/train/x",
    }
    put(Path(run.folder), "scratch/x", "sample.json", "tfrecord-token/train/x")
    put(Path(run.shards), "train-00007.state.json", "train-00007-x.tfrecord", text="by version 0.1")
    put(Path(other.shards), "train-00007.state.json", text="by version 0.1")
    assert recover_runs(run) == 2
    assert everything(tmp_path) == {**kept, **mine}
    assert finished_shards(str(tmp_path)) == 2
    Path(run.shards, "notes.txt").unlink()
    assert kept_bytes(str(tmp_path)) == sum(path.stat().st_size for path in Path(run.shards).iterdir())


def test_what_is_in_a_runs_folder_before_the_run_stays(tmp_path: Path) -> None:
    before = [f".recordmill/{'a' * 16}/{name}" for name in ("sample.json", "shards/train-00000-x.idx")]
    put(tmp_path, *before)
    run = begun(tmp_path)
    put(Path(run.shards), "train-00000-y.idx")
    mark_run(run, "1.0")  # by the same command, given again
    recover_runs(run)
    assert set(everything(tmp_path)) == {*before, f".recordmill/{'a' * 16}/run.json"}
    lock.acquire(run.output, run.token)
    end_run(run)
    assert set(everything(tmp_path)) == set(before)


def test_the_marker_says_what_runs_there(tmp_path: Path) -> None:
    run = begun(tmp_path)
    marker = json.loads(Path(run.folder, "run.json").read_text())
    started = marker.pop("started")
    assert started.endswith("+00:00")
    assert marker == {
        "format_version": 1,
        "recordmill": "1.0",
        "config_digest": "a" * 64,
        "replaces": False,
        "foreign": [],
    }


def cut_off_after(steps: int, run: Run, moves: list[Move]) -> None:
    """A publication, cut off after so many of its moves."""
    publication = write_journal(run, moves, ["dataset_info.json", "manifest.json"], expected(run))
    unpublish(run, publication)
    for move in moves[:steps]:
        move_file(move)


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("replaces", [False, True])
def test_a_publication_that_was_cut_off_is_taken_back(steps: int, replaces: bool, tmp_path: Path) -> None:
    if replaces:
        put_dataset(tmp_path)
        put(tmp_path, "notes.txt", "index/notes.txt")
    run = begun(tmp_path)
    moves = add_shard(run)
    before = everything(tmp_path)
    cut_off_after(steps, run, moves)
    # The same call, without --overwrite too, may go on.
    check_output(str(tmp_path))
    mark_run(run, "1.0")
    recover_runs(run)
    gone = set(ALL_FILES) if replaces else set()
    after = everything(tmp_path)
    marker = f".recordmill/{'a' * 16}/run.json"
    assert json.loads(after.pop(marker))["replaces"] is replaces
    assert after == {name: text for name, text in before.items() if name not in gone | {marker}}


@pytest.mark.parametrize("replaces", [False, True])
def test_another_runs_publication_that_was_cut_off_is_removed(replaces: bool, tmp_path: Path) -> None:
    if replaces:
        put_dataset(tmp_path)
        put(tmp_path, "notes.txt")
    run = begun(tmp_path)
    cut_off_after(1, run, add_shard(run))
    other = begun(tmp_path, "b" * 64)
    recover_runs(other)
    left = {f".recordmill/{'b' * 16}/run.json", *(["notes.txt"] if replaces else [])}
    assert set(everything(tmp_path)) == left
    # The other files were beside a dataset: also when this run is cut off before it publishes.
    check_output(str(tmp_path))


def test_a_published_dataset_stays_as_it_is_until_the_gate(tmp_path: Path) -> None:
    put_dataset(tmp_path)
    before = everything(tmp_path)
    run = begun(tmp_path)
    # Left by a publication that was complete but for its clean-up.
    put(
        Path(run.folder),
        "publishing.json",
        text=json.dumps({"moves": {}, "metadata": ALL_FILES, "replaces": None}),
    )
    recover_runs(run)
    add_shard(run)
    path = write_failures(run, [Failure("a", "load", "not found")])
    assert path == failures_path(run) == f"{run.folder}/failures.jsonl"
    assert Path(path).read_text() == '{"key": "a", "stage": "load", "reason": "not found"}\n'
    assert not Path(run.folder, "publishing.json").exists()
    assert {name: text for name, text in everything(tmp_path).items() if name[0] != "."} == before


def test_failures_are_sorted_and_merged(tmp_path: Path) -> None:
    run = begun(tmp_path)
    lines = [Failure("b", "load", "not found").to_json(), Failure("Ä\u2028", "decode", "bad").to_json()]
    put(tmp_path, "x.failures", text="".join(f"{line}\n" for line in lines))
    path = write_failures(run, [Failure("a", "list", "no", skipped=True)], [str(tmp_path / "x.failures")])
    assert path == str(tmp_path / "failures.jsonl")
    with open(path, encoding="utf-8", newline="\n") as file:
        assert [json.loads(line)["key"] for line in file] == ["a", "b", "Ä\u2028"]


@pytest.mark.parametrize("taken", ["train-00000-of-00001.tfrecord", "dataset_info.json", "index"])
def test_a_file_of_somebody_else_is_never_overwritten(taken: str, tmp_path: Path) -> None:
    put(tmp_path, "manifest.json", text=json.dumps({"format_version": 1, "files": ["manifest.json"]}))
    put(tmp_path, taken)
    run = begun(tmp_path)
    moves = add_shard(run)
    before = everything(tmp_path)
    with pytest.raises(JobError, match=f"{taken}.*; nothing is published"):
        write_journal(run, moves, ["dataset_info.json", "manifest.json"], expected(run))
    assert everything(tmp_path) == before


def test_a_page_of_a_dataset_that_was_published_without_one(tmp_path: Path) -> None:
    put_dataset(tmp_path)
    page = seal(f"<p>10 records</p><!-- seal: {PLACEHOLDER} -->")
    run = begun(tmp_path)
    moves = add_shard(run)
    put(tmp_path, "report.html", text=page.replace("10", "11"))
    with pytest.raises(JobError, match=r"'report.html'.*; nothing is published"):
        write_journal(run, moves, ["report.html", "manifest.json"], expected(run))
    put(tmp_path, "report.html", text=page)
    assert (
        "report.html" in write_journal(run, moves, ["report.html", "manifest.json"], expected(run)).metadata
    )


def test_steps_that_are_repeated(tmp_path: Path) -> None:
    put_dataset(tmp_path)
    run = begun(tmp_path)
    moves = add_shard(run)
    for _ in range(2):
        publication = write_journal(run, moves, ["dataset_info.json", "manifest.json"], expected(run))
        assert publication.replaces is not None
        assert publication.replaces.files == tuple(ALL_FILES)
        unpublish(run, publication)
        for move in (*moves, *moves):
            move_file(move)
    assert (tmp_path / "train-00000-of-00001.tfrecord").read_text() == "rrrrr"
    (tmp_path / "train-00000-of-00001.tfrecord").write_text("rrrrs")
    with pytest.raises(JobError, match="a finished shard is gone"):
        move_file(moves[0])


def test_a_dataset_that_appears_meanwhile_is_not_withdrawn(tmp_path: Path) -> None:
    put_dataset(tmp_path)
    run = begun(tmp_path)
    publication = write_journal(run, add_shard(run), ["manifest.json"], expected(run))
    put_dataset(tmp_path, by="somebody")
    with pytest.raises(JobError, match="another job has published"):
        unpublish(run, publication)
    assert published_dataset(str(tmp_path)) is not None


def test_a_step_that_comes_late_leaves_the_published_dataset(tmp_path: Path) -> None:
    """A twin of the step that publishes, held up until the job is done, or another has published."""
    run = begun(tmp_path)
    moves = add_shard(run)
    put_dataset(tmp_path)
    before = everything(tmp_path)
    with pytest.raises(JobError, match="another job has published meanwhile"):
        write_journal(run, moves, ["manifest.json"], expected="")
    assert everything(tmp_path) == before


def test_the_end_leaves_what_another_job_has(tmp_path: Path) -> None:
    run = begun(tmp_path)
    add_shard(run)
    lock.acquire(run.output, "another")
    before = everything(tmp_path)
    end_run(run)
    assert everything(tmp_path) == before
    lock.release(run.output, "another")


@pytest.mark.parametrize(
    "late", ["shards/train-00000-x.tfrecord", "sample.json", "publishing.json.0a1b.part", "failures.jsonl"]
)
def test_what_comes_late_into_a_run_that_is_gone_keeps_nobody_out(late: str, tmp_path: Path) -> None:
    put(tmp_path, f".recordmill/0123456789abcdef/{late}")
    check_output(str(tmp_path))
    recover_runs(begun(tmp_path))
    assert (tmp_path / ".recordmill/0123456789abcdef" / late).is_file()  # nothing says who made it
    put(tmp_path, f".recordmill/0123456789abcdef/{late}", ".recordmill/0123456789abcdef/mine.txt")
    with pytest.raises(ValueError, match="not empty"):
        check_output(str(tmp_path))


def _denied(run: Run) -> None:
    put(Path(run.output), "not-ours")


def _with_links(run: Run) -> None:
    Path(run.folder, "scratch").symlink_to(Path(run.output))


@pytest.mark.parametrize("beside", [_denied, _with_links])
def test_the_end_leaves_no_trace_and_touches_nothing_else(
    beside: Callable[[Run], None], tmp_path: Path
) -> None:
    run = run_of(tmp_path)
    lock.acquire(run.output, run.token)
    mark_run(run, "1.0")
    add_shard(run)
    put_dataset(tmp_path)
    beside(run)
    before = {name: text for name, text in everything(tmp_path).items() if name[0] != "."}
    end_run(run)
    assert everything(tmp_path) == before


def test_the_end_never_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    run = begun(tmp_path)
    add_shard(run)
    with monkeypatch.context() as patched:
        for name in ("remove", "unlink", "rmdir"):
            patched.setattr(os, name, fails)
        end_run(run)
    # It is still known as what a run left.
    check_output(str(tmp_path))
