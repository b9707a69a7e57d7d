"""What is installed has a hash, images can have digests, and the bill of materials is complete."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.test_image import pins

ROOT = Path(__file__).parents[2]
DOCKERFILES = ("deploy/Dockerfile", "deploy/vertex/Dockerfile")
DOCKER = """#!{python}
import sys
assert sys.argv[1:4] == ["buildx", "imagetools", "inspect"], sys.argv
if "beam" in sys.argv[4] and {fails}:
    sys.exit("no such image")
print("sha256:" + format(len(sys.argv[4]), "064x"))
"""


def commands(path: str) -> list[str]:
    """The lines of a Makefile or Dockerfile, continued lines joined."""
    text = (ROOT / path).read_text("utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("path", ["Makefile", *DOCKERFILES])
def test_all_that_is_installed_has_a_hash(path: str) -> None:
    installs = [line for line in commands(path) if re.search(r"pip install|\$\(INSTALL\)", line)]
    installs = [line for line in installs if not line.startswith("INSTALL =")]
    assert len(installs) >= 3
    for line in installs:
        is_own = "--no-deps" in line and ("--editable ." in line or line.rstrip().endswith(".whl"))
        assert is_own or "--require-hashes" in line or "*.whl &&" in line, line
    builds = [line for line in commands(path) if "uv build" in line or "--editable" in line]
    assert builds and all("--build-constraint requirements-dev.lock" in line for line in builds)


def test_the_lock_of_the_installer_has_only_it() -> None:
    assert list(pins("requirements-uv.lock")) == ["uv"]


@pytest.mark.parametrize("fails", [False, True])
def test_digests_are_added_to_base_images_and_renewed(tmp_path: Path, fails: bool) -> None:
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin/docker"
    docker.write_text(DOCKER.format(python=sys.executable, fails=fails), "utf-8")
    docker.chmod(0o755)
    for path in ("Makefile", *DOCKERFILES):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text("utf-8"), "utf-8")
    before = {path: (tmp_path / path).read_text("utf-8") for path in DOCKERFILES}
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    environment = {name: value for name, value in environment.items() if not name.startswith(("MAKE", "MFL"))}
    for _ in range(2):
        made = subprocess.run(["make", "digests"], cwd=tmp_path, env=environment, capture_output=True)
        assert (made.returncode != 0) is fails, made.stderr
    for path, text in before.items():
        images = re.findall(r"^ARG [A-Z]+_IMAGE=([^\s@]+)", text, re.MULTILINE)
        after = (tmp_path / path).read_text("utf-8")
        for image in images if not fails else []:
            assert f"_IMAGE={image}@sha256:{len(image):064x}\n" in after
        assert images and without_digests(after) == without_digests(text)


def without_digests(text: str) -> str:
    return re.sub("@sha256:[0-9a-f]{64}", "", text)


@pytest.mark.slow
def test_the_bill_of_materials_has_all_of_the_lock(tmp_path: Path) -> None:
    for lock in ("requirements.lock", "deploy/requirements.lock"):
        made = tmp_path / "sbom.json"
        call = [sys.executable, "-m", "cyclonedx_py", "requirements", str(ROOT / lock)]
        subprocess.run([*call, "--output-file", str(made)], check=True, capture_output=True)
        listed = {one["name"]: one for one in json.loads(made.read_text("utf-8"))["components"]}
        wanted = re.findall(r"^([A-Za-z0-9_.\[\]-]+)==", (ROOT / lock).read_text("utf-8"), re.MULTILINE)
        assert {name.partition("[")[0] for name in wanted} == set(listed)
        for one in listed.values():
            assert any("hashes" in reference for reference in one["externalReferences"]), one["name"]


def test_only_the_image_of_dataflow_runs_as_root() -> None:
    users = {path: [line for line in commands(path) if line.startswith("USER ")] for path in DOCKERFILES}
    assert users == {"deploy/Dockerfile": [], "deploy/vertex/Dockerfile": ["USER 1000:1000"]}
