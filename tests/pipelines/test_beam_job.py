"""What a job's end is told as, whatever the runner makes of it."""

import copy
import logging
import pickle
from collections.abc import Callable

import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions, PortableOptions, SetupOptions

from recordmill.pipelines.running.beam_job import exit_status, new_pipeline, set_up_logging
from recordmill.transforms.beam_options import Options

_WORKER_LOG = "apache_beam.runners.worker.sdk_worker"


@pytest.mark.parametrize("verbose", [False, True])
def test_a_fault_that_the_runner_loses_is_told_from_the_workers_log(
    verbose: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(verbose)

    def run() -> int:
        log = logging.getLogger(_WORKER_LOG)
        log.error("Error processing instruction %s. Original traceback is\n%s\n", 7, "x.JobError: key 'a'")
        log.error("Error processing instruction %s. Original traceback is\n%s\n", 8, "x.JobError: key 'b'")
        raise RuntimeError("Pipeline job-001 failed in state FAILED: nothing in progress")

    assert exit_status(run, "convert", "PrismRunner", verbose, str) == 1
    assert capsys.readouterr().err.startswith("convert: error: key 'a'\n")


def test_what_the_runner_says_of_a_fault_goes_first(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        logging.getLogger(_WORKER_LOG).error("x.JobError: key 'b'")
        raise RuntimeError("x.JobError: key 'a'")

    assert exit_status(run, "convert", "PrismRunner", False, str) == 1
    assert capsys.readouterr().err == "convert: error: key 'a'\n"


def test_an_error_of_the_program_keeps_its_traceback() -> None:
    def run() -> int:
        raise KeyError("a")

    with pytest.raises(KeyError):
        exit_status(run, "convert", "DirectRunner", False, str)


@pytest.mark.parametrize(("flags", "seconds"), [((), 30 * 24 * 3600), (("--job_server_timeout=9",), 9)])
def test_a_job_on_prism_may_run_for_days(flags: tuple[str, ...], seconds: int) -> None:
    pipeline = new_pipeline("PrismRunner", flags)
    assert pipeline.options.view_as(PortableOptions).job_server_timeout == seconds


def test_views_of_options_share_their_values() -> None:
    options = Options(["--job_name=first", "--sdk_location=x"])
    view = options.view_as(GoogleCloudOptions)
    view.job_name = "second"
    again = options.view_as(GoogleCloudOptions)
    assert type(again) is GoogleCloudOptions
    assert again is view
    assert options.view_as(SetupOptions).sdk_location == "x"
    assert options.get_all_options()["job_name"] == "second"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda options: pickle.loads(pickle.dumps(options))])
def test_a_copy_of_options_has_its_own_values(copied: Callable[[Options], Options]) -> None:
    options = Options(["--job_name=first"])
    options.view_as(GoogleCloudOptions).job_name = "second"
    copy_of = copied(options)
    assert copy_of.view_as(GoogleCloudOptions).job_name == "second"
    copy_of.view_as(GoogleCloudOptions).job_name = "third"
    assert options.view_as(GoogleCloudOptions).job_name == "second"
    assert copy_of.get_all_options()["job_name"] == "third"
