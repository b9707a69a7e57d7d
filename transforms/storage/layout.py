"""What lies where in the folder of a dataset, and under `.recordmill` while a run works on it."""

from __future__ import annotations

import dataclasses
import os

from recordmill.transforms.storage.file_system import file_system

RUNS = ".recordmill"
INDEX = "index"
MANIFEST = "manifest.json"
DATASET_INFO = "dataset_info.json"
FAILURES = "failures.jsonl"
DUPLICATES = "duplicates.jsonl"
REPORT = "report.html"
REPORT_DATA = "report.json"
LATEST = "latest.json"
"""Next to the folders of versions: names the version that readers use."""
LINEAGE = "state"
"""The folder in a version of its lineage: what its shards were made from, for the next one.

Its name, and `CHECKPOINT_ENDING`, are older than the terms: published versions and unfinished runs have them.
"""
CHECKPOINT_ENDING = ".state"
"""Of the checkpoint of a finished, unpublished shard, among the shards of a run."""
LINEAGE_ENDING = ".rows.gz"
"""Of the files of lineage in a version."""
HASHES = "hashes"
"""The folder below `.recordmill` of hashes of images that were read before."""
FORMAT_VERSION = 1
"""Of manifest.json, and of what runs note under `.recordmill`."""
NOTE_START = f'{{"format_version": {FORMAT_VERSION}, '
"""The start of every note of a run."""
REPORT_FORMAT_VERSION = 2
"""Of report.json."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One configuration at work on one output; the same call again is the same run.

    Attributes:
        output: folder in which the dataset is published, file by file; absolute, or a URI, without a `/` at
            its end. Of a version that is renamed into place, a staging folder.
        digest: of the configuration.
        token: of this one job, unique: identifies the holder of the output's lock.
        command: for messages about the job.
        home: folder of all versions; empty if the dataset has none.
        version: `x.y.z`; empty likewise.
    """

    output: str
    digest: str
    token: str
    command: str = ""
    home: str = ""
    version: str = ""

    @property
    def locked(self) -> str:
        """The folder that one job at a time works in."""
        return self.home or self.output

    @property
    def published(self) -> str:
        """The folder that readers will see."""
        return os.path.join(self.home, self.version) if self.version else self.output

    @property
    def work(self) -> str:
        """The folder whose `.recordmill` holds the unpublished files of the run."""
        return os.path.join(self.home, RUNS, self.version) if self.version else self.output

    @property
    def folder(self) -> str:
        """The folder of unpublished files of the run."""
        return os.path.join(self.work, RUNS, self.digest[:16])

    @property
    def shards(self) -> str:
        """The unpublished shards, and the checkpoint of each that is finished."""
        return os.path.join(self.folder, "shards")

    @property
    def scratch(self) -> str:
        """The folder for files that a source unpacks; below `token`, images and annotations of records."""
        return os.path.join(self.folder, "scratch")

    @property
    def hashes(self) -> str:
        """The folder of hashes of images, which outlives the run."""
        return hashes_folder(self.locked)

    @property
    def sample(self) -> str:
        """The file of the measured size of a sample of the records."""
        return os.path.join(self.folder, "sample.json")

    @property
    def records(self) -> str:
        """The folder that Beam's own writer uses for this one job."""
        return os.path.join(self.folder, f"tfrecord-{self.token}")


def hashes_folder(output: str) -> str:
    """The folder of hashes of images of an output, or of all versions of a dataset."""
    return os.path.join(output, RUNS, HASHES)


def check_name(output: str, name: object) -> str:
    """A file's name below an output. Raises ValueError if it leads elsewhere, or is that of a folder."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"{name!r}, which is no file's name")
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or parts[0] == RUNS:
        raise ValueError(f"{name!r}, which is no file of a dataset")
    if not file_system(output).has_links:
        return name
    path = os.path.join(output, name)
    folder = os.path.dirname(path)
    if os.path.realpath(folder) != os.path.join(os.path.realpath(output), *parts[:-1]):
        raise ValueError(f"{name!r}, which leads outside the folder")
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise ValueError(f"{name!r}, where {parts[0]!r} is no folder")
    if os.path.isdir(path) and not os.path.islink(path):
        raise ValueError(f"{name!r}, which is a folder")
    return name
