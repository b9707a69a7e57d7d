"""Globs over keys, labels from keys, and the first N records."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import BadInput, ClassNames, Failure, ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.selection import Selection, glob_regex
from recordmill.transforms.sources.source import Items, Source


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("*.png", ["a.png", "x/y/a.png", ".png"], ["a.PNG", "a.png/b.jpg", "apng"]),
        ("x/*.png", ["x/a.png"], ["x/y/a.png", "z/x/a.png"]),
        ("x/**", ["x/a.png", "x/y/a.png"], ["xa.png", "z/x/a"]),
        ("**/x/*", ["x/a", "z/x/a", "z/z/x/a"], ["zx/a", "x/y/a"]),
        ("x/**/a.png", ["x/a.png", "x/y/a.png", "x/y/z/a.png"], ["x/ya.png"]),
        ("/*.png", ["a.png"], ["x/a.png"]),
        ("img_?.png", ["img_1.png"], ["img_12.png", "img_/.png"]),
        ("[ab].png", ["a.png", "x/b.png"], ["c.png", "[ab].png"]),
        ("[!a].png", ["b.png"], ["a.png"]),
        ("x[!a]y/b", ["xby/b"], ["x/y/b", "xay/b"]),
        ("[a-c]", ["b"], ["d", "-"]),
        ("[]]", ["]"], ["["]),
        ("a[b", ["a[b"], ["ab"]),
        ("a.b+(c)|d$", ["a.b+(c)|d$"], ["aXb+(c)|d$", "d$"]),
        ("new\nline*", ["new\nline.png"], ["newline.png"]),
    ],
)
def test_glob(glob: str, matching: list[str], others: list[str]) -> None:
    selection = Selection(SourceConfig("folder", ".", include=(glob,)))
    assert [key for key in matching + others if selection.takes(key)] == matching


@given(st.text("ab*?.", max_size=6), st.text("ab.", max_size=6))
def test_globs_within_a_part_are_those_of_fnmatch(glob: str, name: str) -> None:
    expected = fnmatch.fnmatchcase(name, glob)
    assert bool(re.fullmatch(glob_regex(glob), name, re.DOTALL)) == expected


@given(st.text(max_size=12), st.text(max_size=12))
def test_every_glob_compiles_or_is_refused_by_its_flag(glob: str, key: str) -> None:
    try:
        Selection(SourceConfig("folder", ".", exclude=(glob,))).takes(key)
    except ValueError as error:
        assert str(error).startswith("--exclude is ")


def test_include_and_exclude_together() -> None:
    config = SourceConfig("folder", ".", include=("*.png", "*.jpg"), exclude=("bad/**", "*_mask.png"))
    selection = Selection(config)
    keys = ["a.png", "a.jpg", "a.gif", "bad/a.png", "a_mask.png", "good/a.jpg"]
    assert [key for key in keys if selection.takes(key)] == ["a.png", "a.jpg", "good/a.jpg"]


def test_a_glob_without_meaning_is_named() -> None:
    with pytest.raises(ValueError, match=r"--include is '\[z-a\]', which is not a glob"):
        Selection(SourceConfig("folder", ".", include=("*.png", "[z-a]")))


@pytest.mark.parametrize(
    ("pattern", "key", "label"),
    [
        (r"([a-z]+)_\d", "cat_0.jpeg", "cat"),
        (r"(\d+)_(?P<label>[^.]+)", "x/12_dog.png", "dog"),
        (r"^([^/]+)/", "größe/a.png", "größe"),
        (r"(a)|(b)", "a", "a"),
    ],
)
def test_label_pattern(pattern: str, key: str, label: str) -> None:
    selection = Selection(SourceConfig("folder", ".", label_pattern=pattern))
    assert selection.labels(key, ("found",)) == (label,)


@pytest.mark.parametrize(("pattern", "key"), [("(x)", "a"), ("(x*)a", "a"), ("(x)|a", "a")])
def test_label_pattern_without_a_label(pattern: str, key: str) -> None:
    selection = Selection(SourceConfig("folder", ".", label_pattern=pattern))
    with pytest.raises(BadInput) as caught:
        selection.labels(key, ())
    failure = caught.value.failure()
    assert failure == Failure(key, "list", "label pattern does not match", f"--label_pattern {pattern!r}")


@pytest.mark.parametrize(
    ("pattern", "message"), [("cat", "which has no group"), ("(cat", "not a regular expression")]
)
def test_bad_label_pattern(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Selection(SourceConfig("folder", ".", label_pattern=pattern))


def test_the_limit_counts_records_and_reads_no_further() -> None:
    items = iter([Failure("f", "list", "r"), ImageRecord("a", None), Failure("g", "list", "r")])
    rest = [ImageRecord("b", None), ImageRecord("c", None)]

    class Listed(Source):
        def items(self, config: SourceConfig, scratch: str) -> Items:
            yield from items
            yield from rest
            assert config.limit is None, "read on"

    read = Listed().read(SourceConfig("folder", ".", limit=2), "")
    assert [item.key for item in read if not isinstance(item, ClassNames)] == ["f", "a", "g", "b"]
    read = Listed().read(SourceConfig("folder", "."), "")
    assert [item.key for item in read if not isinstance(item, ClassNames)] == ["b", "c"]


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_is_at_least_one(limit: int) -> None:
    with pytest.raises(ValueError, match=f"SourceConfig.limit is {limit}; it may be 1 or more"):
        SourceConfig("folder", ".", limit=limit)
