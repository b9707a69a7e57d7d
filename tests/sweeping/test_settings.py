"""The rows of a sweep: which there are, what they store, and which calls are refused."""

import dataclasses

import pytest

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.sweeping.settings import SweepConfig, notes, settings


def test_the_rows_of_two_qualities_and_a_target() -> None:
    config = SweepConfig(qualities=(90, 75), targets=(0.9,), subsampling="444", background=(1, 2, 3))
    flat = {"alpha": "flatten", "background": (1, 2, 3)}
    jpeg = {**flat, "image_format": "jpeg", "subsampling": "444"}
    needed, always = {**jpeg, "reencode": "needed"}, {**jpeg, "reencode": "always"}
    expected = [
        ("raw pixels", "pixels", None, ImagePolicy("raw")),
        ("files as they are", "files", None, ImagePolicy()),
        ("lossless", "lossless", None, ImagePolicy(optimize="lossless")),
        ("lossless, progressive", "lossless", None, ImagePolicy(optimize="lossless-progressive")),
        ("PNG to JPEG, q90", "png to jpeg", 90, ImagePolicy(**needed)),
        ("PNG to JPEG, q75", "png to jpeg", 75, ImagePolicy(**needed, jpeg_quality=75)),
        (
            "PNG to JPEG, q90, optimised",
            "png to jpeg, optimised",
            90,
            ImagePolicy(**needed, optimize="lossless-progressive"),
        ),
        (
            "PNG to JPEG, q75, optimised",
            "png to jpeg, optimised",
            75,
            ImagePolicy(**needed, jpeg_quality=75, optimize="lossless-progressive"),
        ),
        ("re-encoded, q90", "re-encoded", 90, ImagePolicy(**always)),
        ("re-encoded, q75", "re-encoded", 75, ImagePolicy(**always, jpeg_quality=75)),
        (
            "re-encoded, q90, optimised",
            "re-encoded, optimised",
            90,
            ImagePolicy(**always, optimize="lossless-progressive"),
        ),
        (
            "re-encoded, q75, optimised",
            "re-encoded, optimised",
            75,
            ImagePolicy(**always, jpeg_quality=75, optimize="lossless-progressive"),
        ),
        ("WebP, q90", "webp", 90, ImagePolicy("webp", reencode="always", **flat)),
        ("WebP, q75", "webp", 75, ImagePolicy("webp", 75, reencode="always", **flat)),
        ("SSIM 0.9", "target ssim", 0.9, ImagePolicy(**jpeg, target_ssim=0.9)),
    ]
    assert [(one.name, one.group, one.value, one.policy) for one in settings(config)] == expected


def test_names_are_unique() -> None:
    config = SweepConfig(qualities=tuple(range(1, 101)), targets=(0.9, 0.901, 0.91, 1.0))
    names = [one.name for one in settings(config)]
    assert len(names) == len(set(names)) == 4 + 5 * 100 + 4


def test_orientation_is_heeded_or_ignored_by_every_row_and_by_the_comparison() -> None:
    config = SweepConfig(exif="ignore")
    assert {one.policy.exif for one in settings(config)} == {"ignore"} == {config.seen.exif}
    assert {one.policy.exif for one in settings(SweepConfig())} == {"apply"} == {SweepConfig().seen.exif}


@pytest.mark.parametrize("alpha", ["keep", "fail"])
def test_alpha_is_that_of_the_lossy_rows(alpha: str) -> None:
    found = {one.group: one.policy.alpha for one in settings(SweepConfig(alpha=alpha))}
    assert {found.pop(group) for group in ("pixels", "files", "lossless")} == {"keep"}
    assert set(found.values()) == {alpha}
    assert SweepConfig(alpha=alpha).seen.alpha == "flatten"


def test_without_qualities_and_targets_the_lossless_rows_stay() -> None:
    groups = [one.group for one in settings(SweepConfig(qualities=(), targets=()))]
    assert groups == ["pixels", "files", "lossless", "lossless"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"qualities": (90, 101)}, "--qualities has 101; each may be 1 to 100"),
        ({"qualities": (0,)}, "--qualities has 0; each may be 1 to 100"),
        ({"qualities": (90, 75, 90)}, "--qualities has 90 twice"),
        ({"targets": (0.5, 0.5)}, "--target_ssim has 0.5 twice"),
        ({"targets": (1.5,)}, "ImagePolicy.target_ssim is 1.5; it may be above 0 and at most 1"),
        ({"alpha": "drop"}, "--alpha is 'drop'"),
        (
            {"alpha": "keep", "background": (1, 2, 3)},
            "ImagePolicy.background is 1,2,3, which only ImagePolicy.alpha=flatten",
        ),
        ({"subsampling": "411"}, "--subsampling is '411'"),
        ({"exif": "no"}, "--exif is 'no'"),
        ({"worst": -1}, "--worst is -1; it may be 0 or more"),
    ],
)
def test_what_may_not_be_is_refused_and_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        dataclasses.replace(SweepConfig(), **fields)


def test_notes_tell_what_was_refused_and_what_kept_its_alpha() -> None:
    plain, kept = notes(SweepConfig(), {}), notes(SweepConfig(alpha="keep"), {})
    assert len(plain) == 1
    assert len(kept) == 2 and "transparency" in kept[1]
    refused = notes(SweepConfig(), {"encode: transparent": 1200})
    assert refused[1:] == ("Refused by a setting (images, at most 1,200): encode: transparent.",)
    idle = notes(SweepConfig(), {}, converts=False)
    assert idle[1:] == ("PNG to JPEG is left out: it converts no image of this input.",)
