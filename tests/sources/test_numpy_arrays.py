"""Arrays of images: ranges of what is plain, unpacked where it is not; labels of every kind."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.transforms.records import Failure, ImageRecord
from recordmill.transforms.sources.arrays import NumpySource
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.source import Item
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.server import BucketServer

SOURCE = NumpySource()
COLOR = np.arange(5 * 4 * 6 * 3, dtype="uint8").reshape(5, 4, 6, 3)
GREY = np.arange(3 * 4 * 6, dtype="uint8").reshape(3, 4, 6)


def listed(place: object, scratch: object, **options: object) -> list[Item]:
    config = SourceConfig("numpy", str(place), **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, str(scratch)))


def records(items: list[Item]) -> list[ImageRecord]:
    return [item for item in items if isinstance(item, ImageRecord)]


def pictures(items: list[Item]) -> np.ndarray[Any, Any]:
    reader = ImageReader()
    found = []
    for record in records(items):
        assert record.image is not None and record.image.pixels is not None
        found.append(np.frombuffer(reader.read(record.image), "uint8").reshape(record.image.pixels))
    return np.stack(found)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_npz_as_keras_has_it(
    tmp_path: Path, bucket: str, bucket_server: BucketServer, packed: bool, place: str
) -> None:
    (tmp_path / "in").mkdir()
    save = np.savez_compressed if packed else np.savez
    arrays = {"x_train": COLOR, "y_train": np.arange(5), "x_test": GREY, "y_test": np.array([[7], [8], [9]])}
    save(tmp_path / "in" / "mnist.npz", **arrays)  # type: ignore[arg-type]
    bucket_server.upload_folder(tmp_path / "in", f"{bucket}/in")
    items = listed(f"{tmp_path if place == 'disk' else bucket}/in", tmp_path)
    test, train = records(items)[:3], records(items)[3:]
    assert (pictures(list(train)) == COLOR).all() and (pictures(list(test))[..., 0] == GREY).all()
    assert [(record.key, record.split, record.annotations.labels) for record in train] == [
        (f"train/{at:05}", "train", (at,)) for at in range(5)
    ]
    assert [record.annotations.labels for record in test] == [(7,), (8,), (9,)]
    assert len(items) == 8
    assert all((record.image and "mnist.npz" in record.image.uri) is not packed for record in train)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.eye(3, dtype="float32")[[2, 0, 1]], [(2,), (0,), (1,)]),
        (np.array([[1, 1], [0, 0], [0, 1]]), [(0, 1), (), (1,)]),
        (np.array([b"cat", b"dog", b"cat"]), [("cat",), ("dog",), ("cat",)]),
        (np.array(["ä", "b", "c"]), [("ä",), ("b",), ("c",)]),
        (np.array([True, False, True]), [(1,), (0,), (1,)]),
        (np.array([-1, 2, 300], ">i2"), [(-1,), (2,), (300,)]),
        (np.array([0.5, 1, 2]), [0.5, 1.0, 2.0]),
        (np.array([[0.5, 1], [2, 3], [4, 5]]), [(0.5, 1.0), (2.0, 3.0), (4.0, 5.0)]),
        (np.array([[1, 2], [2, 3], [4, 5]]), [(1, 2), (2, 3), (4, 5)]),
    ],
)
def test_labels(tmp_path: Path, labels: np.ndarray[Any, Any], told: list[object]) -> None:
    np.save(tmp_path / "images.npy", GREY)
    np.save(tmp_path / "labels.npy", labels)
    found = [record.annotations for record in records(listed(tmp_path / "images.npy", tmp_path))]
    assert [known.features.get("target", known.labels) for known in found] == told
    assert all(("target" in known.features) != (known.labels != () or told[1] == ()) for known in found)


def test_folders_and_what_is_left(tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    np.save(tmp_path / "val" / "images.npy", GREY)
    np.save(tmp_path / "train_images.npy", COLOR)
    np.save(tmp_path / "other.npy", COLOR)
    (tmp_path / "notes.txt").write_text("x")
    items = listed(tmp_path, tmp_path)
    assert {(record.key[:-6], record.split) for record in records(items)} == {
        ("train", "train"),
        ("val", "val"),
    }
    assert [(item.key, item.skipped) for item in items if isinstance(item, Failure)] == [
        ("notes.txt", True),
        ("other.npy", True),
    ]
    assert SOURCE.split_names(SourceConfig("numpy", str(tmp_path))) == ("train", "val")


def test_bool_is_black_and_white_and_limit_keeps_it(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", GREY > 30)
    assert (pictures(listed(tmp_path, tmp_path))[..., 0] == 255 * (GREY > 30)).all()
    assert (pictures(listed(tmp_path, tmp_path, limit=2))[..., 0] == 255 * (GREY > 30)[:2]).all()


def test_one_picture(tmp_path: Path) -> None:
    picture = np.arange(20 * 30 * 3, dtype="uint8").reshape(20, 30, 3)
    np.save(tmp_path / "photo.npy", picture)
    items = listed(tmp_path / "photo.npy", tmp_path)
    assert (pictures(items) == picture).all() and records(items)[0].key == "photo/00000"


@pytest.mark.parametrize(
    ("images", "labels", "sentence"),
    [
        (GREY.astype("float32"), None, "elements of type float32; save uint8"),
        (COLOR.transpose(0, 3, 1, 2).copy(), None, "channels first"),
        (np.asfortranarray(GREY), None, "Fortran order"),
        (np.array([{"a": 1}], dtype=object), None, "holds objects"),
        (GREY.reshape(3, -1), None, "has the shape"),
        (GREY, np.arange(4), "has 3 images and .* has 4 labels"),
        (GREY, np.zeros((3, 2, 2)), "labels are"),
    ],
)
def test_arrays_that_are_refused(
    tmp_path: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any] | None, sentence: str
) -> None:
    np.save(tmp_path / "x.npy", images)
    if labels is not None:
        np.save(tmp_path / "y.npy", labels)
    with pytest.raises(ValueError, match=sentence):
        listed(tmp_path, tmp_path)


def _npy(header: str, version: int = 1, length: int | None = None) -> bytes:
    """A .npy file of 64 zeros, with a header of one's own."""
    size = struct.pack("<H" if version == 1 else "<I", len(header) if length is None else length)
    return b"\x93NUMPY" + bytes((version, 0)) + size + header.encode() + bytes(64)


def _stated(shape: str, dtype: str = "'|u1'", order: str = "False") -> str:
    return f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}}}\n"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            _npy("{'descr': '|u1', 'fortran_order': False, 'shape': ( \n"),
            "is not a NumPy array that can be read: ",
        ),
        (_npy("[" * 3062), "is not a NumPy array that can be read: "),
        (_npy("-" * 9000 + "1"), "is not a NumPy array that can be read: "),
        (_npy("{" * 100 + "1" + "}" * 100), "is not a NumPy array that can be read: "),
        (_npy(_stated("(1, 8, 8)"), 2, 0xFFFFFFFF), "header has 4294967295 bytes; up to 16384 are read"),
        (_npy(_stated("(1, 8, 8)"), 1, 999), "EOF: reading array header"),
        (_npy(_stated("(-1, 8, 8)")), r"header that says \(-1, 8, 8\), which no array has"),
        (_npy(_stated("(4294967296, 4294967296, 8)")), "which no array has"),
        (_npy(_stated(f"({'9' * 4000},)")), "which no array has"),
        (_npy(_stated("(1, 1099511627776, 8)")), "has 147 bytes; its header .* means"),
        (_npy(_stated("(1, 8, 8)", "'|S0'")), r"holds \|S0, which are not read"),
        (_npy(_stated("(1, 8, 8)", "'|O'")), "holds objects, which are not read"),
        (_npy(_stated("(1, 8, 8)", "[('a', '|u1')]")), "which are not read"),
        (_npy(_stated("(1, 8, 8)", "'no'")), "is not a NumPy array that can be read"),
        (_npy(_stated("(8, 1, 8)", order="True")), "Fortran order"),
        (b"\x93NUMPY\x01", "is not a NumPy array that can be read: EOF"),
        (b"\x93NUMPY\x01\x00\x01", "cut off in its header"),
        (b"", "is not a NumPy array that can be read"),
    ],
)
def test_broken_headers(tmp_path: Path, data: bytes, sentence: str) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(ValueError, match=f"x.npy' .*{sentence}") as caught:
        listed(tmp_path, tmp_path)
    assert len(str(caught.value)) < len(str(tmp_path)) + 300 and "\n" not in str(caught.value)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", data)
    with pytest.raises(ValueError, match="x.npz") as caught:
        listed(tmp_path / "x.npz", tmp_path)
    assert "\n" not in str(caught.value)


def test_archives_whose_directory_lies(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=GREY)
    data = (tmp_path / "x.npz").read_bytes()
    for old, new in ((b"PK\x03\x04", b"PK\x03\x05"), (b"PK\x05\x06", b"PK\x05\x07"), (data[-30:-22], b"")):
        (tmp_path / "x.npz").write_bytes(data.replace(old, new))
        with pytest.raises(ValueError, match="x.npz' is not a .npz file that can be read: "):
            listed(tmp_path / "x.npz", tmp_path)
    central = data.index(b"PK\x01\x02")
    (tmp_path / "x.npz").write_bytes(data[: central + 10] + b"\x0c\0" + data[central + 12 :])  # bzip2
    with pytest.raises(ValueError, match="x.npz"):
        listed(tmp_path / "x.npz", tmp_path)


def test_files_that_are_cut_off(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", GREY)
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data[:-1])
    with pytest.raises(ValueError, match="has 199 bytes; its header .* means 200"):
        listed(tmp_path, tmp_path)
    (tmp_path / "x.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match="x.npz' is not a .npz file"):
        listed(tmp_path / "x.npz", tmp_path)


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["npy2_x_train.npy", "npy6_x_train.npy"])
def test_broken_headers_that_were_found(corpus: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "x_train.npy").write_bytes((corpus / "fuzz_found" / name).read_bytes())
    for place in (tmp_path, tmp_path / "x_train.npy"):
        with pytest.raises(
            ValueError, match="x_train.npy' is not a NumPy array that can be read: ."
        ) as caught:
            listed(place, tmp_path)
        assert "\n" not in str(caught.value)
