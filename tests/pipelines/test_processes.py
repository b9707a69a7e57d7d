"""What conversions do to the machine: processes, imports, signals, the size of the job graph."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import apache_beam as beam
import psutil
import pytest

from benchmarks.drawings import draw
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.read import ReadSource
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.write import WriteDataset
from tests.pipelines.conversion import convert, convert_call, manifest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 files: enough for processes to be spawned."""
    folder = tmp_path_factory.mktemp("input")
    draw("circle", 1, 640, 480).save(folder / "0.jpg")
    for number in range(1, 600):
        os.link(folder / "0.jpg", folder / f"{number}.jpg")
    return folder


@pytest.mark.slow
def test_no_process_imports_tensorflow(photos: Path, tmp_path: Path) -> None:
    """Every interpreter that is started notes what it has imported, and is not stopped before it has."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def note(event, args):\n"
        "    if event == 'import' and args[0].split('.')[0] in ('tensorflow', 'tensorflow_datasets'):\n"
        f"        open({str(tmp_path / 'found')!r}, 'a').write(args[0])\n"
        f"open({str(tmp_path / 'started')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "sys.addaudithook(note)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    call = convert_call(photos, tmp_path / "out")
    call += ["--direct_num_workers=2", "--quiet"]
    assert subprocess.run(call, cwd=ROOT, env=environment, timeout=120).returncode == 0
    assert len(set((tmp_path / "started").read_text().split())) == 3
    assert not (tmp_path / "found").exists()
    assert manifest(tmp_path / "out")["counts"]["written"] == 600


def graph_bytes(source: SourceConfig, output: Path) -> int:
    pipeline = beam.Pipeline()
    _ = pipeline | ReadSource(source) | WriteDataset(str(output), DatasetConfig())
    return int(pipeline.to_runner_api().ByteSize())


@pytest.mark.slow
def test_the_job_graph_does_not_grow(tmp_path: Path) -> None:
    sizes = []
    for folder, files in ((tmp_path / "few", 10), (tmp_path / "lot", 20_000)):
        folder.mkdir()
        for number in range(files):
            (folder / f"{number}.jpg").touch()
        sizes.append(graph_bytes(SourceConfig("folder", str(folder)), tmp_path / "out"))
    # Beam's own pickles vary by some bytes from one to the next.
    assert abs(sizes[1] - sizes[0]) < 200


@pytest.mark.slow
def test_a_job_that_is_killed_publishes_nothing_and_runs_again(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    args = ["--image_format=png", "--num_shards=20", "--direct_num_workers=2", "--progress=none"]
    call = convert_call(photos, output, *args)
    job = subprocess.Popen(call, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True, text=True)
    deadline = time.monotonic() + 60
    while not list(output.glob(".recordmill/*/shards/*.idx")):
        assert time.monotonic() < deadline
        assert job.poll() is None
        time.sleep(0.02)
    writers = psutil.Process(job.pid).children()
    assert len(writers) == 2
    os.killpg(job.pid, signal.SIGKILL)
    job.communicate(timeout=60)
    assert not list(output.glob("*.tfrecord"))
    assert not (output / "manifest.json").exists()
    # No writer outlives its parent.
    assert psutil.wait_procs(writers, timeout=60)[1] == []
    assert convert("--input", photos, "--output", output, "--limit=20") == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "dataset_info.json",
        "duplicates.jsonl",
        "failures.jsonl",
        "features.json",
        "index",
        "manifest.json",
        "report.html",
        "report.json",
        "train-00000-of-00001.tfrecord",
    ]


# Publishes a dataset from one process each, forked from this one, which dies after so many files.
_DYING = """
import json, os, sys
from recordmill.pipelines import convert
import recordmill.transforms.read, recordmill.transforms.write

def publish(output, left, args):
    replace = os.replace
    def dying(old, new):
        nonlocal left
        left -= "failures" not in new and "/.recordmill/" not in new
        if left < 0:
            os._exit(9)
        replace(old, new)
    os.replace = dying
    os._exit(convert.main(["--output", output, *args]))

statuses = []
for left in range(1, 11):
    child = os.fork()
    if child == 0:
        publish(f"{sys.argv[1]}/out{left}", left, sys.argv[2:])
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(statuses))
"""


@pytest.mark.slow
def test_a_publication_that_was_cut_off_is_known_and_cleared(photos: Path, tmp_path: Path) -> None:
    """Killed after each file that publishing makes: the same call finds its way, and leaves no trace."""
    args = ("--input", str(photos), "--limit=10", "--quiet")
    call = [sys.executable, "-c", _DYING, str(tmp_path), *args, "--num_shards=2", "--direct_num_workers=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=240)
    # Two shards, two indexes, the duplicates, two files of the report, two of TFDS, the manifest.
    assert json.loads(done.stdout) == [9] * 9 + [0], done.stderr
    for published in range(1, 11):
        output = tmp_path / f"out{published}"
        assert (output / "manifest.json").exists() == (published == 10)
        if published < 10:
            assert convert(*args, "--output", output, "--num_shards=1") == 0, published
            assert [path.name for path in output.glob("*.tfrecord")] == ["train-00000-of-00001.tfrecord"]
            assert [path.name for path in output.glob("index/*")] == ["train-00000-of-00001.idx"]
            assert not list(output.glob("*.part"))
        assert not (output / ".recordmill").exists(), published


@pytest.mark.slow
def test_a_script_without_a_main_guard(photos: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import apache_beam as beam\n"
        "from recordmill.transforms.config import DatasetConfig\n"
        "from recordmill.transforms.read import ReadSource\n"
        "from recordmill.transforms.sources.source import SourceConfig\n"
        "from recordmill.transforms.write import WriteDataset\n"
        "print('started')\n"
        "from apache_beam.runners.portability.fn_api_runner import FnApiRunner\n"
        "with beam.Pipeline(runner=FnApiRunner()) as pipeline:\n"
        f"    records = pipeline | ReadSource(SourceConfig('folder', {str(photos)!r}))\n"
        f"    records | WriteDataset({str(tmp_path / 'out')!r}, DatasetConfig(workers=2))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "started\n"
    assert manifest(tmp_path / "out")["counts"]["written"] == 600
