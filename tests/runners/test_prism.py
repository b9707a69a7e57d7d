"""Conversions on Prism, which is built from its Go module, and is never fetched by a conversion itself."""

from collections import Counter
from pathlib import Path

import pytest

from tests.pipelines.comparison import payloads
from tests.pipelines.conversion import command
from tests.pipelines.test_own_images import COUNT, check, write
from tests.runners.calls import (
    INPUT_FLAGS,
    assert_same_records,
    assert_same_shards,
    check_identical_images,
    convert,
)
from tests.runners.downloads import prism

pytestmark = [pytest.mark.go, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def prism_flags() -> list[str]:
    return ["--runner=PrismRunner", f"--prism_location={prism()}", *INPUT_FLAGS]


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever asks the internet fails."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")


def test_shards_are_the_same_bytes(
    prism_flags: list[str], photos: Path, direct: Path, tmp_path: Path
) -> None:
    status, said = convert(photos, tmp_path / "out", *prism_flags)
    assert status == 0, said
    assert_same_shards(tmp_path / "out", direct)


def test_identical_images_are_found(prism_flags: list[str], photos: Path, tmp_path: Path) -> None:
    check_identical_images(photos, tmp_path, prism_flags[:2])


def test_beam_writes_the_same_records(
    prism_flags: list[str], photos: Path, direct: Path, tmp_path: Path
) -> None:
    status, said = convert(photos, tmp_path / "out", *prism_flags, "--writer=beam")
    assert status == 0, said
    assert_same_records(tmp_path / "out", direct)


def test_a_fault_of_the_input_is_one_line(prism_flags: list[str], photos: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    image = photos / "train" / "circle" / "circle_000.jpg"
    rows.write_text(f"path,label\n{image},a\n{image},b\n")
    flags = [*prism_flags, "--num_shards=train=2", f"--image_root={photos}"]
    for writer in ("shards", "beam"):
        output = tmp_path / writer
        status, said = convert(rows, output, *flags, f"--writer={writer}")
        assert status == 1, said
        message = "python -m recordmill.pipelines.convert: error: key "
        assert [line for line in said.splitlines() if line.startswith(message)], said
        assert not (output / "manifest.json").exists()
        assert not list(output.glob("*.tfrecord"))


@pytest.mark.parametrize("writer", ["shards", "beam"])
def test_images_that_a_pipeline_makes(prism_flags: list[str], tmp_path: Path, writer: str) -> None:
    flags = [flag for flag in prism_flags if flag not in INPUT_FLAGS]
    write(tmp_path / "direct", range(COUNT))
    write(tmp_path / "out", range(COUNT), flags, writer=writer)
    if writer == "shards":
        check(tmp_path / "out", tmp_path / "direct")
    assert Counter(payloads(tmp_path / "out")) == Counter(payloads(tmp_path / "direct"))
    assert command("verify", tmp_path / "out") == 0
