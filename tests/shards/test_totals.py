from hypothesis import given
from hypothesis import strategies as st

from transforms.records import Annotations, ImageRecord, ImageRef
from transforms.shards.totals import Totals, total


def record(number: int) -> ImageRecord:
    annotations = Annotations((f"class {number % 7}",), {"width": number, "note": "x" * (number % 3)})
    image = ImageRef(f"/data/{number}.jpg")
    return ImageRecord(f"{number}.jpg", image, ("train", "val")[number % 2], annotations, size=number)


def described(totals: Totals) -> object:
    return (
        {
            name: (split.records, split.source_bytes, split.keys.items())
            for name, split in totals.splits.items()
        },
        totals.labels,
        totals.label_counts,
        totals.with_image,
        totals.unsized,
        totals.columns.resolve(totals.records),
        totals.digest,
        totals.sampled(),
    )


@given(st.permutations(range(60)), st.integers(0, 60))
def test_order_and_grouping_do_not_matter(order: list[int], cut: int) -> None:
    merged = total(record(number) for number in order[:cut])
    merged.merge(total(record(number) for number in order[cut:]))
    assert described(merged) == described(total(record(number) for number in range(60)))


def test_counts() -> None:
    totals = total(record(number) for number in range(10))
    assert {name: (split.records, split.source_bytes) for name, split in totals.splits.items()} == {
        "train": (5, 20),
        "val": (5, 25),
    }
    assert (totals.records, totals.source_bytes, totals.with_image, totals.unsized) == (10, 45, 10, 1)
    assert totals.labels == {f"class {number}" for number in range(7)}


def test_the_digest_tells_what_changed_and_not_where_it_lies() -> None:
    digest = total([record(1), record(2)]).digest
    assert total([record(2), record(1)]).digest == digest
    elsewhere = ImageRef("/elsewhere/2.jpg", version=1_718_031_234_567_890_123)
    moved = ImageRecord("2.jpg", elsewhere, "train", record(2).annotations, size=2)
    assert total([record(1), moved]).digest == digest
    grown = ImageRecord("2.jpg", ImageRef("/data/2.jpg"), "train", record(2).annotations, size=3)
    assert total([record(1), grown]).digest != digest
