"""Source `openimages`: the CSV files of Open Images beside the images that were downloaded.

https://storage.googleapis.com/openimages/web/download_v7.html
"""

from __future__ import annotations

from collections.abc import Iterator

from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.names import split_named
from recordmill.transforms.sources.openimages.files import csv_files, folders_called
from recordmill.transforms.sources.openimages.listing import MASKS, Reading
from recordmill.transforms.sources.outline import check_roots_used
from recordmill.transforms.sources.selection import check_selection
from recordmill.transforms.sources.source import (
    Description,
    Item,
    Items,
    Source,
)
from recordmill.transforms.storage.files import is_folder, names_in
from recordmill.transforms.storage.paths import real_path

_IMAGES = "images"


class OpenImagesSource(Source):
    """Lists the images of Open Images that are there, with their boxes, labels and masks."""

    name = "openimages"
    description = Description(
        reads="`…-annotations-bbox.csv`, `…-human-imagelabels.csv`, `…-object-segmentation.csv`, "
        "`…class-descriptions….csv` and the lists of images of Open Images V4 to V7",
        label="the class's name, or its id where two share a name; people's labels of the image",
        split="the folder of images; else the list's Subset, or the name of the CSV file",
        key="path below the input",
        example="open_images/\n  annotations/\n    class-descriptions-boxable.csv\n"
        "    validation-annotations-bbox.csv\n  images/\n    validation/\n      0001eeaf4aed83f9.jpg\n"
        "  masks/\n    validation/\n      0001eeaf4aed83f9_m0cmf2_ea5e2f5e.png",
        annotations=("masks",),
    )

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        unused = (
            "annotations",
            "image_column",
            "label_column",
            "input_features",
            "mask_pattern",
        )
        check_unused(config, self.name, *unused)
        check_roots_used(config, self.name)
        check_selection(config)
        others = [name for name in config.include_annotations if name != MASKS]
        if others:
            raise ValueError(
                f"--include_annotations is {', '.join(config.include_annotations)!r}; "
                f"--source {self.name} has {MASKS}"
            )
        with readable("--input", config.input):
            if not is_folder(config.input):
                raise ValueError(
                    f"--input is {config.input!r}, a file; --source {self.name} wants the folder"
                )
            found = [file for file in csv_files(config) if file.kind not in ("classes", "machine")]
            if not found:
                raise ValueError(
                    f"--input is {config.input!r}, where neither it nor annotations/ has a CSV file of Open "
                    "Images, such as validation-annotations-bbox.csv"
                )
            for file in csv_files(config):
                if file.kind == "classes":
                    next(file.classes(), None)  # raises where it cannot be read
            for file in found:
                try:
                    file.header()
                except ValueError as error:
                    raise ValueError(f"--input is {config.input!r}: {error}") from error

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        root = real_path(config.input)
        top = names_in(root)
        listed = {f"{root}/{folder}": None for folder in folders_called(_IMAGES, root, top)} | {root: top}
        names = {
            split
            for place, inner in listed.items()
            for name in (names_in(place) if inner is None else inner)
            if (split := split_named(name)) is not None and is_folder(f"{place}/{name}")
        }
        return tuple(sorted(names)) if names else None

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        kinds = {file.kind for file in csv_files(config)}
        has_boxes = "boxes" in kinds or ("masks" in kinds and MASKS in config.include_annotations)
        return ("detection",) if has_boxes else ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _items(config)


def _items(config: SourceConfig) -> Iterator[Item]:
    yield from Reading(config).items()
