import dataclasses
import io
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.sweeping import plot
from recordmill.transforms.sweeping.results import DARK, DARK_PAPER, GROUPS, Row, Sweep
from tests.sweeping.found import FILES, RAW, WORSE, lossy, row, sweep

SVG = "{http://www.w3.org/2000/svg}"


def of(*rows: Row) -> Sweep:
    return dataclasses.replace(sweep(), rows=rows)


def texts(svg: bytes) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.fixture(scope="module")
def drawn() -> dict[str, bytes]:
    return plot.render(sweep())


def test_png_has_its_size_and_every_color(drawn: dict[str, bytes]) -> None:
    image = Image.open(io.BytesIO(drawn["sweep.png"])).convert("RGB")
    assert image.size == (plot.WIDTH, plot.HEIGHT)
    levels = np.array(image).astype(np.uint32)
    seen = {f"#{value:06x}" for value in np.unique(levels @ np.array([1 << 16, 1 << 8, 1], np.uint32))}
    used = {GROUPS[found.setting.group].color for found in sweep().rows}
    assert used <= seen
    assert not {style.color for style in GROUPS.values()} - used & seen


@pytest.mark.slow
def test_svg_is_the_same_again(drawn: dict[str, bytes]) -> None:
    again = plot.render(sweep())
    assert again["sweep.svg"] == drawn["sweep.svg"]
    assert again["sweep.png"] == drawn["sweep.png"]


def test_svg_says_each_point_twice(drawn: dict[str, bytes]) -> None:
    found = texts(drawn["sweep.svg"])
    for label in ("q90", "q75", "≥0.98", "raw pixels: 8.3× →"):
        assert found.count(label) == 2, label
    assert found.count("files as they are") == 3  # two points, and the legend
    assert "Size and quality of 10 images, by setting" in found


def test_svg_names_nothing_on_the_network(drawn: dict[str, bytes]) -> None:
    links = set(re.findall(rb"https?://[^\"\s]*", drawn["sweep.svg"]))
    assert links == {
        b"http://www.w3.org/2000/svg",
        b"http://www.w3.org/1999/xlink",
        b"http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd",
    }


def test_svg_has_no_color_without_a_dark_one(drawn: dict[str, bytes]) -> None:
    # matplotlib leaves out the fill of what is black
    assert {found.decode() for found in re.findall(rb"#[0-9a-f]{6}", drawn["sweep.svg"])} <= set(DARK)
    tree = ElementTree.fromstring(drawn["sweep.svg"])
    assert all("fill: #" in node.attrib["style"] for node in tree.iter(f"{SVG}text"))


def drawn_at(*rows: Row) -> list[list[tuple[float, float]]]:
    """The points of each part of the plot."""
    figure = plot._figure(rows, 10)
    return [
        sorted((float(x), float(y)) for line in axis.lines for x, y in zip(*line.get_data(), strict=True))
        for axis in figure.axes
    ]


@pytest.mark.slow
@pytest.mark.parametrize("size", [11_000, 18_400, 26_000])
def test_raw_pixels_are_to_scale_where_they_are_near(size: int) -> None:
    rows = (row(RAW, size, 1.0, 1.0), row(FILES, 10_500, 1.0, 1.0))
    svg = plot.render(of(*rows))["sweep.svg"]
    assert "raw pixels" in texts(svg)
    assert not any("→" in text for text in texts(svg))
    assert drawn_at(*rows) == [[(1.05, 1.0), (size / 10_000, 1.0)]] * 2


@pytest.mark.slow
def test_raw_pixels_that_are_far_off_are_named_and_not_drawn() -> None:
    rows = (row(RAW, 27_000, 1.0, 1.0), row(FILES, 10_500, 1.0, 1.0))
    assert texts(plot.render(of(*rows))["sweep.svg"]).count("raw pixels: 2.7× →") == 2
    assert drawn_at(*rows) == [[(1.05, 1.0)]] * 2


@pytest.mark.slow
def test_bytes_an_image_where_the_files_have_no_size() -> None:
    listed = dataclasses.replace(row(FILES, 10_500, 1.0, 1.0), source_bytes=0)
    assert "TFRecord bytes an image" in texts(plot.render(of(listed))["sweep.svg"])


@pytest.mark.parametrize("rows", [(), (row(WORSE, 100, None, None),)])
def test_nothing_compared(rows: tuple[Row, ...]) -> None:
    assert "No setting's pixels could be compared." in texts(plot.render(of(*rows))["sweep.svg"])


@pytest.mark.parametrize(
    "ssims",
    [
        pytest.param((1.0, 1.0), marks=pytest.mark.slow),
        (0.99999, 0.99998),
        pytest.param((0.3, -0.2), marks=pytest.mark.slow),
    ],
)
def test_a_lone_point(ssims: tuple[float, float]) -> None:
    drawn = plot.render(of(row(WORSE, 100, *ssims)))
    assert texts(drawn["sweep.svg"]).count("q75") == 2


def test_the_scale_is_undone() -> None:
    ssims = np.array([-1, 0, 0.5, 0.99, 0.9999, 1, 1.2])
    np.testing.assert_allclose(plot._shrunk(plot._stretched(ssims)), ssims, atol=1e-12)
    assert (np.diff(plot._stretched(ssims)) > 0).all()


@pytest.mark.slow
def test_optimised_settings_are_drawn_beside_those_of_the_same_pixels_and_labels() -> None:
    """All groups lie on each other if there is nothing but JPEGs."""
    groups = ("png to jpeg", "re-encoded", "png to jpeg, optimised", "re-encoded, optimised")
    rows = [
        row(lossy(group, f"{group} {quality}", quality), 20 * quality, quality / 100, quality / 110)
        for group in groups
        for quality in (95, 90, 85, 75)
    ]
    svg = plot.render(of(*rows))["sweep.svg"]
    assert all(texts(svg).count(f"q{quality}") == 4 for quality in (95, 90, 85, 75))
    assert [len(points) for points in drawn_at(*rows)] == [16, 16]


def test_every_group_has_a_style_of_its_own() -> None:
    looks = {(style.marker, style.dashed) for style in GROUPS.values()}
    assert len(looks) == len({style.color for style in GROUPS.values()}) == len(GROUPS)


@pytest.mark.parametrize("group", GROUPS)
def test_labels_can_be_read(group: str) -> None:
    assert contrast(GROUPS[group].color, "#ffffff") >= 4.2
    assert contrast(GROUPS[group].dark, DARK_PAPER) >= 4.5


def contrast(one: str, other: str) -> float:
    """WCAG 2: 4.5 is what small text wants."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
