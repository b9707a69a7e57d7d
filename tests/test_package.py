"""What an installation adds: one package, which nothing next to a script hides."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import recordmill
from benchmarks.drawings import draw_folder
from recordmill.pipelines.running.dataflow_job import pack

ROOT = Path(__file__).parents[1]


def run(*call: str | Path, **environment: str) -> str:
    """What a program prints, which starts in a folder of its own choice."""
    folder = environment.pop("cwd", None)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, call)),
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(pack(str(ROOT / "setup.py"), str(folder))) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.glob("recordmill-*/")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel in it, and otherwise the packages of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    found = folder / "bin/python"
    run(sys.executable, "-m", "pip", "--python", found, "install", "-q", "--no-index", "--no-deps", wheel)
    site = Path(run(found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    assert sorted(path.name.partition("-")[0] for path in site.iterdir()) == ["recordmill", "recordmill"]
    # Its own .pth files, and so the editable installation, are not read there.
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return found


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    assert len(list(draw_folder(folder, 2))) == 6
    return folder


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    folders = (ROOT / "recordmill", ROOT / "pipelines", ROOT / "transforms")
    files = [path for folder in folders for path in folder.rglob("*.*") if path.is_file()]
    names = [str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"]
    assert held == {name if name.startswith("recordmill/") else f"recordmill/{name}" for name in names}


@pytest.mark.slow
def test_names_next_to_a_script_hide_nothing(python: Path, photos: Path, tmp_path: Path) -> None:
    for name in ("transforms.py", "pipelines.py", "recordmill_utils/__init__.py", "input.py", "read.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    (tmp_path / "train.py").write_text(
        "import sys\n"
        "import apache_beam as beam\n"
        "from recordmill import DatasetConfig, ReadSource, SourceConfig, WriteDataset, load_dataset\n"
        "if __name__ == '__main__':\n"
        "    with beam.Pipeline('FnApiRunner') as pipeline:\n"
        "        source = ReadSource(SourceConfig(kind='folder', input=sys.argv[1]))\n"
        "        pipeline | source | WriteDataset('own', DatasetConfig(num_shards=1))\n"
        "    print(len(list(load_dataset('own'))), load_dataset('out').class_names)\n"
    )
    here = {"cwd": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    call = ("convert", "--input", photos, "--quiet")
    run(python.with_name("recordmill"), *call, "--output=out", **here)
    run(python, "-m", "recordmill", *call, "--output=out2", **here)
    entry = next(python.parents[1].glob("lib/*/site-packages/recordmill/pipelines/convert.py"))
    run(python, entry, *call[1:], "--output=out3", **here)
    (shard,) = (tmp_path / "out").glob("*.tfrecord")
    for other in ("out2", "out3"):
        assert (tmp_path / other / shard.name).read_bytes() == shard.read_bytes()
    assert run(python, "train.py", photos, **here) == "6 ('circle', 'square', 'triangle')\n"


@pytest.mark.slow
def test_a_checkout_needs_no_installation(photos: Path, tmp_path: Path) -> None:
    """Its folder on the path is enough, and its entry file finds it."""
    checkout = tmp_path / "recordmill"
    checkout.mkdir()
    for name in ("recordmill", "pipelines", "transforms"):
        (checkout / name).symlink_to(ROOT / name)
    without = (sys.executable, "-S")  # no site-packages: nothing is installed
    found = run(
        *without,
        "-c",
        "import recordmill.transforms.flags as one; print(one.__name__)",
        cwd=str(tmp_path),
        PYTHONPATH=str(checkout),
    )
    assert found == "recordmill.transforms.flags\n"
    call = (ROOT / "pipelines/convert.py", "--input", photos, "--output", tmp_path / "out", "--quiet")
    run(sys.executable, *call, cwd=str(tmp_path))
    assert (tmp_path / "out/manifest.json").exists()


def test_a_checkout_of_the_package_s_name_hides_nothing(tmp_path: Path) -> None:
    """Where the working directory holds a folder `recordmill` without a package in it."""
    if not (ROOT / "build/names/recordmill").exists():
        pytest.skip("the environment is not the one that make makes")
    (tmp_path / "recordmill/recordmill").mkdir(parents=True)
    found = run(
        *(sys.executable, "-c", "import recordmill; print(recordmill.__version__)"),
        cwd=str(tmp_path),
        PYTHONPATH=str(ROOT / "build/names"),
    )
    assert found == f"{recordmill.__version__}\n"


def test_the_public_names_are_imported_when_they_are_used() -> None:
    code = (
        "import sys, recordmill\n"
        "heavy = {'apache_beam', 'tensorflow', 'numpy', 'PIL'}\n"
        "assert not heavy & set(sys.modules)\n"
        "from recordmill import ImageRecord, ImagePolicy, DatasetConfig, SourceConfig\n"
        "assert not {'apache_beam', 'tensorflow'} & set(sys.modules)\n"
        "assert set(recordmill.__all__) < set(dir(recordmill))\n"
        "try:\n    recordmill.nothing\n"
        "except AttributeError as error:\n    print(error)\n"
    )
    assert run(sys.executable, "-c", code) == "module 'recordmill' has no attribute 'nothing'\n"
    for name in recordmill.__all__:
        assert getattr(recordmill, name).__name__ == name


@pytest.mark.slow
def test_without_tensorflow_only_reading_fails() -> None:
    code = (
        "import inspect, pydoc, sys\n"
        "sys.modules['tensorflow'] = None\n"
        "import recordmill\n"
        "from recordmill import *\n"
        "assert inspect.getmembers(recordmill) and pydoc.render_doc(recordmill)\n"
        "try:\n    load_dataset('nowhere')\n"
        "except ImportError as error:\n    print(error)\n"
    )
    assert run(sys.executable, "-c", code) == (
        "load_dataset needs TensorFlow: pip install 'recordmill[tensorflow]'\n"
    )


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "recordmill/__init__.py").read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_" in ast.unparse(node.test)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: node.module for node in imports for alias in node.names}
    assert sorted(seen) == sorted(recordmill.__all__)
    for name, module in seen.items():
        where = recordmill._MODULES.get(name, "transforms.records")
        assert module == f"recordmill.{where}", name
