"""Faults of the machine while writing, as the user reads them."""

import errno
import os
from pathlib import Path

import pytest

from recordmill.transforms.storage import local
from recordmill.transforms.storage.faults import fault

NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_named_with_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.LocalFileSystem, "free_bytes", lambda *_: 12_300)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    assert str(fault(NO_SPACE, f"{tmp_path}/out/a")) == (
        f"{tmp_path}/out/a: No space left on device; 12.3 kB are free there; free space on that disk, "
        "or give another WriteDataset.output"
    )


@pytest.mark.parametrize("folder", ["out", "recordmill-out", "scratch/source-x"])
def test_a_full_disk_below_the_temporary_folder(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.LocalFileSystem, "free_bytes", lambda *_: 0)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert str(fault(NO_SPACE, f"{tmp_path}/{folder}/a")) == (
        f"{tmp_path}/{folder}/a: No space left on device; 0 bytes are free there; free space on that disk, "
        "or give another folder: with WriteDataset.output for the dataset, in the environment variable "
        "TMPDIR for temporary files"
    )


def test_a_folder_whose_name_begins_like_the_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: f"{tmp_path}/tmp")
    assert "TMPDIR" not in str(fault(NO_SPACE, f"{tmp_path}/tmp2/a"))


def test_free_bytes_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path)
    assert local.LocalFileSystem().free_bytes(f"{tmp_path}/none/yet") == pytest.approx(
        free.f_bavail * free.f_frsize, rel=0.2
    )


def test_a_fault_of_a_bucket_speaks_of_the_service() -> None:
    error = OSError(errno.EIO, "HTTP 503: busy", "gs://bucket/a")
    assert str(fault(error, "/x")) == (
        "gs://bucket/a: HTTP 503: busy; give the same command again when the service answers"
    )
