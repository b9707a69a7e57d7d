"""Lines in order, in memory or by way of the disk."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import Failure
from recordmill.transforms.storage import gcs
from recordmill.transforms.storage.files import write_file
from recordmill.transforms.storage.output import in_order, write_failures
from tests.buckets.server import BucketServer
from tests.storage.test_output import begun


@pytest.mark.slow
@given(st.lists(st.text(st.characters(exclude_characters="\n"), max_size=4)), st.integers(1, 40))
def test_as_a_sort_in_memory(lines: list[str], held: int) -> None:
    assert list(in_order(iter(lines), lambda line: line[:1], held)) == sorted(
        lines, key=lambda line: line[:1]
    )


def test_failures_that_are_more_than_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_order, "__defaults__", (1000,))
    run = begun(tmp_path)
    keys = [f"{number:04}\r\u2028\x85é.jpg" for number in range(500)]
    random.Random(0).shuffle(keys)
    files = []
    for first in range(100, 500, 4):
        files.append(str(tmp_path / f"{first}.failures"))
        write_file(
            files[-1], [Failure(key, "load", "not found").to_json() + "\n" for key in keys[first : first + 4]]
        )
    path = write_failures(run, [Failure(key, "list", "hidden", skipped=True) for key in keys[:100]], files)
    text = Path(path).read_bytes().decode()
    assert text.endswith("\n")
    assert [json.loads(line)["key"] for line in text.split("\n")[:-1]] == sorted(keys)


def test_memory_does_not_grow_with_the_lines() -> None:
    def lines() -> Iterator[str]:
        chance = random.Random(0)
        return (f"{chance.random():.15f} {'x' * 200}" for _ in range(100_000))

    tracemalloc.start()
    last, count = "", 0
    for line in in_order(lines(), lambda line: line[:17], 1 << 20):
        assert line >= last
        last, count = line, count + 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 100_000
    assert peak < 6 << 20  # of 22 MB


def test_a_large_object_is_written_in_pieces(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs, "_UPLOAD_PIECE", 1 << 18)
    for count in (0, 1, 10, 50_000):
        write_file(f"{bucket}/{count}.txt", (f"{number}é\n" for number in range(count)))
        assert bucket_server.get(f"{bucket}/{count}.txt").decode() == "".join(f"{n}é\n" for n in range(count))
