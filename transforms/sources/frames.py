"""Source `frames`: a folder a clip, its images the frames."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

from recordmill.transforms.records import Annotations, BadInput, Failure, ImageRecord, Steps
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.folder import FolderSource
from recordmill.transforms.sources.frame_files import (
    LABEL_FILES,
    TIME_FILES,
    natural_order,
    numbers_of,
    read_labels,
    read_times,
)
from recordmill.transforms.sources.names import is_image_name, is_split_name, normal_split
from recordmill.transforms.sources.outline import check_roots_used, left_out
from recordmill.transforms.sources.selection import (
    EXCLUDED,
    Selection,
    check_selection,
    label_pattern,
)
from recordmill.transforms.sources.source import (
    Description,
    Items,
    Source,
)
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.files import is_folder
from recordmill.transforms.storage.paths import real_path

_UNUSED = (
    "annotations",
    "image_column",
    "label_column",
    "include_annotations",
    "input_features",
    "mask_pattern",
)
_NO_FRAME = "neither a frame nor times or labels by name"
_TIME = "image/timestamp"


class FramesSource(Source):
    """Lists the clips below a folder."""

    name = "frames"
    description = Description(
        reads="folders of images, each a clip, in the order of the numbers in their names; "
        "`timestamps.txt` (a line a frame) or `timestamps.csv` (`frame,timestamp`), in seconds where any "
        "has a decimal point, else in microseconds; without them, times are the frames' numbers",
        label="the folder of the clip's folder; of each frame, `labels.txt` (a line a frame) or `labels.csv` "
        "(`frame,label`)",
        split="the first-level folders, when all of them that hold images are named like a split",
        key="the clip's folder, below the input",
        example="clips/\n  train/\n    running/\n      clip7/\n        frame_0001.jpg\n"
        "        frame_0002.jpg\n        labels.txt\n        timestamps.txt",
    )

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        check_unused(config, self.name, *_UNUSED)
        check_roots_used(config, self.name)
        check_selection(config)
        with readable("--input", config.input):
            if not is_folder(config.input):
                raise ValueError(f"--input is {config.input!r}, a file; --source frames reads a folder")
            files = Tree(config.input, config.image_roots, config.skip_dirs).files()
            if not any(isinstance(file, TreeFile) and is_image_name(file.key) for file in files):
                links = left_out(config)
                raise ValueError(f"--input is {config.input!r}: there is no image in it{links}")

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        return FolderSource().split_names(config)

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("sequence",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _Clips(config).items()


@dataclasses.dataclass(slots=True)
class _Folder:
    """A folder that the walk is in: its key, empty or ending in `/`, and its files so far."""

    prefix: str
    frames: list[TreeFile] = dataclasses.field(default_factory=list)
    others: dict[str, TreeFile] = dataclasses.field(default_factory=dict)


class _Clips:
    """One walk over the input. Holds the files of one folder a level."""

    def __init__(self, config: SourceConfig) -> None:
        self._selection = Selection(config)
        self._label_pattern = label_pattern(config)
        self._has_splits = bool(FolderSource().split_names(config))
        self._tree = Tree(config.input, config.image_roots, config.skip_dirs)
        self._root_key = os.path.basename(real_path(config.input)) or "clip"

    def items(self) -> Iterator[ImageRecord | Failure]:
        """The clips, and what is none; a folder comes after those in it."""
        open_folders: list[_Folder] = []
        for file in self._tree.files():
            if isinstance(file, Failure):
                yield file
                continue
            prefix = file.key[: file.key.rfind("/") + 1]
            while open_folders and not prefix.startswith(open_folders[-1].prefix):
                yield from self._closed(open_folders.pop())
            if not open_folders or open_folders[-1].prefix != prefix:
                open_folders.append(_Folder(prefix))
            name = file.key[len(prefix) :]
            if is_image_name(name):
                open_folders[-1].frames.append(file)
            elif name in TIME_FILES or name in LABEL_FILES:
                open_folders[-1].others[name] = file
            else:
                yield _skipped(file.key)
        while open_folders:
            yield from self._closed(open_folders.pop())

    def _closed(self, folder: _Folder) -> Iterator[ImageRecord | Failure]:
        """What a folder is whose files have all come."""
        if not folder.frames:
            for file in folder.others.values():
                yield _skipped(file.key)
            return
        key = folder.prefix.rstrip("/") or self._root_key
        if not self._selection.takes(key):
            yield Failure(key, "list", EXCLUDED, skipped=True)
            return
        try:
            yield self._clip(key, folder)
        except BadInput as fault:
            yield fault.failure(key)

    def _clip(self, key: str, folder: _Folder) -> ImageRecord:
        parts = folder.prefix.split("/")[:-1]
        in_split = self._has_splits and parts and is_split_name(parts[0])
        split = normal_split(parts.pop(0)) if in_split else None
        labels: tuple[str, ...] = (parts[-2],) if len(parts) > 1 else ()
        if self._label_pattern is not None:
            labels = (self._label_pattern.label(key),)
        frames = sorted(folder.frames, key=lambda file: natural_order(file.key))
        names = [file.key[len(folder.prefix) :] for file in frames]
        times, frame_labels = _one_of(folder, TIME_FILES), _one_of(folder, LABEL_FILES)
        steps = Steps(
            tuple(file.ref for file in frames),
            () if frame_labels is None else read_labels(frame_labels, names),
            {_TIME: tuple(numbers_of(names)) if times is None else read_times(times, names)},
        )
        return ImageRecord(
            key, None, split, Annotations(labels, steps=steps), size=sum(file.size for file in frames)
        )


def _one_of(folder: _Folder, names: tuple[str, ...]) -> TreeFile | None:
    """The one file of these names, if there is one."""
    found = [folder.others[name] for name in names if name in folder.others]
    if len(found) > 1:
        raise BadInput("annotations", "two files of one meaning", f"{' and '.join(names)}; delete one")
    return found[0] if found else None


def _skipped(key: str) -> Failure:
    return Failure(key, "list", _NO_FRAME, skipped=True)
