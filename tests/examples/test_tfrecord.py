"""Framing and index, read back by TensorFlow and checked against what TensorFlow writes."""

import hashlib
import io
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.examples.framing import FRAME_BYTES, masked_crc32c, read_records
from recordmill.transforms.examples.tfrecord import RecordWriter, index_lines
from tests.lazy import tf

PAYLOADS = [b"", b"a", b"\x00" * 32, bytes(range(256)) * 300, b"x" * 16383, b"y" * 16384]


def _write(payloads: list[bytes]) -> tuple[bytes, RecordWriter]:
    file = io.BytesIO()
    writer = RecordWriter(file)
    for payload in payloads:
        writer.write(payload)
    return file.getvalue(), writer


@pytest.mark.parametrize(
    ("data", "crc"),
    # RFC 3720, appendix B.4, as raw CRC-32C.
    [(b"\x00" * 32, 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)],
)
def test_masked_crc32c(data: bytes, crc: int) -> None:
    assert masked_crc32c(data) == ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def test_file_is_what_tensorflow_writes(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as theirs:
        for payload in PAYLOADS:
            theirs.write(payload)
    data, writer = _write(PAYLOADS)
    assert data == (tmp_path / "theirs").read_bytes()
    assert len(writer.lengths) == len(PAYLOADS)
    assert writer.bytes_written == len(data)
    assert writer.sha256 == hashlib.sha256(data).hexdigest()
    assert list(writer.lengths) == [len(payload) + FRAME_BYTES for payload in PAYLOADS]


def test_nothing_written() -> None:
    data, writer = _write([])
    assert (data, writer.bytes_written, list(writer.lengths)) == (b"", 0, [])
    assert writer.sha256 == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("position", [0, 8, 12, 20, -1])
def test_a_flipped_byte_is_found(tmp_path: Path, position: int) -> None:
    data = bytearray(_write([b"payload of a record"])[0])
    data[position] ^= 1
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(tf.errors.DataLossError):
        list(tf.data.TFRecordDataset(str(tmp_path / "x")))


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.integers(0, 40_000), max_size=8))
def test_index_finds_each_frame(sizes: list[int]) -> None:
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    data, writer = _write(payloads)
    lines = list(index_lines(writer.lengths))
    assert len(lines) == len(payloads)
    for line, payload in zip(lines, payloads, strict=True):
        offset, length = map(int, line.split(" "))
        frame = data[offset : offset + length]
        assert struct.unpack("<Q", frame[:8]) == (len(payload),)
        assert frame[12:-4] == payload
    assert sum(int(line.split(" ")[1]) for line in lines) == len(data)


def test_index_of_a_part_starts_where_it_lies() -> None:
    assert list(index_lines([20, 116], start=1000)) == ["1000 20\n", "1020 116\n"]
    assert list(index_lines([])) == []


def test_the_slow_crc_is_refused() -> None:
    code = (
        "import google_crc32c; google_crc32c.implementation = 'python'\n"
        "try:\n    import recordmill.transforms.examples.tfrecord\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "only its 'python' implementation" in done.stdout


def test_records_that_tensorflow_wrote_are_read(tmp_path: Path) -> None:
    payloads = [*PAYLOADS, b"z" * (3 << 20)]
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as theirs:
        for payload in payloads:
            theirs.write(payload)
    with open(tmp_path / "theirs", "rb") as file:
        assert list(read_records(file)) == payloads
    # A raw file may give less than it is asked for.
    with open(tmp_path / "theirs", "rb", buffering=0) as raw:
        assert list(read_records(raw)) == payloads
    assert list(read_records(io.BytesIO())) == []


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (27, r"record 1 at byte 27: its length, 3, does not have the checksum"),
        (35, r"record 1 at byte 27: its length, 2, does not have the checksum"),
        (39, r"record 1 at byte 27: its 2 bytes do not have the checksum"),
        (41, r"record 1 at byte 27: its 2 bytes do not have the checksum"),
        (44, r"record 1 at byte 27: its 2 bytes do not have the checksum"),
    ],
)
def test_a_flipped_byte_is_named(position: int, message: str) -> None:
    data = bytearray(_write([b"x" * 11, b"yz", b"w"])[0])
    data[position] ^= 1
    found = []
    with pytest.raises(ValueError, match=message):
        for payload in read_records(io.BytesIO(data)):
            found.append(payload)
    assert found == [b"x" * 11]


@pytest.mark.parametrize(
    ("left", "message"),
    [
        (1, "the file ends in its length, after 1 of 12 bytes"),
        (11, "the file ends in its length, after 11 of 12 bytes"),
        (12, "the file ends in it, after 12 of 18 bytes"),
        (17, "the file ends in it, after 17 of 18 bytes"),
    ],
)
def test_a_cut_file_is_named(left: int, message: str) -> None:
    data = _write([b"x" * 11, b"yz"])[0]
    with pytest.raises(ValueError, match=f"record 1 at byte 27: {message}"):
        list(read_records(io.BytesIO(data[: 27 + left])))


def test_a_length_that_no_file_has_takes_no_memory() -> None:
    length = struct.pack("<Q", 1 << 62)
    head = length + struct.pack("<I", masked_crc32c(length))
    with pytest.raises(ValueError, match=f"its length is {1 << 62} bytes; up to {1 << 31} are read"):
        list(read_records(io.BytesIO(head + b"abc")))


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.data())
def test_no_flipped_bit_goes_unseen(payloads: list[bytes], data: st.DataObject) -> None:
    written = bytearray(_write(payloads)[0])
    bit = data.draw(st.integers(0, 8 * len(written) - 1))
    written[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match="record"):
        list(read_records(io.BytesIO(written)))
