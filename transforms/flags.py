"""Flags in messages, and the parameters of the Python API that they correspond to.

Messages are written with flags. `JobError` and the constructors of the API replace flags by parameters, for
Python callers. The commands replace parameters by flags again when they print a message.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator

_SOURCE = (
    "input annotations image_column label_column label_pattern include exclude include_annotations "
    "input_features mask_pattern limit"
)
_DATASET = (
    "schema rename boxes label_offset splits group_by group_pattern num_shards shard_size reader_hosts seed "
    "order writer max_failure_ratio name dataset_version keep_versions"
)
_POLICY = (
    "image_format jpeg_quality validate exif subsampling reencode max_side short_side size fit color "
    "optimize alpha background metadata target_ssim"
)
PARAMETERS = {
    "output": "WriteDataset.output",
    "overwrite": "DatasetConfig(overwrite=True)",
    "strict": "DatasetConfig(strict=True)",
    "source": "SourceConfig.kind",
    "image_root": "SourceConfig.image_roots",
    "label_file": "DatasetConfig.label_names",
    **{name: f"SourceConfig.{name}" for name in _SOURCE.split()},
    **{name: f"DatasetConfig.{name}" for name in _DATASET.split()},
    **{name: f"ImagePolicy.{name}" for name in _POLICY.split()},
}
"""The parameter by its flag, without `--`."""

_FLAGS = {parameter: f"--{flag}" for flag, parameter in PARAMETERS.items()}
_FLAG = re.compile(r"(?<![\w/.-])--([a-z_]+)(?![\w-])")
_PARAMETER = re.compile("(?<![\\w.])(?:" + "|".join(map(re.escape, _FLAGS)) + ")(?!\\w)")


def as_parameters(message: str) -> str:
    """Replaces flags by the parameters of the Python API; a flag without a parameter stays."""
    return _FLAG.sub(lambda match: PARAMETERS.get(match[1], match[0]), message)


def as_flags(message: str) -> str:
    """The inverse of `as_parameters`."""
    return _PARAMETER.sub(lambda match: _FLAGS[match[0]], message)


@contextlib.contextmanager
def naming_parameters() -> Iterator[None]:
    """Replaces flags by parameters in the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(as_parameters(str(error))) from error.__cause__


def flag_with(flag: str, value: str) -> str:
    """A flag and its value, quoted for a shell: `--image_column 'Image Path'`."""
    between = "=" if value.startswith("-") else " "
    if value.isprintable() or not value.isascii():
        return f"{flag}{between}{shlex.quote(value)}"
    escaped = value.encode("unicode_escape").decode().replace("'", r"\'")
    return f"{flag}{between}$'{escaped}'"  # a line break in quotes would break the message, too
