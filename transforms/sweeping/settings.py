"""The settings that a sweep measures: one policy a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from recordmill.transforms.flag_values import numbers
from recordmill.transforms.flags import check_values, declares_flags, flag, like
from recordmill.transforms.images.policy import ALPHAS, ImagePolicy
from recordmill.transforms.sweeping.results import Setting


@declares_flags("settings")
@dataclasses.dataclass(frozen=True, slots=True)
class SweepConfig:
    """The settings to measure."""

    qualities: tuple[int, ...] = flag(
        (95, 90, 85, 75),
        "qualities of JPEG and WebP: each lossy group has one row for each quality; none: no such rows",
        parse=numbers(int),
        at_least=1,
        at_most=100,
        metavar="Q,…",
        default_text="95,90,85,75",
    )
    targets: tuple[float, ...] = flag(
        (0.98, 0.95),
        "targets for the SSIM of the luma: one row of JPEGs for each, with the lowest quality that reaches "
        "it; none: no such rows",
        name="target_ssim",
        parse=numbers(float),
        metavar="S,…",
        default_text="0.98,0.95",
    )
    alpha: str = flag(
        "flatten",
        "transparency in the JPEG and WebP rows: flatten makes them comparable; keep stores such images "
        "in a format with transparency; fail refuses them",
        values=ALPHAS,
    )
    background: tuple[int, int, int] = like(
        ImagePolicy, "background", help="background of flattened images: a name or #rrggbb"
    )
    subsampling: str = like(ImagePolicy, "subsampling", help="chroma subsampling in the JPEG rows")
    exif: str = like(ImagePolicy, "exif")
    worst: int = flag(
        4,
        "number of images with the lowest SSIM to show in sweep.html at every setting",
        at_least=0,
        metavar="N",
    )

    def __post_init__(self) -> None:
        _check_once("--qualities", self.qualities)
        _check_once("--target_ssim", self.targets)
        check_values(self)
        settings(self)  # policies check the other values

    @property
    def seen(self) -> ImagePolicy:
        """The policy whose pixels are compared: upright, in sRGB, 8 bits, on the background."""
        return ImagePolicy("jpeg", exif=self.exif, alpha="flatten", background=self.background)


def settings(config: SweepConfig) -> tuple[Setting, ...]:
    """The settings of a sweep, in display order; their names are unique. Raises ValueError of a policy."""
    exif = config.exif
    return (
        Setting("raw pixels", "pixels", None, ImagePolicy("raw", exif=exif)),
        Setting("files as they are", "files", None, ImagePolicy(exif=exif)),
        Setting("lossless", "lossless", None, ImagePolicy(exif=exif, optimize="lossless")),
        Setting(
            "lossless, progressive", "lossless", None, ImagePolicy(exif=exif, optimize="lossless-progressive")
        ),
        *_jpegs(config, "PNG to JPEG", "png to jpeg", "needed", "none"),
        *_jpegs(config, "PNG to JPEG", "png to jpeg", "needed", "lossless-progressive"),
        *_jpegs(config, "re-encoded", "re-encoded", "always", "none"),
        *_jpegs(config, "re-encoded", "re-encoded", "always", "lossless-progressive"),
        *(
            Setting(f"WebP, q{quality}", "webp", quality, _lossy(config, "webp", quality, reencode="always"))
            for quality in config.qualities
        ),
        *(
            Setting(f"SSIM {target}", "target ssim", target, _lossy(config, "jpeg", target_ssim=target))
            for target in config.targets
        ),
    )


def notes(
    config: SweepConfig, refused: Mapping[str, int], repeated: int = 0, converts: bool = True
) -> tuple[str, ...]:
    """Sentences about the figures of a sweep.

    Args:
        config: of the sweep.
        refused: the largest number of images that a setting refused, by reason.
        repeated: the number of keys that are not unique.
        converts: whether `PNG to JPEG` converts any image.
    """
    found = ["Seconds are CPU time of all threads of the process, without reading the files."]
    if config.alpha == "keep":
        found.append(
            "Transparent images keep their transparency: JPEG settings store them as PNG or WebP, without "
            "loss; WebP settings encode them again."
        )
    if not converts:
        found.append("PNG to JPEG is left out: it converts no image of this input.")
    if repeated:
        found.append(f"Keys that are not unique: {repeated:,}. A conversion refuses them.")
    for reason, images in sorted(refused.items()):
        found.append(f"Refused by a setting (images, at most {images:,}): {reason}.")
    return tuple(found)


def _jpegs(config: SweepConfig, name: str, group: str, reencode: str, optimize: str) -> list[Setting]:
    """A setting for each quality, from the highest."""
    ending = "" if optimize == "none" else ", optimised"
    return [
        Setting(
            f"{name}, q{quality}{ending}",
            f"{group}{ending}",
            quality,
            _lossy(config, "jpeg", quality, reencode=reencode, optimize=optimize),
        )
        for quality in config.qualities
    ]


def _lossy(
    config: SweepConfig,
    image_format: str,
    quality: int = 90,
    *,
    reencode: str = "smaller",
    optimize: str = "none",
    target_ssim: float | None = None,
) -> ImagePolicy:
    """A policy with the transparency, colours and orientation of `config`."""
    return ImagePolicy(
        image_format,
        quality,
        exif=config.exif,
        subsampling=config.subsampling if image_format == "jpeg" else "420",
        reencode=reencode,
        optimize=optimize,
        alpha=config.alpha,
        background=config.background,
        target_ssim=target_ssim,
    )


def _check_once(flag: str, values: Sequence[float]) -> None:
    """Raises ValueError for a repeated value: two rows would have the same name."""
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{flag} has {value} twice; give each value once")
