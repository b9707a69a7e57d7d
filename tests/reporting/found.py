"""Findings to make pages of, hostile names among them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from recordmill.transforms.reading.dataset import ShardEntry
from recordmill.transforms.records import Failure
from recordmill.transforms.reporting.findings import Crop, Findings
from recordmill.transforms.reporting.samples import Sample
from recordmill.transforms.shards.statistics import Statistics

EVIL = '<script>alert("1")</script>\'&--><b onclick=x>'
RTL = "a\u202egnp.x"


def picture(shade: int, kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((6, 8, 3), shade, np.uint8)).save(out, kind, lossless=True)
    return out.getvalue()


def statistics(labels: dict[int, int], sizes: tuple[tuple[int, int], ...] = ((640, 480),)) -> Statistics:
    found = Statistics()
    for one, count in labels.items():
        for _ in range(count):
            found.add(sizes, [one])
    return found


def manifest(**changes: Any) -> dict[str, Any]:
    """A manifest, as far as the page reads it."""
    return {
        "format_version": 1,
        "recordmill": "0.1.0",
        "config": {"schema": "classification", "name": EVIL, "jpeg_quality": 90, "rename": {}},
        "config_digest": "ab" * 32,
        "source": {"kind": "folder", "input": f"/photos/{EVIL}", "digest": "cd" * 16},
        "counts": {"read": 20, "written": 16, "failed": 3, "skipped": 1},
        "reasons": {
            "failed": [
                {"stage": "decode", "reason": "truncated", "count": 2},
                {"stage": "load", "reason": EVIL, "count": 1},
            ],
            "skipped": [{"stage": "list", "reason": "hidden", "count": 1}],
        },
        "bytes": {"source": 2_000_000, "encoded": 500_000, "shards": 512_345},
        "actions": {"kept": 4, "reencoded": 12, EVIL: 1},
        "formats": {"jpeg": 16},
        "alpha": {"images": 2, "bytes": 3000, "flattened_bytes": 1000},
        "jpeg_qualities": {"0": 4, "71": 2, "75": 1, "88": 9},
        "splits": {"train": {"records": 12, "shards": []}, "val": {"records": 4, "shards": []}},
        "annotations": {"stored": {"class": 7, "objects": 0}, "changed": {"box clipped": 5}},
        "features": {},
        "labels": {"0": "cat", "1": EVIL, "2": RTL},
        "provenance": {
            "runner": "DirectRunner",
            "job": "",
            "started": "2026-01-02T03:04:05+00:00",
            "finished": "2026-01-02T03:59:59+00:00",
            "packages": {"pillow": "12.1.1", "numpy": "2.0"},
        },
        **changes,
    }


def findings(**changes: Any) -> Findings:
    told = manifest()
    values: dict[str, Any] = {
        "name": EVIL,
        "manifest": told,
        "labels": {0: "cat", 1: EVIL, 2: RTL, 3: "unused"},
        "statistics": {
            "train": statistics({0: 6, 1: 4, 2: 2}, ((640, 480),)),
            "val": statistics({0: 3, 1: 1}, ((20, 300),)),
        },
        "shards": (
            ShardEntry("train-00000-of-00001.tfrecord", "train", 500_000, None, 12, sha256="12ab" * 16),
            ShardEntry("val-00000-of-00001.tfrecord", "val", None, None, 4),
        ),
        "failures": {
            "failed": (
                Failure(f"{EVIL}.jpg", "decode", "truncated", EVIL),
                Failure("b.jpg", "decode", "truncated"),
                Failure("c.jpg", "load", EVIL),
            ),
            "skipped": (Failure(".hidden", "list", "hidden", skipped=True),),
            "changed": (Failure("d.jpg", "annotations", "box clipped", "1 0 3", kept=True),),
        },
        "crops": (Crop(f"x/{EVIL}", 0.95, picture(10, "PNG"), picture(20, "PNG"), 90_000, 30_000),),
        "samples": (
            Sample("cat", "1.png", "train", (480, 640), ((None, "cat"),), picture(1, "JPEG"), (6, 8)),
            Sample(
                EVIL,
                f"{EVIL}.png",
                "val",
                None,
                (((1, 2, 3), EVIL), ((4, 5, 6), RTL)),
                picture(2, "WEBP"),
                (6, 8),
            ),
        ),
        **changes,
    }
    return Findings(**values)
