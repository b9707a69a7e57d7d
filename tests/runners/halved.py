"""A function of `--map_image`: two records of each image, but for one that it leaves out."""

from recordmill import Sample


def halves(sample: Sample) -> list[Sample] | None:
    """The left and the right half."""
    if sample.key.endswith("circle_001.jpg"):
        return None
    height, width = sample.pixels.shape[:2]
    return [sample.crop(0, 0, width / 2, height), sample.crop(width / 2, 0, width, height)]
