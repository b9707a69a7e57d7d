"""What conversions do to the machine: processes, imports, signals, the size of the job graph."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import apache_beam as beam
import psutil
import pytest
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.read import ReadSource
from recordmill.transforms.sources.source import SourceConfig
from recordmill.transforms.write import WriteDataset

from benchmarks.drawings import draw
from tests.pipelines.conversion import convert, manifest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 files: enough for processes to be spawned."""
    folder = tmp_path_factory.mktemp("input")
    draw("circle", 1, 640, 480).save(folder / "0.jpg")
    for number in range(1, 600):
        os.link(folder / "0.jpg", folder / f"{number}.jpg")
    return folder


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
    call = [
        sys.executable,
        "-m",
        "recordmill.pipelines.convert",
        "--input",
        str(photos),
        "--output",
        str(tmp_path / "out"),
    ]
    call += ["--direct_num_workers=2", "--quiet"]
    assert subprocess.run(call, cwd=ROOT, env=environment, timeout=120).returncode == 0
    assert len(set((tmp_path / "started").read_text().split())) == 3
    assert not (tmp_path / "found").exists()
    assert manifest(tmp_path / "out")["counts"]["written"] == 600


def graph_bytes(source: SourceConfig, output: Path) -> int:
    pipeline = beam.Pipeline()
    _ = pipeline | ReadSource(source) | WriteDataset(str(output), DatasetConfig())
    return int(pipeline.to_runner_api().ByteSize())


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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_job_that_is_stopped_publishes_nothing_and_runs_again(
    number: signal.Signals, photos: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    args = ["--image_format=png", "--num_shards=20", "--direct_num_workers=2", "--progress=none"]
    call = [
        sys.executable,
        "-m",
        "recordmill.pipelines.convert",
        "--input",
        str(photos),
        "--output",
        str(output),
        *args,
    ]
    job = subprocess.Popen(call, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True, text=True)
    deadline = time.monotonic() + 60
    while not list(output.glob(".recordmill/*/shards/*.idx")):
        assert time.monotonic() < deadline
        assert job.poll() is None
        time.sleep(0.02)
    writers = psutil.Process(job.pid).children()
    assert len(writers) == 2
    os.killpg(job.pid, number)
    _, printed = job.communicate(timeout=60)
    if number == signal.SIGINT:
        assert job.returncode == 130
        assert "interrupted; nothing is published" in printed
        assert "Traceback" not in printed
    assert not list(output.glob("*.tfrecord"))
    assert not (output / "manifest.json").exists()
    # No writer outlives its parent.
    assert psutil.wait_procs(writers, timeout=60)[1] == []
    assert convert("--input", photos, "--output", output, "--limit=20") == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "dataset_info.json",
        "failures.jsonl",
        "features.json",
        "index",
        "manifest.json",
        "report.html",
        "report.json",
        "train-00000-of-00001.tfrecord",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("published", range(1, 12))
def test_a_publication_that_was_cut_off_is_known_and_cleared(
    published: int, photos: Path, tmp_path: Path
) -> None:
    """Killed after each file that publishing makes: the same call finds its way, and leaves no trace."""
    output = tmp_path / "out"
    script = (
        "import os, sys\n"
        "from recordmill.transforms.storage import output\n"
        "from pipelines import convert\n"
        "replace, left = os.replace, [int(sys.argv.pop(1))]\n"
        "def dying(old, new):\n"
        "    done = 'failures' in new or '/.recordmill/' in new\n"
        "    left[0] -= not done\n"
        "    if left[0] < 0: os._exit(9)\n"
        "    replace(old, new)\n"
        "os.replace = dying\n"
        "convert.main()\n"
    )
    call = ["--input", str(photos), "--output", str(output), "--limit=10", "--num_shards=2", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, str(published), *call]
    # Two shards, two indexes, two files of the report, two of TFDS, the manifest.
    status = subprocess.run(command, env=environment, timeout=120).returncode
    assert status == (9 if published < 9 else 0)
    assert (output / "manifest.json").exists() == (published >= 9)
    if published < 9:
        assert convert("--input", photos, "--output", output, "--limit=10", "--num_shards=1") == 0
        assert [path.name for path in output.glob("*.tfrecord")] == ["train-00000-of-00001.tfrecord"]
        assert [path.name for path in output.glob("index/*")] == ["train-00000-of-00001.idx"]
        assert not list(output.glob("*.part"))
    assert not (output / ".recordmill").exists()


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
