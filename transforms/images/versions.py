"""The versions of the codecs that determine the stored bytes."""

from __future__ import annotations

import importlib.metadata
import zlib

import PIL
import simplejpeg
from PIL import features

_DISTRIBUTIONS = ("mozjpeg-lossless-optimization", "pyoxipng")


def codec_versions() -> dict[str, str]:
    """Name and version of each library that may change a stored byte; part of a dataset's digest."""
    found = {
        "pillow": PIL.__version__,
        "simplejpeg": simplejpeg.__version__,
        **{name: _installed(name) for name in _DISTRIBUTIONS},
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "libjpeg-turbo": features.version_feature("libjpeg_turbo"),
        "zlib-ng": features.version_feature("zlib_ng"),
        "littlecms2": features.version_module("littlecms2"),
        "webp": features.version_module("webp"),
        "avif": features.version_module("avif"),
        "openjpeg": features.version_codec("jpg_2000"),
        "libtiff": features.version_codec("libtiff"),
    }
    return {name: version for name, version in found.items() if version}


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
