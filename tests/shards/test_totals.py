from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import AnnotatedObject, Annotations, Box, ImageRecord, ImageRef, Steps
from recordmill.transforms.shards.totals import Totals, total


def record(number: int) -> ImageRecord:
    annotations = Annotations((f"class {number % 7}",), {"width": number, "note": "x" * (number % 3)})
    image = ImageRef(f"/data/{number}.jpg")
    return ImageRecord(f"{number}.jpg", image, ("train", "val")[number % 2], annotations, size=number)


def described(totals: Totals) -> object:
    return (
        {
            name: (
                *(split.records, split.source_bytes, split.keys.items()),
                *(split.labels, split.objects, split.objects_per_record, split.labelled, split.unlabelled),
            )
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


def test_classes_by_split() -> None:
    box = Box(0, 0, 1, 1)
    steps = Steps(labels=(("a",), ("b", "a"), ()))
    records = [
        ImageRecord("1", None, "train", Annotations(("a", "b"))),
        ImageRecord("2", None, "train", Annotations(objects=(AnnotatedObject(3, box),) * 2)),
        ImageRecord("3", None, "train", Annotations()),
        ImageRecord("4", None, "val", Annotations(objects=(AnnotatedObject(3, box),) * 101)),
        ImageRecord("5", None, "val", Annotations(steps=steps)),
        ImageRecord("6", None, "val", Annotations(steps=Steps())),
    ]
    totals = total(records[:2])
    totals.merge(total(records[2:]))
    train, val = totals.splits["train"], totals.splits["val"]
    assert (train.labels, val.labels) == ({"a": 1, "b": 1}, {"a": 2, "b": 1})
    assert (train.objects, val.objects) == ({3: 2}, {3: 101})
    assert (train.objects_per_record, val.objects_per_record) == ({2: 1}, {100: 1})
    assert (train.labelled, val.labelled) == (1, 1)
    assert (train.unlabelled, val.unlabelled) == (1, 1)
    assert totals.labels == {"a", "b", 3}
