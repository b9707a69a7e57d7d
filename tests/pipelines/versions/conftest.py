"""Inputs that were converted once, which several tests convert again."""

import pytest

from tests.pipelines.versions.homes import Rerun
from tests.pipelines.versions.photos import few, two_hundred


@pytest.fixture(scope="package")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Rerun:
    """Two hundred photos of four classes; a fifth is new."""
    return Rerun.made(tmp_path_factory.mktemp("photos"), two_hundred())


@pytest.fixture(scope="package")
def some(tmp_path_factory: pytest.TempPathFactory) -> Rerun:
    """Thirty photos, whose classes stay."""
    return Rerun.made(tmp_path_factory.mktemp("some"), few())
