"""Reading with `tfrecord`, the package of PyTorch's users, and Pillow, in a process without TensorFlow.

python -m benchmarks.peers.pytorch_reader DATASET SIDE EPOCHS

Scales images to SIDE x SIDE unless it is 0; prints the seconds of each epoch as JSON, without the first.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tfrecord import tfrecord_loader  # type: ignore[import-untyped]

_FEATURES = {"image/encoded": "byte", "image/class/label": "int"}


def images(dataset: Path, side: int) -> Iterator[tuple[Any, int]]:
    """Pixels and label of each image."""
    for shard in sorted(dataset.glob("train-*.tfrecord")):
        for record in tfrecord_loader(str(shard), None, _FEATURES):
            image: Image.Image = Image.open(io.BytesIO(record["image/encoded"]))
            if side:
                image = image.convert("RGB").resize((side, side))
            yield np.asarray(image), int(record["image/class/label"][0])


def main(dataset: str, side: str, epochs: str) -> None:
    """Measures a dataset."""
    seconds = []
    for _ in range(int(epochs) + 1):
        start = time.perf_counter()
        for _ in images(Path(dataset), int(side)):
            pass
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds[1:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
