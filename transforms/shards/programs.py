"""The versions of the programs that make a dataset."""

from __future__ import annotations

import importlib.metadata

from recordmill import __version__
from recordmill.transforms.images.versions import codec_versions

_DECIDING = ("recordmill", "protobuf", "pycocotools")


def package_version(package: str) -> str:
    """The version of this package or of another one that is installed."""
    if package == "recordmill":
        return __version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # installed without metadata


def program_versions() -> dict[str, str]:
    """Versions of all that may change a byte of a shard."""
    return {**codec_versions(), **{package: package_version(package) for package in _DECIDING}}
