"""Settings of all tests."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

# A timing is never asserted: a shared machine may stall anywhere. The same commit has the same examples: new
# ones are looked for by tests.fuzz.
settings.register_profile("recordmill", deadline=None, derandomize=True)
settings.load_profile("recordmill")
settings.register_profile("quick", settings.get_profile("recordmill"), max_examples=30)

# TensorFlow tells at length which instructions it could use.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

Figure = Callable[[str, int], None]
"""The type of the fixture `figure`."""

# Seconds that a slow test may take; pyproject.toml says what others may.
_SLOW = 1800


def pytest_configure(config: pytest.Config) -> None:
    """Tries fewer examples where slow tests are left out."""
    if "not slow" in config.option.markexpr:
        settings.load_profile("quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives slow tests more time, unless they say how much; lets those on other runners be the first.

    Each of these fills the machine. At the head of one worker's tests they stay with it, and run one by one:
    other workers take over from the tail.
    """
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW))
    items.sort(key=lambda item: not (item.get_closest_marker("java") or item.get_closest_marker("go")))


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real inputs."""
    folder = os.environ.get("RECORDMILL_CORPUS")
    if not folder:
        pytest.skip("RECORDMILL_CORPUS does not name the folder of real inputs")
    return Path(folder)


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Records how much a test has tried, for docs/promises.md: `figure("kills", 60)`."""
    return record_property


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that retries would have waited; threads of other libraries sleep as ever."""
    waited: list[float] = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=waited.append))
    return waited
