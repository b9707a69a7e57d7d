"""What is stored of real inputs, from the folder that RECORDMILL_CORPUS names, is what they say."""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any

import pytest

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.reading.against import SourceComparer
from recordmill.transforms.records import BadInput, ClassNames, ImageRecord
from recordmill.transforms.shards.dataset_plan import record_settings
from recordmill.transforms.shards.record_encoder import RecordEncoder
from recordmill.transforms.shards.references import with_split
from recordmill.transforms.shards.totals import total
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.registry import source_of

CORPUS = os.environ.get("RECORDMILL_CORPUS", "")
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS, reason="RECORDMILL_CORPUS names no folder of real inputs"),
]
MASKS = {"include_annotations": ("masks",)}


@pytest.mark.parametrize(
    ("folder", "source", "policy", "actions"),
    [
        ("raccoon", {"limit": 20}, {}, {"kept": 20}),
        ("raccoon", {"limit": 8}, {"size": (90, 120), "fit": "pad"}, {"lossy": 8}),
        ("coco64", {"limit": 6, "kind": "coco", **MASKS}, {"max_side": 120}, None),
        ("palette_masks", {}, {}, {"kept": 3}),
        ("labelme", MASKS, {"short_side": 100, "image_format": "raw"}, {"lossless": 3}),
        (
            "cats_dogs",
            {},
            {"image_format": "jpeg", "jpeg_quality": 95, "alpha": "flatten"},
            {"kept": 7, "lossy": 3},
        ),
        ("exif_orientation", {"include": ("*[0-6].jpg",)}, {"max_side": 200}, {"lossy": 14}),
        ("exif_orientation", {}, {"exif": "ignore"}, {"kept": 18}),
        ("mnist", {"limit": 200}, {}, {"lossless": 200}),
        ("mnist", {"limit": 200}, {"image_format": "raw"}, {"kept": 200}),
        ("pngsuite", {}, {}, {"kept": 160}),
        ("pngsuite", {}, {"color": "rgb", "alpha": "flatten"}, None),
        ("pngsuite", {}, {"image_format": "jpeg", "jpeg_quality": 60}, None),
        ("odd_inputs", {}, {}, None),
        ("odd_inputs", {}, {"image_format": "webp", "reencode": "always", "max_side": 100}, None),
    ],
)
def test_nothing_differs(
    tmp_path: Path,
    folder: str,
    source: dict[str, Any],
    policy: dict[str, Any],
    actions: dict[str, int] | None,
) -> None:
    told = SourceConfig(**{"kind": "auto", "input": f"{CORPUS}/{folder}", **source})
    if told.kind == "auto":
        told = SourceConfig(**{"input": told.input, **source, "kind": detect(told).kind})
    config = DatasetConfig(ImagePolicy(**policy), untyped_features=source_of(told).untyped)
    items = list(source_of(told).read(told, str(tmp_path)))
    records = [with_split(one, config, None) for one in items if isinstance(one, ImageRecord)]
    totals = total(records)
    for item in items:
        if isinstance(item, ClassNames):
            totals.classes.add(item)
    settings = record_settings(totals, config)
    encoder, comparer = RecordEncoder(settings), SourceComparer(settings)
    found: collections.Counter[str] = collections.Counter()
    for record in records:
        try:
            payload = encoder.encode(record).payload
        except BadInput:
            continue
        compared = comparer.compare(payload, record)
        assert compared.differences == ()
        found[compared.action] += 1
    assert found == actions if actions is not None else found
