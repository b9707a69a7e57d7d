"""The results of a sweep, and the groups of its settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.pages.text import rate_text, ssim_text


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Settings that differ in one value, and how the plot and the page show them."""

    label: str
    meaning: str  # one or two sentences about the effect of the settings
    color: str  # on white, `#rrggbb`, dark enough for text
    dark: str  # the colour on a dark page
    marker: str  # matplotlib's name of the marker
    offset: tuple[int, int] = (0, 0)  # points from a marker to its label, right and up
    dashed: bool = False


INK, DARK_INK = "#22262b", "#e4e7eb"
FAINT, DARK_FAINT = "#d5d9de", "#3a4149"
PAPER, DARK_PAPER = "#fffffe", "#15181c"

# Hues of Okabe and Ito, darkened for text. Markers and dashes also distinguish the groups.
GROUPS = {
    "pixels": Group(
        "raw pixels",
        "Every image is decoded, and its pixels are stored one after the other, uncompressed.",
        *("#50565e", "#b9c0c8", "s"),
        offset=(0, 8),
    ),
    "files": Group(
        "files as they are",
        "The bytes of each file are stored unchanged if TensorFlow can decode them.",
        *("#23272c", "#f2f4f6", "D"),
        offset=(6, -6),
    ),
    "png to jpeg": Group(
        "PNG to JPEG",
        "Every image that is not a JPEG becomes one, at quality q; JPEGs keep their bytes.",
        *("#0a5ca8", "#6db0f0", "o"),
        offset=(-10, 5),
    ),
    "re-encoded": Group(
        "re-encoded",
        "Every image is encoded as a JPEG of quality q; JPEGs are encoded again.",
        *("#b34700", "#ff9c69", "^"),
        offset=(6, -5),
    ),
    "png to jpeg, optimised": Group(
        "PNG to JPEG, optimised",
        "As PNG to JPEG; then every JPEG is made smaller without changing a pixel.",
        *("#1c7fc4", "#a3d4fb", "o"),
        dashed=True,
    ),
    "re-encoded, optimised": Group(
        "re-encoded, optimised",
        "As re-encoded; then every JPEG is made smaller without changing a pixel.",
        *("#a86a00", "#f5c35a", "^"),
        dashed=True,
    ),
    "lossless": Group(
        "lossless",
        "Files as they are, but PNGs are made smaller without changing a pixel. With `progressive`, so are "
        "JPEGs, which then take longer to decode.",
        *("#5b4fae", "#b3a8fa", "P"),
        offset=(-6, 6),
    ),
    "webp": Group(
        "WebP",
        "Every image is encoded as a lossy WebP of quality q.",
        *("#00704f", "#4fcfa5", "v"),
        offset=(0, 7),
    ),
    "target ssim": Group(
        "target SSIM",
        "Each image becomes a JPEG of the lowest quality whose SSIM to the source reaches the target; "
        "images that get no smaller, or that no quality brings to the target, are kept.",
        *("#a13a84", "#ec9ed6", "X"),
        offset=(0, -7),
    ),
}
"""By name, in the order of the legend."""

DARK = {INK: DARK_INK, FAINT: DARK_FAINT, PAPER: DARK_PAPER} | {
    group.color: group.dark for group in GROUPS.values()
}
"""By each colour of the plot, the colour that replaces it on a dark page."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One way to store images."""

    name: str  # unique in the sweep, for display: `PNG to JPEG, q90, optimised`
    group: str  # one of GROUPS: settings that differ in `value` alone
    value: float | None  # the quality, or the target SSIM; None if there is neither
    policy: ImagePolicy

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise ValueError(f"Setting.group is {self.group!r}; it may be one of {', '.join(GROUPS)}")

    @property
    def flags(self) -> str:
        """The flags of `convert` with this effect, always with the quality; empty for its defaults."""
        given = []
        for field in dataclasses.fields(self.policy):
            value = getattr(self.policy, field.name)
            is_quality = field.name == "jpeg_quality" and value == self.value
            if is_quality or value != field.default:
                given.append(f"--{field.name}={_flag_value(field.name, value)}")
        return " ".join(given)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """The costs and savings of a setting, summed over the images."""

    setting: Setting
    images: int
    failed: int
    source_bytes: int
    tfrecord_bytes: int
    image_bytes: int
    encode_seconds: float  # of one process, summed
    decode_seconds: float  # of one process, summed
    compared: int  # images that were compared with their source
    ssim_mean: float | None  # of luma, over the compared images; None without any
    ssim_worst: float | None
    ssim_worst_key: str | None  # of the image with the lowest SSIM
    psnr_mean: float | None  # dB, over the images that differ from their source; None if none does
    identical: int  # images with the pixels of the source
    qualities: Mapping[int, int]  # number of images by JPEG quality, if the setting chooses it

    @property
    def ratio(self) -> float | None:
        return self.tfrecord_bytes / self.source_bytes if self.source_bytes else None

    @property
    def bytes_per_image(self) -> float | None:
        return self.tfrecord_bytes / self.images if self.images else None

    @property
    def encode_rate(self) -> float | None:
        """Images a second that one process stores."""
        return self.images / self.encode_seconds if self.encode_seconds and self.images else None

    @property
    def decode_rate(self) -> float | None:
        """Images a second that one process decodes."""
        return self.images / self.decode_seconds if self.decode_seconds and self.images else None


@dataclasses.dataclass(frozen=True, slots=True)
class Crop:
    """A part of one image, before and after."""

    key: str
    setting: str
    ssim: float  # of the complete image
    png: bytes  # the part, from the stored image, as a PNG
    source_png: bytes  # the same part of the source, as a PNG
    box: tuple[int, int, int, int]  # (top, left, height, width) of the part, in pixels of the image
    image_bytes: int  # of the complete image as stored


@dataclasses.dataclass(frozen=True, slots=True)
class Sweep:
    """The results of a sweep."""

    input: str  # as given
    source_kind: str  # `folder`, `csv`, …
    images: int  # images that were read
    failures: Mapping[str, int]  # number of unreadable images, by reason
    started: str  # UTC, ISO 8601
    rows: tuple[Row, ...]  # one a setting, in display order
    crops: tuple[Crop, ...]  # of the worst images, worst first, each at every setting
    notes: tuple[str, ...]  # sentences about the figures
    packages: Mapping[str, str]


# The group with the same stored bytes, if there is no image to convert.
_UNCONVERTED = {"png to jpeg": "files", "png to jpeg, optimised": "lossless"}


def without_idle_conversions(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows, without groups that would convert PNGs to JPEGs, but convert none.

    Each row of such a group stores the same bytes as the row that converts nothing.
    """
    stored = {group: {_stored(row) for row in rows if row.setting.group == group} for group in GROUPS}
    idle = {
        group
        for group, other in _UNCONVERTED.items()
        if len(stored[group]) == 1 and stored[group] <= stored[other]
    }
    return tuple(row for row in rows if row.setting.group not in idle)


def _stored(row: Row) -> tuple[int, ...]:
    return row.images, row.failed, row.image_bytes, row.tfrecord_bytes, row.identical


def _flag_value(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value)) if name == "size" else f"#{bytes(value).hex()}"
    return str(value)


class Column(NamedTuple):
    """A column of the table of a sweep: title, unit, and the text of a row, if there is a value."""

    title: str
    unit: str
    text: Callable[[Row], str | None]


def _optional(
    form: Callable[[float], str], value: Callable[[Row], float | None]
) -> Callable[[Row], str | None]:
    def text(row: Row) -> str | None:
        number = value(row)
        return None if number is None else form(number)

    return text


COLUMNS = (
    Column("TFRecord", "bytes", lambda row: f"{row.tfrecord_bytes:,}"),
    Column("ratio", "to files", _optional("{:.3f}".format, lambda row: row.ratio)),
    Column("an image", "bytes", _optional("{:,.0f}".format, lambda row: row.bytes_per_image)),
    Column("encode", "images/s", _optional(rate_text, lambda row: row.encode_rate)),
    Column("decode", "images/s", _optional(rate_text, lambda row: row.decode_rate)),
    Column("SSIM", "mean", _optional(ssim_text, lambda row: row.ssim_mean)),
    Column("SSIM", "worst", _optional(ssim_text, lambda row: row.ssim_worst)),
    Column("PSNR", "dB", _optional("{:.1f}".format, lambda row: row.psnr_mean)),
)
"""In display order."""


def remarks(sweep: Sweep) -> list[str]:
    """How to read the figures of a sweep, and its notes."""
    found = [
        "TFRecord bytes count complete records: the stored image, its features and the frame. "
        "The ratio compares them with the bytes of the input files.",
        "Images a second are those of one process while others ran; they depend on the machine.",
        "SSIM is of luma. PSNR is of all channels, averaged over the images that differ from their source. "
        "An SSIM of 1 means the same pixels as the source.",
    ]
    policies = [row.setting.policy for row in sweep.rows if row.setting.policy.alpha == "flatten"]
    if policies:
        colors = ", ".join(sorted({f"#{bytes(policy.background).hex()}" for policy in policies}))
        found.append(
            f"Transparent images are drawn on the background ({colors}) if they are encoded again, and for "
            "every comparison. Settings that keep the files keep their transparency."
        )
    if any(row.failed for row in sweep.rows):
        found.append("Images that a setting refused are not in its figures.")
    return [*found, *sweep.notes]
