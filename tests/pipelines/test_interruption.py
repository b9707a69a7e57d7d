"""Signals at moments that are hard to hit, and an output that goes away: what is said, and what goes on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recordmill.transforms import write_shards
from tests.patched import patched_site
from tests.pipelines.conversion import by_key, convert, manifest

ROOT = Path(__file__).parents[2]


def run(start: list[str], site: Path, photos: Path, output: Path, *args: str) -> tuple[int, str]:
    """Exit status and stderr of a conversion, with a module of it changed."""
    environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}"}
    call = [sys.executable, *start, "--input", str(photos), "--output", str(output), "--quiet", *args]
    done = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "start", [["-m", "recordmill.pipelines.cli", "convert"], ["-m", "recordmill.pipelines.convert"]]
)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_while_the_program_is_still_imported(
    start: list[str], name: str, photos: Path, tmp_path: Path
) -> None:
    patch = f"import os, signal\ndef patch(module): os.kill(os.getpid(), signal.{name})\n"
    site = patched_site(tmp_path, "recordmill.pipelines.options.convert", patch)
    assert run(start, site, photos, tmp_path / "out") == (130, "\ninterrupted; nothing was started\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_after_the_manifest_is_written(photos: Path, tmp_path: Path) -> None:
    patch = (
        "import os, signal\n"
        "def patch(module):\n"
        "    module.end_run = lambda run: os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    site = patched_site(tmp_path, "recordmill.transforms.storage.runs", patch)
    output = tmp_path / "out"
    said = f"\ninterrupted; the new dataset is published in {output}\n"
    assert run(["-m", "recordmill.pipelines.convert"], site, photos, output) == (130, said)
    assert len(by_key(output)) == 12
    assert convert("--input", photos, "--output", output, "--overwrite", "--num_shards=2") == 0
    assert len(by_key(output)) == 12
    assert not (output / ".recordmill").exists()


@pytest.mark.slow
def test_before_an_older_dataset_is_withdrawn(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, "--limit=3") == 0
    patch = (
        "import os, signal\n"
        "def patch(module):\n"
        "    module.unpublish = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
    )
    site = patched_site(tmp_path, "recordmill.transforms.storage.publication", patch)
    status, said = run(["-m", "recordmill.pipelines.convert"], site, photos, output, "--overwrite")
    assert status == 130
    assert said == (
        f"\ninterrupted; {output} still has the previous dataset\n"
        "1 finished shard is kept: the same command reuses it, also with another "
        "--max_failure_ratio, or without --strict\n"
    )
    assert len(by_key(output)) == 3
    assert convert("--input", photos, "--output", output, "--overwrite") == 0
    assert len(by_key(output)) == 12
    assert manifest(output)["provenance"]["reused_shards"] == 1


@pytest.mark.slow
def test_an_output_that_goes_away(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    call = ("--input", photos, "--output", output, "--num_shards=2")
    ordered = write_shards.ordered

    def removing(batches: list[bytes], by_key: bool) -> list[bytes]:
        shutil.rmtree(output, ignore_errors=True)
        return ordered(batches, by_key)

    with monkeypatch.context() as patch:
        patch.setattr(write_shards, "ordered", removing)
        assert convert(*call, "--quiet") == 1
    said = capfd.readouterr().err
    assert said.startswith(f"recordmill convert: error: {output}/.recordmill/")
    assert said.endswith(
        "No such file or directory; it was there a moment ago: let nothing else change --output while a job "
        "runs\n"
    )
    assert said.count("\n") == 1
    assert convert(*call) == 0
    assert len(by_key(output)) == 12
