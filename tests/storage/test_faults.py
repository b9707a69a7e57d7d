"""Which faults are tried again, how often, and what comes of it."""

from __future__ import annotations

import errno
import gzip
from collections.abc import Iterator

import pytest

from recordmill.transforms.storage.faults import PERMANENT_FAULTS, may_pass, os_fault, retried, tried_again

PASSING = [errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT, errno.EAGAIN]


class Failing:
    """Raises the errors it was given, one a call; then returns what it was called with."""

    def __init__(self, *errors: Exception) -> None:
        self._errors: Iterator[Exception] = iter(errors)
        self.calls = 0

    def __call__(self, *args: object, **options: object) -> object:
        self.calls += 1
        error = next(self._errors, None)
        if error is not None:
            raise error
        return args, options


@pytest.mark.parametrize("number", PASSING)
@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_what_passes_is_no_fault(waits: list[float], number: int, times: int) -> None:
    function = Failing(*[OSError(number, "no")] * times)
    assert retried(function, 1, two=2) == ((1,), {"two": 2})
    assert function.calls == times + 1
    assert waits == pytest.approx([0.1, 0.4, 1.6][:times])


def test_what_does_not_pass_is_raised_as_it_is(waits: list[float]) -> None:
    errors = [OSError(errno.EIO, f"try {number}", "/x") for number in range(9)]
    function = Failing(*errors)
    with pytest.raises(OSError) as caught:
        retried(function)
    assert (caught.value, function.calls, len(waits)) == (errors[3], 4, 3)


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(number, "no") for number in PERMANENT_FAULTS),
        gzip.BadGzipFile("no number"),
        ValueError("embedded null byte"),
        EOFError(),
    ],
)
def test_nothing_else_is_tried_again(waits: list[float], error: Exception) -> None:
    function = Failing(error)
    with pytest.raises(type(error)) as caught:
        retried(function)
    assert (caught.value, function.calls, waits) == (error, 1, [])
    assert not may_pass(error)


def test_a_fault_may_turn_out_to_be_permanent(waits: list[float]) -> None:
    function = Failing(OSError(errno.ESTALE, "stale"), OSError(errno.ENOENT, "gone"))
    with pytest.raises(FileNotFoundError):
        retried(function)
    assert (function.calls, len(waits)) == (2, 1)


def test_another_function_may_take_over(waits: list[float]) -> None:
    again = Failing(OSError(errno.EIO, "no"))
    assert tried_again(OSError(errno.ESTALE, "stale"), again, "x") == (("x",), {})
    assert (again.calls, len(waits)) == (2, 2)
    unused = Failing()
    with pytest.raises(PermissionError):
        tried_again(OSError(errno.EACCES, "no"), unused)
    assert unused.calls == 0


def test_a_fault_of_one_file_is_a_failed_record() -> None:
    for number, reason in PERMANENT_FAULTS.items():
        fault = os_fault(OSError(number, "says why", "/x"), "load")
        assert (fault.stage, fault.reason, fault.detail) == ("load", reason, "/x: says why")
    assert os_fault(OSError(errno.ENOENT, "says why"), "load").detail == "says why"
    error = OSError(errno.EIO, "no", "/x")
    with pytest.raises(OSError) as caught:
        os_fault(error, "load")
    assert caught.value is error
