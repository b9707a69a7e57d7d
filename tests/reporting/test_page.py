import base64
import io
import re
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from recordmill.transforms.pages.histograms import (
    aspect_bars,
    box_count_bars,
    box_size_bars,
    quality_bars,
    side_bars,
)
from recordmill.transforms.pages.render import name_markup
from recordmill.transforms.pages.text import share_text, size_text
from recordmill.transforms.reporting.page import ACTIONS, MOST_CLASSES, class_balances, html_text
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.storage.sealed import is_sealed, seal
from tests.reporting.found import EVIL, RTL, findings, manifest, picture
from tests.sweeping.test_page import Page


def said(text: str) -> str:
    return "".join(Page(text).texts)


def part(text: str, start: str, end: str) -> str:
    return text[text.index(start) :].partition(end)[0]


def classes(labels: dict[int, str], **splits: Statistics) -> str:
    """The class balance on a page."""
    text = html_text(findings(statistics=splits, labels=labels)).partition("<h2>Class balance</h2>")[2]
    return part(text, "<h3>", "</section>") if text else ""


def labelled(counts: dict[int, int]) -> Statistics:
    return Statistics(labels=Counter(counts))


def test_names_are_escaped() -> None:
    text = html_text(findings())
    found = Page(text)
    assert "<script" not in text and 'alert("' not in text
    assert not any(
        tag == "script" or any(name.startswith("on") for name in names) for tag, names in found.tags
    )
    words = "".join(found.texts)
    for whole in (f"Failed: 3{EVIL}", f"load: {EVIL}", f"/photos/{EVIL}", f"x/{EVIL}", f"{EVIL}.png"):
        assert whole.removeprefix("Failed: 3") in words, whole
    alternatives = [names["alt"] for tag, names in found.tags if tag == "img"]
    assert alternatives == ["1.png: cat", f"{EVIL}.png: {EVIL}, {RTL}"[:400], "before", "after"]


def test_a_name_cannot_turn_or_hide_what_is_around_it() -> None:
    assert name_markup(RTL) == "<bdi>a\\u202egnp.x</bdi>"
    assert name_markup("a\nb\0") == "<bdi>a\\nb\\x00</bdi>"
    assert name_markup("חתול <") == "<bdi>חתול &lt;</bdi>"
    assert name_markup("\udcff") == "<bdi>\\xff</bdi>"
    assert name_markup("a/b") == '<bdi dir="ltr">a/<wbr>b</bdi>'
    assert name_markup("x" * 500) == f"<bdi>{'x' * 60}…{'x' * 60}</bdi>"
    assert RTL not in "".join(Page(html_text(findings())).texts)


def test_nothing_is_fetched() -> None:
    text = html_text(findings())
    found = Page(text)
    assert not re.findall(r"https?:|//[a-z]|@import|url\(", text)
    policy = [names["content"] for _, names in found.tags if "http-equiv" in names]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    for _, names in found.tags:
        for name in ("src", "href", "srcset", "data", "action"):
            assert (names.get(name) or "#").startswith(("data:image/", "#"))


def test_the_page_is_the_same_whenever_it_is_made() -> None:
    other = manifest()
    other["provenance"]["finished"] = "2027-01-01T00:00:00+00:00"
    assert html_text(findings()) == html_text(findings(manifest=other))
    assert "03:59:59" not in html_text(findings())


def test_a_version_is_named() -> None:
    assert "<bdi>1.2.3</bdi>" in html_text(findings(manifest={**manifest(), "version": "1.2.3"}))
    assert "1.2.3" not in html_text(findings())


def test_it_takes_a_seal() -> None:
    text = seal(html_text(findings()))
    assert is_sealed(text.encode())
    assert not is_sealed(text.replace("truncated", "truncatec", 1).encode())


def test_counts_and_reasons() -> None:
    text = html_text(findings())
    tiles = re.findall(r"<div( class=bad)?><dt>(.*?)</dt><dd>(.*?)</dd>", text)
    assert tiles == [
        ("", "read", "20"),
        ("", "written", "16"),
        (" class=bad", "failed", "3"),
        ("", "skipped", "1"),
    ]
    reasons = re.findall(r'<td class="number">(.*?)</td><th scope="row">(.*?)</th>', text)
    assert [(count, reason[:17]) for count, reason in reasons] == [
        ("2", "decode: truncated"),
        ("1", "load: &lt;script&"),
        ("1", "list: hidden"),
        ("5", "box clipped"),
    ]
    assert "Annotations that were changed: 5" in text
    assert text.count("All of them") == 2 and "The first 1 by key" in text
    assert "Nothing failed" not in text


def test_nothing_failed() -> None:
    told = manifest(
        counts={"read": 16, "written": 16, "failed": 0, "skipped": 0}, reasons={"failed": [], "skipped": []}
    )
    text = html_text(findings(manifest=told, failures={}))
    assert "Nothing failed." in text and " class=bad" not in text


def test_size_before_and_after() -> None:
    text = html_text(findings())
    assert "The stored images take 0.25 times the bytes that they have in the source" in text
    bars = re.findall(r'<span>([a-z ]+)</span><div><i style="width:(.*?)%"></i>(.*?)</div>', text)
    assert bars[:3] == [
        ("images in the source", "70.0", "2.00 MB"),
        ("images as stored", "17.5", "500 kB"),
        ("shards", "17.9", "512 kB"),
    ]
    actions = re.findall(r'<span>(\w+)<small>.*?</small></span><div><i style="width:(.*?)%"></i>(\d+)', text)
    assert actions == [("reencoded", "80.0", "12"), ("kept", "26.7", "4")]
    assert "2 images kept their transparency, in 3.00 kB" in said(text)
    assert "would save 2.00 kB" in said(text)
    assert '<span>q86–90</span><div><i style="width:80.0%"></i>9</div>' in text


def test_what_was_done_is_explained_for_every_action_that_there_is() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/shrinking.md").read_text("utf-8")
    tables = guide[guide.index("## What was done") :].partition("\n## Check it")[0]
    named = {
        name for row in re.findall(r"^\|([^|]*)\|", tables, re.M) for name in re.findall(r"`(\w+)`", row)
    }
    assert {"kept", "coarse_enough", "optimize_differed"} <= named == set(ACTIONS)


def test_class_balance() -> None:
    text = html_text(findings())
    table = text[text.index('<table class="balance">') :]
    table = table[: table.index("</table>")]
    cells = [re.sub("<.*?>", " ", row).split() for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)]
    assert cells[0] == ["class", "train", "12", "labels", "val", "4", "labels"]
    assert cells[1] == ["cat", "6", "50", "%", "3", "75", "%"]
    assert cells[3][-6:] == ["a\\u202egnp.x", "2", "17", "%", "0", "none"]
    widths = [float(width) for width in re.findall(r'<i style="width:(.*?)%">', table)]
    assert widths == [66.7, 100, 44.4, 33.3, 22.2, 0]
    assert "1 of 3 classes have no label in val: a\\u202egnp.x." in said(text)
    assert "1 of 4 named classes have no label at all: unused." in said(text)


def masked(*records: dict[int, int]) -> Statistics:
    """Images of 100 by 100 pixels, with the pixels of their masks."""
    found = Statistics()
    for pixels in records:
        found.add([(100, 100)], pixels=pixels)
    return found


def test_pixels_of_masks() -> None:
    train = masked({0: 6000, 1: 3000, 255: 1000}, {0: 10_000})
    val = masked({0: 9000, 2: 1000})
    text = html_text(
        findings(statistics={"train": train, "val": val}, labels={1: "cat", 2: "dog", 255: "void"})
    )
    table = text[text.index("<h3>Pixels of masks</h3>") :].split("</section>")[0]
    cells = [said(cell) for cell in re.findall(r"<t[hd] .*?</t[hd]>|<td>.*?</td>", table)]
    assert cells == [
        "class",
        "train19,000 pixels",
        "val10,000 pixels",
        *("background", "16,00084 %in 2 images", "9,00090 %in 1 image"),
        *("cat", "3,00016 %in 1 image", "0none"),
        *("dog", "0none", "1,00010 %in 1 image"),
    ]
    words = said(table)
    assert "3 classes. background has the most (25,000), dog the fewest (1,000): 25 times as many." in words
    assert "1 of 3 classes have no pixel in val: cat." in words and "void" not in words
    ignored = "3.3 % of all pixels have the ignore label 255 and are not in the table: train 1,000, val 0."
    assert f"{ignored} They are in 1 image." in words


def test_classes_that_are_merged_in_masks_need_no_pixels() -> None:
    train = masked({1: 9})
    train.objects.update([1, 2])
    for is_merged, expected in ((False, ["cat", "dog"]), (True, ["dog"])):
        balances = class_balances({"train": train}, {1: "car", 2: "cat", 3: "dog"}, is_merged)
        assert balances[-1].unused == expected


def test_masks_without_class_names_and_without_ignored_pixels() -> None:
    words = said(classes({}, train=masked({0: 7, 4: 3})))
    assert "2 classes. 0 has the most (7), 4 the fewest (3)" in words and "ignore" not in words
    assert classes({0: "a"}, train=masked({})) == ""
    words = said(classes({1: "a"}, train=masked({255: 9})))
    ignored = "100 % of all pixels have the ignore label 255 and are not in the table: train 9."
    assert words.strip() == f"Pixels of masks\n{ignored} They are in 1 image."


def test_only_the_largest_classes_have_a_line() -> None:
    text = classes({}, train=labelled({one: 100 - one for one in range(60)}))
    assert text.count("<tr>") == 1 + MOST_CLASSES + 1
    rest = sum(100 - one for one in range(MOST_CLASSES, 60))
    assert f'<i>20 other classes</i></th><td><div class="share"><div></div><b>{rest:,}</b>' in text
    assert classes({0: "a"}, train=Statistics()) == ""


def test_images_and_boxes() -> None:
    statistics = Statistics()
    statistics.add([(100, 100)], objects=[1, 1], boxes=[(0.0, 0.0, 0.5, 0.5), (0.0, 0.0, 1.0, 0.1)])
    statistics.add([(400, 100)], boxes=[])
    text = html_text(findings(statistics={"train": statistics}))
    assert "The smallest is 100 × 100 pixels, the largest 400 × 100." in text
    assert "2 boxes in 2 images; 1 of them without any." in text
    assert "Stored with the images: 7 class masks." in text
    assert '<span>42–59 %</span><div><i style="width:80.0%"></i>1</div>' in text
    assert '<span>over 7.34</span><div><i style="width:80.0%"></i>1</div>' in text
    assert "<span>363–512</span>" not in text and "<span>305–430</span>" in text


def test_images_of_one_size_need_no_chart() -> None:
    statistics = Statistics()
    for _ in range(3):
        statistics.add([(28, 28)])
    text = html_text(findings(statistics={"train": statistics}))
    assert (
        "All are 28 × 28 pixels." in text and "Aspect ratio" not in text and "Boxes in an image" not in text
    )


def test_pictures() -> None:
    found = Page(html_text(findings()))
    shown_pictures = [names for tag, names in found.tags if tag == "img"]
    assert [names.get("width") for names in shown_pictures] == ["8", "8", None, None]
    uri = shown_pictures[0]["src"] or ""
    data = base64.b64decode(uri.removeprefix("data:image/jpeg;base64,"), validate=True)
    assert data == picture(1, "JPEG") and Image.open(io.BytesIO(data)).size == (8, 6)
    swatches = [names["style"] for _, names in found.tags if names.get("class") == "swatch"]
    assert swatches == ["background:rgb(1, 2, 3)", "background:rgb(4, 5, 6)"]
    words = "".join(found.texts)
    assert "before 90.0 kB" in words and "after 30.0 kB, SSIM 0.9500" in words


def test_classes_with_many_pictures_have_headings() -> None:
    one = findings().samples[0]
    many = tuple(one._replace(group=name) for name in ("a", "b") for _ in range(3))
    text = html_text(findings(samples=many))
    assert "<h3><bdi>a</bdi></h3>" in text and "<h3><bdi>b</bdi></h3>" in text
    assert "<h3><bdi>cat</bdi></h3>" not in html_text(findings())


def test_shards_and_origin() -> None:
    text = html_text(findings())
    assert '<code title="' + "12ab" * 16 + '">12ab12ab12ab…</code>' in text
    assert "<td>missing</td>" in text
    words = said(text)
    assert "jpeg_quality90" in words.replace("\n", "") and "pillow12.1.1" in words.replace("\n", "")
    assert "rename" not in words


def test_tfrecords_without_a_manifest() -> None:
    text = html_text(
        findings(
            manifest=None,
            failures={},
            crops=(),
            damages=(("a.tfrecord", "record 3: <bad>"),),
            faults={"r": 2},
        )
    )
    words = said(text)
    assert "a.tfrecord: record 3: <bad>" in words and "2 records: r" in words
    for absent in ("How it was made", "Size before and after", "Nothing failed", "Before and after encoding"):
        assert absent not in words


def test_links_lead_to_sections() -> None:
    found = Page(html_text(findings()))
    targets = {names["id"] for tag, names in found.tags if tag == "section"}
    links = [(names["href"] or "").removeprefix("#") for tag, names in found.tags if tag == "a"]
    assert links and set(links) == targets


@pytest.mark.parametrize("width", [1, 2, 3, 5, 28, 215, 216, 304, 305, 640, 12_345])
def test_a_side_is_in_its_bin(width: int) -> None:
    statistics = Statistics()
    statistics.add([(width, 50)])
    [(title, count)] = [row for row in side_bars(statistics.widths) if row[1]]
    ends = [int(end) for end in title.replace(",", "").split("–")]
    assert count == 1 and ends[0] <= width <= ends[-1]


@pytest.mark.parametrize(
    ("rows", "titles"),
    [
        (side_bars({2: 1, 4: 2}), [("2", 1), ("3", 0), ("4", 2)]),
        (aspect_bars({-12: 1}), [("under 0.14", 1)]),
        (aspect_bars({0: 1, 1: 0, 12: 2})[:1], [("0.92–1.09", 1)]),
        (box_size_bars({0: 5, -1: 2}), [("59–84 %", 2), ("84–100 %", 5)]),
        (box_size_bars({-16: 5}), [("under 0.5 %", 5)]),
        (box_count_bars({0: 1, 7: 2, 9: 1}), [("0", 1), ("1", 0), ("2", 0), ("3", 0), ("4", 0), ("5–9", 3)]),
        (box_count_bars({100: 1})[-1:], [("100 and more", 1)]),
        (quality_bars({0: 2}), [("source kept", 2)]),
        (quality_bars({100: 1, 90: 1, 91: 4}), [("q86–90", 1), ("q91–95", 4), ("q96–100", 1)]),
        (side_bars({}), []),
    ],
)
def test_bins(rows: list[tuple[str, int]], titles: list[tuple[str, int]]) -> None:
    assert rows == titles


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.00 kB"),
        (999_600, "1.00 MB"),
        (12_340_000, "12.3 MB"),
        (123_456_789, "123 MB"),
        (5e18, "5,000 PB"),
    ],
)
def test_sizes(size: float, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0001, "under 0.1 %"), (0.0123, "1.2 %"), (0.5, "50 %"), (0.999, "99.9 %"), (1, "100 %")],
)
def test_shares(share: float, text: str) -> None:
    assert share_text(share) == text


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({1: 3}, "One class with 3 labels."),
        ({1: 3, 2: 3}, "2 classes, each with 3 labels."),
        ({1: 3, 2: 4}, "2 classes. b has the most (4), a the fewest (3): 1.3 times as many."),
        ({1: 3000, 2: 1}, "2 classes. a has the most (3,000), b the fewest (1): 3,000 times as many."),
    ],
)
def test_how_far_classes_are_apart(counts: dict[int, int], text: str) -> None:
    found = classes({1: "a", 2: "b"}, train=labelled(counts))
    assert f"<p>{text}</p>" in re.sub("</?bdi>", "", found)


def test_a_split_without_any_label() -> None:
    found = classes({1: "a"}, train=labelled({1: 2}), val=Statistics())
    assert "<b><bdi>val</bdi></b> has no label at all." in found
