"""Real and odd images under policies of every kind: the picture that was asked for, or a named failure."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images.policy import LOSSY, ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput, StoredImage
from tests.conftest import Figure
from tests.images import reference
from tests.images.drawn import tensorflow_pixels
from tests.images.reference import Source
from tests.images.test_corpus import CORPUS, FAILURES, images

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS, reason="RECORDMILL_CORPUS names no folder of real inputs"),
]

BLUE = (0x20, 0x40, 0x60)
POLICIES = {
    "keep": ImagePolicy(),
    "keep, as it lies": ImagePolicy(exif="ignore", metadata="strip"),
    "keep, flat": ImagePolicy(alpha="flatten", background=BLUE),
    "keep, opaque only": ImagePolicy(alpha="fail"),
    "keep, grey": ImagePolicy(color="gray"),
    "keep, framed": ImagePolicy(size=(150, 200), fit="pad", background=BLUE),
    "keep, filled": ImagePolicy(size=(60, 40), fit="crop"),
    "jpeg": ImagePolicy("jpeg"),
    "jpeg, all of them": ImagePolicy("jpeg", reencode="always", subsampling="444", metadata="strip"),
    "jpeg, coarse": ImagePolicy("jpeg", jpeg_quality=50, alpha="flatten", subsampling="422"),
    "jpeg, PNGs only": ImagePolicy("jpeg", jpeg_quality=100, reencode="needed", color="rgb"),
    "jpeg, small": ImagePolicy("jpeg", max_side=24),
    "jpeg, to a target": ImagePolicy("jpeg", target_ssim=0.98, alpha="flatten"),
    "png": ImagePolicy("png", metadata="strip"),
    "png, small": ImagePolicy("png", short_side=20, alpha="flatten"),
    "webp": ImagePolicy("webp", reencode="always"),
    "webp, enlarged": ImagePolicy("webp", size=(99, 101), reencode="needed"),
    "raw": ImagePolicy("raw"),
    "raw, grey and small": ImagePolicy("raw", color="gray", max_side=31, alpha="flatten", background=BLUE),
    "tensor, in colour": ImagePolicy("tensor", color="rgb", exif="ignore"),
}
LEFT_ALONE = {"coarse_enough", "not_smaller", "alpha_kept", "ssim_missed"}


@functools.cache
def read(path: Path) -> tuple[bytes, Source | None]:
    """A file, and what it shows; nothing where it is damaged."""
    data = path.read_bytes()
    if path.name in FAILURES or (path.parent.name == "pngsuite" and path.name.startswith(("x", "iphone_"))):
        return data, None
    return data, reference.source(data)


def sampled(policy: str) -> Iterator[tuple[Path, bytes, Source | None]]:
    """A quarter of PngSuite, half of the odd inputs, two large photographs: others for each policy."""
    turn = list(POLICIES).index(policy)
    for folder, step in (("pngsuite", 4), ("odd_inputs", 2), ("exif_orientation", 9)):
        for path in images(folder)[turn % step :: step]:
            yield path, *read(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_shows_what_was_asked_for_or_fails_by_name(name: str, figure: Figure) -> None:
    policy = POLICIES[name]
    for path, data, one in sampled(name):
        figure("images", 1)
        try:
            image = store_image(data, policy)
        except BadInput as error:
            refused = policy.alpha == "fail" and one is not None and one.see_through
            assert one is None or (refused and error.reason == "transparent"), f"{path.name}: {error}"
            continue
        assert one is not None, f"{path.name}: damaged, but stored"
        assert not (policy.alpha == "fail" and one.see_through), f"{path.name}: transparent, but stored"
        found, dtype = reference.stored_pixels(image)
        done = checked_actions(path.name, data, one, image, policy)
        assert dtype == "uint8" or one.deep, path.name
        expected = reference.painted(one, policy, srgb="srgb" in done)
        if image.actions[0] == "kept" and expected.shape[2] == found.shape[2] + 1:
            expected = expected[:, :, :-1]  # TensorFlow leaves a single transparent colour out.
        compare(path.name, image, policy, reference.weighed(expected), reference.weighed(found), expected)


def checked_actions(name: str, data: bytes, one: Source, image: StoredImage, policy: ImagePolicy) -> set[str]:
    """The actions, each of which is there where it has to be and nowhere else."""
    first, done = image.actions[0], set(image.actions)
    case = f"{name}: {image.actions}"
    turned = one.orientation != 1 and policy.exif == "apply"
    height, width = one.pixels.shape[:2]
    if turned and one.orientation >= 5:
        height, width = width, height
    scaled, size = reference.planned(height, width, policy)
    assert (image.height, image.width) == size, case
    flat = policy.alpha == "flatten" and one.see_through
    tinted = flat and one.gray and len(set(policy.background)) > 1
    colors = one.gray or one.inks is not None if policy.color == "rgb" else not one.gray
    drops_alpha = one.pixels.shape[2] in (2, 4) and not one.see_through and policy.image_format not in LOSSY
    colors = colors or drops_alpha
    assert ("rotated" in done) == turned, case
    assert ("resized" in done) == ((height, width) != scaled or scaled != size), case
    assert ("flattened" in done) == flat, case
    assert tinted or ("recolored" in done) == (policy.color != "keep" and colors), case
    assert ("first_frame" in done) == one.moving, case
    same_kind = one.kind.lower() == image.image_format
    if first == "kept":
        assert same_kind and not done & {"rotated", "resized", "flattened", "recolored"}, case
        assert policy.image_format in ("keep", image.image_format) or done & LEFT_ALONE, case
        assert "stripped" in done or image.data == data, case
    else:
        by_format = {"raw": "decoded", "tensor": "decoded"}
        again = "reencoded" if same_kind and one.kind != "PNG" else "transcoded"
        assert first == by_format.get(image.image_format, again), case
    return done


def compare(
    name: str,
    image: StoredImage,
    policy: ImagePolicy,
    expected: reference.Floats,
    found: reference.Floats,
    unweighed: reference.Floats,
) -> None:
    """Fails where the picture is another than the policy promises."""
    case = f"{name}: {image.actions} {image.image_format}"
    done = set(image.actions)
    if image.actions[0] == "kept" or image.image_format not in LOSSY:
        eight_of_sixteen = image.dtype == "uint8" and bool((unweighed % 1).any())
        compare_lossless(case, done, eight_of_sixteen, expected, found)
        return
    least, shift = 35.5, 1.0
    why = done & {"coarse_enough", "not_smaller"}
    own_tables = "resized" not in done and (policy.image_format == "keep" or why)
    if not own_tables:
        other = reference.weighed(by_pillow(unweighed, image, policy))
        least = min(reference.decibels(other, expected), 44.5)
        shift = reference.coarse_difference(other, expected)
    assert reference.decibels(found, expected) > least - 2.5, case
    assert reference.coarse_difference(found, expected) < shift + 1.5, case


def compare_lossless(
    case: str, done: set[str], narrowed: bool, expected: reference.Floats, found: reference.Floats
) -> None:
    """Exact where nothing was computed; else within rounding, and the filter's difference."""
    largest = np.abs(found - expected).max()
    if "resized" in done:
        # A JPEG's scaled decode is another filter, most so of inks.
        assert largest < 4 or (".jpg" in case or ".mpo" in case), case
        assert reference.decibels(found, expected) > 40, case
        assert reference.coarse_difference(found, expected) < 2.5, case
    elif "srgb" in done:
        assert largest <= 4, case  # littleCMS by a coarser grid of the profile
    elif narrowed or not done.isdisjoint(("flattened", "recolored")):
        assert largest <= 1, case
    else:
        assert largest < 1e-6, case


def by_pillow(pixels: reference.Floats, image: StoredImage, policy: ImagePolicy) -> reference.Floats:
    """The same picture through another encoder at the same quality: how near a lossy format comes."""
    flat = np.rint(pixels).astype(np.uint8)
    if flat.shape[2] in (2, 4) and bool((flat[:, :, -1] == 255).all()):
        flat = flat[:, :, :-1]
    picture = Image.fromarray(flat[:, :, 0] if flat.shape[2] == 1 else flat)
    out = io.BytesIO()
    quality = image.jpeg_quality or policy.jpeg_quality
    if image.image_format == "jpeg":
        layers = {"444": 0, "422": 1, "420": 2}[policy.subsampling]
        picture.save(out, "JPEG", quality=quality, subsampling=layers)
    else:
        picture.convert("RGBA" if flat.shape[2] in (2, 4) else "RGB").save(out, "WEBP", quality=quality)
    return tensorflow_pixels(out.getvalue()).astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("optimize", ["lossless", "lossless-progressive"])
def test_lossless_optimisation_changes_no_pixel(optimize: str, figure: Figure) -> None:
    paths = [*images("pngsuite")[::4], *images("odd_inputs"), *images("palette_masks")[::3]]
    optimized = 0
    for path in paths:
        data = path.read_bytes()
        try:
            before = store_image(data, ImagePolicy(exif="ignore"))
        except BadInput:
            continue
        after = store_image(data, ImagePolicy(exif="ignore", optimize=optimize))
        assert after.actions[: len(before.actions)] == before.actions
        if "optimized" not in after.actions:
            assert after.data == before.data, path.name
            continue
        optimized += 1
        assert len(after.data) < len(before.data), path.name
        one, other = (tensorflow_pixels(image.data, image.dtype) for image in (before, after))
        np.testing.assert_array_equal(one, other, err_msg=path.name)
        if "palette_masks" in path.parts:
            indices = [np.asarray(Image.open(io.BytesIO(image.data))) for image in (before, after)]
            assert np.array_equal(indices[0], indices[1]), path.name
    assert optimized > 20
    figure("images", optimized)


@pytest.mark.slow
@pytest.mark.parametrize("quality", [90, 95])
def test_no_photograph_grows(quality: int, figure: Figure) -> None:
    for path in [*images("raccoon")[::10], *images("coco64/images")[::6]]:
        figure("images", 1)
        data = path.read_bytes()
        image = store_image(data, ImagePolicy("jpeg", jpeg_quality=quality))
        assert len(image.data) <= len(data), path.name
        if image.actions[0] == "kept":
            assert image.data == data
            assert set(image.actions) & {"coarse_enough", "not_smaller"}, path.name
