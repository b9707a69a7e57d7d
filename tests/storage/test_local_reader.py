"""What LocalReader reads, and the reason for each thing it does not."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from transforms.records import BadInput, ImageRef
from transforms.storage.local import LocalReader, os_fault


@pytest.fixture
def container(tmp_path: Path) -> str:
    path = tmp_path / "container"
    path.write_bytes(bytes(range(100)))
    return str(path)


@pytest.mark.parametrize("size", [1, 4096, 3_000_001])
def test_reads_a_whole_file(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "a b\nü.jpg").write_bytes(data)
    assert LocalReader().read(ImageRef(str(tmp_path / "a b\nü.jpg"))) == data


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, 1, b"\x00"),
        (10, 3, b"\x0a\x0b\x0c"),
        (99, 1, b"\x63"),
        (98, None, b"\x62\x63"),
        (0, 100, bytes(range(100))),
    ],
)
def test_reads_a_range(container: str, offset: int, length: int | None, expected: bytes) -> None:
    assert LocalReader().read(ImageRef(container, offset, length)) == expected


@pytest.mark.parametrize(
    ("offset", "length", "reason"),
    [
        (99, 2, "out of range"),
        (100, 1, "out of range"),
        (101, None, "out of range"),
        (-1, 4, "out of range"),
        (5, -4, "out of range"),
        (5, 0, "empty file"),
        (100, None, "empty file"),
    ],
)
def test_a_range_that_is_not_there_says_what_is(
    container: str, offset: int, length: int | None, reason: str
) -> None:
    with pytest.raises(BadInput) as caught:
        LocalReader().read(ImageRef(container, offset, length))
    assert (caught.value.stage, caught.value.reason) == ("load", reason)
    assert container in caught.value.detail
    assert reason != "out of range" or "has 100 bytes" in caught.value.detail


def test_reads_on_where_a_file_has_grown_or_shrunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"0123456789")
    real_stat = os.stat

    def stale(size: int) -> None:  # as if the file changed after it was looked at
        def stat(target: str) -> os.stat_result:
            fields = list(real_stat(target))
            fields[6] = size
            return os.stat_result(fields)

        monkeypatch.setattr("transforms.storage.local.os.stat", stat)

    for size in (0, 3, 9, 11, 50):
        stale(size)
        assert LocalReader().read(ImageRef(str(path))) == b"0123456789"


@pytest.mark.parametrize("length", [None, 1])
def test_each_fault_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int | None
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    expected = {
        "missing": "not found",
        "file/below": "not found",
        "loop": "not found",
        "dangling": "not found",
        ".": "not a file",
        "fifo": "not a file",
        "x" * 300: "name too long",
        "nul\0": "not a file name",
        "half \ud83d": "not a file name",
        "empty": "empty file" if length is None else "out of range",
    }
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
        listener.bind("socket")
        expected["socket"] = "not a file"
        reasons = {}
        for name in expected:
            with pytest.raises(BadInput) as caught:
                LocalReader().read(ImageRef(f"{tmp_path}/{name}", 0, length))
            assert caught.value.stage == "load"
            reasons[name] = caught.value.reason
    assert reasons == expected


def test_devices_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transforms.storage.local.os.open", lambda *_: pytest.fail("opened"))
    with pytest.raises(BadInput, match=r"/dev/zero is a device"):
        LocalReader().read(ImageRef("/dev/zero"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(container: str) -> None:
    os.chmod(container, 0)
    with pytest.raises(BadInput, match="permission denied"):
        LocalReader().read(ImageRef(container))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_permission_denied_by_number(number: int) -> None:
    fault = os_fault(OSError(number, "no", "/x"), "load")
    assert (fault.reason, fault.detail) == ("permission denied", "/x: no")


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EMFILE, errno.ENOMEM])
def test_faults_that_may_pass_are_raised(
    container: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("transforms.storage.local.os.open", fail)
    with pytest.raises(OSError) as caught:
        LocalReader().read(ImageRef(container))
    assert caught.value.errno == number


def test_open_containers_are_bounded_and_closed(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 4)
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    reader = LocalReader(max_open=3)
    for number in [*range(20), 0, 19, 0, 5]:
        assert reader.read(ImageRef(str(tmp_path / str(number)), 1, 2)) == bytes([number, number])
    if before:
        assert len(set(os.listdir("/proc/self/fd")) - before) == 3
    reader.close()
    if before:
        assert set(os.listdir("/proc/self/fd")) == before
    assert reader.read(ImageRef(str(tmp_path / "7"), 0, 1)) == b"\x07"
    reader.close()
