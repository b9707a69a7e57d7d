"""Rows of the table of moved datasets whose verdict is not good yet."""

from __future__ import annotations

from collections.abc import Mapping

_SPLIT = "raccoon as a CSV in each split"
OPEN: Mapping[str, frozenset[str]] = {
    "next to a picture": frozenset(("mnist_dataset", "camvid_dataset")),
    "next to another one": frozenset(("raccoon as CSV",)),
    "links and --image_root": frozenset((_SPLIT,)),
    "links without --image_root": frozenset((_SPLIT,)),
    "links in a folder, and --image_root": frozenset((_SPLIT,)),
    "a link to it in a folder, and --image_root": frozenset((_SPLIT,)),
    "a link to it in a folder": frozenset(("raccoon as CSV",)),
    "a ZIP of its folder, in a folder": frozenset(("imagenet_dataset",)),
    "a tar of its folder": frozenset(("imagenet_dataset",)),
}
"""Datasets by variant."""
