"""A whole submission by the command line, against a Dataflow service and a bucket on loopback."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions
from google.cloud import dataflow

from tests.dataflow.endpoint import JOB_ID
from tests.dataflow.submitting import IMAGE, ROOT, Submitter, options
from tests.pipelines.conversion import convert

LINK = f"https://console.cloud.google.com/dataflow/jobs/europe-west4/{JOB_ID}?project=my-project"
CANCEL = f"gcloud dataflow jobs cancel {JOB_ID} --project=my-project --region=europe-west4"


def test_what_is_submitted(submitter: Submitter, tmp_path: Path) -> None:
    done = submitter.run("--async", "--num_shards=4", "--labels=team=vision", "--service_account_email=a@b")
    assert done.status == 0
    printed = r"source: folder \(.*circle.*\); schema: chosen from the records\n"
    assert re.fullmatch(printed, done.err)  # --writer=beam: shards bound nothing
    assert JOB_ID in done.out
    assert LINK in done.out
    assert CANCEL in done.out
    assert "gs://pictures/out/manifest.json" in done.out
    (job,) = submitter.dataflow.jobs
    assert (job["project"], job["region"]) == ("my-project", "europe-west4")
    assert re.fullmatch(r"recordmill-out-[0-9a-f]{8}", job["name"])
    assert job["type"] == dataflow.JobType.JOB_TYPE_BATCH
    assert job["labels"] == {"team": "vision"}
    environment = job["environment"]
    assert environment["serviceAccountEmail"] == "a@b"
    assert environment["version"]["job_type"] == "FNAPI_BATCH"
    assert {"use_runner_v2", "use_portable_job_submission"} <= set(environment["experiments"])
    assert environment["tempStoragePrefix"].startswith("storage.googleapis.com/pictures/tmp/")
    (pool,) = environment["workerPools"]
    assert pool["machineType"] == "e2-standard-4"
    assert pool["diskSizeGb"] == 50
    assert pool["numThreadsPerWorker"] == 2
    assert pool["autoscalingSettings"] == {
        "algorithm": dataflow.AutoscalingAlgorithm.AUTOSCALING_ALGORITHM_BASIC,
        "maxNumWorkers": 10,
    }
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (image,) = pool["sdkHarnessContainerImages"]
    assert re.search(rf"beam_python{version}_sdk:2\.77", image["containerImage"])
    assert options(job)["save_main_session"] is False
    # The service is asked for nothing after the job was created.
    assert [method for method, _ in submitter.dataflow.requests] == ["POST"]
    # Nothing is written but what the workers need.
    for name in submitter.buckets.names("gs://pictures/"):
        assert name.startswith(("gs://pictures/photos/", "gs://pictures/tmp/")), name
    _check_staged(submitter, tmp_path)


def _check_staged(submitter: Submitter, tmp_path: Path) -> None:
    """The code, and the steps that use it."""
    code = submitter.unpack_code(tmp_path / "code")
    for name in ("transforms/shards/manifest.schema.json", "transforms/write.py", "pipelines/convert.py"):
        assert (code / name).is_file()
    assert not (code / "tests").exists()
    components = submitter.pipeline().components
    (environment,) = components.environments.values()
    assert sum(b".tar.gz" in each.type_payload for each in environment.dependencies) == 1
    labels = {transform.unique_name for transform in components.transforms.values()}
    assert "ReadSource/List" in labels
    assert "WriteDataset/SurveyRecords/Survey" in labels
    assert "WriteDataset/PlanDataset/Plan" in labels
    assert "WriteDataset/WriteTFRecords/Encode" in labels
    assert "WriteDataset/Publish/WriteMetadata" in labels
    for label in labels:
        ours = [part for part in label.split("/") if not part.startswith(("Map", "FlatMap", "ParDo"))]
        assert ours, f"{label}: a step without a name"


@pytest.mark.slow
def test_the_code_in_the_image(submitter: Submitter) -> None:
    done = submitter.run(
        *("--async", "--quiet", "--writer=shards", f"--sdk_container_image={IMAGE}", "--job_name=night"),
        *("--machine_type=n2-standard-8", "--max_num_workers=3", "--disk_size_gb=80", "--no_use_public_ips"),
        *("--number_of_worker_harness_threads=1", "--subnetwork=regions/r/subnetworks/s"),
        "--dataflow_kms_key=projects/p/locations/l/keyRings/k/cryptoKeys/c",
    )
    assert (done.status, done.out, done.err) == (0, "", "")
    (job,) = submitter.dataflow.jobs
    (pool,) = job["environment"]["workerPools"]
    assert [image["containerImage"] for image in pool["sdkHarnessContainerImages"]] == [IMAGE]
    assert (pool["machineType"], pool["diskSizeGb"], pool["numThreadsPerWorker"]) == ("n2-standard-8", 80, 1)
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 3
    assert pool["ipConfiguration"] == dataflow.WorkerIPAddressConfiguration.WORKER_IP_PRIVATE
    assert pool["subnetwork"] == "regions/r/subnetworks/s"
    assert job["environment"]["serviceKmsKeyName"] == "projects/p/locations/l/keyRings/k/cryptoKeys/c"
    assert job["name"] == "night"
    assert submitter.archives() == []
    (environment,) = submitter.pipeline().components.environments.values()
    assert not any(b".tar.gz" in each.type_payload for each in environment.dependencies)
    labels = {each.unique_name for each in submitter.pipeline().components.transforms.values()}
    assert "WriteDataset/WriteShards/Write" in labels


@pytest.mark.slow
def test_the_graph_does_not_grow_with_the_files(submitter: Submitter) -> None:
    """A listing of many is not made by the launcher, nor sent along."""
    call = ("--async", "--quiet", "--output=gs://pictures/out", f"--sdk_container_image={IMAGE}")
    assert submitter.run(*call).status == 0
    small, small_job = submitter.pipeline(), submitter.dataflow.jobs[-1]
    for number in range(3000):
        submitter.buckets.put(f"gs://pictures/photos/circle/more_{number:07d}.jpg", b"")
    submitter.buckets.clear()
    assert submitter.run(*call).status == 0
    large, large_job = submitter.pipeline(), submitter.dataflow.jobs[-1]
    assert submitter.pipeline_url() != options(small_job)["pipelineUrl"]
    assert len(large.components.transforms) == len(small.components.transforms)
    # What differs by job, such as its token, is compressed, so that sizes differ by chance.
    assert abs(large.ByteSize() - small.ByteSize()) < 500
    assert abs(len(json.dumps(large_job)) - len(json.dumps(small_job))) < 500
    assert b"more_" not in large.SerializeToString()
    assert not any(request.kind == "get-media" for request in submitter.buckets.requests)


@pytest.mark.slow
def test_following_a_job(submitter: Submitter, photos: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    assert convert("--input", photos, "--output", local, "--max_failure_ratio=0.1", "--quiet") == 0
    submitter.dataflow.on_job = lambda job: submitter.buckets.upload_folder(local, "gs://pictures/out")
    submitter.dataflow.states = [
        "JOB_STATE_PENDING",
        "JOB_STATE_RUNNING",
        "JOB_STATE_RUNNING",
        "JOB_STATE_DONE",
    ]
    submitter.dataflow.messages = [
        ("JOB_MESSAGE_DEBUG", "not for people"),
        ("JOB_MESSAGE_BASIC", "Starting 1 workers…"),
        ("JOB_MESSAGE_WARNING", "Quota of IPs is low"),
    ]
    submitter.dataflow.metrics = {("read", "s2"): 13, ("written", "s7"): 12, ("failed/decode/x", "s7"): 1}
    done = submitter.run(f"--sdk_container_image={IMAGE}")
    assert done.status == 0
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in done.err.splitlines()]
    assert lines[0].startswith("source: folder (")
    assert re.fullmatch(rf"job recordmill-out-[0-9a-f]{{8}} is at Dataflow, id {JOB_ID}", lines[1])
    assert lines[2] == f"  to look at it:  {LINK}"
    assert [line for line in lines[3:] if not line.startswith("read")] == [
        "Dataflow: pending",
        "Dataflow: running",
        "Dataflow: warning: Quota of IPs is low",
        "Dataflow: done",
    ]
    assert lines[-1] == "read 13, written 12, failed 1"
    # The table is that of the manifest in the bucket.
    assert re.search(r"^written +12 *$", done.out, re.MULTILINE)
    assert "The dataset is in gs://pictures/out/." in done.out


@pytest.mark.slow
def test_a_failed_job(submitter: Submitter) -> None:
    submitter.dataflow.states = ["JOB_STATE_RUNNING", "JOB_STATE_FAILED"]
    submitter.dataflow.messages = [
        (
            "JOB_MESSAGE_ERROR",
            "Traceback (most recent call last):\n  …\ntransforms.records.JobError: no room",
        ),
        ("JOB_MESSAGE_ERROR", "Workflow failed."),
    ]
    done = submitter.run("--quiet", f"--sdk_container_image={IMAGE}")
    assert (done.status, done.out, done.err) == (1, "", "recordmill convert: error: no room\n")


@pytest.mark.parametrize(
    ("other_job", "refusal", "message"),
    [
        ("another-id", None, "There is already active job named night with id: another-id."),
        ("", (403, "The caller has no permission"), "Dataflow refuses the job: 403 "),
    ],
)
def test_a_job_that_is_refused(
    other_job: str, refusal: tuple[int, str] | None, message: str, submitter: Submitter
) -> None:
    submitter.dataflow.other_job = other_job
    submitter.dataflow.refusal = refusal
    done = submitter.run("--quiet", f"--sdk_container_image={IMAGE}", "--job_name=night")
    assert done.status == 1
    assert done.err.startswith(f"recordmill convert: error: {message}")
    assert done.err.count("\n") == 1


@pytest.mark.slow
def test_interrupted_while_it_is_followed(submitter: Submitter) -> None:
    submitter.dataflow.states = ["JOB_STATE_RUNNING"]
    process = submitter.start(f"--sdk_container_image={IMAGE}")
    try:
        assert process.stderr is not None
        before = []
        for line in process.stderr:
            before.append(line)
            if "Dataflow: running" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, ""), before
    assert "interrupted; the job continues: job recordmill-out-" in err
    assert CANCEL in err
    assert ("PUT", f"/v1b3/projects/my-project/locations/europe-west4/jobs/{JOB_ID}") not in (
        submitter.dataflow.requests
    )


@pytest.mark.slow
def test_as_a_template_launcher_runs_it(submitter: Submitter, tmp_path: Path) -> None:
    """It gives parameters as text, and wants the job's description in a file, and nothing submitted."""
    description = tmp_path / "job.json"
    call = submitter.call(
        *(f"--template_location={description}", "--staging_location=gs://pictures/staging", "--async=false"),
        *("--overwrite=true", "--plan=false", f"--sdk_container_image={IMAGE}", "--job_name=night-1"),
    )
    call[1:4] = ["pipelines/convert.py"]
    done = subprocess.run(
        call, cwd=ROOT, env=submitter.environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"Wrote the job description to {description}; not submitted" in done.stderr
    assert submitter.dataflow.jobs == []
    assert json.loads(description.read_text("utf-8"))["name"] == "night-1"


@pytest.mark.slow
def test_a_plan_is_made_here(submitter: Submitter) -> None:
    done = submitter.run("--plan", "--writer=shards")
    assert done.status == 0, done.err
    assert re.search(r"^records +13 *$", done.out, re.MULTILINE)
    assert submitter.dataflow.requests == []
    assert submitter.buckets.names("gs://pictures/out") == []


@pytest.mark.slow
def test_beam_checks_its_flags_too(
    submitter: Submitter, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not where the endpoint is on this machine; with its own, what is wrong is one line, and no job."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", submitter.buckets.host)
    monkeypatch.setattr(GoogleCloudOptions, "_warn_if_soft_delete_policy_enabled", lambda *_: None)
    call = [
        "--input=gs://pictures/photos",
        "--output=gs://pictures/out",
        "--runner=DataflowRunner",
        "--async",
    ]
    call += ["--region=europe-west4", "--temp_location=gs://pictures/tmp", "--project=12345", "--quiet"]
    assert convert(*call) == 2
    printed = capfd.readouterr()
    assert printed.err.startswith("recordmill convert: error: --runner is 'DataflowRunner': ")
    assert "Invalid Project ID (12345)" in printed.err
    assert (printed.err.count("\n"), printed.out) == (1, "")
