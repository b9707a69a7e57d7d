"""How a job runs: our flags, Beam's flags, and the properties of each runner."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from recordmill.pipelines.options import dataflow
from recordmill.pipelines.options.dataflow import DATAFLOW_RUNNER
from recordmill.pipelines.options.parser import Parser, fail, from_flags
from recordmill.transforms.flags import declares_flags, flag, flag_with
from recordmill.transforms.storage.gcs_client import NO_AUTH

DIRECT_RUNNER = "DirectRunner"
LOCAL_RUNNERS = (DIRECT_RUNNER, "BundleBasedDirectRunner", "FnApiRunner", "PrismRunner")
"""Runners of one machine, which shuffle in memory."""

IN_MEMORY = "in_memory"
"""The value of --direct_running_mode for our own writer processes."""

# Parts of a large input that are listed in parallel.
_LISTING_PARTS = 256

_RUNNERS = (*LOCAL_RUNNERS, DATAFLOW_RUNNER, "FlinkRunner", "PortableRunner", "SparkRunner")
# Only a checkout has it.
_SETUP_FILE = os.path.abspath(os.path.join(os.path.realpath(__file__), "../../../setup.py"))


def runner_name(text: str) -> str:
    """A runner's name as Beam writes it; `text` may be in any case, and may lack `Runner`."""
    names = {name.lower(): name for name in _RUNNERS}
    return names.get(text.lower()) or names.get(f"{text.lower()}runner") or text


@declares_flags("Beam's runner")
@dataclasses.dataclass(frozen=True)
class Runner:
    """Flags of Beam that affect our own processes. They are parsed before Beam is imported."""

    runner: str = flag(
        DIRECT_RUNNER, "where the job runs; DirectRunner: on this machine", parse=runner_name, metavar="NAME"
    )
    direct_num_workers: int | None = flag(
        None, "number of writer processes", at_least=0, metavar="N", default_text="one for each core"
    )
    direct_running_mode: str = flag(
        IN_MEMORY,
        "in_memory: our own writer processes; otherwise Beam's workers",
        values=(IN_MEMORY, "multi_threading", "multi_processing"),
    )


@declares_flags("running")
@dataclasses.dataclass(frozen=True)
class Display:
    """The output of a command while its job runs."""

    progress: str = flag(
        "auto",
        "how progress is printed; auto: a bar on a terminal, otherwise lines",
        values=("auto", "bar", "lines", "none"),
    )
    verbose: bool = flag(False, "print the log of Beam")
    quiet: bool = flag(False, "print only errors; convert --plan still prints the plan")

    def __post_init__(self) -> None:
        if self.verbose and self.quiet:
            raise ValueError("--verbose and --quiet are both given; give one of them")

    @property
    def shown(self) -> str:
        """The kind of progress display."""
        return "quiet" if self.quiet else self.progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions(Display):
    """The part of a checked call that determines how its job runs."""

    runner: str
    beam_args: tuple[str, ...]  # Beam's flags, --runner among them
    setup_file: str | None  # setup.py from which the workers install this program; None if they have it
    on_a_cluster: bool  # the job continues when this process ends
    is_async: bool = False  # return once Dataflow has the job

    @property
    def listing_parts(self) -> int:
        """In how many parts a large input is listed: one on one machine, because threads do not scale."""
        return 1 if self.runner in LOCAL_RUNNERS else _LISTING_PARTS


def job_options(
    parser: Parser, args: argparse.Namespace, others: Sequence[str], check: Callable[[], str]
) -> tuple[JobOptions, Mapping[str, Any]]:
    """How the job of a parsed call runs; and Beam's flags by name.

    Args:
        parser: of our flags.
        args: our flags.
        others: Beam's flags, as given.
        check: checks our flags, and returns the path from which the name of a Dataflow job derives.

    Raises:
        ValueError: a flag is unknown or missing, flags exclude each other, or this program cannot be sent
            to the workers.
    """
    beam_args = list(others)
    flags = beam_flags(parser, beam_args, args.runner)
    path = check()
    setup_file = None
    if args.runner == DATAFLOW_RUNNER:
        dataflow.check_paths(_paths(parser, args))
        if not _is_installed("google.cloud.dataflow"):
            raise ValueError(
                f"--runner is {DATAFLOW_RUNNER!r}, which needs Beam's parts for Google Cloud; "
                "install recordmill[gcp]"
            )
        beam_args += dataflow.dataflow_args(flags, path)
        flags = beam_flags(parser, beam_args, args.runner)
        setup_file = dataflow.code_to_send(flags, _own_setup_file())
    if flags.get("no_auth"):
        os.environ[NO_AUTH] = "true"  # our own client of the bucket asks as Beam's does
    options = from_flags(
        JobOptions,
        args,
        runner=args.runner,
        beam_args=(*_direct_args(args), *beam_args),
        setup_file=setup_file,
        on_a_cluster=is_on_a_cluster(args.runner, flags),
        is_async=vars(args).get("async", False),
    )
    return options, flags


def check_locations(options: JobOptions, flags: Mapping[str, Any]) -> None:
    """Raises ValueError unless the buckets of a job on Dataflow exist."""
    if options.runner == DATAFLOW_RUNNER:
        dataflow.check_locations(flags)


def _paths(parser: Parser, args: argparse.Namespace) -> dict[str, Sequence[str]]:
    """The paths that workers read and write, by flag; only this process reads a label file."""
    found: dict[str, Sequence[str]] = {}
    for one in parser.flags:
        value = getattr(args, one.name)
        if one.path and one.name != "label_file" and value is not None:
            found[one.shown] = value if isinstance(value, tuple) else (value,)
    return found


def _direct_args(args: argparse.Namespace) -> list[str]:
    """Our flags that Beam gets too; not the number of our own processes."""
    flags = [f"--runner={args.runner}"]
    if args.direct_running_mode != IN_MEMORY:
        flags.append(f"--direct_running_mode={args.direct_running_mode}")
        if args.direct_num_workers is not None:
            flags.append(f"--direct_num_workers={args.direct_num_workers}")
    return flags


def beam_flags(parser: Parser, others: Sequence[str], runner: str) -> Mapping[str, Any]:
    """Beam's flags by name, with its defaults; empty, without importing Beam, if a local job has none.

    Raises:
        ValueError: one of `others` is neither our flag nor Beam's; the message names the nearest flag.
    """
    if not others and runner in LOCAL_RUNNERS:
        return {}
    beam_parser = _beam_parser(parser)
    found, unknown = beam_parser.parse_known_args(list(others))
    if unknown and not runner.startswith(("Portable", "Flink", "Spark")):
        raise ValueError(_no_flag(unknown[0], parser, beam_parser))
    return vars(found)


def without_path(parser: Parser, others: Sequence[str]) -> tuple[str | None, list[str]]:
    """The first argument that is neither a flag of Beam nor its value, or None; and the other arguments.

    Beam's own parser separates values from other arguments. It is imported only if there may be a value.
    """
    words = list(others)
    if len(words) > 1:
        words = _beam_parser(parser).parse_known_args(words)[1]
    path = next((word for word in words if not word.startswith("-")), None)
    left = list(others)
    if path is not None:
        left.remove(path)
    return path, left


def _beam_parser(parser: Parser) -> argparse.ArgumentParser:
    """The parser of Beam's flags."""
    from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

    class BeamParser(_BeamArgumentParser):
        def error(self, message: str) -> NoReturn:
            fail(self, message)

    beam_parser = BeamParser(prog=parser.prog, allow_abbrev=False, add_help=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(beam_parser)
    return beam_parser


def _no_flag(argument: str, *parsers: argparse.ArgumentParser) -> str:
    """The message about an unknown argument. It suggests flags of the first parser first."""
    name = argument.split("=")[0]
    if not name.startswith("-") and os.path.isfile(argument):
        folder, pattern = os.path.dirname(argument) or ".", f"*{os.path.splitext(argument)[1]}"
        return (
            f"unexpected argument {argument!r}; --input takes one folder: give "
            f"{flag_with('--input', folder)} {flag_with('--include', pattern)}"
        )
    if not name.startswith("-"):
        return f"unexpected argument {argument!r}; give the input with --input"
    ours = parsers[0]._option_string_actions
    every = {flag for parser in parsers for flag in parser._option_string_actions}
    # Beam's flags are suggested for a typo of one letter only.
    tries = ((every, 0.95), (ours, 0.65), (every, 0.75))
    nearest = next(
        filter(None, (difflib.get_close_matches(name, flags, 1, cutoff) for flags, cutoff in tries)), []
    )
    hint = f"; did you mean {nearest[0]}?" if nearest else "; --help lists the flags"
    return f"{name} is not a flag{hint}"


def is_on_a_cluster(runner: str, flags: Mapping[str, Any]) -> bool:
    """Whether the job runs on a cluster, and continues when this process ends."""
    if runner == "FlinkRunner":
        return not str(flags.get("flink_master") or "[auto]").startswith("[")
    if runner == "SparkRunner":
        return not str(flags.get("spark_master_url") or "local").startswith("local")
    return runner == "PortableRunner" and flags.get("job_endpoint") not in (None, "embed")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # a package above it is not installed


def _own_setup_file() -> str | None:
    """Our setup.py, if it exists; the folder above installed packages may have that of another program."""
    try:
        with open(_SETUP_FILE, encoding="utf-8") as file:
            return _SETUP_FILE if 'name="recordmill"' in file.read() else None
    except OSError:
        return None


def worker_slots(runner: str, flags: Mapping[str, Any]) -> int:
    """How many shards the workers may write at the same time; 0 if unknown."""
    if runner == DATAFLOW_RUNNER:
        return dataflow.worker_slots(flags)
    return max(int(flags.get("parallelism", 0)), 0) if runner == "FlinkRunner" else 0


def writer_processes(args: argparse.Namespace) -> int:
    """The number of our own writer processes, which only one machine has."""
    if args.runner != DIRECT_RUNNER or args.direct_running_mode != IN_MEMORY:
        return 0
    return args.direct_num_workers or available_cores()


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
