"""How images are stored: the settings of a conversion."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from recordmill.transforms.flags import naming_parameters
from recordmill.transforms.images.reasons import MAX_PIXELS, MAX_SIDE

IMAGE_FORMATS = ("keep", "jpeg", "png", "webp", "raw", "tensor")
# Those that change pixels whenever they are encoded.
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


@dataclasses.dataclass(frozen=True, slots=True)
class ImagePolicy:
    """How images are stored; each field is a flag of `convert`.

    Attributes:
        image_format: `keep` stores the file's own bytes wherever TensorFlow decodes them and nothing else is
            asked for; `jpeg`, `png`, `webp`, `raw` (pixels, row by row) and `tensor` (what tf.io.parse_tensor
            reads) store that format.
        jpeg_quality: 1 to 100, of every JPEG and lossy WebP that is encoded.
        validate: `decode` decodes every image that is kept; `header` reads its structure only.
        exif: `apply` turns images upright by their EXIF orientation; `ignore` leaves them.
        subsampling: of the chroma of every colour JPEG that is encoded.
        reencode: for jpeg and webp: `smaller` drops a result that is not smaller than its source, and leaves
            alone a JPEG saved at or below `jpeg_quality`; `needed` touches only what is not in the format
            asked for; `always` re-encodes all.
        max_side: longest side of the result, in pixels; smaller images stay.
        short_side: shortest side of the result, in pixels; smaller images stay.
        size: (height, width) of every result, enlarged where need be.
        fit: how `size` is reached: `stretch`, `pad` (all of the picture, centred on the background) or
            `crop` (the middle, filled).
        color: `rgb` or `gray` make every image that; transparency is `alpha`'s.
        optimize: `lossless` makes PNGs smaller without changing a pixel; `lossless-progressive` also makes
            JPEGs progressive, which are smaller and decode slower.
        alpha: transparency is kept, laid on the background (`flatten`), or fails the image (`fail`).
        background: RGB, 0 to 255, beneath what is flattened, and around what is padded.
        metadata: EXIF, XMP, IPTC, comments: `auto` does not change kept files, and encodes others without;
            `strip` also removes them from kept files.
        target_ssim: for jpeg: the quality of each image is the least whose luma SSIM to the source is this.

    Raises:
        ValueError: a value that is not allowed, or that has no effect; the message names the flag.
    """

    image_format: str = "keep"
    jpeg_quality: int = 90
    validate: str = "decode"
    exif: str = "apply"
    subsampling: str = "420"
    reencode: str = "smaller"
    max_side: int | None = None
    short_side: int | None = None
    size: tuple[int, int] | None = None
    fit: str = "stretch"
    color: str = "keep"
    optimize: str = "none"
    alpha: str = "keep"
    background: tuple[int, int, int] = WHITE
    metadata: str = "auto"
    target_ssim: float | None = None

    @naming_parameters()
    def __post_init__(self) -> None:
        _check_choice("--image_format", self.image_format, IMAGE_FORMATS)
        _check_choice("--validate", self.validate, VALIDATIONS)
        _check_choice("--exif", self.exif, EXIF_POLICIES)
        _check_choice("--subsampling", self.subsampling, SUBSAMPLINGS)
        _check_choice("--reencode", self.reencode, REENCODINGS)
        _check_choice("--fit", self.fit, FITS)
        _check_choice("--color", self.color, COLORS)
        _check_choice("--optimize", self.optimize, OPTIMIZATIONS)
        _check_choice("--alpha", self.alpha, ALPHAS)
        _check_choice("--metadata", self.metadata, METADATA)
        if not 1 <= self.jpeg_quality <= 100:
            raise ValueError(f"--jpeg_quality is {self.jpeg_quality}; it may be 1 to 100")
        if self.target_ssim is not None and not 0 < self.target_ssim <= 1:
            raise ValueError(f"--target_ssim is {self.target_ssim:g}; it may be above 0 and at most 1")
        self._check_sides()
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        self.check_heeded([name for name, value in defaults.items() if getattr(self, name) != value])

    @property
    def resizes(self) -> bool:
        """Whether any image may get another size."""
        return self.max_side is not None or self.short_side is not None or self.size is not None

    @property
    def repaints(self) -> bool:
        """Whether geometry or colour is asked for: pixels that the source does not have."""
        return self.resizes or self.color != "keep"

    @property
    def is_slow(self) -> bool:
        """Whether an image takes many times what its decoding and one encoding take."""
        return self.target_ssim is not None or self.optimize != "none"

    @property
    def encodes_jpeg(self) -> bool:
        """Whether a JPEG may be encoded at `jpeg_quality` or `target_ssim`."""
        return self.image_format == "jpeg" or (self.image_format == "keep" and self.repaints)

    def check_heeded(self, given: Collection[str]) -> None:
        """Refuses flags that contradict each other, or that have no effect.

        Args:
            given: names of the fields that are set.

        Raises:
            ValueError: naming both flags.
        """
        sizes = [name for name in ("max_side", "short_side", "size") if getattr(self, name) is not None]
        if len(sizes) > 1:
            raise ValueError(
                f"--{sizes[0]} and --{sizes[1]} both decide the size of images; give one of them"
            )
        for name, reason in self._unheeded():
            if name in given:
                value = getattr(self, name)
                shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
                raise ValueError(f"--{name} is {shown}, which {reason}")

    def _unheeded(self) -> list[tuple[str, str]]:
        """Fields that have no effect, whatever their value, and why."""
        chosen = f"--image_format is {self.image_format}"
        found = []
        if self.target_ssim is not None:
            found.append(("jpeg_quality", "--target_ssim chooses for each image: give one of the two"))
        elif not self.encodes_jpeg and self.image_format != "webp":
            only = "--image_format=jpeg or webp uses, or keep with a new size or colour"
            found.append(("jpeg_quality", f"only {only}; {chosen}"))
        if not self.encodes_jpeg:
            only = "--image_format=jpeg uses, or keep with a new size or colour"
            found.append(("subsampling", f"only {only}; {chosen}"))
        elif self.color == "gray":
            found.append(("subsampling", "is of colours, and --color is gray"))
        if self.image_format not in LOSSY:
            found.append(("reencode", f"only --image_format=jpeg or webp uses; {chosen}"))
        if self.image_format != "jpeg":
            found.append(("target_ssim", f"only --image_format=jpeg uses; {chosen}"))
        if self.size is None:
            found.append(("fit", "says how --size is reached, which is not given"))
        if self.alpha != "flatten" and self.fit != "pad":
            found.append(("background", "only --alpha=flatten and --fit=pad use"))
        if self.image_format in ("raw", "tensor", "webp"):
            found.append(("optimize", f"makes JPEGs and PNGs smaller; {chosen}"))
        elif self.image_format == "png" and self.optimize == "lossless-progressive":
            found.append(("optimize", f"is for JPEGs, and {chosen}: --optimize=lossless is for PNGs"))
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


def _check_choice(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{flag} is {value!r}; it may be {', '.join(allowed[:-1])} or {allowed[-1]}")
