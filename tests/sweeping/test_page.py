import base64
import dataclasses
import functools
import html.parser
import io
import re

import pytest
from PIL import Image

from recordmill.transforms.pages.histograms import quality_bars
from recordmill.transforms.pages.render import name_markup
from recordmill.transforms.pages.text import rate_text, ssim_text
from recordmill.transforms.sweeping import plot
from recordmill.transforms.sweeping.page import html_text
from recordmill.transforms.sweeping.results import DARK, GROUPS, Sweep
from tests.sweeping.found import EVIL, SIDE, picture, row, sweep

VOID = {"meta", "img", "br", "wbr"}


@functools.cache
def svg() -> str:
    return plot.render(sweep())["sweep.svg"].decode()


class Page(html.parser.HTMLParser):
    """What a page says: its texts, and the tags that it opens; fails on an end tag that is not due."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.styles: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        (self.styles if self.open and self.open[-1] == "style" else self.texts).append(data)

    def pictures(self) -> list[bytes]:
        found = [attributes["src"] or "" for tag, attributes in self.tags if tag == "img"]
        return [base64.b64decode(uri.removeprefix("data:image/png;base64,"), validate=True) for uri in found]


def page(found: Sweep) -> Page:
    return Page(html_text(found, svg()))


def cells(text: str) -> list[list[str]]:
    """The table, a list a line."""
    body = text[text.index("<tbody>") : text.index("</tbody>")]
    lines = re.findall(r"<tr.*?</tr>", body, re.DOTALL)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", line)] for line in lines]


def test_names_are_escaped() -> None:
    text = html_text(sweep(), svg())
    assert "<script" not in text and 'alert("' not in text and "<b>&" not in text
    found = Page(text)
    assert not any(
        tag == "script" or any(name.startswith("on") for name in names) for tag, names in found.tags
    )
    said = "".join(found.texts)
    for whole in (f"photos/{EVIL}", f"2: no image {EVIL}", f"note {EVIL}", "<b> &"):
        assert whole in said, whole
    assert f"<h3>{name_markup(EVIL)}</h3>" in text


def test_a_name_that_utf8_cannot_hold() -> None:
    text = html_text(dataclasses.replace(sweep(), input="photos/\udcff"), svg())
    assert "photos/?" in text
    text.encode("utf-8")


def test_nothing_is_fetched() -> None:
    text = html_text(sweep(), svg())
    assert set(re.findall(r"https?://[^\"\s<]*", text)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    found = Page(text)
    policy = [names["content"] for _, names in found.tags if "http-equiv" in names]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    named = [
        value
        for _, names in found.tags
        for name, value in names.items()
        if name in ("src", "href", "srcset", "data", "xlink:href")
    ]
    assert named and all(value is not None and value.startswith(("data:image/png;", "#")) for value in named)
    addresses = re.findall(r"url\((.{5})", text)
    assert addresses and set(addresses) <= {"data:", "#p"} | {found for found in addresses if found[0] == "#"}
    assert "@import" not in text


def test_table() -> None:
    table = cells(html_text(sweep(), svg()))
    assert table[0] == ["raw pixels", "83,000", "8.300", "8,300", "2.5", "2,000", "1", "1", "–"]
    assert table[2] == [
        "re-encoded, q90 (3 refused)",
        "4,000",
        "0.400",
        "400",
        "2.5",
        "2,000",
        "0.9999",
        "0.9500",
        "38.2",
    ]
    assert len(table) == 5


def test_a_figure_that_is_not_known_is_a_dash() -> None:
    found = dataclasses.replace(row(sweep().rows[0].setting, 100, None, None), source_bytes=0)
    text = html_text(dataclasses.replace(sweep(), rows=(found,)), svg())
    assert cells(text) == [["raw pixels", "100", "–", "10", "2.5", "2,000", "–", "–", "–"]]


def test_the_same_picture_is_shown_once() -> None:
    found = page(sweep())
    assert found.pictures() == [picture(1), picture(2), picture(10), picture(11)]
    assert Image.open(io.BytesIO(found.pictures()[0])).size == (SIDE, SIDE)
    said = "".join(found.texts).replace("\N{NO-BREAK SPACE}", " ")
    assert f"source{SIDE} × {SIDE} pixels from (5, 3)raw pixels 192 bytesfiles as they are 90 bytes" in said
    assert "SSIM 0.9700re-encoded, q90 60 bytes" in said


def test_pictures_are_of_one_scale_and_the_source_is_behind_them() -> None:
    found = page(sweep())
    scales = [names["style"] for _, names in found.tags if names.get("class") == "crops"]
    assert scales == [f"--w:{SIDE};--h:{SIDE};--zoom:40;--small:20"] * 2
    behind = [names["class"] for _, names in found.tags if (names.get("class") or "").startswith("source-")]
    assert behind == ["source-0", "source-1"]
    for place, seed in ((0, 1), (1, 10)):
        source = base64.b64encode(picture(seed)).decode()
        assert f".source-{place} {{ background-image: url(data:image/png;base64,{source}) }}" in found.styles


def test_large_crops_are_not_shrunk() -> None:
    crop = dataclasses.replace(sweep().crops[0], box=(0, 0, 500, 10))
    assert "--zoom:1;--small:1" in html_text(dataclasses.replace(sweep(), crops=(crop,)), svg())


def test_qualities_that_were_chosen() -> None:
    text = html_text(sweep(), svg())
    bars = re.findall(r'<span>(.*?)</span><div><i style="width:(.*?)%"></i>(\d+)</div>', text)
    assert bars == [
        ("source kept", "80.0", "4"),
        ("q71–75", "60.0", "3"),
        ("q76–80", "0.0", "0"),
        ("q81–85", "0.0", "0"),
        ("q86–90", "60.0", "3"),
    ]


@pytest.mark.parametrize(
    ("qualities", "bins"),
    [
        ({}, []),
        ({0: 2}, [("source kept", 2)]),
        ({1: 1, 5: 1, 6: 1}, [("q1–5", 2), ("q6–10", 1)]),
        ({100: 3, 96: 1, 95: 1}, [("q91–95", 1), ("q96–100", 4)]),
    ],
)
def test_bins(qualities: dict[int, int], bins: list[tuple[str, int]]) -> None:
    assert quality_bars(qualities) == bins


def test_every_setting_is_explained_and_can_be_typed() -> None:
    found = "".join(page(sweep()).texts)
    for group in ("pixels", "files", "re-encoded", "target ssim"):
        assert GROUPS[group].meaning in found
    assert GROUPS["webp"].meaning not in found
    for measured in sweep().rows:
        assert measured.setting.flags in found
    assert "drawn on the background (#ff0010)" in found
    assert "one process while others ran" in found


def test_background_is_not_spoken_of_where_nothing_is_flattened() -> None:
    text = html_text(dataclasses.replace(sweep(), rows=sweep().rows[:2]), svg())
    assert "laid on the background" not in text
    assert "refused" not in text


def test_the_plot_has_the_colors_of_the_page() -> None:
    text = html_text(sweep(), svg())
    drawing = text[text.index("<svg") : text.index("</svg>")]
    assert not re.search("#[0-9a-f]{6}", drawing)
    used = set(re.findall(r"var\((--plot-[0-9a-f]{6})\)", drawing))
    assert len(used) > 5
    light, dark = text.split("@media (prefers-color-scheme: dark)")[:2]
    for name in used:
        color = f"#{name[-6:]}"
        assert f"{name}: {color};" in light
        assert f"{name}: {DARK[color]};" in dark
    assert "<?xml" not in text and text.count("<!DOCTYPE") == 1


def test_a_page_without_pictures_or_failures() -> None:
    bare = dataclasses.replace(sweep(), crops=(), failures={}, rows=sweep().rows[:1], images=1, packages={})
    found = page(bare)
    said = "".join(found.texts)
    assert "What each setting costs: 1 image" in found.texts
    absent_texts = ("The worst images", "could not be read", "Chosen JPEG qualities", "Made with", "optimi")
    for absent in absent_texts:
        assert absent not in said


@pytest.mark.parametrize(
    ("ssim", "text"), [(1.0, "1"), (0.99999, "0.9999"), (0.98, "0.9800"), (-0.25, "-0.2500")]
)
def test_an_ssim_is_not_rounded_up(ssim: float, text: str) -> None:
    assert ssim_text(ssim) == text


@pytest.mark.parametrize(("rate", "text"), [(0.25, "0.2"), (9.94, "9.9"), (12.4, "12"), (4567.8, "4,568")])
def test_rates(rate: float, text: str) -> None:
    assert rate_text(rate) == text
