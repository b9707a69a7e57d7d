"""Folders of photos in classes, edited; and what the settings of images do to odd ones."""

from __future__ import annotations

import numpy as np
from PIL import Image

from tests.pipelines.versions.edits import Edit, encoded, picture, pictures, pixels

ENCODING = ("--image_format=jpeg", "--jpeg_quality=80")
SHARDS = ("--num_shards=4",)


def two_hundred() -> Edit:
    """Three changed, one of them to as many bytes; two new, two deleted, and a class that sorts first."""
    names = [f"{name}/{number:03d}" for name in ("bird", "cat", "dog", "fox") for number in range(50)]
    endings = {0: ".png", 1: ".bmp"}
    before = pictures(f"{name}{endings.get(int(name[-3:]) % 5, '.jpg')}" for name in names)
    after = dict(before)
    for seed, path in enumerate(("bird/012.jpg", "cat/015.png", "fox/041.bmp")):
        after[path] = picture(1000 + seed, path)
    assert len(after["fox/041.bmp"]) == len(before["fox/041.bmp"])
    after |= pictures(("bird/900.jpg", "dog/901.png", "ant/000.jpg", "ant/001.jpg"), seed=2000)
    del after["bird/003.jpg"], after["fox/047.jpg"]
    return Edit(before, after, records=202, images=7, flags=(*ENCODING, *SHARDS))


def few() -> Edit:
    """Thirty of five classes: one changed, one new, one deleted, and no class more or less."""
    before = pictures(f"{'abcde'[number % 5]}/{number:02d}.jpg" for number in range(30))
    after = {**before, "a/00.jpg": picture(1000, ".jpg"), "b/30.jpg": picture(1001, ".jpg")}
    del after["c/02.jpg"]
    return Edit(before, after, records=30, images=2, flags=(*ENCODING, *SHARDS))


def odd(*flags: str) -> Edit:
    """Grey, turned, palette, transparent and large images, in classes that shift; under some flags."""
    before = {}
    for number in range(8):
        name = f"turned/{number}.jpg"
        before[name] = picture(number, name, (48, 32), orientation=number + 1)
        before[f"grey/{number}.png"] = encoded(pixels(10 + number).convert("L"), ".png")
        before[f"palette/{number}.png"] = encoded(pixels(20 + number).convert("P"), ".png")
        before[f"large/{number}.jpg"] = picture(30 + number, ".jpg", (200, 150))
        alpha = Image.fromarray(np.full((30, 40), 60 + number, np.uint8))
        see_through = pixels(40 + number)
        see_through.putalpha(alpha)
        before[f"alpha/{number}.png"] = encoded(see_through, ".png")
        before[f"deep/{number}.png"] = encoded(Image.fromarray(_deep(50 + number)), ".png")
    after = dict(before)
    after["turned/5.jpg"] = picture(60, ".jpg", (48, 32), orientation=8)
    after["grey/0.png"] = encoded(pixels(61).convert("L"), ".png")
    after["a/new.jpg"] = picture(62, ".jpg", (100, 90), orientation=6)
    del after["large/3.jpg"]
    return Edit(before, after, records=48, images=3, flags=(*SHARDS, *flags))


def _deep(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 65536, (6, 8), np.uint16)


def six_hundred() -> Edit:
    """As many as several processes share, and as are cut into parts where shards are few."""
    before = pictures(f"{'abc'[number % 3]}/{number:03d}.jpg" for number in range(600))
    after = {**before, **pictures(("a/000.jpg", "b/301.jpg", "c/900.jpg"), 1000)}
    del after["a/003.jpg"], after["c/599.jpg"]
    return Edit(before, after, records=599, images=3, flags=(*ENCODING, "--num_shards=1"))
