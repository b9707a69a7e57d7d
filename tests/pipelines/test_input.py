"""Splits, order, batches and workers of load_dataset, against the records as TensorFlow reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recordmill import dataset_info, load_dataset
from recordmill.pipelines.input.splits import pieces_of
from recordmill.transforms.reading.dataset import find_dataset
from recordmill.transforms.reading.shard import record_count
from tests.images.drawn import encoded, gradient
from tests.lazy import tf
from tests.pipelines.conversion import convert

ROWS = 103
SHARDS = 5


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """103 records of a number and a label, in 5 shards of train; 20 of val in one."""
    folder = tmp_path_factory.mktemp("rows")
    lines = [f"{number},{'odd' if number % 2 else 'even'}" for number in range(ROWS + 20)]
    (folder / "rows.csv").write_text("\n".join(["number,label", *lines]) + "\n")
    output = folder / "out"
    flags = (
        "--splits",
        "train=0.8,val=0.2",
        "--num_shards",
        f"train={SHARDS},val=1",
        "--label_column",
        "label",
    )
    assert convert("--input", folder / "rows.csv", "--output", output, *flags) == 0
    return output


def stored(folder: Path, split: str = "train") -> list[int]:
    """The numbers as they are stored, shard by shard, read by TensorFlow alone."""
    files = sorted(map(str, folder.glob(f"{split}-*.tfrecord")))
    features = {"number": tf.io.FixedLenFeature([], tf.int64)}
    return [
        int(tf.io.parse_single_example(one, features)["number"]) for one in tf.data.TFRecordDataset(files)
    ]


def numbers(dataset: Any) -> list[int]:
    return [int(one) for element in dataset for one in tf.reshape(element["number"], [-1])]


def load(folder: Path, *args: Any, **options: Any) -> Any:
    return load_dataset(str(folder), *args, features=["number"], **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "start", "stop"),
    [
        ("", 0, 1),
        ("[:]", 0, 1),
        ("[:90%]", 0, 0.9),
        ("[90%:]", 0.9, 1),
        ("[-10%:]", -0.1, 1),
        ("[:-25%]", 0, -0.25),
        ("[33%:66%]", 0.33, 0.66),
        ("[-50%:75%]", -0.5, 0.75),
    ],
)
def test_shares_of_a_split(rows: Path, part: str, start: float, stop: float) -> None:
    expected = stored(rows)
    first, last = (round(at * len(expected)) + (at < 0) * len(expected) for at in (start, stop))
    found = load(rows, f"train{part}", deterministic=True)
    assert numbers(found) == expected[first:last]
    assert int(found.cardinality()) == last - first


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["[10:20]", "[:1]", "[50:]", "[-7:]", "[:-7]", "[3:1000]", "[-1000:4]", "[19:61]"]
)
def test_numbered_parts_of_a_split(rows: Path, part: str) -> None:
    start, _, stop = part[1:-1].partition(":")
    expected = stored(rows)[int(start) if start else None : int(stop) if stop else None]
    found = load(rows, f"train{part}", deterministic=True)
    assert numbers(found) == expected
    assert int(found.cardinality()) == len(expected)


@pytest.mark.parametrize("whole", [1, 7, 50, 99, 103, 1281])
def test_per_cent_are_rounded_as_tfds_does(whole: int) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    from recordmill.pipelines.input.splits import _bound

    infos = {"train": tfds.core.SplitInfo(name="train", shard_lengths=[whole], num_bytes=0)}
    # of a share from the end that rounds to no record, TFDS makes all records from the start
    for share in (share for share in range(-99, 101) if round(share * whole / 100)):
        [part] = tfds.core.ReadInstruction.from_spec(f"train[:{share}%]").to_absolute(infos)
        expected = part.to if part.to is not None else whole
        assert _bound(f"{share}%", 0, whole, "") == expected


def test_splits_are_joined(rows: Path) -> None:
    expected = [*stored(rows, "val")[:3], *stored(rows)]
    assert numbers(load(rows, "val[:3]+train", deterministic=True)) == expected
    assert sorted(numbers(load(rows, "all"))) == list(range(ROWS + 20))


def test_shards_outside_of_a_part_are_not_read(rows: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in rows.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    expected = stored(copy)
    shards = sorted(copy.glob("train-*.tfrecord"))
    lengths = [record_count(str(path)) for path in shards]
    for path in (shards[0], *shards[2:]):
        path.write_bytes(b"damaged, and never looked at")
    part = f"train[{lengths[0]}:{lengths[0] + lengths[1]}]"
    assert numbers(load(copy, part)) == expected[lengths[0] : lengths[0] + lengths[1]]
    with pytest.raises(tf.errors.DataLossError):
        numbers(load(copy, f"train[{lengths[0]}:{lengths[0] + lengths[1] + 1}]"))


def test_lost_records_are_an_error(rows: Path, tmp_path: Path) -> None:
    for path in rows.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    shard = sorted(tmp_path.glob("train-*.tfrecord"))[-1]
    first = int.from_bytes(shard.read_bytes()[:8], "little") + 16
    shard.write_bytes(shard.read_bytes()[first:])  # whole records, one fewer
    with pytest.raises(tf.errors.FailedPreconditionError, match="expected to contain"):
        numbers(load(tmp_path))


@pytest.mark.slow
def test_batches_and_epochs_are_counted(rows: Path) -> None:
    count = len(stored(rows))
    full, rest = divmod(count, 8)
    assert rest
    found = load(rows, batch_size=8, repeat=3)
    assert int(found.cardinality()) == 3 * (full + 1)
    assert [len(batch["number"]) for batch in found] == ([8] * full + [rest]) * 3
    dropped = load(rows, batch_size=8, drop_remainder=True)
    assert int(dropped.cardinality()) == full == sum(1 for _ in dropped)
    assert dropped.element_spec["number"].shape == (8,)
    endless = load(rows, repeat=True)
    assert int(endless.cardinality()) == tf.data.INFINITE_CARDINALITY
    assert sorted(numbers(endless.take(2 * count))) == sorted(stored(rows) * 2)


@pytest.mark.slow
def test_a_seed_is_an_order(rows: Path) -> None:
    one, same = numbers(load(rows, shuffle=True, seed=4)), numbers(load(rows, shuffle=True, seed=4))
    other = numbers(load(rows, shuffle=True, seed=5))
    assert one == same != other
    assert sorted(one) == sorted(other) == sorted(stored(rows)) and one != stored(rows)


@pytest.mark.slow
def test_every_epoch_has_an_order_of_its_own(rows: Path) -> None:
    found = load(rows, shuffle=True, seed=4)
    first, second = numbers(found), numbers(found)
    assert sorted(first) == sorted(second) and first != second
    twice = numbers(load(rows, shuffle=True, seed=4, repeat=2))
    assert sorted(twice[: len(first)]) == sorted(first) and twice[: len(first)] != twice[len(first) :]


def test_a_buffer_of_one_shuffles_shards_alone(rows: Path) -> None:
    found = numbers(load(rows, shuffle=1, seed=1))
    expected = stored(rows)
    assert found != expected and sorted(found) == sorted(expected)
    at = 0
    runs = set()
    for length in (record_count(str(path)) for path in sorted(rows.glob("train-*.tfrecord"))):
        runs.add(tuple(expected[at : at + min(length, 16)]))
        at += length
    assert tuple(found[: len(next(run for run in runs if run[0] == found[0]))]) in runs


@pytest.mark.slow
@pytest.mark.parametrize("how", ["file", "record", "auto"])
@pytest.mark.parametrize("workers", [1, 3, 5])
def test_workers_share_a_split(rows: Path, how: Any, workers: int) -> None:
    parts = [load(rows, shard=(workers, index), shard_by=how) for index in range(workers)]
    found = [numbers(part) for part in parts]
    assert [len(part) for part in found] == [int(part.cardinality()) for part in parts]
    assert sorted(number for part in found for number in part) == sorted(stored(rows))
    if how == "record":
        assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.slow
def test_more_workers_than_shards(rows: Path) -> None:
    with pytest.raises(ValueError, match="there are 5 shards for 6 workers; give shard_by='record'"):
        load(rows, shard=(6, 0), shard_by="file")
    found = [numbers(load(rows, shard=(6, index))) for index in range(6)]
    assert sorted(number for part in found for number in part) == sorted(stored(rows))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_workers_share_what_nobody_has_counted(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(sorted(rows.glob("val-*.tfrecord"))[0].read_bytes())
    assert int(load(tmp_path).cardinality()) == tf.data.UNKNOWN_CARDINALITY
    found = [numbers(load(tmp_path, shard=(3, index))) for index in range(3)]
    assert [found[at % 3][at // 3] for at in range(sum(map(len, found)))] == stored(rows, "val")


def in_cluster(workers: int) -> str:
    hosts = [f"localhost:{9000 + number}" for number in range(workers)]
    return json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 0}})


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "policy"), [(0, "FILE"), (2, "FILE"), (5, "FILE"), (6, "DATA")])
def test_tf_distribute_splits_by_file_where_there_are_enough(
    rows: Path, monkeypatch: pytest.MonkeyPatch, workers: int, policy: str
) -> None:
    if workers:
        monkeypatch.setenv("TF_CONFIG", in_cluster(workers))
    found = load(rows, shuffle=True)
    assert found.options().experimental_distribute.auto_shard_policy.name == policy
    assert load(rows, shard=(2, 0)).options().experimental_distribute.auto_shard_policy.name == "OFF"
    from tensorflow.python.data.experimental.ops import distribute

    parts = [
        numbers(distribute._AutoShardDataset(load(rows, shuffle=True), max(workers, 2), index))
        for index in range(max(workers, 2))
    ]
    assert sorted(number for part in parts for number in part) == sorted(stored(rows))
    assert all(parts)


@pytest.mark.slow
def test_replicas_share_batches(rows: Path) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    shared = strategy.experimental_distribute_dataset(load(rows, batch_size=8))
    found = [
        int(one) for element in shared for one in strategy.experimental_local_results(element["number"])[0]
    ]
    assert sorted(found) == sorted(stored(rows))

    def of_worker(context: Any) -> Any:
        return load(rows, batch_size=8, shard=(context.num_input_pipelines, context.input_pipeline_id))

    contexts = [tf.distribute.InputContext(2, index, 2) for index in range(2)]
    parts = [numbers(of_worker(context)) for context in contexts]
    assert sorted(parts[0] + parts[1]) == sorted(stored(rows)) and all(parts)


def test_labels_and_their_names(rows: Path) -> None:
    found = load_dataset(str(rows), one_hot=True)
    assert found.class_names == ("even", "odd")
    assert found.element_spec["label"] == tf.TensorSpec([2], tf.float32)
    for element in found:
        assert element["label"].numpy().tolist() == ([0, 1] if element["number"] % 2 else [1, 0])
    assert load_dataset(str(rows), one_hot=7).element_spec["label"] == tf.TensorSpec([7], tf.float32)
    info = dataset_info(str(rows))
    assert info.splits == {"train": len(stored(rows)), "val": len(stored(rows, "val"))}
    assert info.class_names == ("even", "odd") and set(info.features) == {"number", "label", "label/text"}


def test_names_that_lie_beside_foreign_files(rows: Path, tmp_path: Path) -> None:
    for file in rows.glob("train-*.tfrecord"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert load_dataset(str(tmp_path)).class_names == ()
    (tmp_path / "label.labels.txt").write_text("straight\ncrooked\n")
    found = load_dataset(str(tmp_path), one_hot=True)
    assert found.class_names == ("straight", "crooked")
    assert found.element_spec["label"] == tf.TensorSpec([2], tf.float32)


@pytest.mark.slow
def test_single_files_and_patterns(rows: Path) -> None:
    files = sorted(rows.glob("train-*.tfrecord"))
    assert (
        numbers(load(files[2]))
        == stored(rows)[
            sum(record_count(str(path)) for path in files[:2]) : sum(
                record_count(str(path)) for path in files[:3]
            )
        ]
    )
    for pattern in ("train-*", f"train@{SHARDS}.tfrecord", "train@*"):
        assert numbers(load(rows / pattern, deterministic=True)) == stored(rows)
    pieces = pieces_of(find_dataset(str(rows / "train-0000[12]-*")), "train")
    assert [Path(piece.shard.path).name[:11] for piece in pieces] == ["train-00001", "train-00002"]


@pytest.mark.slow
def test_no_beam_is_needed(rows: Path) -> None:
    program = (
        "import sys; sys.modules['apache_beam'] = None\n"
        "from recordmill.pipelines.input import load_dataset\n"
        f"assert sum(1 for _ in load_dataset({str(rows)!r}, 'val')) == {len(stored(rows, 'val'))}\n"
        "assert not any(name.startswith('apache_beam.') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, capture_output=True)


WRONG = {
    "has no 'test', it has 'train', 'val'": {"split": "test"},
    "it is a name, or a part of one": {"split": "train[:50%"},
    "may be -100% to 100%": {"split": "train[:101%]"},
    "which has no records": {"split": "train[5:5]"},
    "batch_size is 0; it may be a number from 1": {"batch_size": 0},
    "drop_remainder is True, and there are no batches": {"drop_remainder": True},
    "lists is 'dense'; it may be 'ragged' or 'padded'": {"lists": "dense"},
    "shuffle is 0; it may be True, False or a number from 1": {"shuffle": 0},
    "repeat is -1; it may be": {"repeat": -1},
    "seed is 3, and nothing is shuffled": {"seed": 3},
    r"shard is \(2, 2\); it is \(workers, index from 0\)": {"shard": (2, 2)},
    "shard_by is 'host'; it may be": {"shard_by": "host"},
    "resize is 'crop'; it may be": {"resize": "crop"},
    r"size is \(0, 3\); it is \(height, width\)": {"size": (0, 3)},
    r"size is '224x320'; it is \(height, width\) in pixels, such as \(224, 320\), or": {"size": "224x320"},
    r"size is '224'; it is \(height, width\) in pixels, such as \(224, 224\), or": {"size": "224"},
    "size is 0; it is": {"size": 0},
    "size is 8, and no image, mask or box is read": {"size": 8},
    "size is 8 with decode=False": {"size": 8, "decode": False},
    "channels is 2; it may be": {"channels": 2},
    "dtype is 'float32'; it may be": {"dtype": "float32"},
    "features is 'label'; it is a list of names": {"features": "label"},
    r"features is \['nothing'\]; records have 'label', 'label/text', 'number'": {"features": ["nothing"]},
    "give one of both": {"features": ["label"], "as_supervised": True},
    "records have no image; they have": {"as_supervised": True},
    "one_hot is 0; it may be": {"one_hot": 0},
    "one_hot is True, and no label is read": {"one_hot": True, "features": ["number"]},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(rows: Path, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_dataset(str(rows), **WRONG[message])


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not there; give a folder of a dataset"):
        load_dataset(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="no file named like a TFRecord file"):
        load_dataset(str(tmp_path))
    (tmp_path / "a.tfrecord").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="a.tfrecord' cannot be read: record 0 at byte 0"):
        load_dataset(str(tmp_path))


@pytest.fixture(scope="module")
def partly_labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5 images, 2 of them without a label, and a dataset of the same without any."""
    folder = tmp_path_factory.mktemp("partly")
    rows = []
    for number, label in enumerate(["cat", "", "dog", "", "cat"]):
        (folder / f"{number}.png").write_bytes(encoded(gradient(), "PNG"))
        rows.append(f"{number}.png,{label}")
    (folder / "labels.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    flags = ("--num_shards=1", "--schema=classification")
    assert convert("--input", folder / "labels.csv", "--output", folder / "partly", *flags) == 0
    images = folder / "images"
    images.mkdir()
    for path in folder.glob("*.png"):
        (images / path.name).write_bytes(path.read_bytes())
    assert convert("--input", images, "--output", folder / "none", *flags) == 0
    return folder


@pytest.mark.slow
def test_labels_that_are_missing_are_counted(partly_labelled: Path) -> None:
    with pytest.raises(ValueError) as caught:
        load_dataset(str(partly_labelled / "partly"), as_supervised=True)
    assert str(caught.value) == (
        "as_supervised is True, and 2 of 5 records have no label ('image/class/label'); leave "
        "as_supervised out, or convert labelled images only; one_hot=True stores a vector of "
        "zeros for a missing label"
    )
    vectors = load_dataset(str(partly_labelled / "partly"), as_supervised=True, one_hot=True)
    assert sorted(tuple(label.numpy()) for _, label in vectors) == [(0, 0), (0, 0), (0, 1), (1, 0), (1, 0)]
    with pytest.raises(ValueError, match="2 of the first 5 records have no label"):
        load_dataset(str(partly_labelled / "partly"), "train[:90%]", as_supervised=True)
    for options in ({}, {"one_hot": 2}):
        with pytest.raises(ValueError, match=r"5 of 5 records have no label"):
            load_dataset(str(partly_labelled / "none"), as_supervised=True, **options)


@pytest.mark.slow
def test_missing_labels_of_a_file_without_a_manifest(partly_labelled: Path, tmp_path: Path) -> None:
    (shard,) = (partly_labelled / "partly").glob("*.tfrecord")
    (tmp_path / "foreign.tfrecord").write_bytes(shard.read_bytes())
    with pytest.raises(ValueError, match="2 of the first 5 records have no label"):
        load_dataset(str(tmp_path / "foreign.tfrecord"), as_supervised=True)
