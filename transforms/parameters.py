"""The names of settings: flags of the command line, fields and arguments in Python.

Messages are written with flags. What reaches a Python caller is converted once, where it is raised: by
`JobError`, and by the constructors of the API. The commands convert back what they print.
"""

from __future__ import annotations

import contextlib
import re
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
    """A message whose flags are named as parameters of the Python API; others stay."""
    return _FLAG.sub(lambda match: PARAMETERS.get(match[1], match[0]), message)


def as_flags(message: str) -> str:
    """The inverse of `as_parameters`."""
    return _PARAMETER.sub(lambda match: _FLAGS[match[0]], message)


@contextlib.contextmanager
def naming_parameters() -> Iterator[None]:
    """Names parameters in a ValueError that is raised within."""
    try:
        yield
    except ValueError as error:
        raise ValueError(as_parameters(str(error))) from error.__cause__
