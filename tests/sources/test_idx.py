"""IDX files: each image is a range of a plain file, with its label."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest

from recordmill.transforms.records import Failure, ImageRecord, JobError
from recordmill.transforms.sources.arrays import IdxSource
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.storage.local import version_of
from recordmill.transforms.storage.reader import ImageReader

SOURCE = IdxSource()


def idx(array: np.ndarray, kind: int = 0x08) -> bytes:
    """An IDX file, as the format's description has it."""
    return struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape) + array.tobytes()


def images(count: int, *size: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, *size), dtype=np.uint8)


def labels(count: int) -> np.ndarray:
    return (np.arange(count) * 7 % 10).astype(np.uint8)


def put(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def listed(path: Path, scratch: Path, **options: object) -> list[ImageRecord | Failure]:
    config = SourceConfig("idx", str(path), **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    scratch.mkdir(exist_ok=True)
    return list(SOURCE.read(config, str(scratch)))


def only_records(items: list[ImageRecord | Failure]) -> list[ImageRecord]:
    return [item for item in items if isinstance(item, ImageRecord)]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("size", [(5, 4), (5, 4, 3), (2, 3, 1)])
def test_every_image_with_its_label(tmp_path: Path, suffix: str, size: tuple[int, ...]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    arrays = {"train": images(300, *size), "t10k": images(7, *size)}
    for name, array in arrays.items():
        put(folder / f"{name}-images-idx{array.ndim}-ubyte{suffix}", idx(array))
        put(folder / f"{name}-labels-idx1-ubyte{suffix}", idx(labels(len(array))))
    records = only_records(listed(folder, tmp_path / "scratch"))
    reader = ImageReader()
    expected = [
        (f"{split}/{number:05}", split, (int(label),), (*size, 1)[:3], image.tobytes())
        for split, array in (("test", arrays["t10k"]), ("train", arrays["train"]))
        for number, (image, label) in enumerate(zip(array, labels(len(array)), strict=True))
    ]
    assert [
        (item.key, item.split, item.annotations.labels, item.image.pixels, reader.read(item.image))
        for item in records
        if item.image is not None
    ] == expected
    assert {item.size for item in records} == {int(np.prod(size))}
    reader.close()


@pytest.mark.parametrize(
    ("file", "key", "split"),
    [
        ("train-images-idx3-ubyte", "train/00000", "train"),
        ("t10k-images.idx3-ubyte.gz", "test/00000", "test"),
        ("test-images-idx3-ubyte", "test/00000", "test"),
        ("emnist-letters-train-images-idx3-ubyte.gz", "emnist-letters-train/00000", "train"),
        ("extra-images-idx3-ubyte", "extra/00000", None),
        ("images-idx3-ubyte", "images/00000", None),
    ],
)
def test_names_tell_split_and_key(tmp_path: Path, file: str, key: str, split: str | None) -> None:
    put(tmp_path / file, idx(images(1, 2, 2)))
    put(tmp_path / file.replace("images", "labels").replace("idx3", "idx1"), idx(labels(1)))
    for path in (tmp_path, tmp_path / file):  # the folder, and the file alone with its labels beside it
        (record,) = only_records(listed(path, tmp_path / "scratch"))
        assert (record.key, record.split, record.annotations.labels) == (key, split, (0,))


def test_keys_are_as_wide_as_the_last(tmp_path: Path) -> None:
    put(tmp_path / "train-images-idx3-ubyte", idx(np.zeros((100_001, 1, 1), np.uint8)))
    records = only_records(listed(tmp_path, tmp_path / "scratch", limit=2))
    assert [item.key for item in records] == ["train/000000", "train/000001"]


def test_images_without_labels_and_what_else_lies_there(tmp_path: Path) -> None:
    put(tmp_path / "train-images-idx3-ubyte", idx(images(2, 2, 2)))
    put(tmp_path / "train-images-idx3-ubyte.gz", b"not even read")
    put(tmp_path / "t10k-labels-idx1-ubyte", idx(labels(3)))
    put(tmp_path / "README.md", b"")
    (tmp_path / "out").mkdir()
    items = listed(tmp_path, tmp_path / "out", skip_dirs=(str(tmp_path / "out"),))
    assert [(item.key, item.annotations.labels) for item in only_records(items)] == [
        ("train/00000", ()),
        ("train/00001", ()),
    ]
    assert [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)] == [
        ("README.md", "not an IDX file by name", True),
        ("train-images-idx3-ubyte.gz", "same set as another file", True),
        ("t10k-labels-idx1-ubyte", "labels without images", True),
    ]


def test_selection_and_limit(tmp_path: Path) -> None:
    put(tmp_path / "train-images-idx3-ubyte", idx(images(9, 2, 2)))
    put(tmp_path / "train-labels-idx1-ubyte", idx(labels(9)))
    items = listed(tmp_path, tmp_path, exclude=("train/00001", "00003"), limit=3)
    assert [(item.key, item.annotations.labels) for item in only_records(items)] == [
        ("train/00000", (0,)),
        ("train/00002", (4,)),
        ("train/00004", (8,)),
    ]
    assert [item.key for item in items if isinstance(item, Failure)] == ["train/00001", "train/00003"]


def pixels(items: list[ImageRecord | Failure]) -> bytes:
    return b"".join(ImageReader().read(item.image) for item in only_records(items) if item.image)


def test_a_packed_file_is_spooled_to_the_same_place_in_each_run(tmp_path: Path) -> None:
    source, scratch = tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "scratch"
    put(source, idx(images(3, 2, 2)))
    first = listed(tmp_path, scratch)
    (spooled,) = scratch.iterdir()
    spooled.write_bytes(b"half of it")  # whatever happened to it
    assert listed(tmp_path, scratch) == first
    assert (list(scratch.iterdir()), pixels(first)) == ([spooled], images(3, 2, 2).tobytes())
    put(source, idx(images(4, 2, 2)))
    assert pixels(listed(tmp_path, scratch)) == images(4, 2, 2).tobytes()
    assert pixels(first) == images(3, 2, 2).tobytes()  # what references of before lead to is still there


def test_files_of_one_name_are_spooled_apart(tmp_path: Path) -> None:
    for count in (3, 4):
        (tmp_path / str(count)).mkdir()
        put(tmp_path / str(count) / "train-images-idx3-ubyte.gz", idx(images(count, 2, 2)))
    found = [listed(tmp_path / str(count), tmp_path / "scratch") for count in (3, 4)]
    assert list(map(pixels, found)) == [images(count, 2, 2).tobytes() for count in (3, 4)]


@pytest.mark.parametrize("failing", ["mkstemp", "replace"])
def test_a_full_disk_is_told_in_one_line_and_nothing_unfinished_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float], failing: str
) -> None:
    put(tmp_path / "train-images-idx3-ubyte.gz", idx(images(3, 2, 2)))

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile if failing == "mkstemp" else os, failing, fail)
    with pytest.raises(JobError, match=rf"{tmp_path}/scratch/.*: No space left on device; .* are free there"):
        listed(tmp_path, tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_version_is_that_of_the_file_as_it_came(tmp_path: Path) -> None:
    source = tmp_path / "train-images-idx3-ubyte"
    put(source, idx(images(2, 2, 2)))
    os.utime(source, ns=(1, 1_718_031_234_567_890_123))
    records = only_records(listed(tmp_path, tmp_path / "scratch"))
    assert {item.image and item.image.version for item in records} == {version_of(os.stat(source))}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_reading_goes_on_after_faults_that_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float], suffix: str
) -> None:
    put(tmp_path / f"train-images-idx3-ubyte{suffix}", idx(images(500, 28, 28)))
    put(tmp_path / f"train-labels-idx1-ubyte{suffix}", idx(labels(500)))
    expected = listed(tmp_path, tmp_path / "scratch")
    readv, calls = os.readv, 0

    def flaky(descriptor: int, buffers: list[memoryview]) -> int:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise OSError(errno.EIO, "I/O error")
        return readv(descriptor, buffers)

    monkeypatch.setattr(os, "readv", flaky)
    found = listed(tmp_path, tmp_path / "scratch")
    assert (found, pixels(found)) == (expected, images(500, 28, 28).tobytes())
    assert len(waits) == (calls + 1) // 2


@pytest.mark.parametrize(
    ("names", "input", "splits"),
    [
        (["train-images-idx3-ubyte", "t10k-images-idx3-ubyte"], "", ("test", "train")),
        (["t10k-images.idx3-ubyte.gz", "test-images-idx3-ubyte"], "", ("test",)),
        (
            ["emnist-letters-train-images-idx3-ubyte", "emnist-letters-test-images-idx3-ubyte"],
            "",
            ("test", "train"),
        ),
        (["extra-images-idx3-ubyte", "train-labels-idx1-ubyte"], "", ()),
        (["train-images-idx3-ubyte", "t10k-images-idx3-ubyte"], "train-images-idx3-ubyte", ("train",)),
        (["README.md"], "", ()),
        ([], "missing", ()),
    ],
)
def test_split_names(tmp_path: Path, names: list[str], input: str, splits: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"not even read")
    assert SOURCE.split_names(SourceConfig("idx", str(tmp_path / input))) == splits


GOOD = idx(images(100, 5, 5))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a-images-idx3-ubyte", b"", "not an IDX file: it starts with nothing"),
        ("a-images-idx3-ubyte", b"\x89PNG\r\n", "not an IDX file: it starts with 89 50 4e 47"),
        ("a-images-idx3-ubyte", idx(np.zeros((1, 2, 2), ">f4"), 0x0D), "elements of type 0x0d"),
        ("a-images-idx3-ubyte", GOOD[:9], "cut off in its header"),
        ("a-images-idx3-ubyte", GOOD[:-1], r"has 2515 bytes; its header \(100, 5, 5\) means 2516"),
        ("a-images-idx3-ubyte", GOOD + b"x", "has 2517 bytes"),
        ("a-images-idx3-ubyte", idx(images(4)), r"has the shape \(4,\)"),
        ("a-images-idx3-ubyte", idx(images(4, 3, 5, 5)), r"has the shape \(4, 3, 5, 5\)"),
        ("a-images-idx3-ubyte", idx(images(0, 3, 5)), r"has the shape \(0, 3, 5\)"),
        ("a-labels-idx1-ubyte", idx(labels(99)), "a-images-idx3-ubyte' has 100 images and .* has 99 labels"),
        ("a-labels-idx1-ubyte", idx(images(100, 1)), r"has the shape \(100, 1\); IDX labels are \(number\)"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / "a-images-idx3-ubyte").write_bytes(GOOD)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message) as caught:
        SOURCE.check(SourceConfig("idx", str(tmp_path)))
    assert name in str(caught.value)


def test_a_file_that_is_not_gzip(tmp_path: Path) -> None:
    (tmp_path / "a-images-idx3-ubyte.gz").write_bytes(GOOD)
    with pytest.raises(ValueError, match="a-images-idx3-ubyte.gz' is a broken gzip file"):
        SOURCE.check(SourceConfig("idx", str(tmp_path)))


@pytest.mark.parametrize("part", ["images", "labels"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: gzip.compress(data)[:-20], "is a broken gzip file"),
        (lambda data: gzip.compress(data)[:-8] + b"\0" * 8, "is a broken gzip file"),
        (
            lambda data: gzip.compress(data[:-1]),
            "unpacks to .* bytes; its header|has 99 labels; its header says 100",
        ),
    ],
)
def test_what_only_unpacking_shows_fails_the_job(
    tmp_path: Path, part: str, damage: object, message: str
) -> None:
    rng = np.random.default_rng(0)
    data = {"images": GOOD, "labels": idx(rng.integers(0, 256, 100, dtype=np.uint8))}
    for name, dims in (("images", 3), ("labels", 1)):
        packed = gzip.compress(data[name])
        path = tmp_path / f"a-{name}-idx{dims}-ubyte.gz"
        path.write_bytes(damage(data[name]) if name == part else packed)  # type: ignore[operator]
    scratch = tmp_path / "scratch"
    with pytest.raises(JobError, match=message) as caught:
        listed(tmp_path, scratch)
    assert f"a-{part}" in str(caught.value)
    assert part == "labels" or os.listdir(scratch) == []


def test_a_packed_file_cannot_fill_the_disk(tmp_path: Path) -> None:
    put(tmp_path / "a-images-idx3-ubyte.gz", GOOD + bytes(50_000_000))
    with pytest.raises(JobError, match="unpacks to more bytes"):
        listed(tmp_path, tmp_path / "scratch")


@pytest.mark.parametrize("shape", [(1 << 31, 28, 28), ((1 << 32) - 1, 1, 1), (1 << 31, 1 << 14, 1 << 14)])
@pytest.mark.parametrize("packed", [False, True])
def test_headers_that_claim_more_than_there_is(tmp_path: Path, packed: bool, shape: tuple[int, ...]) -> None:
    path = tmp_path / f"a-images-idx3-ubyte{'.gz' if packed else ''}"
    put(path, struct.pack(">HBB3I", 0, 8, 3, *shape) + bytes(1000))
    message = "bytes of gzip, too few for its header, which" if packed else "has 1016 bytes; its header"
    with pytest.raises(ValueError, match=rf"{message} \({shape[0]}, .* means \d+"):
        SOURCE.check(SourceConfig("idx", str(tmp_path)))
    with pytest.raises(JobError, match="a-images-idx3-ubyte"):
        list(SOURCE.read(SourceConfig("idx", str(tmp_path)), str(tmp_path)))


def test_a_sparse_file_of_terabytes(tmp_path: Path) -> None:
    path = tmp_path / "a-images-idx3-ubyte"
    path.write_bytes(struct.pack(">HBB3I", 0, 8, 3, 1, 1 << 31, 1 << 11))
    os.truncate(path, 16 + (1 << 42))
    with pytest.raises(ValueError, match="has images of 4398046511104 bytes; up to 1073741824 are read"):
        SOURCE.check(SourceConfig("idx", str(tmp_path)))


def test_what_is_unpacked_has_to_fit_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a-images-idx3-ubyte.gz", idx(images(3, 100, 100)))
    usage = shutil.disk_usage(tmp_path)._replace(total=1_000_000, free=45_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(JobError, match="scratch: 45.0 kB are free there, too few for what is unpacked"):
        listed(tmp_path, tmp_path / "scratch")
    assert os.listdir(tmp_path / "scratch") == []


@pytest.mark.parametrize("flag", ["annotations", "image_column", "label_column", "label_pattern"])
def test_flags_it_does_not_use(tmp_path: Path, flag: str) -> None:
    value = (str(tmp_path),) if flag == "annotations" else "(x)"
    config = SourceConfig("idx", str(tmp_path), **{flag: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"--{flag} is .*, and --source idx does not use it"):
        SOURCE.check(config)


def test_labels_alone_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "t10k-labels-idx1-ubyte", idx(labels(3)))
    with pytest.raises(ValueError, match="no file is named like IDX images"):
        SOURCE.check(SourceConfig("idx", str(tmp_path)))
