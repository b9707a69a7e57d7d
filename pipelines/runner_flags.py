"""Flags of Beam and its runners: which there are, what the runner lacks, how much it does at a time."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.pipelines import dataflow
from recordmill.pipelines.dataflow import DATAFLOW_RUNNER
from recordmill.pipelines.flag_parser import Parser
from recordmill.transforms.flags import flag_with

DIRECT_RUNNER = "DirectRunner"
LOCAL_RUNNERS = (DIRECT_RUNNER, "BundleBasedDirectRunner", "FnApiRunner", "PrismRunner")
"""Runners of one machine, which shuffle in memory."""

IN_MEMORY = "in_memory"
"""The value of --direct_running_mode with which the writer processes are ours."""

# Of a large input, that are listed side by side.
_LISTING_PARTS = 256

_RUNNERS = (*LOCAL_RUNNERS, DATAFLOW_RUNNER, "FlinkRunner", "PortableRunner", "SparkRunner")
# A checkout's; where only the packages are installed, there is none beside them.
_SETUP_FILE = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "setup.py")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The part of a checked call that determines how its job runs.

    Attributes:
        progress: `auto`, `bar`, `lines` or `none`.
        verbose: log what Beam logs.
        quiet: print nothing but errors.
        runner: Beam's runner, by name.
        beam_args: Beam's flags, --runner among them.
        setup_file: setup.py from which the workers install this program; None if they have it.
        on_a_cluster: the job continues when this process ends.
        leave: return once Dataflow has the job.
    """

    progress: str
    verbose: bool
    quiet: bool
    runner: str
    beam_args: tuple[str, ...]
    setup_file: str | None
    on_a_cluster: bool
    leave: bool = False

    @property
    def shown(self) -> str:
        """The kind of progress display."""
        return "quiet" if self.quiet else self.progress


def runner_name(text: str) -> str:
    """A runner's name as Beam writes it: it takes them in any case, and without `Runner` too."""
    names = {name.lower(): name for name in _RUNNERS}
    return names.get(text.lower()) or names.get(f"{text.lower()}runner") or text


def beam_flags(parser: Parser, others: Sequence[str], runner: str) -> Mapping[str, Any]:
    """Beam's flags by name, with its defaults; empty, and Beam is not imported, where nothing asks for it.

    Raises:
        ValueError: one of `others` is neither our flag nor Beam's; the nearest that is, is named.
    """
    if not others and runner in LOCAL_RUNNERS:
        return {}
    beam_parser = _beam_parser(parser)
    found, unknown = beam_parser.parse_known_args(list(others))
    if unknown and not runner.startswith(("Portable", "Flink", "Spark")):
        raise ValueError(_no_flag(unknown[0], parser, beam_parser))
    return vars(found)


def without_path(parser: Parser, others: Sequence[str]) -> tuple[str | None, list[str]]:
    """The path that stands among Beam's flags, and the others; no path where there is none.

    A flag's value is none: Beam's own parser tells which they are, and is imported where there may be one.
    """
    words = list(others)
    if len(words) > 1:
        words = _beam_parser(parser).parse_known_args(words)[1]
    path = next((word for word in words if not word.startswith("-")), None)
    left = list(others)
    if path is not None:
        left.remove(path)
    return path, left


def _beam_parser(parser: Parser) -> Parser:
    """The parser of Beam's flags."""
    from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

    class BeamParser(Parser, _BeamArgumentParser):
        """Beam's flags, with our way to say what is wrong."""

    beam_parser = BeamParser(prog=parser.prog, allow_abbrev=False, add_help=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(beam_parser)
    return beam_parser


def _no_flag(argument: str, *parsers: Parser) -> str:
    """The message about an argument that no parser knows. It suggests flags of the first parser first."""
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
    known = {flag for parser in parsers for flag in parser._option_string_actions}
    # Few mistype Beam's, but by a letter.
    tries = ((known, 0.95), (ours, 0.65), (known, 0.75))
    nearest = next(
        filter(None, (difflib.get_close_matches(name, flags, 1, cutoff) for flags, cutoff in tries)), []
    )
    hint = f"; did you mean {nearest[0]}?" if nearest else "; --help lists the flags"
    return f"{name} is not a flag{hint}"


def is_on_a_cluster(runner: str, flags: Mapping[str, Any]) -> bool:
    """Whether a job of the runner is one of a cluster, and goes on when this process ends."""
    if runner == "FlinkRunner":
        return not str(flags.get("flink_master") or "[auto]").startswith("[")
    if runner == "SparkRunner":
        return not str(flags.get("spark_master_url") or "local").startswith("local")
    return runner == "PortableRunner" and flags.get("job_endpoint") not in (None, "embed")


def listing_parts(runner: str) -> int:
    """How many parts a large input is listed in: with one machine, whose threads do not scale, it is one."""
    return 1 if runner in LOCAL_RUNNERS else _LISTING_PARTS


def dataflow_args(args: argparse.Namespace, flags: Mapping[str, Any]) -> list[str]:
    """The flags of Beam that a call of Dataflow lacks.

    Raises:
        ValueError: it cannot be submitted so.
    """
    paths = {name: getattr(args, name) for name in ("annotations", "image_root")}
    dataflow.check_paths({"input": [args.input], "output": [args.output], **paths})
    if not _is_installed("google.cloud.dataflow"):
        raise ValueError(
            f"--runner is {DATAFLOW_RUNNER!r}, which wants Beam's parts for Google Cloud; "
            "install recordmill[gcp]"
        )
    return dataflow.dataflow_args(flags, args.output)


def code_to_send(runner: str, flags: Mapping[str, Any]) -> str | None:
    """Path of the setup.py of which the runner's workers get this program; None where they have it.

    Raises:
        ValueError: they have not, and there is none.
    """
    return dataflow.code_to_send(flags, _own_setup_file()) if runner == DATAFLOW_RUNNER else None


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # nor is what it is part of


def _own_setup_file() -> str | None:
    """The setup.py of this program; one of another may lie where packages are installed."""
    try:
        with open(_SETUP_FILE, encoding="utf-8") as file:
            return _SETUP_FILE if 'name="recordmill"' in file.read() else None
    except OSError:
        return None


def worker_slots(runner: str, flags: Mapping[str, Any]) -> int:
    """How many shards the runner's workers may write at a time; 0 where that is not known."""
    if runner == DATAFLOW_RUNNER:
        return dataflow.worker_slots(flags)
    return max(int(flags.get("parallelism", 0)), 0) if runner == "FlinkRunner" else 0


def writer_processes(args: argparse.Namespace) -> int:
    """Writer processes of our own: on one machine only."""
    if args.runner != DIRECT_RUNNER or args.direct_running_mode != IN_MEMORY:
        return 0
    return args.direct_num_workers or available_cores()


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
