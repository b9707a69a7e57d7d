"""The second run on other runners than the one in this process: the same bytes, at the same cost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.pipelines.versions.homes import (
    NEXT,
    Rerun,
    assert_same_version,
    latest,
    taken_over,
    versions,
    work,
)
from tests.pipelines.versions.photos import six_hundred
from tests.runners.downloads import prism


def check(home: Path, some: Rerun) -> None:
    assert_same_version(home / NEXT, some.scratch)
    assert (latest(home), versions(home)) == (NEXT, ["1.0.0", NEXT])
    assert work(home / NEXT) == (2, 2, 0)
    assert taken_over(home / NEXT)["records"] == 28


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["multi_processing", "multi_threading"])
def test_with_workers_of_beam(mode: str, some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    some.edited()
    assert some.convert(home, f"--direct_running_mode={mode}", "--direct_num_workers=2") == 0
    check(home, some)


@pytest.mark.slow
def test_a_shard_that_several_processes_write(tmp_path: Path) -> None:
    """It is cut into parts, each of which takes over its own records."""
    rerun = Rerun.made(tmp_path, six_hundred())
    home = rerun.home(tmp_path)
    rerun.edited()
    assert rerun.convert(home, "--direct_num_workers=3") == 0
    assert_same_version(home / NEXT, rerun.scratch)
    assert work(home / NEXT) == (3, 3, 0)
    assert taken_over(home / NEXT) == {"from": "1.0.0", "records": 596, "shards": 0, "reason": ""}


@pytest.mark.go
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_on_prism(some: Rerun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = some.home(tmp_path)
    some.edited()
    flags = ("--runner=PrismRunner", f"--prism_location={prism()}")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert some.convert(home, *flags) == 0
    check(home, some)
    before = sorted(os.listdir(home))
    assert some.convert(home, *flags) == 0
    assert sorted(os.listdir(home)) == before
