"""Groups of equal images: what is a group, what it says, and the order of the file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.records import AnnotatedObject, Annotations, Box, ImageRecord, JobError
from recordmill.transforms.shards.duplicates import (
    Copy,
    CountedLines,
    DuplicateGroup,
    Duplicates,
    check_splits,
    first_groups,
    label_texts,
)


def copy(key: str, split: str = "train", *labels: str) -> Copy:
    return Copy(key, split, labels)


def group(*copies: Copy, contents: str = "") -> DuplicateGroup:
    of = [(one, contents[at : at + 1].encode()) for at, one in enumerate(copies)]
    found = DuplicateGroup.of(of)
    assert found is not None
    return found


def test_a_group() -> None:
    assert DuplicateGroup.of([(copy("a"), b"x")]) is None
    assert DuplicateGroup.of([]) is None
    b, a = copy("b", "train", "cat"), copy("a", "train", "cat")
    assert group(b, a) == DuplicateGroup(False, False, True, (a, b))
    assert group(a, copy("b", "test", "cat")).across_splits
    assert group(a, copy("b", "train")).different_labels
    assert not group(a, b, contents="xy").bytes_equal


@pytest.mark.parametrize(
    ("copies", "text"),
    [
        ((copy("a"), copy("b")), "'a' (train), 'b' (train)"),
        ((copy("a", "train", "cat", "dog"), copy("b")), "'a' (train: cat, dog), 'b' (train: no label)"),
        (tuple(map(copy, "abcde")), "'a' (train), 'b' (train), 'c' (train), 'd' (train) and 1 more"),
        # A leak is seen, wherever its other split comes.
        (
            (*map(copy, "abcde"), copy("f", "test")),
            "'a' (train), 'b' (train), 'c' (train), 'f' (test) and 2 more",
        ),
    ],
)
def test_in_words(copies: tuple[Copy, ...], text: str) -> None:
    assert group(*copies).text == text


def test_the_order_and_the_counts_of_the_file(tmp_path: Path) -> None:
    plain = group(copy("0"), copy("9"))
    other = group(copy("1", "train", "cat"), copy("8", "train", "dog"))
    leak = group(copy("2"), copy("7", "test"))
    both = group(copy("3", "train", "cat"), copy("4", "test", "dog"), copy("5"))
    counted = CountedLines([one.to_json() for one in (plain, other, leak, both)])
    path = tmp_path / "duplicates.jsonl"
    path.write_text("".join(counted))
    assert [json.loads(line)["records"][0]["key"] for line in path.read_text().splitlines()] == list("3210")
    assert counted.found == Duplicates(4, 9, 2, 2, (both, leak, other, plain))
    assert counted.found.counts() == {
        "groups": 4,
        "records": 9,
        "across_splits": 2,
        "different_labels": 2,
    }
    assert Duplicates(**counted.found.counts(), first=counted.found.first) == counted.found
    assert first_groups(str(path), 2) == (both, leak)
    path.write_text("x" * (1 << 21) + "\n" + plain.to_json() + "\n")
    assert first_groups(str(path)) == (plain,)
    path.write_text('{"records": []}\n')
    with pytest.raises(ValueError, match=r"duplicates\.jsonl' is damaged"):
        first_groups(str(path))


def test_no_line_is_held_that_is_not_needed() -> None:
    def lines() -> Iterator[str]:
        for number in range(100):
            yield group(copy(f"{number:03}"), copy(f"{number:03}+")).to_json()

    counted = CountedLines(lines())
    assert len(list(counted)) == 100
    assert counted.found.groups == 100 and len(counted.found.first) == 12


def test_splits_that_share_images_are_refused() -> None:
    check_splits(Duplicates(1, 2, 0, 1), "duplicates.jsonl")
    leak = group(copy("a"), copy("b", "test"))
    with pytest.raises(JobError) as raised:
        check_splits(Duplicates(3, 6, 1, 0, (leak,)), "out/duplicates.jsonl")
    assert str(raised.value).startswith(
        "1 image is in more than one split, such as 'a' (train), 'b' (test), and DatasetConfig.duplicates is "
        "'fail'; nothing is published, out/duplicates.jsonl names each. Remove the copies"
    )


def test_labels_are_names_of_images_and_objects() -> None:
    labels = LabelMap.build([3, 1], classes={1: "dog", 3: "cat"})
    objects = tuple(AnnotatedObject(label, Box(0, 0, 1, 1)) for label in (3, 1, 3))
    record = ImageRecord("k", None, annotations=Annotations(labels=(1,), objects=objects))
    assert label_texts(record, labels) == ("cat", "dog")
    assert label_texts(ImageRecord("k", None), labels) == ()
    unknown = ImageRecord("k", None, annotations=Annotations(labels=("other",)))
    assert label_texts(unknown, labels) == ("other",)
