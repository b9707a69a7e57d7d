"""Files of hashes: which are read, and which are removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.transforms.records import ImageRef
from recordmill.transforms.storage import hash_cache
from recordmill.transforms.storage.hash_cache import HashCache, remove_other_hashes
from recordmill.transforms.storage.output import check_output
from recordmill.transforms.storage.owner import MARKER

A, B = "a" * 32, "b" * 32


def ref(number: int) -> ImageRef:
    return ImageRef(f"/{number}", version=1 + number)


def store(folder: Path, token: str, numbers: range) -> None:
    cache = HashCache(str(folder), token)
    for number in numbers:
        cache.add(ref(number), number + 1, 10 * number)
    cache.flush()


def found(folder: Path, numbers: range) -> list[tuple[int, int] | None]:
    cache = HashCache(str(folder))
    return [cache.find(ref(number)) for number in numbers]


def expected(numbers: range) -> list[tuple[int, int] | None]:
    return [(number + 1, 10 * number) for number in numbers]


def test_hashes_of_several_jobs_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "hashes"
    assert found(folder, range(3)) == [None] * 3
    store(folder, A, range(2000))
    store(folder, B, range(1500, 3000))
    assert found(folder, range(3000)) == expected(range(3000))
    assert HashCache(str(folder)).find(ImageRef("/1", version=9)) is None
    assert HashCache(str(folder)).find(ImageRef("/1", 1, version=2)) is None


def test_a_file_is_written_when_it_is_full_or_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_cache, "_ROWS_A_FILE", 10)
    store(tmp_path / "full", A, range(25))
    assert sorted(path.stat().st_size for path in (tmp_path / "full").glob("*.hashes")) == [
        20 + rows * 32 + 16 for rows in (5, 10, 10)
    ]
    monkeypatch.setattr(hash_cache, "_SECONDS", -1.0)
    store(tmp_path / "due", A, range(3))
    assert len(list((tmp_path / "due").glob("*.hashes"))) == 3


def test_damaged_files_are_not_read(tmp_path: Path) -> None:
    store(tmp_path, A, range(3))
    (file,) = tmp_path.glob("*.hashes")
    data = file.read_bytes()
    for at in (0, 25, len(data) - 1):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert found(tmp_path, range(3)) == [None] * 3
    file.write_bytes(data[:-32])
    assert found(tmp_path, range(3)) == [None] * 3


def test_only_our_own_files_are_read_and_removed(tmp_path: Path) -> None:
    store(tmp_path, A, range(3))
    store(tmp_path, B, range(3, 6))
    (mine,), (other,) = tmp_path.glob(f"{A}-*"), tmp_path.glob(f"{B}-*")
    unfinished = tmp_path / f"{other.name}.{'0' * 12}.part"
    unfinished.write_bytes(other.read_bytes()[:9])
    foreign = {
        "notes.txt": b"recordmill hashes 1\n",
        f"{B}-{'0' * 12}.hashes": b"not a file of hashes",
        f"{B}-{'0' * 12}.hashes.bak": other.read_bytes(),
    }
    for name, data in foreign.items():
        (tmp_path / name).write_bytes(data)
    remove_other_hashes(str(tmp_path), A)
    assert {path.name for path in tmp_path.iterdir()} == {*foreign, mine.name, MARKER}
    assert found(tmp_path, range(6)) == [*expected(range(3)), None, None, None]
    (tmp_path / MARKER).unlink()
    assert found(tmp_path, range(3)) == [None] * 3
    remove_other_hashes(str(tmp_path), B)
    assert mine.exists()


def test_a_folder_of_hashes_does_not_fill_an_output(tmp_path: Path) -> None:
    store(tmp_path / ".recordmill/hashes", A, range(3))
    check_output(str(tmp_path))
    (tmp_path / ".recordmill/hashes" / MARKER).unlink()
    with pytest.raises(ValueError, match=r"which is not empty \('.recordmill/hashes'\)"):
        check_output(str(tmp_path))
