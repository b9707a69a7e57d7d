"""The codecs whose versions belong to a dataset's digest."""

from __future__ import annotations

import PIL
import simplejpeg

from recordmill.transforms.images.versions import codec_versions


def test_names_the_codecs_that_decide_bytes() -> None:
    versions = codec_versions()
    assert versions["pillow"] == PIL.__version__
    assert versions["simplejpeg"] == simplejpeg.__version__
    assert {"libjpeg-turbo", "zlib", "webp"} <= versions.keys()
    assert all(isinstance(version, str) and version for version in versions.values())
