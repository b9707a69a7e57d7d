"""Short runs of the fuzzers, the corpus, and that each fuzzer finds what it looks for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.records import Failure, ImageRecord, JobError, StoredImage
from recordmill.transforms.sources.tables.manifest_sources import CsvSource
from tests.conftest import Figure
from tests.fuzz import own_files
from tests.fuzz.__main__ import FUZZERS
from tests.fuzz.driver import Case, Fuzzer, corpus, examined, run
from tests.fuzz.image_seeds import seeds
from tests.fuzz.images import POLICIES, Images, finding, refusal
from tests.fuzz.own_files import OwnFiles
from tests.fuzz.parsers import Parsers

ROOT = Path(__file__).parents[2]
COMPLETE = ("own_files", "conversions")
FOUND = [(name, *one) for name in FUZZERS for one in corpus(name)]


@pytest.mark.parametrize(
    ("fuzzer", "case"),
    [
        pytest.param(name, case, id=f"{name}/{folder}", marks=[pytest.mark.slow] * (name in COMPLETE))
        for name, folder, case in FOUND
    ],
)
def test_what_was_found_is_mended(fuzzer: str, case: Case) -> None:
    assert examined(FUZZERS[fuzzer](), case) is None


def test_undamaged_inputs_are_read() -> None:
    fuzzer = Parsers()
    for name, seed in fuzzer.seeds.items():
        assert examined(fuzzer, Case(name, dict(seed.files))) is None
    assert len(fuzzer.seeds) > 50


@pytest.mark.parametrize("make", [Parsers, Images])
def test_a_case_is_the_same_again(make: Callable[[], Fuzzer]) -> None:
    one, other = make(), make()
    assert all(one.case(1, number) == other.case(1, number) for number in range(50))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (KeyError("x"), "csv-boxes: KeyError in "),
        (JobError("two\nlines of m.csv"), "csv: unclear: "),
        (JobError("something is wrong"), "csv: unclear: "),
        (None, "csv-boxes: more than the seconds"),
    ],
)
def test_faults_of_parsers_are_found(
    monkeypatch: pytest.MonkeyPatch, fault: Exception | None, kind: str
) -> None:
    def read(*_: object) -> list[ImageRecord | Failure]:
        if fault is None:
            time.sleep(60)
            return []
        raise fault

    monkeypatch.setattr(CsvSource, "read", read)
    found = run(Parsers("csv-boxes", seconds=1), 1, cases=2)
    assert found.tried == 2 and any(one.startswith(kind) for one in found.kinds)


@pytest.mark.slow
def test_every_image_is_sound_under_every_policy() -> None:
    for kind, files in seeds().items():
        for number, data in enumerate(files):
            for name, policy in POLICIES.items():
                assert finding(data, policy) == ("", "stored"), f"{kind} {number}, {name}"


def test_a_record_that_states_another_image_is_found() -> None:
    data = seeds()["png"][0]
    wrong = StoredImage(data, "png", 11, 14, 1, "uint8", "Grayscale", ("kept",))
    assert refusal(data, wrong)[0] == "SHAPE"
    cut = StoredImage(data[:-20], "png", 11, 13, 1, "uint8", "Grayscale", ("kept",))
    assert refusal(data, cut)[0] == "TFREFUSES"
    assert ImagePolicy() in POLICIES.values()


@pytest.mark.slow
def test_damage_that_verify_accepts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fuzzer = OwnFiles()
    case = next(one for one in (fuzzer.case(1, number) for number in range(99)) if one.name == "dataset")
    monkeypatch.setattr(own_files, "run_command", lambda *_: (0, ""))
    assert examined(fuzzer, case) == ("verify: damage is not reported", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fuzzer", "cases"), [("parsers", 1_000), ("images", 15_000), ("own_files", 20), ("conversions", 20)]
)
def test_a_short_run_finds_nothing(fuzzer: str, cases: int, figure: Figure) -> None:
    # A process of its own: the fuzzer forks, and this one may have threads of TensorFlow.
    call = [sys.executable, "-m", "tests.fuzz", "--fuzzers", fuzzer, "--seed", "17", "--cases", str(cases)]
    done = subprocess.run(call, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, f"{fuzzer}: {cases:,} inputs tried, 0 findings of 0 kinds\n")
    figure("damaged inputs", cases)
