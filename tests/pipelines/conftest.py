"""Inputs that several tests of whole conversions share."""

from pathlib import Path

import pytest

from benchmarks.drawings import draw_folder
from tests.buckets.fixtures import bucket as bucket
from tests.buckets.fixtures import bucket_server as bucket_server


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 images of three labels."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    assert len(list(draw_folder(folder, each=4))) == 12
    return folder
