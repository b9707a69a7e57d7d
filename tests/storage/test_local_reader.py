"""What is read of local files, and the reason for each thing it does not."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from recordmill.transforms.records import BadInput, ImageRef
from recordmill.transforms.storage.files import is_file, is_folder, open_file
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.storage.zip_member import LARGEST


@pytest.fixture
def container(tmp_path: Path) -> str:
    path = tmp_path / "container"
    path.write_bytes(bytes(range(100)))
    return str(path)


@pytest.mark.parametrize("size", [1, 4096, 3_000_001])
def test_reads_a_whole_file(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "a b\nü.jpg").write_bytes(data)
    assert ImageReader().read(ImageRef(str(tmp_path / "a b\nü.jpg"))) == data


def test_more_bytes_than_an_image_may_have(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    with open(path, "wb") as file:
        file.truncate(5 << 40)  # sparse
    for ref in (ImageRef(str(path)), ImageRef(str(path), 7), ImageRef(str(path), 7, LARGEST + 1)):
        with pytest.raises(BadInput) as caught:
            ImageReader().read(ref)
        assert (caught.value.stage, caught.value.reason) == ("load", "too large")
        assert caught.value.detail.startswith(str(path)) and caught.value.detail.endswith(
            "up to 1073741824 are read"
        )
    assert ImageReader().read(ImageRef(str(path), 5 << 39, 3)) == b"\0\0\0"


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
    assert ImageReader().read(ImageRef(container, offset, length)) == expected


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
        ImageReader().read(ImageRef(container, offset, length))
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

        monkeypatch.setattr("recordmill.transforms.storage.local.os.stat", stat)

    for size in (0, 3, 9, 11, 50):
        stale(size)
        assert ImageReader().read(ImageRef(str(path))) == b"0123456789"


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
                ImageReader().read(ImageRef(f"{tmp_path}/{name}", 0, length))
            assert caught.value.stage == "load"
            reasons[name] = caught.value.reason
    assert reasons == expected


def test_devices_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recordmill.transforms.storage.local.os.open", lambda *_: pytest.fail("opened"))
    with pytest.raises(BadInput, match=r"/dev/zero: it is a device"):
        ImageReader().read(ImageRef("/dev/zero"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(container: str) -> None:
    os.chmod(container, 0)
    with pytest.raises(BadInput, match="permission denied"):
        ImageReader().read(ImageRef(container))


FAULTS = [errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EMFILE, errno.ENOMEM]


def failing(
    monkeypatch: pytest.MonkeyPatch, name: str, times: int, number: int = errno.EIO
) -> Callable[[], int]:
    """Makes a function of `os` fail so many times. Returns what counts its calls."""
    function, calls, ours = getattr(os, name), 0, threading.get_ident()

    def called(*args: object, **options: object) -> object:
        nonlocal calls
        if threading.get_ident() != ours:  # a lock's heartbeat, of another test
            return function(*args, **options)
        calls += 1
        if calls <= times:
            raise OSError(number, os.strerror(number))
        return function(*args, **options)

    monkeypatch.setattr(os, name, called)
    return lambda: calls


@pytest.mark.parametrize("number", FAULTS)
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    ("name", "ref"),
    [
        ("stat", ImageRef("")),
        ("open", ImageRef("")),
        ("read", ImageRef("")),
        ("open", ImageRef("", 2, 98)),
        ("pread", ImageRef("", 2, 98)),
        ("fstat", ImageRef("", 2)),
    ],
)
def test_faults_that_pass_do_not_show(
    container: str,
    monkeypatch: pytest.MonkeyPatch,
    waits: list[float],
    name: str,
    ref: ImageRef,
    times: int,
    number: int,
) -> None:
    calls = failing(monkeypatch, name, times, number)
    reader = ImageReader()
    assert reader.read(msgspec.structs.replace(ref, uri=container)) == bytes(range(ref.offset, 100))
    assert (calls() > times, len(waits)) == (True, times)
    reader.close()


@pytest.mark.parametrize("number", FAULTS)
@pytest.mark.parametrize("name", ["open", "pread"])
def test_faults_that_do_not_pass_are_raised(
    container: str, monkeypatch: pytest.MonkeyPatch, waits: list[float], name: str, number: int
) -> None:
    calls = failing(monkeypatch, name, 4, number)
    with pytest.raises(OSError) as caught:
        ImageReader().read(ImageRef(container, 1, 1))
    assert (caught.value.errno, caught.value.filename) == (number, container)
    assert (calls(), len(waits)) == (4, 3)


def test_permanent_faults_are_not_tried_again(tmp_path: Path, waits: list[float]) -> None:
    with pytest.raises(BadInput, match="not found"):
        ImageReader().read(ImageRef(f"{tmp_path}/missing"))
    assert waits == []


def test_a_stale_container_is_opened_again(
    container: str, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    reader = ImageReader()
    assert reader.read(ImageRef(container, 1, 2)) == b"\1\2"
    os.rename(container, f"{container}.old")
    with open(container, "wb") as file:
        file.write(bytes(100))
    assert reader.read(ImageRef(container, 1, 2)) == b"\1\2"  # it is still open
    failing(monkeypatch, "pread", 1, errno.ESTALE)
    assert reader.read(ImageRef(container, 1, 2)) == b"\0\0"
    reader.close()


def test_too_many_open_files_closes_those_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    given: list[int] = []
    real_open = os.open

    def is_open(descriptor: int) -> bool:
        try:
            os.fstat(descriptor)
        except OSError:
            return False
        return True

    def limited(path: str, flags: int) -> int:
        if sum(map(is_open, given)) >= 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        given.append(real_open(path, flags))
        return given[-1]

    for number in range(3):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 4)
    monkeypatch.setattr("recordmill.transforms.storage.local.os.open", limited)
    reader = ImageReader()
    for number in range(3):
        assert reader.read(ImageRef(str(tmp_path / str(number)), 1, 2)) == bytes([number, number])
    assert len(waits) == 1
    reader.close()


@pytest.mark.parametrize("times", [0, 1, 3])
@pytest.mark.parametrize("name", ["open", "readv"])
def test_a_file_is_read_in_order_past_faults_that_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float], name: str, times: int
) -> None:
    data = os.urandom(1_000_003)
    (tmp_path / "file").write_bytes(data)
    failing(monkeypatch, name, times)
    with open_file(f"{tmp_path}/file") as file:
        parts = [file.read(10), file.read(999_990), file.read(99), file.read(1)]
    assert (b"".join(parts), len(waits)) == (data, times)


@pytest.mark.parametrize("name", ["open", "readv"])
def test_a_fault_in_reading_names_the_file(
    container: str, monkeypatch: pytest.MonkeyPatch, waits: list[float], name: str
) -> None:
    real_open = os.open

    def opened(path: str, flags: int, *mode: int) -> int:
        if name == "open":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real_open(path, flags, *mode)

    monkeypatch.setattr(os, "open", opened)
    failing(monkeypatch, "readv", 9)
    with pytest.raises(OSError) as caught, open_file(container) as file:
        file.read(1)
    assert (caught.value.errno, caught.value.filename, len(waits)) == (errno.EIO, container, 3)


def test_what_is_at_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "to_file").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    names = (".", "file", "to_file", "loop", "missing", "file/below", "x" * 300, "nul\0")
    found = {name: (is_file(f"{tmp_path}/{name}"), is_folder(f"{tmp_path}/{name}")) for name in names}
    assert found == {name: (name in ("file", "to_file"), name == ".") for name in names}
    assert waits == []
    failing(monkeypatch, "stat", 3)
    assert is_file(f"{tmp_path}/file")
    failing(monkeypatch, "stat", 4)
    with pytest.raises(OSError, match="Input/output error"):
        is_file(f"{tmp_path}/file")


def test_open_containers_are_bounded_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 4)
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    monkeypatch.setattr("recordmill.transforms.storage.local._MOST_OPEN", 3)
    reader = ImageReader()
    for number in [*range(20), 0, 19, 0, 5]:
        assert reader.read(ImageRef(str(tmp_path / str(number)), 1, 2)) == bytes([number, number])
    if before:
        assert len(set(os.listdir("/proc/self/fd")) - before) == 3
    reader.close()
    if before:
        assert set(os.listdir("/proc/self/fd")) == before
    assert reader.read(ImageRef(str(tmp_path / "7"), 0, 1)) == b"\x07"
    reader.close()
