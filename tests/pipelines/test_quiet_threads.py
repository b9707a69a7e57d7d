"""What the threads of a runner print stays off the terminal."""

import logging
import sys
import threading

import pytest

from recordmill.pipelines.options.runner import is_on_a_cluster
from recordmill.pipelines.running.display import quiet_threads


def test_only_our_own_threads_are_heard(capsys: pytest.CaptureFixture[str]) -> None:
    def speak() -> None:
        print(threading.current_thread().name, file=sys.stderr)

    def fail() -> None:
        raise RuntimeError("a runner's own")

    before = sys.stderr
    with quiet_threads():
        print("main", file=sys.stderr)
        for thread in (
            threading.Thread(target=speak, name="recordmill-display"),
            threading.Thread(target=speak, name="a worker"),
            threading.Thread(target=fail),
        ):
            thread.start()
            thread.join()
        logging.getLogger("PrismRunner").critical("logged")
    assert sys.stderr is before
    assert capsys.readouterr().err == "main\nrecordmill-display\n"
    assert logging.getLogger("PrismRunner").isEnabledFor(logging.CRITICAL)


@pytest.mark.parametrize(
    ("runner", "flags", "is_left"),
    [
        ("DirectRunner", {}, False),
        ("PrismRunner", {}, False),
        ("FlinkRunner", {}, False),
        ("FlinkRunner", {"flink_master": "[local]"}, False),
        ("FlinkRunner", {"flink_master": "[auto]"}, False),
        ("FlinkRunner", {"flink_master": "flink.example:8081"}, True),
        ("SparkRunner", {"spark_master_url": "local[4]"}, False),
        ("SparkRunner", {"spark_master_url": "spark://spark.example"}, True),
        ("PortableRunner", {"job_endpoint": "embed"}, False),
        ("PortableRunner", {"job_endpoint": "jobs.example:8099"}, True),
    ],
)
def test_which_jobs_go_on_without_us(runner: str, flags: dict[str, str], is_left: bool) -> None:
    assert is_on_a_cluster(runner, flags) is is_left
