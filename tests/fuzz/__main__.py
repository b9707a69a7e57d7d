"""python -m tests.fuzz --minutes 60 --seed 1: damages inputs and files of our own; prints what goes wrong."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from tests.fuzz.conversions import Conversions
from tests.fuzz.driver import Case, Fuzzer, examined, files_of, run
from tests.fuzz.images import Images
from tests.fuzz.own_files import OwnFiles
from tests.fuzz.parsers import Parsers

FUZZERS = {one.name: one for one in (Images, Parsers, OwnFiles, Conversions)}


def main() -> int:
    """The command. Its status is 1 if it has found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for all fuzzers together")
    parser.add_argument("--cases", type=int, default=0, help="for each fuzzer, instead of minutes")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--fuzzers", default=",".join(FUZZERS), help="some of them, with commas")
    parser.add_argument("--keep", default="", metavar="FOLDER", help="for a case of each kind of finding")
    parser.add_argument("--replay", default="", metavar="CASE", help="a folder of the corpus or of --keep")
    flags = parser.parse_args()
    warnings.simplefilter("ignore")
    if flags.replay:
        return _replay(Path(flags.replay).resolve())
    names = flags.fuzzers.split(",")
    if unknown := sorted(set(names) - FUZZERS.keys()):
        parser.error(f"--fuzzers is {flags.fuzzers}: {unknown[0]!r} is not one of {', '.join(FUZZERS)}")
    minutes = 0 if flags.cases else flags.minutes / len(names)
    found = [run(FUZZERS[name](), flags.seed, minutes, flags.cases, flags.keep) for name in names]
    return int(any(one.kinds for one in found))


def _replay(folder: Path) -> int:
    fuzzer: Fuzzer = FUZZERS[folder.parent.name]()
    finding = examined(fuzzer, Case(folder.name.partition("--")[0], files_of(folder)))
    print(f"{finding.kind}\n{finding.detail}" if finding else "nothing is wrong")
    return int(finding is not None)


if __name__ == "__main__":
    sys.exit(main())
