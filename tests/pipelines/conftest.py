"""Inputs that several tests of whole conversions share."""

import functools
import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.drawings import draw_folder
from tests.buckets.fixtures import bucket as bucket
from tests.buckets.fixtures import bucket_server as bucket_server


@pytest.fixture(scope="package", autouse=True)
def quick() -> Iterator[None]:
    """What conversions of this process do over and over takes no time here.

    No machine loses its power; that data are synced before they count is a test of its own, which watches
    the calls. The versions of packages stay.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        patch.setattr(importlib.metadata, "version", functools.cache(importlib.metadata.version))
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 images of three labels."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    assert len(list(draw_folder(folder, each=4))) == 12
    return folder
