"""A large annotation file is read in a fraction of the memory that it takes whole."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

_READ = """
import resource, sys
import numpy  # whose own memory is none of the file's
from recordmill.transforms.records import ImageRecord
from recordmill.transforms.sources.coco.source import CocoSource
from recordmill.transforms.sources.config import SourceConfig

def peak():
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open("/proc/self/status") as status:  # the other one begins with the peak of the parent
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

before = peak()
config = SourceConfig("coco", sys.argv[1], include_annotations=("masks",))
objects = sum(
    len(item.annotations.objects) for item in CocoSource().read(config, "") if isinstance(item, ImageRecord)
)
print(objects, peak() - before)
"""


@pytest.mark.slow
def test_memory_stays_far_below_the_file(tmp_path: Path) -> None:
    generator = random.Random(7)
    (tmp_path / "images").mkdir()
    images = 100
    for number in range(images):
        (tmp_path / f"images/{number}.jpg").write_bytes(b"x")
    polygon = json.dumps([[round(generator.random() * 500, 2) for _ in range(240)]])
    with open(tmp_path / "instances.json", "w") as file:
        file.write('{"annotations": [')
        for number in range(12_000):
            file.write(", " if number else "")
            file.write(f'{{"id": {number}, "image_id": {generator.randrange(images)}, "category_id": 1, ')
            file.write(f'"bbox": [1, 2, 3, 4], "segmentation": {polygon}}}')
        file.write('], "images": [')
        file.write(", ".join(json.dumps({"id": n, "file_name": f"{n}.jpg"}) for n in range(images)))
        file.write('], "categories": [{"id": 1, "name": "a"}]}')
    assert (tmp_path / "instances.json").stat().st_size > 20_000_000
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(tmp_path)], capture_output=True, text=True, check=True
    )
    objects, grown = map(int, done.stdout.split())
    assert objects == 12_000
    assert grown < 20_000_000  # the text alone is 20 MB, what it is in Python 140 MB
