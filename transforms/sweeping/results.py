"""The results of a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.pages.text import rate_text, ssim_text
from recordmill.transforms.sweeping.groups import GROUPS


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One way to store images.

    Attributes:
        name: unique in the sweep, as people read it: `PNG to JPEG, q90, optimised`.
        group: one of GROUPS: settings that differ in `value` alone.
        value: the quality, or the target SSIM; None if there is neither.
        policy: by which images are stored.
    """

    name: str
    group: str
    value: float | None
    policy: ImagePolicy

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise ValueError(f"Setting.group is {self.group!r}; it may be one of {', '.join(GROUPS)}")

    @property
    def flags(self) -> str:
        """The flags of `convert` that store images so, the quality always; empty where its defaults do."""
        given = []
        for field in dataclasses.fields(self.policy):
            value = getattr(self.policy, field.name)
            is_quality = field.name == "jpeg_quality" and value == self.value
            if is_quality or value != field.default:
                given.append(f"--{field.name}={_flag_value(field.name, value)}")
        return " ".join(given)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What one setting costs and saves, summed over the images.

    Attributes:
        setting: that was measured.
        images: that it stored.
        failed: images that it refused.
        source_bytes: of the files of the images that it stored.
        tfrecord_bytes: of the records, frames and features and all.
        image_bytes: of the stored images alone.
        encode_seconds: of one process, summed.
        decode_seconds: of one process, summed.
        compared: images whose pixels could be compared with the source's.
        ssim_mean: of luma, over what was compared; None where nothing was.
        ssim_worst: the least of them.
        ssim_worst_key: of the image that has it.
        psnr_mean: dB, over the images that differ from their source; None where none does.
        identical: images whose pixels are the source's.
        qualities: how often which JPEG quality was chosen; for settings that choose.
    """

    setting: Setting
    images: int
    failed: int
    source_bytes: int
    tfrecord_bytes: int
    image_bytes: int
    encode_seconds: float
    decode_seconds: float
    compared: int
    ssim_mean: float | None
    ssim_worst: float | None
    ssim_worst_key: str | None
    psnr_mean: float | None
    identical: int
    qualities: Mapping[int, int]

    @property
    def ratio(self) -> float | None:
        """Bytes of TFRecord for a byte of the files."""
        return self.tfrecord_bytes / self.source_bytes if self.source_bytes else None

    @property
    def bytes_per_image(self) -> float | None:
        """Bytes of TFRecord an image."""
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
    """A part of one image, before and after.

    Attributes:
        key: of the image.
        setting: name of the setting.
        ssim: of the complete image.
        png: the part, from the stored image, as a PNG.
        source_png: the same part of the source, as a PNG.
        box: (top, left, height, width) of the part, in pixels of the image.
        image_bytes: of the complete image as stored.
    """

    key: str
    setting: str
    ssim: float
    png: bytes
    source_png: bytes
    box: tuple[int, int, int, int]
    image_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Sweep:
    """The results of a sweep.

    Attributes:
        input: as it was given.
        source_kind: `folder`, `csv`, …
        images: that could be read.
        failures: how many could not, by reason.
        started: UTC, ISO 8601.
        rows: one a setting, in the order in which they are shown.
        crops: of the worst images, worst first, each at every setting.
        notes: sentences that belong to the figures.
        packages: versions of the codecs, by name.
    """

    input: str
    source_kind: str
    images: int
    failures: Mapping[str, int]
    started: str
    rows: tuple[Row, ...]
    crops: tuple[Crop, ...]
    notes: tuple[str, ...]
    packages: Mapping[str, str]


# The group with the same stored bytes, if no image has to be converted.
_UNCONVERTED = {"png to jpeg": "files", "png to jpeg, optimised": "lossless"}


def without_idle_conversions(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows, without the groups that convert PNGs to JPEGs if they convert nothing.

    A group is left out if each of its rows stores the same bytes as the row that converts nothing.
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
    """A column of the table of a sweep: its title, its unit, and the text of a row; None if there is none."""

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
"""In the order in which they are shown."""


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
            f"Transparency is laid on the background ({colors}) if an image is encoded again, and for "
            "every comparison. Settings that keep the files keep their transparency."
        )
    if any(row.failed for row in sweep.rows):
        found.append("Images that a setting refused are not in its figures.")
    return [*found, *sweep.notes]
