"""What a list of images costs: listing it, and a reference to each.

python -m benchmarks.unit_costs_lists KIND INPUT

prints entries, CPU seconds, and by how much the process has grown, as JSON.
"""

from __future__ import annotations

import collections
import csv
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import psutil

from benchmarks.measure import ROOT
from benchmarks.unit_costs_bucket import LISTED, PAGE, counted_buckets
from benchmarks.unit_costs_cost import CPU, Cost, cpu_of
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import Annotations, ImageRecord, ImageRef
from recordmill.transforms.shards.hashing import with_split
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.totals import Totals
from recordmill.transforms.sources.registry import source_of
from recordmill.transforms.sources.source import SourceConfig
from recordmill.transforms.survey import SurveyFn

_CLASSES = 1000
_SAMPLED = 10_000


def list_costs(photos: Path, objects: int) -> list[Cost]:
    """Of a local folder, of a manifest of its images, and of a bucket."""
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        named = Path(folder, "images.csv")
        write_manifest(photos, named)
        for kind, source, what in (
            ("folder", photos, "a local folder"),
            ("csv", named, "a CSV of images of this machine"),
        ):
            found, seconds, _ = listed(kind, str(source))
            costs.append(Cost(f"listing {what}", 1e6 * seconds / found, CPU, "image"))
    with counted_buckets(objects) as buckets:
        found, seconds, memory = listed("folder", f"gs://{LISTED}", buckets.host)
        pages = buckets.take()["list"]
    costs += [
        Cost("listing a folder of a bucket", 1e6 * seconds / found, CPU, "image"),
        Cost("listing a folder of a bucket", pages / found * PAGE, "requests", "1,000 images"),
        Cost("listing one folder of a bucket, alone and in one go, memory", memory / found, "bytes", "image"),
    ]
    return costs


def reference_costs(number: int) -> list[Cost]:
    """Of the survey of records as a bucket's folder has them, and of what it leaves."""
    records = list(made_records(0, number))
    config = DatasetConfig()
    survey = SurveyFn(config)
    survey.start_bundle()

    def surveyed() -> None:
        for record in records:
            collections.deque(survey.process(record), 0)

    _, seconds = cpu_of(surveyed)
    sizes = [len(pack_reference(with_split(record, config, None), 0)) for record in records[:1000]]
    packed, merging = pickle.dumps(survey.totals), Totals()
    _, merge_seconds = cpu_of(lambda: merging.merge(pickle.loads(packed)))
    return [
        Cost("survey: totals, hash and reference", 1e6 * seconds / number, CPU, "image"),
        Cost("a reference", statistics.mean(sizes), "bytes", "image"),
        Cost("the hash of a key", 8, "bytes", "image"),
        Cost(f"totals of {_CLASSES:,} classes, a side input", len(packed), "bytes", "bundle"),
        Cost(f"totals of {_CLASSES:,} classes, merged", 1e6 * merge_seconds, CPU, "bundle"),
    ]


def made_records(start: int, stop: int) -> Iterable[ImageRecord]:
    """Records of JPEGs in a bucket, in folders of classes."""
    for number in range(start, stop):
        label = f"class-{number % _CLASSES:04d}"
        key = f"{label}/photo-{number:012d}.jpg"
        image = ImageRef(f"gs://my-photographs/archive/{key}", version=1_700_000_000_000_000 + number)
        yield ImageRecord(key, image, None, Annotations((label,)), "", 100_000)


def write_manifest(photos: Path, path: Path) -> None:
    """A manifest of the images of a folder."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label"])
        for image in sorted(photos.rglob("*.jpg")):
            writer.writerow([str(image), image.parent.name])


def listed(kind: str, source: str, host: str = "") -> tuple[int, float, int]:
    """Entries of a source, and CPU seconds and bytes of memory of listing it, in a process of its own."""
    extra = {"STORAGE_EMULATOR_HOST": host} if host else {}
    command = [sys.executable, "-m", "benchmarks.unit_costs_lists", kind, source]
    told = subprocess.run(command, cwd=ROOT, env=os.environ | extra, check=True, stdout=subprocess.PIPE)
    found, seconds, memory = json.loads(told.stdout)
    return int(found), float(seconds), int(memory)


def main(kind: str, source: str) -> None:
    """Lists a source and prints what that took."""
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as scratch:
        roots = ("/",) if kind == "csv" else ()
        config = SourceConfig(kind=kind, input=source, image_roots=roots)
        before = process.memory_info().rss
        most = before
        entries = 0

        def read() -> None:
            nonlocal entries, most
            for entry in source_of(config).read(config, scratch):
                if entries % _SAMPLED == 0:  # a folder is held from before its first entry to after its last
                    most = max(most, process.memory_info().rss)
                entries += isinstance(entry, ImageRecord)

        _, seconds = cpu_of(read)
        print(json.dumps([entries, seconds, most - before]))


if __name__ == "__main__":
    main(*sys.argv[1:])
