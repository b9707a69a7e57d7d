"""Members of ZIP archives: unpacked from their range, and damage told."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from recordmill.transforms.records import BadInput, ImageRef
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.storage.zip_member import LARGEST, unwrapped, wrapping_of
from tests.buckets.server import BucketServer

CONTENT = b"the same again, " * 40


def packed(method: int, behind: bytes = b"more") -> tuple[bytes, str]:
    """A member from its local header on, and its wrapping, as zipfile makes them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("folder/1.jpg", CONTENT)
        info, end = archive.infolist()[0], archive.start_dir
    return file.getvalue()[:end] + behind, wrapping_of(info.compress_size, info.file_size, info.CRC)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_unpacks(method: int) -> None:
    assert unwrapped(*packed(method)) == CONTENT


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("at", [0, 8, 42 + 5])
def test_one_wrong_byte_is_told(method: int, at: int) -> None:
    data, wrapping = packed(method)
    with pytest.raises(BadInput) as raised:
        unwrapped(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :], wrapping)
    assert (raised.value.stage, raised.value.reason) == ("load", "damaged archive member")


def test_sizes_are_bounds() -> None:
    data, wrapping = packed(zipfile.ZIP_DEFLATED)
    _, stored, size, crc = wrapping.split(":")
    for wrong, reason in (
        (wrapping_of(int(stored), int(size) - 1, int(crc)), "damaged archive member"),
        (wrapping_of(int(stored), int(size) + 1, int(crc)), "damaged archive member"),
        (wrapping_of(len(data), int(size), int(crc)), "damaged archive member"),
        (wrapping_of(int(stored), LARGEST + 1, int(crc)), "member too large"),
        (wrapping_of(int(stored), 0, 0), "empty file"),
    ):
        with pytest.raises(BadInput, match=reason):
            unwrapped(data, wrong)


def test_read_from_disk_and_bucket(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    data, wrapping = packed(zipfile.ZIP_DEFLATED)
    (tmp_path / "a.zip").write_bytes(b"before" + data)
    bucket_server.put(f"{bucket}/a.zip", b"before" + data)
    for uri in (f"{tmp_path}/a.zip", f"{bucket}/a.zip"):
        ref = ImageRef(uri, 6, len(data), wrapping=wrapping)
        assert ImageReader().read(ref) == CONTENT
