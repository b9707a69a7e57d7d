"""Draws images for samples, tests and benchmarks, so that the repository needs no data.

python -m benchmarks.drawings build/sample
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SHAPES = ("circle", "square", "triangle")


def draw(shape: str, seed: int, width: int = 320, height: int = 240, noise: float = 12.0) -> Image.Image:
    """A shape on a soft background with grain: about as hard to compress as a photograph."""
    random = np.random.default_rng(seed)
    colours = random.integers(0, 255, (4, 4, 3), dtype=np.uint8)
    image = Image.fromarray(colours, "RGB").resize((width, height), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(image)
    radius = int(min(width, height) * random.uniform(0.2, 0.4))
    x = int(random.integers(radius, width - radius))
    y = int(random.integers(radius, height - radius))
    colour = tuple(int(value) for value in random.integers(0, 255, 3))
    if shape == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
    elif shape == "square":
        pen.rectangle((x - radius, y - radius, x + radius, y + radius), fill=colour)
    else:
        pen.polygon([(x, y - radius), (x + radius, y + radius), (x - radius, y + radius)], fill=colour)
    grain = random.normal(0, noise, (height, width, 3))
    pixels = np.asarray(image.filter(ImageFilter.GaussianBlur(1)), dtype=np.float32) + grain
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8), "RGB")


def draw_folder(folder: Path, each: int = 20) -> Iterator[Path]:
    """Draws `each` images of every shape into folder/<shape>/, JPEG and some PNG; yields their paths."""
    for number, shape in enumerate(SHAPES):
        (folder / shape).mkdir(parents=True, exist_ok=True)
        for index in range(each):
            image = draw(shape, seed=1000 * number + index)
            path = folder / shape / f"{shape}_{index:03d}.{'png' if index % 10 == 9 else 'jpg'}"
            image.save(path, quality=92)
            yield path


def main() -> None:
    """Draws the sample that `make convert` converts by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    print(f"drew {sum(1 for _ in draw_folder(folder))} images in {folder}")


if __name__ == "__main__":
    main()
