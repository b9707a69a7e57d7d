"""The flags about images, and the policy that they make."""

from __future__ import annotations

import argparse
import dataclasses

from recordmill.pipelines import flag_values
from recordmill.transforms.images import policy as images
from recordmill.transforms.images.policy import ImagePolicy


def add_image_flags(group: argparse._ArgumentGroup) -> None:
    """All flags about images; what is not given stays None, so that a flag that nothing heeds can be told."""
    _add_format(group)
    _add_pixels(group)
    add = group.add_argument
    add(
        "--optimize",
        choices=images.OPTIMIZATIONS,
        help="lossless: smaller PNGs (oxipng), JPEGs as they are; lossless-progressive: smaller PNGs, and "
        "progressive JPEGs, 4 to 6%% smaller, that take 2.1 to 2.6 times as long to decode in every epoch. "
        "Each image is checked: no pixel changes (default: none)",
    )
    add(
        "--metadata",
        choices=images.METADATA,
        help="EXIF with GPS and thumbnails, XMP, comments: auto leaves kept files as they are and encodes "
        "others without; strip takes them from kept files too (default: auto)",
    )
    add(
        "--validate",
        choices=images.VALIDATIONS,
        help="decode every image before it is written, or look at its header and end only (default: decode)",
    )


def image_policy(args: argparse.Namespace) -> ImagePolicy:
    """The policy that the flags ask for.

    Raises:
        ValueError: one has a value that it cannot have, contradicts another, or would have no effect.
    """
    names = [field.name for field in dataclasses.fields(ImagePolicy)]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if "image_format" not in given and args.schema == "plain":
        given["image_format"] = "raw"  # its image_raw is pixels, in the tutorials that made the name
    policy = ImagePolicy(**given)
    policy.check_heeded(given)
    return policy


def _add_format(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--image_format",
        choices=images.IMAGE_FORMATS,
        help="keep: as they are, and what TensorFlow cannot decode losslessly as PNG; jpeg, webp: re-encoded "
        "as --reencode says; raw: pixels; tensor: for tf.io.parse_tensor (default: keep; raw with "
        "--schema=plain)",
    )
    add(
        "--jpeg_quality",
        type=int,
        metavar="Q",
        help="of the JPEGs that are encoded, and of lossy WebP; 1 to 100 (default: 90)",
    )
    add(
        "--target_ssim",
        type=float,
        metavar="S",
        help="with --image_format=jpeg: the lowest quality, for each image, whose SSIM to the source is S; "
        "above 0, at most 1",
    )
    add(
        "--subsampling",
        choices=images.SUBSAMPLINGS,
        help="of colour in JPEGs that are encoded (default: 420)",
    )
    add(
        "--reencode",
        choices=images.REENCODINGS,
        help="with --image_format=jpeg or webp: smaller drops what gets no smaller, and leaves alone JPEGs "
        "saved at or below --jpeg_quality; needed touches only what is in another format; always touches all "
        "(default: smaller)",
    )


def _add_pixels(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    side = flag_values.positive
    add("--max_side", type=side, metavar="N", help="longest side in pixels; smaller images stay as they are")
    add(
        "--short_side",
        type=side,
        metavar="N",
        help="shortest side in pixels; smaller images stay as they are",
    )
    add("--size", type=flag_values.height_and_width, metavar="HxW", help="height and width of every image")
    add(
        "--fit",
        choices=images.FITS,
        help="how --size is reached: stretch, pad on --background, or crop to the middle (default: stretch)",
    )
    add("--color", choices=images.COLORS, help="make all images RGB or grey (default: keep)")
    add(
        "--alpha",
        choices=images.ALPHAS,
        help="transparency: keep it, in a format that holds it; flatten it on --background; fail such images "
        "(default: keep)",
    )
    add(
        "--background",
        type=flag_values.color,
        metavar="COLOR",
        help="of --alpha=flatten and --fit=pad: a name or #rrggbb (default: white)",
    )
    add(
        "--exif", choices=images.EXIF_POLICIES, help="turn images upright as their EXIF says (default: apply)"
    )
