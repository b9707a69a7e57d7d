"""`make image`, `make template` and `make launch`, with a gcloud that notes what it is asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.test_metadata import METADATA

ROOT = Path(__file__).parents[2]
IMAGE = "us-central1-docker.pkg.dev/my-project/recordmill/recordmill:7"
PLACE = ("PROJECT=my-project", "REGION=us-central1", "BUCKET=my-bucket")

GCLOUD = """\
#!{python}
import json, os, sys
with open(os.environ["GCLOUD_CALLS"], "a", encoding="utf-8") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1:3] == ["storage", "cat"]:
    if sys.argv[3].endswith("missing.json"):
        sys.exit("ERROR: no such object")
    print(json.dumps({{"image": {image!r}, "metadata": {{"name": "it's"}}}}))
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


class Made:
    """Runs make with the noting gcloud first on the path."""

    def __init__(self, folder: Path) -> None:
        program = folder / "bin/gcloud"
        program.parent.mkdir()
        program.write_text(GCLOUD.format(python=sys.executable, image=IMAGE), "utf-8")
        program.chmod(0o755)
        self._notes = folder / "calls"
        names = (
            "MAKEFLAGS",
            "MAKELEVEL",
            "MFLAGS",
            "PROJECT",
            "REGION",
            "BUCKET",
            "IMAGE",
            "NAME",
            "PARAMETERS",
        )
        self._environment = {name: value for name, value in os.environ.items() if name not in names}
        self._environment["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        self._environment["GCLOUD_CALLS"] = str(self._notes)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *arguments], cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False
        )

    def calls(self) -> list[list[str]]:
        """The arguments of each call of gcloud."""
        if not self._notes.exists():
            return []
        return [json.loads(line) for line in self._notes.read_text("utf-8").splitlines()]


@pytest.fixture
def make(tmp_path: Path) -> Made:
    return Made(tmp_path)


BUILD = [
    *("builds", "submit", ".", "--project", "my-project", "--region", "us-central1"),
    *("--config", "deploy/cloudbuild.yaml", "--substitutions", f"_IMAGE={IMAGE}"),
]


def test_template_builds_the_image_and_the_template(make: Made) -> None:
    made = make("template", *PLACE, "TAG=7")
    assert made.returncode == 0, made.stderr
    assert make.calls() == [
        BUILD,
        [
            *("dataflow", "flex-template", "build", "gs://my-bucket/templates/recordmill.json"),
            *("--project", "my-project", "--image", IMAGE),
            *("--sdk-language", "PYTHON", "--metadata-file", "deploy/metadata.json"),
        ],
    ]
    assert (ROOT / "deploy/metadata.json").exists()


def test_image_takes_more_flags_of_gcloud(make: Made) -> None:
    made = make("image", *PLACE[:2], "TAG=7", "BUILD_ARGS=--service-account 'a b' --async")
    assert made.returncode == 0, made.stderr
    assert make.calls() == [[*BUILD, "--service-account", "a b", "--async"]]


def test_the_image_is_named_by_the_commit(make: Made) -> None:
    assert make("image", *PLACE[:2], "REPOSITORY=mine").returncode == 0
    ((*_, substitution),) = make.calls()
    prefix = "_IMAGE=us-central1-docker.pkg.dev/my-project/mine/recordmill:"
    assert substitution.startswith(prefix)
    assert substitution.removeprefix(prefix)


def test_cloud_build_builds_the_dockerfile() -> None:
    text = (ROOT / "deploy/cloudbuild.yaml").read_text("utf-8")
    assert 'args: [build, --file, deploy/Dockerfile, --tag, "${_IMAGE}", .]' in text
    assert 'images: ["${_IMAGE}"]' in text
    assert (ROOT / "deploy/Dockerfile").exists()


READ = ["storage", "cat", "gs://my-bucket/templates/recordmill.json", "--project", "my-project"]
RUN = [
    *("dataflow", "flex-template", "run", "nightly", "--project", "my-project", "--region", "us-central1"),
    *("--template-file-gcs-location", "gs://my-bucket/templates/recordmill.json"),
    *("--staging-location", "gs://my-bucket/staging", "--temp-location", "gs://my-bucket/temp"),
    "--parameters",
]
JOB = (*PLACE, "NAME=nightly", "INPUT=gs://in/my photos", "OUTPUT=gs://out/it's")
PARAMETERS = f"^~^input=gs://in/my photos~output=gs://out/it's~sdk_container_image={IMAGE}"


def test_launch_runs_the_template_with_its_own_image(make: Made) -> None:
    made = make("launch", *JOB, "IMAGE=another:1")
    assert made.returncode == 0, made.stderr
    assert make.calls() == [READ, [*RUN, PARAMETERS]]


def test_parameters_may_have_commas_and_quotes(make: Made) -> None:
    more = "splits=train=0.9,val=0.1~label_pattern=^([\"a-z']+)_\\d|`x`~num_shards=train=4,val=1"
    made = make("launch", *JOB, f"PARAMETERS={more}", "ARGS=--max-workers 5 --disable-public-ips")
    assert made.returncode == 0, made.stderr
    assert make.calls()[1] == [*RUN, f"{PARAMETERS}~{more}", "--max-workers", "5", "--disable-public-ips"]
    # As gcloud takes it apart: by the character between the first two ^.
    _, separator, text = make.calls()[1][len(RUN)].split("^", 2)
    given = dict(one.split("=", 1) for one in text.split(separator))
    assert given["splits"] == "train=0.9,val=0.1"
    assert given["num_shards"] == "train=4,val=1"
    assert set(given) <= {one["name"] for one in METADATA["parameters"]}


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (("image",), "PROJECT=… REGION=…"),
        (("template", *PLACE[:2]), "BUCKET=…"),
        (("launch",), "PROJECT=… REGION=… BUCKET=… NAME=… INPUT=… OUTPUT=…"),
        (("launch", *JOB[:4], JOB[5]), "INPUT=…"),
    ],
)
def test_what_is_missing_is_named(make: Made, arguments: tuple[str, ...], missing: str) -> None:
    made = make(*arguments)
    assert made.returncode == 2
    assert f"make {arguments[0]}: give also {missing}\n" in made.stderr
    assert make.calls() == []


def test_a_template_that_is_not_there_launches_nothing(make: Made) -> None:
    made = make("launch", *JOB, "TEMPLATE=gs://my-bucket/missing.json")
    assert made.returncode == 2
    assert "ERROR: no such object" in made.stderr
    assert "Traceback" not in made.stderr
    assert len(make.calls()) == 1
