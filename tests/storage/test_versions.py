"""Versions of a dataset: which there are, how one is exposed and old ones removed, killed at any moment."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.local import LocalFileSystem
from recordmill.transforms.storage.versions import (
    Version,
    check_home,
    latest_version,
    parse_version,
    publish_version,
    published_versions,
    recover_versions,
    remove_old_versions,
    staging_folder,
    version_folder,
    version_to_write,
)
from tests.storage.versioned import (
    FILES,
    KEPT,
    Killed,
    Watch,
    check_readers,
    contents,
    latest_seen,
    locked,
    manifest_of,
    publish,
    put,
    put_staged,
    run_of,
    versions_seen,
    watched,
    whole,
    work,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with three versions."""
    folder = tmp_path / "birds"
    folder.mkdir()
    for version in ("1.0.0", "1.0.9", "1.0.10"):
        publish(str(folder), version)
    return folder


def left(home: Path) -> list[str]:
    """What is under `.recordmill`, but for the lock."""
    state = home / ".recordmill"
    return sorted(path.name for path in state.iterdir()) if state.exists() else []


@pytest.mark.parametrize("text", ["0.0.0", "1.0.0", "10.20.30", "2026.11.21", "999999999.0.0"])
def test_versions_are_three_numbers(text: str) -> None:
    assert str(parse_version(text)) == text
    assert parse_version(text) == Version(*map(int, text.split(".")))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", "1.0.0"),
        ("latest", "1.0.0"),
        ("2", "2.0.0"),
        ("v1.2.3", "1.2.3"),
        ("1.2", "1.2.0"),
        ("1.02.0", "1.2.0"),
        ("1.0.0 ", "1.0.0"),
        ("1.0.-1", "1.0.0"),
        ("1.0.0-rc1", "1.0.0"),
        ("1.0.٣", "1.0.0"),
        ("1.*.0", "1.0.0"),
        ("../1.0.0", "1.0.0"),
        ("1.0.0\n", "1.0.0"),
        ("1.0.9999999999", "1.0.0"),
    ],
)
def test_other_texts_are_told_what_they_may_be(text: str, meant: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_version(text)
    told = f"--dataset_version is {text!r}; it may be auto, or three numbers such as {meant}"
    assert str(raised.value) == told


def test_versions_are_ordered_by_their_numbers(home: Path) -> None:
    assert list(map(str, published_versions(str(home)))) == ["1.0.0", "1.0.9", "1.0.10"]
    assert latest_version(str(home)) == Version(1, 0, 10)
    assert latest_seen(home) == "1.0.10"
    assert (home / "latest.json").read_text() == '{"format_version": 1, "version": "1.0.10"}\n'
    assert contents(home / "1.0.9") == whole("1.0.9")
    assert sorted(path.name for path in home.iterdir()) == ["1.0.0", "1.0.10", "1.0.9", "latest.json"]


def test_a_new_home_has_no_versions(tmp_path: Path) -> None:
    home = str(tmp_path / "none")
    check_home(home)
    assert published_versions(home) == []
    assert latest_version(home) is None
    assert version_to_write(home, "auto") == Version(1, 0, 0)
    assert version_to_write(home, "0.3.0") == Version(0, 3, 0)
    assert version_folder(home, "1.0.0") == f"{home}/1.0.0"
    assert staging_folder(home, Version(1, 0, 0)) == f"{home}/.recordmill/1.0.0"
    assert not os.path.exists(home)


def test_auto_raises_the_last_number_of_the_highest(home: Path) -> None:
    assert str(version_to_write(str(home), "auto")) == "1.0.11"
    (home / "latest.json").write_text('{"format_version": 1, "version": "1.0.0"}')
    assert str(version_to_write(str(home), "auto")) == "1.0.11"
    put_staged(run_of(str(home), "1.0.11"))
    assert str(version_to_write(str(home), "auto")) == "1.0.12"
    (home / "1.2.0").mkdir()
    assert str(version_to_write(str(home), "auto")) == "1.2.1"


def test_a_version_at_work_is_asked_for_again(home: Path) -> None:
    run = run_of(str(home), "1.0.11")
    put(os.path.join(run.folder, "run.json"), "{}")
    assert str(version_to_write(str(home), "auto")) == "1.0.11"
    put_staged(run)
    assert str(version_to_write(str(home), "1.0.11")) == "1.0.11"


@pytest.mark.parametrize("asked", ["1.0.10", "1.0.9", "1.0.5", "0.9.0"])
def test_a_version_is_higher_than_all_others(home: Path, asked: str) -> None:
    with pytest.raises(ValueError) as raised:
        version_to_write(str(home), asked)
    assert str(raised.value) == (
        f"--dataset_version is {asked!r}, and {str(home)!r} has 1.0.10 already; readers take the highest: "
        "give auto, 1.0.11, or a higher one"
    )
    assert str(version_to_write(str(home), "1.1.0")) == "1.1.0"


def test_homes_that_take_versions(home: Path, tmp_path: Path) -> None:
    check_home(str(home))
    put(str(home / "README.md"), "birds")
    check_home(str(home))
    put_staged(run_of(str(home), "1.0.11"))
    put(str(home / ".recordmill" / "exposing.json"), "{}")
    put(str(home / ".recordmill" / "removing-1.0.0.json"), "{}")
    put(str(home / ".recordmill" / "latest.json.0123456789ab.part"), "")
    check_home(str(home))
    (tmp_path / "empty").mkdir()
    check_home(str(tmp_path / "empty"))
    put_staged(run_of(str(tmp_path / "first"), "1.0.0"))
    check_home(str(tmp_path / "first"))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("manifest.json", "{}", "which holds a dataset without versions"),
        (".recordmill/" + "a" * 16 + "/run.json", '{"format_version": 1}', "a run without --dataset_version"),
        (".recordmill/notes.txt", "", "where recordmill did not write '.recordmill/notes.txt'; move it away"),
        ("photo.jpg", "", "which is not empty and has no versions ('photo.jpg')"),
        ("latest.json", "{}", "names no version, as {"),
        ("latest.json", "[]", "names no version, as {"),
        ("latest.json", "", "names no version, as {"),
        ("latest.json", '{"format_version": 2, "version": "1.0.0"}', "names no version, as {"),
        ("latest.json", '{"format_version": 1, "version": "1.0"}', "names no version, as {"),
        ("latest.json", '{"format_version": 1, "version": 1}', "names no version, as {"),
    ],
)
def test_homes_that_take_none(tmp_path: Path, name: str, text: str, told: str) -> None:
    put(str(tmp_path / "out" / name), text)
    with pytest.raises(ValueError) as raised:
        check_home(str(tmp_path / "out"))
    assert told in str(raised.value)
    assert repr(str(tmp_path / "out"))[1:-1] in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_and_a_path_that_cannot_be_are_no_homes(tmp_path: Path) -> None:
    put(str(tmp_path / "file"), "")
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="--output is"):
            check_home(str(home))
    with pytest.raises(ValueError, match="--output is empty"):
        check_home("")


def test_exposing_can_be_repeated(tmp_path: Path) -> None:
    run = run_of(str(tmp_path), "1.0.0")
    lock.acquire(str(tmp_path), run.token)
    put_staged(run)
    publish_version(run)
    publish_version(run)
    lock.release(str(tmp_path), run.token)
    publish_version(run)
    assert contents(tmp_path) == {
        "latest.json": '{"format_version": 1, "version": "1.0.0"}\n',
        **{f"1.0.0/{name}": text for name, text in whole("1.0.0").items()},
    }


def test_nothing_is_exposed_without_the_lock(home: Path) -> None:
    run = run_of(str(home), "1.0.11")
    put_staged(run)
    lock.acquire(str(home), "another's")
    with pytest.raises(JobError, match="another job has taken over"):
        publish_version(run)
    lock.release(str(home), "another's")
    assert versions_seen(home) == ["1.0.0", "1.0.9", "1.0.10"]
    check_readers(home)


def test_a_job_that_loses_the_lock_meanwhile_leaves_latest(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(str(home), "1.0.11")
    put_staged(run)
    lock.acquire(str(home), run.token)

    rename = LocalFileSystem.rename_folder

    def renamed(system: LocalFileSystem, source: str, target: str) -> None:
        rename(system, source, target)
        lock.acquire(str(home), "another's")

    monkeypatch.setattr(LocalFileSystem, "rename_folder", renamed)
    with pytest.raises(JobError, match="another job has taken over"):
        publish_version(run)
    assert latest_seen(home) == "1.0.10"
    recover_versions(str(home), "1.0.12")
    lock.release(str(home), "another's")
    assert latest_seen(home) == "1.0.11"
    assert left(home) == []
    check_readers(home)


def test_a_version_that_is_gone_is_not_exposed(home: Path) -> None:
    with pytest.raises(JobError, match=r"1\.0\.11 is gone"):
        publish_version(run_of(str(home), "1.0.11"))


def test_nothing_in_the_way_is_replaced(home: Path) -> None:
    run = run_of(str(home), "1.0.11")
    put_staged(run)
    put(str(home / "1.0.11" / "mine.txt"), "mine")
    lock.acquire(str(home), run.token)
    with pytest.raises(JobError, match=r"something else has got the name '1\.0\.11' meanwhile"):
        publish_version(run)
    with pytest.raises(JobError, match=r"1\.0\.11 is in the way of version 1\.0\.11.*move it away"):
        recover_versions(str(home), "1.0.12")
    assert contents(home / "1.0.11") == {"mine.txt": "mine"}
    (home / "1.0.11").rename(home / "mine")
    recover_versions(str(home), "1.0.12")
    lock.release(str(home), run.token)
    assert latest_seen(home) == "1.0.11"
    assert left(home) == []
    check_readers(home)


def test_a_version_that_another_job_has_published_stays(home: Path) -> None:
    run = run_of(str(home), "1.0.10")
    put_staged(run)
    put(os.path.join(run.output, "mine.txt"), "mine")
    lock.acquire(str(home), run.token)
    with pytest.raises(JobError, match=r"something else has got the name '1\.0\.10'"):
        publish_version(run)
    recover_versions(str(home), "1.0.10")
    lock.release(str(home), run.token)
    assert contents(home / ".recordmill" / "1.0.10") == {"mine.txt": "mine"}
    assert contents(home / "1.0.10") == whole("1.0.10")


def test_a_version_set_back_stays_so(home: Path) -> None:
    (home / "latest.json").write_text('{"format_version": 1, "version": "1.0.0"}')
    put_staged(run_of(str(home), "1.0.5"))
    os.remove(home / ".recordmill" / "1.0.5" / "manifest.json")
    put(str(home / ".recordmill" / "1.0.11" / "train-00000-of-00001.tfrecord"), "half")
    put(os.path.join(run_of(str(home), "1.0.11").folder, "run.json"), '{"format_version": 1}')
    recover_versions(str(home), "1.0.11")
    assert latest_seen(home) == "1.0.0"
    assert left(home) == ["1.0.11"]
    recover_versions(str(home), "1.0.12")
    assert left(home) == []
    assert latest_seen(home) == "1.0.0"
    assert versions_seen(home) == ["1.0.0", "1.0.9", "1.0.10"]


def test_a_note_of_a_version_that_is_gone_is_forgotten(home: Path) -> None:
    put(str(home / ".recordmill" / "exposing.json"), '{"format_version": 1, "version": "3.0.0"}')
    recover_versions(str(home), "1.0.11")
    assert left(home) == []
    assert latest_seen(home) == "1.0.10"


def test_a_damaged_note_is_named(home: Path) -> None:
    note = home / ".recordmill" / "exposing.json"
    put(str(note), '{"format_version"')
    with pytest.raises(JobError, match=r"exposing\.json' names no version.*; remove it$"):
        recover_versions(str(home), "1.0.11")
    note.unlink()
    put(str(home / ".recordmill" / "removing-1.0.0.json"), '{"files": ["../../birds/1.0.9/manifest.json"]}')
    with pytest.raises(JobError, match=r"removing-1\.0\.0\.json is damaged .*; remove it, and .*/1\.0\.0$"):
        recover_versions(str(home), "1.0.11")
    assert versions_seen(home) == ["1.0.0", "1.0.9", "1.0.10"]
    check_readers(home)


@pytest.mark.parametrize(
    ("keep", "latest", "removed"),
    [
        (1, "1.0.10", ["1.0.0", "1.0.9"]),
        (2, "1.0.10", ["1.0.0"]),
        (3, "1.0.10", []),
        (9, "1.0.10", []),
        (1, "1.0.0", ["1.0.9"]),
        (2, "1.0.0", ["1.0.9"]),
        (2, "1.0.9", ["1.0.0"]),
        (2, "7.0.0", ["1.0.0"]),
    ],
)
def test_the_oldest_are_removed(home: Path, keep: int, latest: str, removed: list[str]) -> None:
    (home / "latest.json").write_text(json.dumps({"format_version": 1, "version": latest}))
    with locked(home):
        assert list(map(str, remove_old_versions(str(home), keep))) == removed
        assert remove_old_versions(str(home), keep) == []
    stay = [version for version in ("1.0.0", "1.0.9", "1.0.10") if version not in removed]
    assert versions_seen(home) == stay
    for version in stay:
        assert contents(home / version) == whole(version)
    assert left(home) == []


def test_what_the_manifest_does_not_list_stays(home: Path) -> None:
    put(str(home / "1.0.0" / "notes.txt"), "notes")
    put(str(home / "1.0.0" / "index" / "mine.idx"), "mine")
    with locked(home):
        remove_old_versions(str(home), 2)
    assert contents(home / "1.0.0") == {"notes.txt": "notes", "index/mine.idx": "mine"}
    assert list(map(str, published_versions(str(home)))) == ["1.0.9", "1.0.10"]
    assert str(version_to_write(str(home), "auto")) == "1.0.11"


@pytest.mark.parametrize(
    "text", ["", "{", '{"format_version": 1, "files": ["../1.0.9/manifest.json"]}', '{"format_version": 2}']
)
def test_a_manifest_that_does_not_tell_is_not_heeded(home: Path, text: str) -> None:
    (home / "1.0.0" / "manifest.json").write_text(text)
    with pytest.raises(JobError, match=r"1\.0\.0/manifest\.json "):
        remove_old_versions(str(home), 1)
    assert contents(home / "1.0.0") == {**whole("1.0.0"), "manifest.json": text}
    check_readers(home)


def test_nothing_is_removed_by_a_damaged_latest(home: Path) -> None:
    (home / "latest.json").write_text("{")
    with pytest.raises(JobError, match=r"latest\.json' names no version"):
        remove_old_versions(str(home), 1)
    assert versions_seen(home) == ["1.0.0", "1.0.9", "1.0.10"]


def test_at_least_one_version_is_kept(home: Path) -> None:
    with pytest.raises(ValueError, match="--keep_versions is 0; it must be at least 1"):
        remove_old_versions(str(home), 0)


@pytest.mark.parametrize(
    ("again", "step"),
    [
        ("same", 5),
        pytest.param("same", 1, marks=pytest.mark.slow),
        pytest.param("auto", 1, marks=pytest.mark.slow),
    ],
)
def test_a_job_killed_at_any_moment(tmp_path: Path, again: str, step: int) -> None:
    """Before each change of the file system it is killed; the next job leaves all as it would have been."""
    was_killed, number = True, 1 - step
    while was_killed:
        number += step
        home = tmp_path / str(number)
        home.mkdir()
        publish(str(home), "1.0.0")
        publish(str(home), "1.0.1")
        run = run_of(str(home), "1.0.2", "killed")
        lock.acquire(str(home), run.token)
        watch = Watch(number, lambda home=home: check_readers(home))  # type: ignore[misc]
        was_killed = False
        try:
            with watched(watch):
                work(run)
        except Killed:
            was_killed = True
        check_readers(home)
        assert latest_seen(home) in ("1.0.1", "1.0.2")
        version = "1.0.2" if again == "same" else str(version_to_write(str(home), "auto"))
        check_home(str(home))
        with watched(Watch(10**6, lambda home=home: check_readers(home))):  # type: ignore[misc]
            publish(str(home), version, KEPT)
        assert latest_seen(home) == version
        assert len(versions_seen(home)) == KEPT
        assert left(home) == []
        for kept in versions_seen(home):
            assert contents(home / kept) == whole(kept)
    assert number > 20


@pytest.mark.slow
@pytest.mark.parametrize("first", range(6, 40, 5))
def test_a_next_job_killed_at_any_moment(tmp_path: Path, first: int) -> None:
    """What settles a job that was killed in the middle is killed too, before each of its changes."""
    was_killed, number = True, 0
    while was_killed:
        number += 1
        home = tmp_path / str(number)
        home.mkdir()
        publish(str(home), "1.0.0")
        publish(str(home), "1.0.1")
        was_killed = False
        for stop_before, token in ((first, "first"), (number, "second")):
            run = run_of(str(home), "1.0.2", token)
            lock.acquire(str(home), token)
            try:
                with watched(Watch(stop_before, lambda home=home: check_readers(home))):  # type: ignore[misc]
                    work(run)
            except Killed:
                was_killed = token == "second"
        publish(str(home), "1.0.2", KEPT)
        assert versions_seen(home) == ["1.0.1", "1.0.2"]
        assert latest_seen(home) == "1.0.2"
        assert left(home) == []
        check_readers(home)


def test_fixture_files_are_those_of_the_manifest() -> None:
    assert set(json.loads(manifest_of("1.0.0"))["files"]) == {*FILES, "manifest.json"}
