"""What a record's references tell of the state of its bytes: every source, on disk and in a bucket."""

from __future__ import annotations

import collections
import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.records import ImageRecord, ImageRef
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.storage.local import version_of
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.server import BucketServer
from tests.sources.small_inputs import INPUTS, Files, Input

NUMBERS = (1, 2, 3, 4)
WHOLE = [name for name, one in INPUTS.items() if not one.in_place]


def listed(one: Input, root: str, scratch: str) -> dict[str, ImageRecord]:
    config = SourceConfig(one.kind, f"{root}/{one.place}".rstrip("/"), **one.options)
    SOURCES[one.kind].check(config)
    items = list(SOURCES[one.kind].read(config, scratch))
    return {item.key: item for item in items if isinstance(item, ImageRecord)}


def refs(record: ImageRecord) -> list[ImageRef]:
    """All that a record refers to."""
    annotations = record.annotations
    found = [record.image] if record.image is not None else []
    found += annotations.steps.frames if annotations.steps is not None else ()
    found += (mask.image for mask in annotations.masks.values())
    found += (known.mask for known in annotations.objects if isinstance(known.mask, ImageRef))
    return found


def states(records: dict[str, ImageRecord], root: str) -> dict[str, list[tuple[object, ...]]]:
    """What tells one state of each record's files from another: of unpacked ones it is the version alone."""
    return {
        key: [
            (ref.version, ref.length) if ref.version < 0 else (ref.uri.removeprefix(root), *ref_state(ref))
            for ref in refs(record)
        ]
        for key, record in records.items()
    }


def ref_state(ref: ImageRef) -> tuple[object, ...]:
    return ref.version, ref.offset, ref.length, ref.wrapping


def write(root: Path, files: Files, clock: Iterator[int]) -> str:
    """Writes the files that are not there as they are, each at another time."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
            os.utime(path, ns=(0, next(clock)))
    return str(root)


def times() -> Iterator[int]:
    return itertools.count(1_700_000_000_123_456_789)


@pytest.fixture
def scratches(tmp_path: Path) -> list[str]:
    """Folders of several runs."""
    found = [str(tmp_path / "runs" / name) for name in "abc"]
    for path in found:
        os.makedirs(path)
    return found


@pytest.mark.parametrize("name", INPUTS)
def test_on_disk_every_reference_tells_when_its_file_was_written(
    tmp_path: Path, scratches: list[str], name: str
) -> None:
    one = INPUTS[name]
    root = write(tmp_path / "in", one.files(NUMBERS), times())
    records = listed(one, root, scratches[0])
    assert len(records) == len(NUMBERS)
    for record in records.values():
        found = refs(record)
        assert len(found) == one.refs
        for ref in found:
            if ref.uri.startswith(f"{scratches[0]}/"):
                assert ref.version < 0
            else:
                assert ref.version == version_of(os.stat(ref.uri))
        images = [record.image] if record.image else found
        assert record.size == sum(len(ImageReader().read(ref)) for ref in images) > 0


@pytest.mark.parametrize("name", INPUTS)
def test_in_a_bucket_files_tell_their_bytes_and_ranges_the_generation_that_they_are_read_of(
    bucket: str, bucket_server: BucketServer, name: str
) -> None:
    one = INPUTS[name]
    for path, data in one.files(NUMBERS).items():
        bucket_server.put(f"{bucket}/{name}/{path}", data)
    records = listed(one, f"{bucket}/{name}", f"{bucket}/run/{name}")
    assert len(records) == len(NUMBERS)
    by_bytes: dict[int, bytes] = {}
    for record in records.values():
        found = refs(record)
        assert len(found) == one.refs
        for ref in found:
            if ref.uri.startswith(f"{bucket}/run/"):
                assert ref.version < 0
            elif one.in_place:
                assert ref.length and ref.version == int(bucket_server.generation(ref.uri))
            else:
                assert (ref.offset, ref.length) == (0, None)
                assert ref.version != int(bucket_server.generation(ref.uri))
                data = bucket_server.get(ref.uri)
                assert by_bytes.setdefault(ref.version, data) == data
        images = [record.image] if record.image else found
        assert record.size == sum(len(ImageReader().read(ref)) for ref in images) > 0


@pytest.mark.parametrize("name", INPUTS)
def test_another_run_finds_the_same_states_and_those_of_what_has_changed(
    tmp_path: Path, scratches: list[str], name: str
) -> None:
    one, clock = INPUTS[name], times()
    root = write(tmp_path / "in", one.files(NUMBERS), clock)
    before = states(listed(one, root, scratches[0]), root)
    assert states(listed(one, root, scratches[1]), root) == before
    write(tmp_path / "in", one.files((1, 2, 7, 4)), clock)
    after = states(listed(one, root, scratches[2]), root)
    assert after.keys() == before.keys()
    changed = [at for at, key in enumerate(before) if after[key] != before[key]]
    assert changed == ([0, 1, 2, 3] if one.in_place else [2])


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_what_is_uploaded_again_as_it_was_is_what_it_was(
    bucket: str, bucket_server: BucketServer, name: str
) -> None:
    one = INPUTS[name]
    root = f"{bucket}/{name}"
    found = []
    for run, numbers in enumerate((NUMBERS, NUMBERS, (1, 2, 7, 4))):
        for path, data in one.files(numbers).items():
            bucket_server.put(f"{root}/{path}", data)
        found.append(states(listed(one, root, f"{bucket}/runs/{name}-{run}"), root))
    before, again, after = found
    assert again == before
    assert [at for at, key in enumerate(before) if after[key] != before[key]] == [2]


@pytest.mark.parametrize("name", [name for name, one in INPUTS.items() if one.in_place])
def test_a_container_that_is_replaced_as_it_is_read_is_told(
    bucket: str, bucket_server: BucketServer, name: str
) -> None:
    one = INPUTS[name]
    for path, data in one.files(NUMBERS).items():
        bucket_server.put(f"{bucket}/replaced/{name}/{path}", data)
    records = listed(one, f"{bucket}/replaced/{name}", "/nowhere")
    for path, data in one.files((5, 6, 7, 8)).items():
        bucket_server.put(f"{bucket}/replaced/{name}/{path}", data)
    image = next(iter(records.values())).image
    assert image is not None
    with pytest.raises(OSError, match="it was replaced while the job read it"):
        ImageReader().read(image)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_rows_about_objects_cost_a_listing_a_thousand_and_tell_what_a_folder_of_them_tells(
    tmp_path: Path, bucket: str, bucket_server: BucketServer, kind: str
) -> None:
    roots = (f"{bucket}/photos", bucket_server.bucket("other"))
    for root, folders in zip(roots, (4, 2), strict=True):
        for number in range(folders * 300):
            bucket_server.put(f"{root}/f{number % folders}/{number:04}.jpg", b"%d" % number)
    expected = {
        record.image.uri: (record.image.version, record.size)
        for root in roots
        for record in listed(INPUTS["folder"], root, "/nowhere").values()
        if record.image is not None
    }
    assert len(expected) == 1800
    uris = sorted(expected)
    random.Random(1).shuffle(uris)
    rows = ["image", *uris] if kind == "csv" else [json.dumps({"image": uri}) for uri in uris]
    (tmp_path / f"m.{kind}").write_text("".join(f"{row}\n" for row in rows))
    config = SourceConfig(kind, str(tmp_path / f"m.{kind}"), image_roots=roots)
    bucket_server.clear()
    items = list(SOURCES[kind].read(config, "/nowhere"))
    requests = collections.Counter(request.kind for request in bucket_server.requests)
    assert [record.image.uri for record in items if isinstance(record, ImageRecord) and record.image] == uris
    for record in items:
        assert isinstance(record, ImageRecord) and record.image is not None
        assert (record.image.version, record.size) == expected[record.image.uri]
    # two pages of one root and one of the other; a page may begin in the midst of another one
    assert requests.keys() == {"list"}
    assert requests.total() <= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_objects_are_never_asked_for_one_by_one(bucket: str, bucket_server: BucketServer, name: str) -> None:
    one = INPUTS[name]
    asked = []
    for count in (10, 40):
        root = f"{bucket}/{count}"
        for path, data in one.files(range(count)).items():
            bucket_server.put(f"{root}/{path}", data)
        config = SourceConfig(one.kind, f"{root}/{one.place}".rstrip("/"), **one.options)
        bucket_server.clear()
        items = list(SOURCES[one.kind].read(config, f"{bucket}/run/{name}-{count}"))
        assert sum(isinstance(item, ImageRecord) for item in items) == count
        kinds = collections.Counter(request.kind for request in bucket_server.requests)
        folders = count if name == "frames" else 0  # each clip is one
        asked.append((kinds["get-metadata"], kinds["list"] - folders))
    assert asked[0] == asked[1]
