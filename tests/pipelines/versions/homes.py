"""Homes of versions: how they are made, and what is compared of them."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec

from recordmill.transforms.examples.framing import read_records
from tests.pipelines.conversion import convert, manifest
from tests.pipelines.versions.edits import Edit, put, spoil

NEXT = "1.0.1"


@dataclasses.dataclass(frozen=True)
class Rerun:
    """An input that was converted once, and is to be converted again.

    Attributes:
        edit: of the input.
        input: folder of it; in which of its states, each test says.
        first: home of version 1.0.0, of the first state; not to be written to.
        scratch: version 1.0.1, made of the second state alone.
    """

    edit: Edit
    input: Path
    first: Path
    scratch: Path

    @classmethod
    def made(cls, folder: Path, edit: Edit) -> Rerun:
        """Converts both states, each into a home of its own."""
        rerun = cls(edit, folder / "input", folder / "first/out", folder / f"scratch/out/{NEXT}")
        put(rerun.input, edit.after)
        assert rerun.convert(folder / "scratch/out", version=NEXT) == 0
        put(rerun.input, edit.before)
        assert rerun.convert(rerun.first) == 0
        return rerun

    def convert(self, home: Path | str, *flags: str, version: str = "auto") -> int:
        """Exit status of a conversion of the input as it is."""
        return convert(*self.call(home, *flags, version=version))

    def call(self, home: Path | str, *flags: str, version: str = "auto") -> list[str]:
        """The arguments of that."""
        given = ["--input", str(self.input / self.edit.input), "--output", str(home), *self.edit.flags]
        return [*given, f"--dataset_version={version}", *flags]

    def home(self, folder: Path) -> Path:
        """A copy of the first home, in a folder."""
        return Path(shutil.copytree(self.first, folder / "out"))

    def edited(self, spoiled: bool = True) -> None:
        """Puts the second state there; the images that have not changed cannot be read any more."""
        put(self.input, self.edit.after)
        if spoiled:
            spoil(self.input, self.edit.unchanged_images)


def latest(home: Path) -> str:
    """What latest.json names."""
    found = json.loads((home / "latest.json").read_text())
    assert found == {"format_version": 1, "version": found["version"]}
    return str(found["version"])


def roll_back(home: Path, version: str) -> None:
    """Makes latest.json name a version, as people do."""
    (home / "latest.json").write_text(json.dumps({"format_version": 1, "version": version}))


def versions(home: Path) -> list[str]:
    """All that is in a home beside latest.json: nothing else may be."""
    return sorted(path.name for path in home.iterdir() if path.name != "latest.json")


def work(version: Path) -> tuple[int, int, int]:
    """Files of the source that were read, images and masks that were made for a version."""
    found = manifest(version)["provenance"]["work"]
    return found["source_reads"], found["images"], found["masks"]


def taken_over(version: Path) -> dict[str, Any]:
    """What a version took over."""
    found: dict[str, Any] = manifest(version)["provenance"]["taken_over"]
    return found


def snapshot(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Size, time and sha256 of each file below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(folder))] = (path.stat().st_size, path.stat().st_mtime_ns, sha256)
    return found


def described(version: Path) -> dict[str, Any]:
    """The manifest, but for the time, what the two ways cost, and the digests of what tells of these."""
    found = manifest(version)
    del found["provenance"], found["seal"], found["digests"]["report.json"]
    for name in list(found["digests"]):
        if name.startswith("state/"):
            found["digests"][name] = ""
    return found


def lineage(path: Path) -> dict[str, Any]:
    """A lineage file without the time of its shard and the names of mask maps."""
    records = read_records(io.BytesIO(gzip.decompress(path.read_bytes())))
    header, *lists = map(msgspec.msgpack.decode, records)
    assert header.pop("stamp")
    return {**header, "rows": [row[:7] + row[8:] for rows in lists for row in rows]}


def settings(path: Path) -> dict[str, Any]:
    """state/settings.json, but for the name of its mask map, which comes from the version before."""
    found: dict[str, Any] = json.loads(path.read_text())
    del found["masks"]["name"]
    return found


def report(version: Path) -> dict[str, Any]:
    """report.json, but for the pictures of images that were encoded anew."""
    found: dict[str, Any] = json.loads((version / "report.json").read_text())
    del found["crops"]
    return found


def assert_same_version(one: Path, other: Path) -> None:
    """The same files with the same bytes, but for what tells when and how they were made."""
    names = set(snapshot(other))
    assert set(snapshot(one)) == names
    for name in sorted(names - {"manifest.json", "report.html", "report.json"}):
        if name.endswith(".gz"):
            assert lineage(one / name) == lineage(other / name), name
        elif name == "state/settings.json":
            assert settings(one / name) == settings(other / name)
        else:
            assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert described(one) == described(other)
    assert report(one) == report(other)
    filled = [path.stem for path in other.glob("*.tfrecord") if path.stat().st_size]
    assert {f"state/{stem}.rows.gz" for stem in filled} <= names
