"""The flags that a call of Dataflow has to give, and those that it gets."""

import re
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.options import dataflow
from recordmill.pipelines.options import runner as runner_flags
from recordmill.pipelines.options.convert import CONVERT, parse_convert
from recordmill.pipelines.options.parser import Parser
from recordmill.pipelines.running.dataflow_job import pack
from recordmill.transforms.records import JobError
from tests.dataflow.submitting import Submitter
from tests.pipelines.conversion import convert

GIVEN = ("--project=my-project", "--region=europe-west4", "--temp_location=gs://bucket/tmp")
DEFAULTS = {
    "--machine_type=e2-standard-4",
    "--number_of_worker_harness_threads=2",
    "--disk_size_gb=50",
    "--autoscaling_algorithm=THROUGHPUT_BASED",
    "--max_num_workers=10",
    "--no_save_main_session",
}


def flags(*given: str) -> Any:
    return runner_flags.beam_flags(Parser(prog="x"), [*GIVEN, *given], "DataflowRunner")


def added(*given: str) -> set[str]:
    found = dataflow.dataflow_args(flags(*given), "gs://bucket/cats")
    assert len(found) == len(set(found))
    return set(found)


def test_what_a_call_gets() -> None:
    # eight digits of the sha256 of gs://bucket/cats
    named = "--job_name=recordmill-cats-576b0857"
    assert added() == {*DEFAULTS, named}


@pytest.mark.parametrize(
    ("given", "without"),
    [
        ("--machine_type=n1-standard-2", "--machine_type"),
        ("--worker_machine_type=n1-standard-2", "--machine_type"),
        ("--number_of_worker_harness_threads=12", "--number_of_worker_harness_threads"),
        ("--disk_size_gb=200", "--disk_size_gb"),
        ("--max_num_workers=3", "--max_num_workers"),
        ("--job_name=nightly", "--job_name"),
        ("--save_main_session", "--no_save_main_session"),
        ("--no_save_main_session", "--no_save_main_session"),
    ],
)
def test_what_is_given_is_not_added(given: str, without: str) -> None:
    assert {each for each in added() if not each.startswith(without)} == added(given)


def test_how_the_program_gets_to_the_workers() -> None:
    assert dataflow.code_to_send(flags(), "/src/setup.py") == "/src/setup.py"
    for given in (
        "--sdk_container_image=image:1",
        "--extra_package=recordmill.whl",
        "--requirements_file=requirements.txt",
        f"--setup_file={__file__}",
    ):
        assert dataflow.code_to_send(flags(given), "/src/setup.py") is None
        assert dataflow.code_to_send(flags(given), None) is None


def test_a_setup_file_that_makes_nothing(tmp_path: Path) -> None:
    setup_file = tmp_path / "setup.py"
    setup_file.write_text("import nothing_of_this_name\n")
    with pytest.raises(
        JobError, match=r"/setup\.py makes no archive .*No module named 'nothing_of_this_name'"
    ):
        pack(str(setup_file), str(tmp_path))


def test_a_fixed_number_of_workers_is_not_scaled() -> None:
    found = added("--autoscaling_algorithm=NONE", "--num_workers=4")
    assert not any("autoscaling" in each or "max_num_workers" in each for each in found)
    assert "--max_num_workers=25" in added("--num_workers=25")


def test_prime_chooses_machines_itself() -> None:
    for given in ("--dataflow_service_options=enable_prime", "--experiments=enable_prime"):
        names = {each.partition("=")[0] for each in added(given)}
        assert names == {"--job_name", "--no_save_main_session"}


@pytest.mark.parametrize(
    ("given", "slots"),
    [
        ([], 40),
        (["--max_num_workers=3", "--machine_type=n1-standard-2"], 6),
        (["--autoscaling_algorithm=NONE", "--num_workers=5"], 20),
        (["--autoscaling_algorithm=NONE"], 0),
        (["--max_num_workers=1", "--machine_type=n2-custom-6-16384"], 6),
        (["--max_num_workers=1", "--machine_type=custom-2-4096-ext"], 2),
        (["--max_num_workers=2", "--machine_type=e2-medium"], 4),
        (["--max_num_workers=1", "--machine_type=c3-standard-8-lssd"], 8),
        (["--max_num_workers=1", "--machine_type=a2-highgpu-1g"], 0),
        (["--max_num_workers=1", "--machine_type=x"], 0),
    ],
)
def test_worker_slots(given: list[str], slots: int) -> None:
    lacking = dataflow.dataflow_args(flags(*given), "gs://bucket/cats")
    assert dataflow.worker_slots(flags(*given, *lacking)) == slots


@pytest.mark.parametrize(
    ("output", "start"),
    [
        ("gs://bucket/cats", "recordmill-cats-"),
        ("gs://bucket/Cats_and Dogs/", "recordmill-cats-and-dogs-"),
        ("gs://bucket/2024-11-21-all-the-pictures-there-are", "recordmill-2024-11-21-all-the-p-"),
        ("gs://bucket", "recordmill-bucket-"),
        ("gs://bucket/猫", "recordmill-"),
    ],
)
def test_job_names(output: str, start: str) -> None:
    name = dataflow.job_name(output)
    assert re.fullmatch(start + r"[0-9a-f]{8}", name)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", name)
    assert dataflow.job_name(output.rstrip("/") + "/") == name
    assert dataflow.job_name(output + "2") != name


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--project="], "which needs --project too"),
        (["--region=", "--temp_location="], "which needs --region, --temp_location too"),
        (["--temp_location=/tmp"], "--temp_location is '/tmp'; give a path in a bucket, gs://BUCKET/…"),
        (["--staging_location=gs://"], "--staging_location is 'gs://'; give a path in a bucket"),
        (
            ["--temp_location=gs://bucket/out/tmp"],
            "--temp_location is 'gs://bucket/out/tmp', in the folder of",
        ),
        (
            ["--staging_location=gs://bucket/out/"],
            "--staging_location is 'gs://bucket/out/', in the folder of",
        ),
        (["--job_name=Nightly"], "--job_name is 'Nightly'; it may have the characters a to z"),
        (["--job_name=nightly-"], "--job_name is 'nightly-'"),
        (["--setup_file=nowhere/setup.py"], "--setup_file is 'nowhere/setup.py'; there is no such file"),
        (["--input=photos"], "--input is 'photos', on this machine, which the workers of --runner="),
        (["--input=file:///photos"], "--input is 'file:///photos', on this machine"),
        (["--output=out"], "--output is 'out', on this machine"),
        (["--annotations=labels.csv"], "--annotations is 'labels.csv', on this machine"),
        (["--image_root=gs://a/b", "--image_root=/data"], "--image_root is '/data', on this machine"),
        (["--label_column="], "--label_column is empty; give a value, or remove the flag"),
        (["--annotations="], "--annotations is empty; give a value, or remove the flag"),
        (["--splits="], "'' names no split; write train=0.8,val=0.2"),
        (["--async="], "argument --async: '' is neither true nor false"),
        (["--max_num_worker=3"], "--max_num_worker is not a flag; did you mean --max_num_workers?"),
        (["--max_num_workers=many"], "argument --max_num_workers: invalid int value: 'many'"),
        (["--autoscaling_algorithm=x"], "argument --autoscaling_algorithm: invalid choice: 'x'"),
    ],
)
@pytest.mark.parametrize("runner", ["DataflowRunner", "dataflow"])
def test_bad_call(runner: str, changed: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    call = ["--input=gs://bucket/in", "--output=gs://bucket/out", f"--runner={runner}", *GIVEN, *changed]
    assert convert(*call) == 2
    printed = capfd.readouterr()
    assert message in printed.err
    assert printed.err.startswith("recordmill convert: error: ")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_bucket_for_the_files_of_beam_that_is_not_there(submitter: Submitter) -> None:
    done = submitter.run("--staging_location=gs://nowhere/staging", "--async")
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "recordmill convert: error: --staging_location is 'gs://nowhere/staging', and there is no bucket "
        "'nowhere'\n"
    )


def test_a_switch_alone_leaves_the_next_flag_alone() -> None:
    call = [
        "--input=gs://a/in",
        "--output=gs://a/out",
        "--overwrite",
        "--labels=team=vision and sound",
        "--plan",
    ]
    args, others = CONVERT.parser("x").parse_known_args([*call, "false"])
    assert (args.overwrite, args.plan, others) == (True, False, ["--labels=team=vision and sound"])


def test_nothing_to_send_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    setup_file = tmp_path / "setup.py"
    monkeypatch.setattr(runner_flags, "_SETUP_FILE", str(setup_file))
    call = ["--input=gs://bucket/in", "--output=gs://bucket/out", "--runner=DataflowRunner", *GIVEN]
    for _ in range(2):
        assert convert(*call) == 2
        printed = capfd.readouterr().err
        assert "give --sdk_container_image, an image with the program, or --extra_package" in printed
        setup_file.write_text('from setuptools import setup\nsetup(name="another")\n')


def test_without_the_parts_for_google_cloud(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner_flags, "_is_installed", lambda module: False)
    call = ["--input=gs://bucket/in", "--output=gs://bucket/out", "--runner=DataflowRunner", *GIVEN]
    assert convert(*call) == 2
    assert "install recordmill[gcp]" in capfd.readouterr().err
    monkeypatch.undo()
    assert runner_flags._is_installed("google.cloud.dataflow")
    assert not runner_flags._is_installed("google.cloud_that_is_not.dataflow")


@pytest.mark.parametrize("runner", ["DirectRunner", "FlinkRunner"])
def test_only_dataflow_can_be_left_alone(
    runner: str, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call = ("--input", photos, "--output", tmp_path / "out", f"--runner={runner}")
    assert convert(*call, "--async=true") == 2
    assert f"--async needs --runner=DataflowRunner; --runner is '{runner}'" in capfd.readouterr().err
    assert not parse_convert([*map(str, call), "--async=false"], "x").is_async


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("directrunner", "DirectRunner"),
        ("direct", "DirectRunner"),
        ("Dataflow", "DataflowRunner"),
        ("flink", "FlinkRunner"),
        ("my.own.Runner", "my.own.Runner"),
    ],
)
def test_names_of_runners(text: str, name: str) -> None:
    assert runner_flags.runner_name(text) == name


def test_slots_of_flink(photos: Path, tmp_path: Path) -> None:
    call = [f"--input={photos}", f"--output={tmp_path / 'out'}", "--runner=FlinkRunner"]
    assert parse_convert([*call, "--parallelism=6"], "x").dataset.worker_slots == 6
    assert parse_convert(call, "x").dataset.worker_slots == 0
