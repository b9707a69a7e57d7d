"""How images are stored: the settings of a conversion."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from recordmill.transforms.flag_values import height_and_width
from recordmill.transforms.flags import check_values, declares_flags, flag, naming_parameters
from recordmill.transforms.images.reasons import MAX_PIXELS, MAX_SIDE

IMAGE_FORMATS = ("keep", "jpeg", "png", "webp", "raw", "tensor")
# Encoding in these formats always changes pixels.
LOSSY = ("jpeg", "webp")
SUBSAMPLINGS = ("420", "422", "444")
REENCODINGS = ("smaller", "needed", "always")
FITS = ("stretch", "pad", "crop")
COLORS = ("keep", "rgb", "gray")
OPTIMIZATIONS = ("none", "lossless", "lossless-progressive")
ALPHAS = ("keep", "flatten", "fail")
METADATA = ("auto", "strip")
VALIDATIONS = ("decode", "header")
EXIF_POLICIES = ("apply", "ignore")

WHITE = (255, 255, 255)
# The longest side that each format can have (T.81; RFC 9649), and that libpng reads.
_LONGEST_SIDE = {"jpeg": 65_500, "webp": 16_383}


def _color(text: str) -> tuple[int, int, int]:
    from recordmill.transforms.images.color import parse_color  # imports NumPy and Pillow

    return parse_color(text)


@declares_flags("images")
@dataclasses.dataclass(frozen=True, slots=True)
class ImagePolicy:
    """How images are stored.

    Raises:
        ValueError: a value that is not allowed, or that has no effect; the message names the flag.
    """

    image_format: str = flag(
        "keep",
        "keep: unchanged, or PNG if TensorFlow cannot decode them; jpeg, webp: re-encoded according to "
        "--reencode; raw: pixels; tensor: for tf.io.parse_tensor",
        values=IMAGE_FORMATS,
        default_text="keep; raw with --schema=plain",
    )
    jpeg_quality: int = flag(
        90,
        "quality of encoded JPEGs and of lossy WebP; 1 to 100",
        at_least=1,
        at_most=100,
        metavar="Q",
        pattern="([1-9][0-9]?|100)",
    )
    validate: str = flag(
        "decode",
        "decode: decode every image before it is written; header: check only its header and its end",
        values=VALIDATIONS,
    )
    exif: str = flag("apply", "apply: turn images upright by their EXIF orientation", values=EXIF_POLICIES)
    subsampling: str = flag("420", "chroma subsampling of encoded JPEGs", values=SUBSAMPLINGS)
    reencode: str = flag(
        "smaller",
        "with --image_format=jpeg or webp: smaller drops a result that is not smaller, and keeps JPEGs "
        "saved at or below --jpeg_quality; needed re-encodes only images in another format; always "
        "re-encodes all",
        values=REENCODINGS,
    )
    max_side: int | None = flag(
        None,
        "largest length of the longer side, in pixels; smaller images are not scaled",
        at_least=1,
        metavar="N",
    )
    short_side: int | None = flag(
        None,
        "largest length of the shorter side, in pixels; smaller images are not scaled",
        at_least=1,
        metavar="N",
    )
    size: tuple[int, int] | None = flag(
        None,
        "height and width of every image, such as 224x320",
        parse=height_and_width,
        metavar="HxW",
        pattern="[0-9]{1,7}[xX][0-9]{1,7}",
    )
    fit: str = flag(
        "stretch",
        "how images get --size: stretch, pad with --background, or crop around the centre",
        values=FITS,
    )
    color: str = flag("keep", "keep: as they are; rgb, gray: convert all images", values=COLORS)
    optimize: str = flag(
        "none",
        "lossless: smaller PNGs (oxipng), unchanged JPEGs; lossless-progressive: also progressive JPEGs, "
        "which are 4 to 6% smaller and take 2.1 to 2.6 times as long to decode in every epoch. No "
        "pixel changes: each image is checked",
        values=OPTIMIZATIONS,
    )
    alpha: str = flag(
        "keep",
        "transparent images: keep stores them in a format that supports transparency; flatten draws them on "
        "--background; fail fails them",
        values=ALPHAS,
    )
    background: tuple[int, int, int] = flag(
        WHITE,
        "colour for --alpha=flatten and --fit=pad: a name or #rrggbb",
        parse=_color,
        metavar="COLOR",
        default_text="white",
        pattern="(#[0-9a-fA-F]{3}|#[0-9a-fA-F]{6}|[a-zA-Z]{3,30})",
    )
    metadata: str = flag(
        "auto",
        "EXIF with GPS and thumbnails, XMP, comments: auto drops them from encoded images and leaves kept "
        "files as they are; strip also removes them from kept files",
        values=METADATA,
    )
    target_ssim: float | None = flag(
        None,
        "with --image_format=jpeg: gives each image the lowest quality whose SSIM to the source is at least "
        "S; above 0, at most 1",
        above=0,
        at_most=1,
        metavar="S",
        pattern=r"(0?\.[0-9]*[1-9][0-9]*|1(\.0*)?)",
    )

    @naming_parameters()
    def __post_init__(self) -> None:
        check_values(self)
        self._check_sides()
        self.check_effects(self.changed, has_function=True)

    @property
    def resizes(self) -> bool:
        """Whether any image may get another size."""
        return self.max_side is not None or self.short_side is not None or self.size is not None

    @property
    def changes_pixels(self) -> bool:
        """Whether the size or colours may change, so that the source has other pixels."""
        return self.resizes or self.color != "keep"

    @property
    def is_slow(self) -> bool:
        """Whether an image takes many times as long as decoding it and encoding it once."""
        return self.target_ssim is not None or self.optimize != "none"

    @property
    def encodes_jpeg(self) -> bool:
        """Whether a JPEG may be encoded at `jpeg_quality` or `target_ssim`."""
        return self.image_format == "jpeg" or (self.image_format == "keep" and self.changes_pixels)

    @property
    def _stores_only_jpegs(self) -> bool:
        """Whether no file is kept in another format: for its size, its transparency or its SSIM."""
        exceptions = self.reencode == "smaller" or self.alpha == "keep" or self.target_ssim is not None
        return self.image_format == "jpeg" and not exceptions

    @property
    def changed(self) -> list[str]:
        """The fields that do not have their default."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return [name for name, value in defaults.items() if getattr(self, name) != value]

    def check_effects(self, given: Collection[str], has_function: bool) -> None:
        """Refuses flags that contradict each other, or that have no effect.

        Args:
            given: names of the fields that are set.
            has_function: whether a function of `map_image` may change the pixels.

        Raises:
            ValueError: naming both flags.
        """
        sizes = [name for name in ("max_side", "short_side", "size") if getattr(self, name) is not None]
        if len(sizes) > 1:
            raise ValueError(
                f"--{sizes[0]} and --{sizes[1]} both decide the size of images; give one of them"
            )
        for name, reason in self._without_effect(has_function):
            if name in given:
                value = getattr(self, name)
                shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
                raise ValueError(f"--{name} is {shown}, which {reason}")

    def _without_effect(self, has_function: bool) -> list[tuple[str, str]]:
        """Fields that have no effect, whatever their value, and why."""
        encodes_jpeg = self.encodes_jpeg or (has_function and self.image_format == "keep")
        chosen = f"--image_format is {self.image_format}"
        found = []
        if self.target_ssim is not None:
            found.append(("jpeg_quality", "--target_ssim chooses for each image: give one of the two"))
        elif not encodes_jpeg and self.image_format != "webp":
            only = "--image_format=jpeg or webp uses, or keep with a new size or colour or --map_image"
            found.append(("jpeg_quality", f"only {only}; {chosen}"))
        if not encodes_jpeg:
            only = "--image_format=jpeg uses, or keep with a new size or colour or --map_image"
            found.append(("subsampling", f"only {only}; {chosen}"))
        elif self.color == "gray":
            found.append(("subsampling", "is for colours, and --color is gray"))
        if self.image_format not in LOSSY:
            found.append(("reencode", f"only --image_format=jpeg or webp uses; {chosen}"))
        if self.image_format != "jpeg":
            found.append(("target_ssim", f"only --image_format=jpeg uses; {chosen}"))
        if self.size is None:
            found.append(("fit", "needs --size, which is not given"))
        if self.alpha != "flatten" and self.fit != "pad":
            found.append(("background", "only --alpha=flatten and --fit=pad use"))
        if self.image_format in ("raw", "tensor", "webp"):
            found.append(("optimize", f"makes JPEGs and PNGs smaller; {chosen}"))
        elif self.image_format == "png" and self.optimize == "lossless-progressive":
            found.append(("optimize", f"is for JPEGs, and {chosen}: --optimize=lossless is for PNGs"))
        elif self.optimize == "lossless" and self._stores_only_jpegs:
            only = f"{chosen}, --reencode {self.reencode} and --alpha {self.alpha}, which leave only JPEGs"
            found.append(("optimize", f"is for PNGs, and {only}: lossless-progressive is for JPEGs"))
        if self.image_format in ("raw", "tensor"):
            found.append(("metadata", f"pixels cannot carry; {chosen}"))
        return found

    def _check_sides(self) -> None:
        limit = _LONGEST_SIDE.get(self.image_format, MAX_SIDE)
        for name, sides in (
            ("max_side", (self.max_side,)),
            ("short_side", (self.short_side,)),
            ("size", self.size or ()),
        ):
            for side in sides:
                if side is not None and not 1 <= side <= limit:
                    raise ValueError(
                        f"--{name} has {side} pixels; with --image_format={self.image_format} "
                        f"a side may have 1 to {limit:,}"
                    )
        if self.size is not None and self.size[0] * self.size[1] > MAX_PIXELS:
            raise ValueError(f"--size is {self.size[0]}x{self.size[1]}; it may have {MAX_PIXELS:,} pixels")
        if len(self.background) != 3 or not all(0 <= value <= 255 for value in self.background):
            raise ValueError(f"--background is {self.background}; it may be three values of 0 to 255")
