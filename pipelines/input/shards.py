"""Serialised records of shards as a tf.data.Dataset: read in parallel, shuffled, split between workers."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Literal

import tensorflow as tf

from recordmill.pipelines.input.splits import ALL, Piece, cut, known_records
from recordmill.transforms.reading.shard import frames, opened
from recordmill.transforms.storage.file_system import file_system

ShardBy = Literal["auto", "file", "record"]

_CYCLE = 16
_BLOCK = 16
_READ_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20
_BUFFER_BYTES = 256_000_000
_BUFFER_RECORDS = 50_000
_GUESSED_RECORD_BYTES = 100_000


@dataclasses.dataclass(frozen=True)
class Worker:
    """The records that one worker reads, and their order; see `load_dataset`."""

    shard: tuple[int, int] | None
    shard_by: ShardBy
    shuffle: bool | int
    seed: int | None
    repeat: bool | int
    deterministic: bool | None

    def __post_init__(self) -> None:
        if self.shard is not None:
            number, index = self.shard
            if number < 1 or not 0 <= index < number:
                raise ValueError(
                    f"shard is {self.shard!r}; it is (workers, index from 0), such as (4, 0) to (4, 3)"
                )
        if self.shard_by not in ("auto", "file", "record"):
            raise ValueError(f"shard_by is {self.shard_by!r}; it may be 'auto', 'file' or 'record'")
        for name in ("shuffle", "repeat"):
            value = getattr(self, name)
            if not isinstance(value, bool) and value < 1:
                raise ValueError(f"{name} is {value!r}; it may be True, False or a number from 1")
        if self.seed is not None and self.shuffle is False:
            raise ValueError(f"seed is {self.seed!r}, and nothing is shuffled; give shuffle=True too")

    @property
    def is_deterministic(self) -> bool:
        """Whether the order is the same in each run."""
        if self.deterministic is not None:
            return self.deterministic
        return self.shuffle is False or self.order_seed is not None

    @property
    def order_seed(self) -> int | None:
        """The seed of the order; several workers need the same one."""
        return 0 if self.seed is None and cluster_workers() > 1 else self.seed


def cluster_workers() -> int:
    """The number of workers in TF_CONFIG; 1 without it."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
        return max(1, len(cluster.get("worker", ())) + len(cluster.get("chief", cluster.get("master", ()))))
    except (ValueError, AttributeError, TypeError):
        return 1


def auto_shard_policy(pieces: Sequence[Piece], worker: Worker) -> tf.data.experimental.AutoShardPolicy:
    """How tf.distribute splits the records between workers: by files if there are enough."""
    policy = tf.data.experimental.AutoShardPolicy
    if worker.shard is not None:
        return policy.OFF
    by_file = len(pieces) >= cluster_workers() and all(
        _is_read_by_tensorflow(one.shard.path) for one in pieces
    )
    return policy.FILE if by_file else policy.DATA


def records_of(pieces: Sequence[Piece], worker: Worker) -> tf.data.Dataset:
    """The serialised records of pieces.

    Raises:
        ValueError: there are fewer shards than workers, and each must have its own.
    """
    pieces, left = _of_worker(pieces, worker)
    number = known_records(pieces)
    found = _interleaved(pieces, worker)
    if number is not None:
        found = found.apply(tf.data.experimental.assert_cardinality(number))
    if left is not None:
        found = found.shard(*left)
    if worker.shuffle is not False:
        found = found.shuffle(_buffer(pieces, worker, number), seed=worker.order_seed)
    return found


def _of_worker(pieces: Sequence[Piece], worker: Worker) -> tuple[Sequence[Piece], tuple[int, int] | None]:
    """The pieces of one worker; and the arguments of `Dataset.shard` for their records, None for all."""
    if worker.shard is None:
        return pieces, None
    number, index = worker.shard
    if worker.shard_by == "file" or (worker.shard_by == "auto" and len(pieces) >= number):
        if len(pieces) < number:
            raise ValueError(
                f"shard_by is 'file', and there are {len(pieces)} shards for {number} workers; "
                "give shard_by='record'"
            )
        return pieces[index::number], None
    records = known_records(pieces)
    if records is None:
        return pieces, worker.shard
    return cut(pieces, records * index // number, records * (index + 1) // number), None


def _interleaved(pieces: Sequence[Piece], worker: Worker) -> tf.data.Dataset:
    if not pieces:
        return tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
    packed = _compressions(pieces)
    paths = [piece.shard.path for piece in pieces]
    skips, takes = ([getattr(piece, name) for piece in pieces] for name in ("skip", "take"))
    parts = (tf.constant(skips, tf.int64), tf.constant(takes, tf.int64))
    slices = tf.data.Dataset.from_tensor_slices((paths, *parts, [packed[path] for path in paths]))
    if worker.shuffle is not False:
        slices = slices.shuffle(len(pieces), seed=worker.order_seed)
    as_stored = worker.deterministic is True and worker.shuffle is False
    is_complete = all(piece.skip == 0 and piece.take == ALL for piece in pieces)

    def read(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor, packed: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(path, packed, _READ_BYTES)
        return records if is_complete else records.skip(skip).take(take)

    return slices.interleave(
        read if all(map(_is_read_by_tensorflow, paths)) else _read_by_storage,
        cycle_length=1 if as_stored else min(len(pieces), _CYCLE),
        block_length=_BLOCK,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=worker.is_deterministic,
    )


def _read_by_storage(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor, _: tf.Tensor) -> tf.data.Dataset:
    """Reads with our own client of the storage, a few records at a time."""
    return tf.data.Dataset.from_generator(
        _chunks, args=(path, skip, take), output_signature=tf.TensorSpec([None], tf.string)
    ).unbatch()


def _chunks(path: bytes, skip: int, take: int) -> Iterator[list[bytes]]:
    """Payloads of a file, by some MB."""
    held: list[bytes] = []
    size = 0
    for frame in itertools.islice(frames(path.decode()), skip, None if take == ALL else skip + take):
        held.append(frame.payload)
        size += len(frame.payload)
        if size >= _CHUNK_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _is_read_by_tensorflow(path: str) -> bool:
    """Whether TensorFlow's own readers take a path: they cannot use emulators or anonymous access."""
    system = file_system(path)
    return system.scheme in tf.io.gfile.get_registered_schemes() and not system.is_anonymous()


def _compressions(pieces: Sequence[Piece]) -> dict[str, str]:
    """The compression of each file, as TensorFlow names it; files with one extension have one."""
    by_ending: dict[str, str] = {}
    found = {}
    for path in (piece.shard.path for piece in pieces):
        ending = os.path.splitext(path)[1].lower()
        if ending not in by_ending:
            with opened(path) as file:
                by_ending[ending] = file.compression
        found[path] = by_ending[ending]
    return found


def _buffer(pieces: Sequence[Piece], worker: Worker, records: int | None) -> int:
    if worker.shuffle is not True:
        return int(worker.shuffle)
    shards = [piece.shard for piece in pieces if piece.shard.size and piece.shard.records]
    each = _GUESSED_RECORD_BYTES
    if shards:
        each = sum(shard.size or 0 for shard in shards) // sum(shard.records or 0 for shard in shards) + 1
    most = max(1, min(_BUFFER_BYTES // each, _BUFFER_RECORDS))
    return most if records is None else max(1, min(most, records))
