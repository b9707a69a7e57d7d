"""Source `imagenet`: folders of synsets, the flat validation set with its ground truth, boxes in XML.

The layouts are those of ILSVRC's archives and of Kaggle's (https://www.image-net.org/download.php), and lists
of images and the numbers of their classes, as Caffe has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from recordmill.transforms.records import JobError
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.imagenet.labels import find_lists
from recordmill.transforms.sources.imagenet.layout import find_layout
from recordmill.transforms.sources.imagenet.listing import ImagenetListing, read_truths
from recordmill.transforms.sources.selection import check_selection
from recordmill.transforms.sources.source import (
    Description,
    Item,
    Items,
    Source,
)
from recordmill.transforms.storage.files import is_folder

_UNUSED = (
    "annotations",
    "image_column",
    "label_column",
    "include_annotations",
    "input_features",
    "mask_pattern",
)


class ImagenetSource(Source):
    """Lists the images of an ImageNet tree."""

    name = "imagenet"
    description = Description(
        reads="folders named by synset (`n01440764`); ILSVRC's flat validation set with its ground truth, "
        "Kaggle's `LOC_val_solution.csv`, or lists (`val.txt`: image and class number from 0); boxes in "
        "`Annotations/` or `bbox/`; synsets and words in `synsets.txt`, `LOC_synset_mapping.txt`, …",
        label="the synset: of the folder, or else of the list or ground truth",
        split="folders named like a split, else the list's name",
        key="path below the input",
        example="imagenet/\n  ILSVRC2012_validation_ground_truth.txt\n  meta.mat\n  bbox/\n    n01440764/\n"
        "      n01440764_10040.xml\n  synset_words.txt\n  train/\n    n01440764/\n"
        "      n01440764_10040.JPEG\n  val/\n    ILSVRC2012_val_00000001.JPEG",
    )

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        check_unused(config, self.name, *_UNUSED)
        check_selection(config)
        with readable("--input", config.input):
            if not is_folder(config.input):
                raise ValueError(f"--input is {config.input!r}, a file; --source imagenet reads a folder")
            layout = find_layout(config)
            lists = find_lists(layout)
        if not (layout.synsets or layout.named or lists):
            raise ValueError(
                f"--input is {config.input!r}: there is no folder named by a synset (n01440764), no image "
                "named as ILSVRC's (ILSVRC2012_val_00000001.JPEG), and no train.txt or val.txt of images and "
                "class numbers; for other folders of classes see --source folder"
            )
        with readable("--input", config.input):
            try:
                read_truths(layout, lists)
            except ValueError as error:
                raise ValueError(f"--input is {config.input!r}: {error}") from error

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            layout = find_layout(config)
            listed = {one.split for one in find_lists(layout) if one.split is not None}
        return tuple(sorted({*layout.splits, *layout.named_splits, *listed}))

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("imagenet",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _items(config)


def _items(config: SourceConfig) -> Iterator[Item]:
    try:
        listing = ImagenetListing(config)
    except ValueError as error:
        raise JobError(f"{config.input!r}: {error}") from error
    yield from listing.items()
