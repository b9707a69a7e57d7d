"""Framing and index, read back by TensorFlow and checked against what TensorFlow writes."""

import hashlib
import io
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.examples.index import index_lines
from transforms.examples.tfrecord import FRAME_BYTES, RecordWriter, masked_crc32c

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
    assert writer.records == len(PAYLOADS)
    assert writer.bytes_written == len(data)
    assert writer.sha256 == hashlib.sha256(data).hexdigest()
    assert list(writer.lengths) == [len(payload) + FRAME_BYTES for payload in PAYLOADS]


def test_nothing_written() -> None:
    data, writer = _write([])
    assert (data, writer.records, writer.bytes_written, list(writer.lengths)) == (b"", 0, 0, [])
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
        "try:\n    import transforms.examples.tfrecord\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "only its 'python' implementation" in done.stdout
