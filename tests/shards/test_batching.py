"""Batches: all items of a key, in order, whenever they are handed on."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import Annotations, ImageRecord
from recordmill.transforms.shards import references
from recordmill.transforms.shards.references import Batches, batch_of, items, pack_reference


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=40)), max_size=60))
def test_all_items_come_in_order(added: list[tuple[int, bytes]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(references, "BATCH_BYTES", 64)
        patch.setattr(references, "HELD_BYTES", 100)
        batches: Batches[int] = Batches()
        found: defaultdict[int, list[bytes]] = defaultdict(list)
        for key, item in added:
            full = batches.add(key, item)
            if full is not None:
                found[key] += items([full])
            if batches.full:
                for other, batch in batches.rest():
                    found[other] += items([batch])
                assert not batches.full
        for key, batch in batches.rest():
            found[key] += items([batch])
    expected: defaultdict[int, list[bytes]] = defaultdict(list)
    for key, item in added:
        expected[key].append(item)
    assert found == expected


def test_open_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "HELD_BYTES", 1000)
    batches: Batches[int] = Batches()
    for key in range(9):
        assert not batches.full
        assert batches.add(key, b"x" * 110) is None
    assert batches.full
    assert len(list(batches.rest())) == 9
    assert not batches.full


def test_a_batch_of_rows_takes_half_of_their_bytes() -> None:
    rows = [
        pack_reference(
            ImageRecord(
                f"rows.csv:{line}",
                None,
                "train",
                Annotations((), {"customer": str(line), "city": f"city {line % 97}"}),
                f"rows.csv, line {line}",
            ),
            seed=0,
        )
        for line in range(400)
    ]
    assert len(batch_of(rows)) < sum(map(len, rows)) / 2
    assert list(items([batch_of(rows), batch_of([])])) == rows
