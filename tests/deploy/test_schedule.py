"""What the schedule of deploy/terraform sends to Dataflow: evaluated by terraform where there is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.test_metadata import METADATA, PARAMETERS, matches
from tests.deploy.test_terraform import FOLDER, resources

pytestmark = pytest.mark.skipif(shutil.which("terraform") is None, reason="there is no terraform")


@pytest.fixture
def terraform(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs terraform in a copy of what a launch is made of; that needs no provider."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    folder = tmp_path / "deploy/terraform"
    folder.mkdir(parents=True)
    shutil.copy(FOLDER.parent / "metadata.json", tmp_path / "deploy")
    for name in ("variables.tf", "launch.tf"):
        shutil.copy(FOLDER / name, folder)
    names = ("launch", "container_spec", "template_object", "unknown_parameters", "input_bucket", "names")
    outputs = "\n".join(f'output "{name}" {{ value = local.{name} }}' for name in names)
    (folder / "shown.tf").write_text(outputs, "utf-8")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["terraform", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert run("init", "-input=false").returncode == 0
    return run


GIVEN = {
    "project": "my-project",
    "region": "us-central1",
    "input": "gs://pictures/photos",
    "image": "us-central1-docker.pkg.dev/my-project/recordmill/recordmill:1",
}


def applied(terraform: Callable[..., subprocess.CompletedProcess[str]], **variables: str) -> dict[str, Any]:
    """What the launch is made of, with these variables."""
    given = [f"-var={name}={value}" for name, value in {**GIVEN, **variables}.items()]
    done = terraform("apply", "-auto-approve", "-input=false", *given)
    assert done.returncode == 0, done.stderr
    shown = json.loads(terraform("output", "-json").stdout)
    return {name: output["value"] for name, output in shown.items()}


def test_the_format_is_terraforms_own() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    done = subprocess.run(
        ["terraform", "fmt", "-check", "-diff", "-recursive", str(FOLDER)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_launch_is_what_dataflow_takes(
    terraform: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    shown = applied(terraform, parameters='{image_format="jpeg",splits="train=0.9,val=0.1"}')
    launch = shown["launch"]["launchParameter"]
    assert shown["unknown_parameters"] == []
    assert launch["jobName"] == "recordmill"
    assert launch["containerSpecGcsPath"] == f"gs://my-project-recordmill-work/{shown['template_object']}"
    assert launch["parameters"] == {
        "input": "gs://pictures/photos",
        "output": "gs://my-project-recordmill-datasets/dataset",
        "sdk_container_image": GIVEN["image"],
        "dataset_version": "auto",
        "keep_versions": "3",
        "writer": "shards",
        "image_format": "jpeg",
        "splits": "train=0.9,val=0.1",
    }
    assert set(launch["parameters"]) <= set(PARAMETERS)
    assert [name for name, value in launch["parameters"].items() if not matches(name, value)] == []
    assert launch["environment"] == {
        "serviceAccountEmail": "recordmill-worker@my-project.iam.gserviceaccount.com",
        "tempLocation": "gs://my-project-recordmill-work/temp",
        "stagingLocation": "gs://my-project-recordmill-work/staging",
        "maxWorkers": 20,
    }
    assert shown["container_spec"] == {
        "image": GIVEN["image"],
        "metadata": METADATA,
        "sdkInfo": {"language": "PYTHON"},
        "defaultEnvironment": launch["environment"],
    }
    assert shown["input_bucket"] == "pictures"


@pytest.mark.slow
def test_what_is_published_is_for_variables_to_say(
    terraform: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    needed = {"input", "output", "sdk_container_image"}

    def published(**variables: str) -> dict[str, str]:
        given = applied(terraform, **variables)["launch"]["launchParameter"]["parameters"]
        assert [name for name, value in given.items() if not matches(name, value)] == []
        return {name: value for name, value in given.items() if name not in needed}

    assert published(versions="false") == {"overwrite": "true", "writer": "shards"}
    by_beam = published(versions="false", parameters='{writer="beam"}')
    assert by_beam == {"overwrite": "true", "writer": "beam"}
    (tmp_path / "deploy/terraform/terraform.tfvars").write_text("keep_versions = null\n", "utf-8")
    assert published() == {"dataset_version": "auto", "writer": "shards"}


@pytest.mark.slow
def test_a_private_network_and_a_key(terraform: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    network = "regions/us-central1/subnetworks/workers"
    shown = applied(
        terraform, subnetwork=network, kms_key=key, machine_type="n2-standard-8", name="nightly-pets"
    )
    environment = shown["launch"]["launchParameter"]["environment"]
    assert environment["subnetwork"] == network
    assert environment["ipConfiguration"] == "WORKER_IP_PRIVATE"
    assert environment["kmsKeyName"] == key
    assert environment["machineType"] == "n2-standard-8"
    assert shown["launch"]["launchParameter"]["jobName"] == "nightly-pets"


def test_dataflow_knows_all_fields_of_the_launch(
    terraform: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    dataflow = pytest.importorskip("google.cloud.dataflow_v1beta3", reason="Beam's parts for Google Cloud")
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    network = "regions/us-central1/subnetworks/workers"
    shown = applied(terraform, subnetwork=network, kms_key=key, machine_type="n2-standard-8")
    launch = dataflow.LaunchFlexTemplateRequest.from_json(json.dumps(shown["launch"])).launch_parameter
    assert launch.job_name == "recordmill"
    assert launch.environment.max_workers == 20
    assert launch.environment.ip_configuration == dataflow.WorkerIPAddressConfiguration.WORKER_IP_PRIVATE
    spec = {name: value for name, value in shown["container_spec"].items() if name != "metadata"}
    assert dataflow.ContainerSpec.from_json(json.dumps(spec)).default_environment.kms_key_name == key
    # The client is older than the types and choices of parameters.
    known = [
        {name: one[name] for name in ("name", "label", "helpText", "isOptional", "regexes") if name in one}
        for one in METADATA["parameters"]
    ]
    described = {"name": METADATA["name"], "description": METADATA["description"], "parameters": known}
    assert len(dataflow.TemplateMetadata.from_json(json.dumps(described)).parameters) == len(PARAMETERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("region", "us-central1-a", "not a zone"),
        ("name", "a-name-of-more-than-20", "At most 20"),
        ("image", "recordmill", "tag or digest"),
        ("input", "/mnt/photos", "gs://BUCKET/PATH"),
        ("output_folder", "/data", "without /"),
        ("subnetwork", "workers", "regions/REGION"),
        ("kms_key", "my-key", "cryptoKeys/K"),
        ("days_without_success", "0.5", "An integer from 1 to 30"),
        ("max_workers", "0", "From 1"),
        ("keep_versions", "0", "An integer from 1"),
        ("keep_versions", "1.5", "An integer from 1"),
        ("parameters", '{overwrite="true"}', "Set the variables versions and keep_versions"),
        ("parameters", '{dataset_version="2.0.0"}', "Set the variables versions and keep_versions"),
        ("parameters", '{writer="beam"}', "With versions, writer is shards"),
    ],
)
def test_a_wrong_variable_is_refused(
    terraform: Callable[..., subprocess.CompletedProcess[str]], name: str, value: str, message: str
) -> None:
    given = [f"-var={key}={text}" for key, text in {**GIVEN, name: value}.items()]
    done = terraform("plan", "-input=false", *given)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.slow
def test_a_parameter_that_the_template_lacks_is_found(
    terraform: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert applied(terraform, parameters='{image_fromat="jpeg"}')["unknown_parameters"] == ["image_fromat"]
    (condition,) = resources()["google_cloud_scheduler_job", "convert"]["lifecycle"][0]["precondition"]
    assert condition["condition"] == "${length(local.unknown_parameters) == 0}"
