"""The folder of a sweep: what it may hold before, and what it holds after."""

import errno
import os
from pathlib import Path

import pytest

from recordmill.transforms.flags import as_flags
from recordmill.transforms.records import JobError
from recordmill.transforms.storage.owner import Owner, make_marked_folder
from recordmill.transforms.sweeping.output import (
    NAMES,
    check_sweep_output,
    prepare_output,
    scratch_of,
    write_sweep,
)

# As much of sweep.json as says that a sweep wrote it.
_JSON = b'{"format_version": 1, "images": 1, "packages": {}, "rows": []}'
CONTENTS = {**{name: name.encode() for name in NAMES}, "sweep.json": _JSON}
NEW = {**dict.fromkeys(NAMES, b"new"), "sweep.json": _JSON + b" "}


def test_files_are_replaced_and_nothing_else_is_touched(tmp_path: Path) -> None:
    for name in ("mine.txt", "sweep.csv", "sweep.csv.part", "sweep.html.bak"):
        (tmp_path / name).write_text("old")
    (tmp_path / "sweep.json").write_bytes(_JSON)
    scratch = Path(scratch_of(str(tmp_path), "one"))
    make_marked_folder(str(scratch))
    for folder in (scratch, Path(scratch_of(str(tmp_path), "other")), tmp_path / "folder"):
        folder.mkdir(exist_ok=True)
        (folder / "spooled").write_text("old")
    assert write_sweep(str(tmp_path), CONTENTS, str(scratch)) == str(tmp_path / "sweep.json")
    assert {name: (tmp_path / name).read_bytes() for name in NAMES} == CONTENTS
    others = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} - set(
        NAMES
    )
    assert others == {
        "mine.txt",
        "sweep.csv.part",
        "sweep.html.bak",
        ".sweep-other/spooled",
        "folder/spooled",
    }


def test_an_old_sweep_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sweep(str(tmp_path), CONTENTS, None)
    (tmp_path / "mine.txt").write_text("mine")
    synced = 0

    def full(_: int) -> None:
        nonlocal synced
        synced += 1
        if synced == 5:  # each file, and its folder
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JobError, match="sweep.svg.*No space left"):
        write_sweep(str(tmp_path), NEW, None)
    assert {name: (tmp_path / name).read_bytes() for name in NAMES} == CONTENTS
    assert sorted(os.listdir(tmp_path)) == sorted([*NAMES, "mine.txt"])


def test_sweep_json_is_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cut off while it takes the place of another has no sweep.json, and can be replaced."""
    write_sweep(str(tmp_path), CONTENTS, None)
    (tmp_path / "mine.txt").write_text("mine")
    replace = os.replace

    def stopping(source: str, target: str) -> None:
        if target.endswith("sweep.html"):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", stopping)
    with pytest.raises(KeyboardInterrupt):
        write_sweep(str(tmp_path), NEW, None)
    assert not (tmp_path / "sweep.json").exists()
    monkeypatch.undo()
    check_sweep_output(str(tmp_path), overwrite=True)
    write_sweep(str(tmp_path), CONTENTS, None)
    assert {name: (tmp_path / name).read_bytes() for name in NAMES} == CONTENTS
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("names", "refused", "refused_with_overwrite"),
    [
        ([], None, None),
        ([".sweep-1234"], None, None),
        (["sweep.json"], "holds a sweep already", None),
        (["sweep.json", "mine.txt"], "holds a sweep already", None),
        (["sweep.csv", ".sweep-unfinished.json"], "holds the files of an interrupted sweep", None),
        (["sweep.html"], "not empty ('sweep.html')", "not empty ('sweep.html')"),
        (["mine.txt"], "not empty ('mine.txt')", "not empty ('mine.txt')"),
        (["sweep.csv", "mine.txt"], "not empty ('mine.txt', 'sweep.csv')", "not empty ('mine.txt', 'sw"),
        (["manifest.json", ".recordmill"], "not empty ('.recordmill', 'manifest.json')", "not empty ('.rec"),
        (["d", "c", "b", "a"], "not empty ('a', 'b', 'c', …)", "not empty ('a', 'b', 'c', …)"),
    ],
)
def test_which_folders_can_take_a_sweep(
    names: list[str], refused: str | None, refused_with_overwrite: str | None, tmp_path: Path
) -> None:
    ours = {"sweep.json": _JSON, ".sweep-unfinished.json": Owner.here("", "").to_json()}
    for name in names:
        (tmp_path / name).write_bytes(ours.get(name, b""))
    for overwrite, message in ((False, refused), (True, refused_with_overwrite)):
        if message is None:
            check_sweep_output(str(tmp_path), overwrite)
            prepare_output(str(tmp_path), overwrite)
            continue
        with pytest.raises(ValueError) as raised:
            check_sweep_output(str(tmp_path), overwrite)
        assert message in str(raised.value) and f"--output is {str(tmp_path)!r}" in str(raised.value)
        with pytest.raises(JobError) as failed:
            prepare_output(str(tmp_path), overwrite)
        assert as_flags(str(failed.value)) == str(raised.value)
    assert sorted(os.listdir(tmp_path)) == sorted(names)


@pytest.mark.parametrize("planted", [{"sweep.csv": b"mine"}, {"sweep.json": b"{}", "sweep.png": b"mine"}])
def test_files_of_that_name_that_no_sweep_wrote_stay(planted: dict[str, bytes], tmp_path: Path) -> None:
    for name, data in planted.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match="not empty"):
        check_sweep_output(str(tmp_path), True)
    with pytest.raises(JobError, match="exists, and no sweep wrote it; move it away"):
        write_sweep(str(tmp_path), CONTENTS, None)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == planted


def test_places_that_are_no_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="which is a file"):
        check_sweep_output(str(tmp_path / "file"), False)
    with pytest.raises(ValueError, match="is no folder"):
        check_sweep_output(str(tmp_path / "file" / "below"), False)
    with pytest.raises(ValueError, match="--output is empty"):
        check_sweep_output("", False)
    with pytest.raises(JobError, match="file"):
        write_sweep(str(tmp_path / "file"), CONTENTS, None)
    prepare_output(str(tmp_path / "new" / "folder"), False)
    assert (tmp_path / "new" / "folder").is_dir()
