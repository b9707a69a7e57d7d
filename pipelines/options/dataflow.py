"""Flags of Dataflow: required flags, and our defaults of others. Imports no Beam."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.transforms.storage.files import check_folder

DATAFLOW_RUNNER = "DataflowRunner"

# Four cores and 16 GB: four writers share the start of a machine, about two minutes with the installation of
# packages, and the memory is enough to decode eight images of 100 megapixels at the same time.
MACHINE_TYPE = "e2-standard-4"
# Dataflow starts one Python process for each core, each with twelve threads, and every thread that writes has
# its own writer process. Two of them keep a core busy: one waits for the bucket while the other runs a codec.
# Twelve would be 48 writers on four cores, with no more speed and many times the memory.
HARNESS_THREADS = 2
# Dataflow's own limit is a thousand machines. Ten are 40 cores; more is a decision about money and quota.
MAX_WORKERS = 10
# Dataflow's own images and logs fill most of its default of 25 GB. A writer needs twice the size of its shard
# while it joins the parts: eight writers with shards of 1 GB.
DISK_GB = 50

_JOB_NAME = re.compile(r"[a-z]([-a-z0-9]{0,1022}[a-z0-9])?")
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
# Of a derived name: `recordmill-` + these + `-` + eight digits of a hash are 40 characters.
_NAME_CHARACTERS = 20
_SHARED_CORE = {"e2-micro": 2, "e2-small": 2, "e2-medium": 2, "f1-micro": 1, "g1-small": 1}
_GCS_PATH = re.compile(r"gs://[a-z0-9][-_.a-z0-9]*[a-z0-9](/.*)?", re.DOTALL)

_LOCATIONS = ("temp_location", "staging_location")

Flags = Mapping[str, Any]
"""Beam's flags by name, with its defaults."""


def dataflow_args(flags: Flags, output: str) -> list[str]:
    """The flags of Beam to add to a call of Dataflow; the name of the job derives from `output`.

    Raises:
        ValueError: a required flag is missing, or a flag has a wrong value.
    """
    _check(flags)
    _check_apart(flags, output)
    added = {"job_name": job_name(output), **_machines(flags)}
    found = [f"--{name}={value}" for name, value in added.items() if not flags[name]]
    if flags["save_main_session"] is None:
        found.append("--no_save_main_session")  # no worker needs our main module
    return found


def _check_apart(flags: Flags, output: str) -> None:
    """Raises ValueError if Beam would write to the folder of the dataset, which must be empty."""
    folder = output.rstrip("/")
    for name in _LOCATIONS:
        location = (flags[name] or "").rstrip("/")
        if location == folder or location.startswith(f"{folder}/"):
            raise ValueError(
                f"--{name} is {flags[name]!r}, in the folder of the dataset, --output={output!r}; "
                "give another"
            )


def check_locations(flags: Flags) -> None:
    """Raises ValueError unless the buckets for Beam's files exist; one request for each."""
    for name in _LOCATIONS:
        if location := flags[name]:
            check_folder(location, f"--{name} is {location!r}")


def code_to_send(flags: Flags, setup_file: str | None) -> str | None:
    """The setup.py from which the workers install this program; None if flags of the call provide it.

    Args:
        flags: of the call.
        setup_file: path of our setup.py; None if there is none.

    Raises:
        ValueError: neither exists.
    """
    given = flags["setup_file"]
    if given and not os.path.isfile(given):
        raise ValueError(f"--setup_file is {given!r}; there is no such file")
    ways = ("sdk_container_image", "worker_harness_container_image", "extra_packages", "requirements_file")
    if given or any(flags[name] for name in ways):
        return None
    if setup_file is None:
        raise ValueError(
            f"--runner is {DATAFLOW_RUNNER!r}, whose workers need this program, and there is no "
            "setup.py next to it: give --sdk_container_image, an image with the program, or --extra_package, "
            "its wheel or source distribution"
        )
    return setup_file


def worker_slots(flags: Flags) -> int:
    """Cores of all workers that a job may have; 0 if unknown. The flags include those of `dataflow_args`."""
    fixed = flags["autoscaling_algorithm"] == "NONE"
    workers = flags["num_workers"] if fixed else flags["max_num_workers"]
    return (workers or 0) * _cores(flags["machine_type"] or "")


def job_name(output: str) -> str:
    """The name of the job that writes `output`, always the same: jobs of one name never overlap."""
    tail = _NOT_IN_A_NAME.sub("-", output.rstrip("/").rpartition("/")[2].lower())
    digest = hashlib.sha256(output.rstrip("/").encode("utf-8", "surrogateescape")).hexdigest()
    return "-".join(filter(None, ("recordmill", tail[:_NAME_CHARACTERS].strip("-"), digest[:8])))


def check_paths(paths: Mapping[str, Sequence[str]]) -> None:
    """Raises ValueError for a path that Dataflow's workers cannot see; `paths` are by flag, or `PATH`."""
    for flag, given in paths.items():
        for path in given:
            if "://" not in path or path.startswith("file://"):
                raise ValueError(
                    f"{flag} is {path!r}, on this machine, which the workers of --runner={DATAFLOW_RUNNER} "
                    "cannot read; give a path in a bucket, gs://BUCKET/…"
                )


def _check(flags: Flags) -> None:
    missing = [f"--{name}" for name in ("project", "region", "temp_location") if not flags[name]]
    if missing:
        raise ValueError(
            f"--runner is {DATAFLOW_RUNNER!r}, which needs {', '.join(missing)} too: the project that pays, "
            "the region of its machines, and a path in a bucket (gs://BUCKET/tmp) for their files"
        )
    for name in ("temp_location", "staging_location"):
        if flags[name] and not _GCS_PATH.fullmatch(flags[name]):
            raise ValueError(f"--{name} is {flags[name]!r}; give a path in a bucket, gs://BUCKET/…")
    name = flags["job_name"]
    if name and not _JOB_NAME.fullmatch(name):
        raise ValueError(
            f"--job_name is {name!r}; it may have the characters a to z, 0 to 9 and -, the first a letter, "
            "the last not -"
        )


def _machines(flags: Flags) -> dict[str, object]:
    if "enable_prime" in (*(flags["dataflow_service_options"] or ()), *(flags["experiments"] or ())):
        return {}  # Dataflow Prime chooses machines itself, and refuses flags about them
    added: dict[str, object] = {
        "machine_type": MACHINE_TYPE,
        "number_of_worker_harness_threads": HARNESS_THREADS,
        "disk_size_gb": DISK_GB,
    }
    if flags["autoscaling_algorithm"] != "NONE":
        # A job lists on one machine and writes on many: a fixed number is too high or too low.
        added["autoscaling_algorithm"] = "THROUGHPUT_BASED"
        added["max_num_workers"] = max(MAX_WORKERS, flags["num_workers"] or 0)
    return added


def _cores(machine_type: str) -> int:
    if machine_type in _SHARED_CORE:
        return _SHARED_CORE[machine_type]
    custom = re.search(r"custom-(\d+)-\d+(?:-ext)?$", machine_type)
    standard = re.search(r"-(\d+)(?:-lssd|-metal)?$", machine_type)
    found = custom or standard
    return int(found[1]) if found is not None else 0
