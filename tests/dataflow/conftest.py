"""A bucket and a Dataflow service on loopback, and what submits to them."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.drawings import draw_folder
from tests.buckets.fixtures import bucket_server as bucket_server
from tests.buckets.server import BucketServer
from tests.dataflow.endpoint import DataflowServer
from tests.dataflow.submitting import Submitter

if importlib.util.find_spec("google.cloud.dataflow") is None:
    # Without the extra gcp nothing is submitted; that this is told is tested by the others.
    collect_ignore = ["test_flags.py", "test_submission.py", "test_staged.py", "test_following.py"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 images of three labels, and a file that is none."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    assert len(list(draw_folder(folder, each=4))) == 12
    (folder / "circle" / "broken.jpg").write_bytes(b"\xff\xd8\xff no more")
    return folder


@pytest.fixture
def submitter(photos: Path, bucket_server: BucketServer, tmp_path: Path) -> Iterator[Submitter]:
    """With the images in gs://pictures/photos."""
    with DataflowServer() as dataflow:
        bucket_server.upload_folder(photos, f"{bucket_server.bucket('pictures')}/photos")
        yield Submitter(bucket_server, dataflow, tmp_path)
