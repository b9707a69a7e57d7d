"""The first part of the page: what the dataset was understood to be, and warnings."""

from collections import Counter

from recordmill.transforms.reporting.findings import Findings
from recordmill.transforms.reporting.page import html_text
from recordmill.transforms.shards.statistics import Statistics
from tests.reporting.found import EVIL, RTL, findings, manifest, statistics
from tests.sweeping.test_page import Page


def overview(found: Findings) -> str:
    """The first section."""
    text = html_text(found)
    return text[text.index("<h2>Overview</h2>") :].partition("</h2>")[2].partition("</section>")[0]


def said(text: str) -> list[str]:
    """The texts of a part, without its tags."""
    return [one for one in (text.strip() for text in Page(text).texts) if one]


def test_source_schema_classes_and_splits() -> None:
    parsed = manifest()
    parsed["provenance"]["source_reason"] = f"it holds {EVIL}"
    text = overview(findings(manifest=parsed))
    assert "<script" not in text and RTL not in text
    assert "".join(said(text)).startswith(
        f"sourcefolder (it holds {EVIL})"
        f"input/photos/{EVIL}"
        "schemaclassification"
        "classes3: the largest is 'cat' with 9 labels, the smallest is 'a\\u202egnp.x' with 2"
        "splitstrain12 records,val4 records"
    )
    assert "warning" not in text


def test_a_manifest_of_an_earlier_version_has_no_reason() -> None:
    assert "".join(said(overview(findings()))).startswith(f"sourcefolderinput/photos/{EVIL}schema")


def test_records_of_others_have_no_source() -> None:
    found = findings(manifest=None, labels={}, statistics={"train": Statistics(records=3)})
    assert said(overview(found)) == ["classes", "none", "splits", "train", "3 records"]


def test_warnings() -> None:
    labels = {0: "cat", 1: EVIL, 2: EVIL.upper()}
    found = findings(
        labels=labels,
        statistics={"train": statistics({1: 2, 2: 1}), "val": Statistics(records=1, unlabelled=1)},
    )
    text = overview(found)
    assert "<script" not in text and "<SCRIPT" not in text
    assert text.count('<p class="warning">') == 2
    words = "".join(said(text))
    assert "1 of 4 records has no label (val 1 of 1).Check that their folders" in words
    assert f"1 class has more than one spelling: {EVIL.upper()!r} (1), {EVIL!r} (2).Check whether" in words


def test_it_is_the_first_section() -> None:
    text = html_text(findings(statistics={"train": Statistics(records=9, labels=Counter({0: 9}))}))
    assert text.index('<section id="overview">') < text.index('<section id="outcome">')
    assert '<p class="warning"><b><bdi>all 9 labels are &#39;cat&#39;</bdi>.</b> <bdi' in text
