"""What conversions write is byte for byte what was recorded.

Where a change of behaviour is intended, `python -m tests.golden.cases NAME …` records it again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recordmill.transforms.images.versions import codec_versions
from tests.golden.cases import CASES, DIGESTS, OVERWRITE, RESUME, VERSIONS, run

RECORDED = json.loads(DIGESTS.read_text("utf-8"))
# The others run in `make test-all`.
QUICK = (
    *("source-coco", "source-tfrecord", "images-image_format-jpeg", "boxes-geometry-1"),
    *("masks-geometry-2", "schema-sequence", "shards-beam-boxes", "shards-versions"),
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_the_bytes_are_those_that_were_recorded(name: str, tmp_path: Path) -> None:
    if codec_versions() != RECORDED["codecs"]:
        pytest.skip("other versions of the codecs encode other bytes")
    assert run(CASES[name], tmp_path) == RECORDED["cases"][name]


def test_each_recorded_case_is_run() -> None:
    assert RECORDED["cases"].keys() == CASES.keys()
    assert {case.job for case in CASES.values()} == {"", OVERWRITE, RESUME, VERSIONS}
    assert set(QUICK) <= CASES.keys()
