"""What becomes of a task, of its items and of the job when something goes wrong."""

from pathlib import Path

import pytest

from recordmill.transforms.records import JobError
from recordmill.transforms.workers.pool import ProcessExecutor, worker_itself
from recordmill.transforms.workers.task import Worker, no_progress
from tests.workers.number_task import NumberTask, setup_that_raises


def pool(done: list[int] | None = None, workers: int = 1) -> ProcessExecutor[Worker]:
    def note(items: int, source_bytes: int) -> None:
        if done is not None:
            done.append(items)

    return ProcessExecutor(worker_itself, note, workers)


LOST = {
    "raise": "encode: internal error: IndexError (at {})",
    "pillow": "encode: internal error: OSError (broken data stream)",
    "bad": "decode: truncated",
    "memory": "decode: crashes the codec (its process ran out of memory, two times)",
    "crash": "decode: crashes the codec (its process was ended by SIGSEGV, two times)",
    "exit": "decode: crashes the codec (its process ended with status 3, two times)",
}


@pytest.mark.parametrize("harm", LOST)
@pytest.mark.parametrize("numbers", [(4,), pytest.param((0, 4, 5, 9), marks=pytest.mark.slow)])
def test_what_costs_an_item(
    harm: str, numbers: tuple[int, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []
    task = NumberTask(range(10), dict.fromkeys(numbers, harm), leftovers=tmp_path / "left")
    with pool(done) as workers:
        found = workers.submit(task).result(timeout=60)
    lost = {number: f"{number} {LOST[harm].format(number)}" for number in numbers}
    assert found == [lost.get(number, 2 * number) for number in range(10)]
    assert sum(done) == 10 - len(numbers)
    assert not list(tmp_path.iterdir())
    # One for each place in the code, in all tests of this process.
    assert len(caplog.records) <= (harm in ("raise", "pillow"))


@pytest.mark.parametrize(
    ("harm", "error", "message"),
    [
        ("job", JobError, "^the job is over$"),
        ("disk", RuntimeError, "(?s)^Traceback.*No space left on device"),
    ],
)
def test_what_ends_the_job_also_at_an_item(harm: str, error: type[Exception], message: str) -> None:
    with pool() as workers:
        with pytest.raises(error, match=message):
            workers.submit(NumberTask(range(4), {2: harm})).result(timeout=60)
        with pytest.raises(error, match=message):
            workers.submit(NumberTask(range(4)))


@pytest.mark.parametrize("harm", ["raise", "pillow", "bad"])
def test_what_ends_the_job_outside_of_items(harm: str) -> None:
    with pool() as workers, pytest.raises(RuntimeError, match="^Traceback"):
        workers.submit(NumberTask(range(4), before=harm)).result(timeout=60)


def test_a_setup_that_raises_ends_the_job() -> None:
    message = "(?s)^Traceback.*ZeroDivisionError"
    with (
        ProcessExecutor(setup_that_raises, no_progress, 1) as workers,
        pytest.raises(RuntimeError, match=message),
    ):
        workers.submit(NumberTask(range(4))).result(timeout=60)


def test_pieces_run_in_all_processes_and_are_joined_in_order() -> None:
    with pool(workers=2) as workers:
        found = workers.submit(NumberTask(range(11), {3: "crash", 9: "raise"}), pieces=4).result(timeout=60)
        again = workers.submit(NumberTask(range(5)), pieces=5).result(timeout=60)
    assert [one for one in found if isinstance(one, int)] == [2 * n for n in range(11) if n not in (3, 9)]
    assert [str(found[number]).partition(":")[0] for number in (3, 9)] == ["3 decode", "9 encode"]
    assert again == [0, 2, 4, 6, 8]


def test_pieces_that_cannot_be_joined_end_the_job() -> None:
    with pool() as workers:
        with pytest.raises(JobError, match="these cannot be joined"):
            workers.submit(NumberTask(range(4), {9: "never"}), pieces=2).result(timeout=60)
        with pytest.raises(JobError, match="these cannot be joined"):
            workers.submit(NumberTask(range(4)))
