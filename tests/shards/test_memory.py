"""The warning of a shuffle that memory may not hold, and what memory there is."""

from pathlib import Path

import psutil
import pytest

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.shards import memory
from recordmill.transforms.shards.memory import available_bytes, memory_warning, shuffle_warning
from tests.shards.planned import plan

GB = 10**9


def test_the_warning_says_how_much_is_needed_and_what_is_there() -> None:
    assert memory_warning(0, 0) is None
    assert memory_warning(GB, 5 * GB) is None
    text = memory_warning(2 * GB, 5 * GB)
    assert text is not None
    assert "2.0 GB of records will need about 10.0 GB, and 5.0 GB are available" in text


def test_only_what_the_machine_itself_shuffles_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    splits = ("train", "val")

    def warned(**fields: object) -> bool:
        config = DatasetConfig(**{"writer": "beam", "split_names": splits, "workers": 2, **fields})  # type: ignore[arg-type]
        return shuffle_warning(config, plan(config, splits=splits)) is not None

    assert warned(num_shards=2)
    assert warned(num_shards={"train": 1, "val": 1})
    # A file of each bundle is written as it comes.
    assert not warned()
    # Another runner has its own shuffle.
    assert not warned(num_shards=2, shuffles_in_memory=False)
    assert warned(num_shards=2, workers=0)
    assert not warned(num_shards=2, writer="shards")


def group(folder: Path, limit: str, usage: str, cached: str, version: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }[version]
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {cached}\n")


@pytest.mark.parametrize(
    ("of_group", "limit", "usage", "cached", "available"),
    [
        ("0::/a/b", "100", "70", "20", 50),  # version 2
        ("0::/a/b", "max", "70", "20", None),
        ("0::/a/b", "10", "70", "0", 0),
        ("4:memory:/a/b", "100", "70", "20", 50),  # version 1
        ("4:cpu,memory:/a/b", "100", "70", "20", 50),
        ("4:memory:/a/b", str((1 << 63) - 4096), "70", "20", None),
        ("4:cpu:/a/b", "100", "70", "20", None),
    ],
)
@pytest.mark.parametrize("below", ["a/b", "a", ""])
def test_the_limit_of_a_control_group_or_of_one_above_it(
    tmp_path: Path, of_group: str, limit: str, usage: str, cached: str, available: int | None, below: str
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"9:pids:/\n{of_group}\n")
    version = 2 if of_group.startswith("0") else 1
    top = tmp_path / "sys/fs/cgroup" / ("" if version == 2 else "memory")
    group(top / below, limit, usage, cached, version)
    found = available_bytes(tmp_path)
    if available is None:
        assert found > 10 * 2**20
    else:
        assert found == available


def test_a_machine_without_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert available_bytes(tmp_path) == free.available
