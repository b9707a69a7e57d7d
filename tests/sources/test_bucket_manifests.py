"""Manifests on disk and in buckets, about images on disk and in buckets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recordmill.transforms.records import Failure, ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.registry import SOURCES
from tests.buckets.faults import Faults
from tests.buckets.server import BucketServer
from tests.sources.sniffing import sniff

IMAGES = ("a.jpg", "sub/b.jpg", "sub/deep/c d.jpg", "100%#?.jpg", "é/中.jpg")
# Of the private images, next to the root and in another bucket.
OUTSIDE = ("photos-private/a.jpg", "photos.jpg", "photo/a.jpg", "a.jpg")


@pytest.fixture
def photos(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> str:
    """The root of images in a bucket; the same are in tmp_path/photos. Other images are around both."""
    for name in (*(f"photos/{image}" for image in IMAGES), *OUTSIDE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
        bucket_server.put(f"{bucket}/{name}", name.encode())
    bucket_server.put(f"{bucket_server.bucket('other')}/photos/a.jpg", b"x")
    return f"{bucket}/photos"


def read(kind: str, place: str, **options: object) -> list[ImageRecord | Failure]:
    config = SourceConfig(kind, place, **options)  # type: ignore[arg-type]
    SOURCES[kind].check(config)
    return list(SOURCES[kind].read(config, "/nowhere"))


def records(items: list[ImageRecord | Failure]) -> list[tuple[str, str, int, str]]:
    """Key, URI, size and origin."""
    return [
        (item.key, item.image.uri if item.image else "", item.size, item.origin)
        for item in items
        if isinstance(item, ImageRecord)
    ]


def reasons(items: list[ImageRecord | Failure]) -> list[tuple[str, str]]:
    return [(item.key, item.reason) for item in items if isinstance(item, Failure)]


def table(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in ("image", *rows)).encode()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("images", ["disk", "bucket"])
@pytest.mark.parametrize("manifest", ["disk", "bucket", "beside"])
@pytest.mark.parametrize("named", [pytest.param("relative", marks=pytest.mark.slow), "absolute"])
def test_every_mix_of_places_gives_the_same_records(
    tmp_path: Path,
    bucket_server: BucketServer,
    photos: str,
    kind: str,
    images: str,
    manifest: str,
    named: str,
) -> None:
    root = str(tmp_path / "photos") if images == "disk" else photos
    names = [name if named == "relative" else f"{root}/{name}" for name in (*IMAGES, "none.jpg")]
    text = (
        table(*names)
        if kind == "csv"
        else b"".join(json.dumps({"image": name}).encode() + b"\n" for name in names)
    )
    folder = {"disk": str(tmp_path / "lists"), "bucket": f"{photos}-lists", "beside": root}[manifest]
    path = f"{folder}/m.{kind}"
    if path.startswith("gs://"):
        bucket_server.put(path, text)
    else:
        Path(folder).mkdir(exist_ok=True)
        Path(path).write_bytes(text)
    options: dict[str, object] = {} if manifest == "beside" else {"annotations": (path,)}
    place = path if manifest == "beside" else root
    assert detect(SourceConfig("auto", place, **options))[0] == kind  # type: ignore[arg-type]
    items = read(kind, place, **options)
    first = 2 if kind == "csv" else 1
    assert records(items) == [
        (name, f"{root}/{name}", len(f"photos/{name}".encode()), f"m.{kind}, line {line}")
        for line, name in enumerate(IMAGES, first)
    ]
    assert reasons(items) == [(f"m.{kind}:{first + len(IMAGES)}", "not found")]


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ("./sub//./b.jpg", "sub/b.jpg"),
        ("sub/../a.jpg", "a.jpg"),
        ("../photos/a.jpg", "a.jpg"),
        ("{root}/sub/../a.jpg", "a.jpg"),
        ("{root}//a.jpg", "a.jpg"),
        (" a.jpg ", "a.jpg"),
        ("GS://pictures/photos/a.jpg", "a.jpg"),
        ("../photos-private/a.jpg", "outside the input root"),
        ("../../../../etc/passwd", "outside the input root"),
        ("../../other/photos/a.jpg", "outside the input root"),
        ("/etc/passwd", "outside the input root"),
        ("file:///etc/passwd", "outside the input root"),
        ("{root}-private/a.jpg", "outside the input root"),
        ("{root}.jpg", "outside the input root"),
        ("{root}/../photos-private/a.jpg", "outside the input root"),
        ("{root}/../../other/photos/a.jpg", "outside the input root"),
        ("gs://other/photos/a.jpg", "outside the input root"),
        ("gs://pictures/a.jpg", "outside the input root"),
        ("gs://pictures", "outside the input root"),
        ("gs://", "outside the input root"),
        ("gs:///photos/a.jpg", "outside the input root"),
        ("gs://pictures/photo", "outside the input root"),
        ("{root}", "not a file"),
        ("{root}/", "not a file"),
        (".", "not a file"),
        ("sub", "not found"),
        ("100%25#?.jpg", "not found"),
        ("A.jpg", "not found"),
        ("{root}/a\0.jpg", "not a file name"),
        ("x" * 1100 + ".jpg", "name too long"),
        ("s3://pictures/photos/a.jpg", "not a local path"),
    ],
)
def test_rows_lead_into_the_roots_or_nowhere(
    bucket_server: BucketServer, photos: str, row: str, key: str
) -> None:
    text = json.dumps({"image": row.format(root=photos)})
    bucket_server.put(f"{photos}/m.jsonl", f"{text}\n".encode())
    bucket_server.clear()
    (item,) = read("jsonl", f"{photos}/m.jsonl")
    if key.endswith(".jpg"):
        assert isinstance(item, ImageRecord) and item.image is not None
        assert (item.key, item.image.uri) == (key, f"{photos}/{key}")
    else:
        assert isinstance(item, Failure) and (item.key, item.reason) == ("m.jsonl:1", key)
    asked = {(request.bucket, request.name) for request in bucket_server.requests if request.kind != "list"}
    assert asked == {("pictures", "photos/m.jsonl")}


def test_image_roots_in_a_bucket_beside_a_manifest_on_disk(
    tmp_path: Path, bucket_server: BucketServer, photos: str
) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local/e.jpg").write_bytes(b"12345")
    rows = ("e.jpg", "sub/b.jpg", f"{photos}/a.jpg", "gs://other/photos/a.jpg", f"{photos}-private/a.jpg")
    (tmp_path / "local/m.csv").write_bytes(table(*rows))
    items = read("csv", f"{tmp_path}/local/m.csv", image_roots=(photos, "gs://other"))
    assert [item[:2] for item in records(items)] == [
        ("e.jpg", f"{tmp_path}/local/e.jpg"),
        ("sub/b.jpg", f"{photos}/sub/b.jpg"),
        ("a.jpg", f"{photos}/a.jpg"),
        ("photos/a.jpg", "gs://other/photos/a.jpg"),
    ]
    (failure,) = (item for item in items if isinstance(item, Failure))
    assert failure.reason == "outside the input root"
    assert "give --image_root gs://pictures, or the folder in it" in failure.detail


def test_objects_in_no_root_are_looked_for_among_local_copies(
    tmp_path: Path, bucket_server: BucketServer, photos: str
) -> None:
    for name in ("elsewhere/x/a.jpg", "x/b.jpg"):
        (tmp_path / "copies" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copies" / name).write_bytes(b"x")
    rows = ("gs://elsewhere/x/a.jpg", "gs://elsewhere/x/b.jpg", "gs://elsewhere/x/c.jpg", "https://h/x/b.jpg")
    bucket_server.put(f"{photos}/m.csv", table(*rows))
    bucket_server.clear()
    items = read("csv", f"{photos}/m.csv", image_roots=(str(tmp_path / "copies"),))
    assert [key for key, *_ in records(items)] == ["elsewhere/x/a.jpg", "x/b.jpg", "x/b.jpg"]
    assert reasons(items) == [("m.csv:4", "outside the input root")]
    assert {request.bucket for request in bucket_server.requests} == {"pictures"}


@pytest.mark.slow
def test_a_request_for_many_rows(bucket_server: BucketServer, photos: str) -> None:
    names = [f"{folder:02}/{file:03}.jpg" for folder in range(20) for file in range(100)]
    for name in names:
        bucket_server.put(f"{photos}/all/{name}", b"x")
    bucket_server.put(f"{photos}/all.csv", table(*(f"{photos}/all/{name}" for name in reversed(names))))
    bucket_server.put(f"{photos}/three.csv", table(*(f"all/{names[at]}" for at in (1, 1900, 900))))
    config = SourceConfig("csv", f"{photos}/all.csv")
    bucket_server.clear()
    items = list(SOURCES["csv"].read(config, "/nowhere"))
    assert [item.key for item in items] == [f"all/{name}" for name in reversed(names)]
    by_kind = [request.kind for request in bucket_server.requests if request.name != "photos/all.csv"]
    # is it a folder (of each look at the input), and 20 folders of 100, the later ones known by then
    assert by_kind.count("list") <= 23 and by_kind.count("list") == len(by_kind)
    bucket_server.clear()
    items = list(SOURCES["csv"].read(SourceConfig("csv", f"{photos}/three.csv"), "/nowhere"))
    assert [item.key for item in items] == [f"all/{names[at]}" for at in (1, 1900, 900)]
    by_kind = [request.kind for request in bucket_server.requests if request.name != "photos/three.csv"]
    assert len(by_kind) <= 5


@pytest.mark.parametrize(("kind", "line"), [("jsonl", b'{"image": "a.jpg"}'), ("sequence", b'{"v": [1, 2]}')])
def test_a_check_takes_few_requests(bucket_server: BucketServer, photos: str, kind: str, line: bytes) -> None:
    bucket_server.put(f"{photos}/m.jsonl", line + b"\n")
    bucket_server.clear()
    SOURCES[kind].check(SourceConfig(kind, f"{photos}/m.jsonl"))
    assert len(bucket_server.requests) <= 9


def test_a_manifest_is_read_in_a_few_large_pieces(bucket_server: BucketServer, photos: str) -> None:
    rows = [f"a.jpg,{'x' * 80},{number}" for number in range(30_000)]
    bucket_server.put(f"{photos}/m.csv", "\n".join(["image,text,number", *rows]).encode())
    bucket_server.clear()
    items = list(SOURCES["csv"].read(SourceConfig("csv", f"{photos}/m.csv"), "/nowhere"))
    assert [item.annotations.features["number"] for item in items if isinstance(item, ImageRecord)] == list(
        map(str, range(30_000))
    )
    # the header and the first rows four times, then 2.8 MB: 1 MB, and the rest
    media = [request for request in bucket_server.requests if request.kind == "get-media"]
    assert len(media) <= 4 + 2


@pytest.mark.slow
def test_faults_that_pass_do_not_show(bucket_server: BucketServer, photos: str) -> None:
    names = [f"{number:04}/1.jpg" for number in range(300)]
    for name in names:
        bucket_server.put(f"{photos}/many/{name}", b"x")
    bucket_server.put(f"{photos}/m.csv", table(*(f"many/{name}" for name in reversed(names))))
    expected = read("csv", f"{photos}/m.csv")
    assert len(records(expected)) == 300
    bucket_server.page_size = 20
    bucket_server.faults = Faults(0.2, seed=3, kinds=(503, "reset", "truncated"))
    assert read("csv", f"{photos}/m.csv") == expected
    assert sum(bucket_server.faults.injected.values()) > 0


@pytest.mark.parametrize(
    ("place", "annotations", "message"),
    [
        ("{root}/none.csv", (), "--input is '{root}/none.csv': there is no such object or folder"),
        ("{root}", ("{root}/none.csv",), "--annotations is '{root}/none.csv': there is no such file"),
        ("{root}", ("none.csv",), "--annotations is 'none.csv': there is no such file"),
        ("{root}", ("s3://b/m.csv",), "--annotations is 's3://b/m.csv'; local paths and gs:// URIs are read"),
        ("{root}", ("gs://none/m.csv",), "--annotations is 'gs://none/m.csv': there is no such file"),
        ("{root}", (), "--input is '{root}', a folder; --source csv reads a manifest"),
        ("{root}/a.jpg", ("{root}/m.csv",), "with --annotations, --input is the folder of the images"),
        ("{root}/empty.csv", (), "--input is '{root}/empty.csv', which is empty"),
    ],
)
def test_bad_calls(
    bucket_server: BucketServer, photos: str, place: str, annotations: tuple[str, ...], message: str
) -> None:
    bucket_server.put(f"{photos}/m.csv", table("a.jpg"))
    bucket_server.put(f"{photos}/empty.csv", b"")
    given = tuple(name.format(root=photos) for name in annotations)
    with pytest.raises(ValueError, match=message.format(root=photos)) as caught:
        read("csv", place.format(root=photos), annotations=given)
    assert "\n" not in str(caught.value)


def test_a_manifest_in_the_input_needs_no_bucket_before_its_name(
    bucket_server: BucketServer, photos: str
) -> None:
    bucket_server.put(f"{photos}/lists/m.csv", table("../a.jpg", "sub/b.jpg"))
    items = read("csv", photos, annotations=("lists/m.csv",))
    assert [(item[0], item[3]) for item in records(items)] == [
        ("a.jpg", "lists/m.csv, line 2"),
        ("sub/b.jpg", "lists/m.csv, line 3"),
    ]


def test_a_table_in_utf_16_in_a_bucket(bucket_server: BucketServer, photos: str) -> None:
    bucket_server.put(f"{photos}/m.csv", "image|label\na.jpg|é\nnone.jpg|é\n".encode("utf-16"))
    items = read("csv", f"{photos}/m.csv")
    assert records(items) == [("a.jpg", f"{photos}/a.jpg", 12, "m.csv, line 2")]
    assert reasons(items) == [("m.csv:3", "not found")]


def _write(place: str, server: BucketServer, name: str, data: bytes) -> None:
    if place.startswith("gs://"):
        server.put(f"{place}/{name}", data)
        return
    Path(place, name).parent.mkdir(parents=True, exist_ok=True)
    Path(place, name).write_bytes(data)


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, bucket: str) -> str:
    """A folder without anything in it."""
    return str(tmp_path / "in") if request.param == "disk" else f"{bucket}/in"


@pytest.mark.parametrize("folder", ["train", "Val2017", "images", "anything"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_images_in_a_folder_next_to_the_manifest_are_found(
    bucket_server: BucketServer, place: str, kind: str, folder: str
) -> None:
    names = [f"{at}.jpg" for at in range(150)]
    rows = [json.dumps({"image": name}) for name in names]
    text = "\n".join(rows).encode() if kind == "jsonl" else table(*names)
    for name in names:
        _write(place, bucket_server, f"{folder}/{name}", b"x")
    _write(place, bucket_server, f"labels.{kind}", text)
    items = read(kind, f"{place}/labels.{kind}")
    assert [(key, uri) for key, uri, _, _ in records(items)] == [
        (f"{folder}/{name}", f"{place}/{folder}/{name}") for name in names
    ]
    assert reasons(items) == []
    said = sniff(SOURCES[kind], SourceConfig("auto", f"{place}/labels.{kind}"))
    assert said is not None and said.endswith(f"; images are found in '{place}/{folder}'")


@pytest.mark.parametrize(
    ("train", "test"), [((0, 1), (2, 3)), ((0, 1, 2, 3), (0, 1, 2, 3)), ((0, 1, 2), ()), ((), (0,))]
)
def test_where_no_single_folder_has_all_images_the_remedy_is_named(
    bucket_server: BucketServer, place: str, train: tuple[int, ...], test: tuple[int, ...]
) -> None:
    for folder, numbers in {"train": train, "test": test, "other": (9,)}.items():
        for number in numbers:
            _write(place, bucket_server, f"{folder}/{number}.jpg", b"x")
    _write(place, bucket_server, "m.csv", table("0.jpg", "1.jpg", "2.jpg", "3.jpg"))
    items = read("csv", f"{place}/m.csv")
    assert reasons(items) == [(f"m.csv:{line}", "not found") for line in range(2, 6)]
    remedies = {
        number: [f"{place}/{name}" for name, has in (("test", test), ("train", train)) if number in has]
        for number in range(4)
    }
    base = f"looked for in {place}"
    assert [item.detail for item in items if isinstance(item, Failure)] == [
        f"'{number}.jpg', {base}"
        + (f"; {' or '.join(f'--image_root {folder}' for folder in folders)} finds it" if folders else "")
        for number, folders in remedies.items()
    ]
    roots = tuple(sorted({folders[0] for folders in remedies.values() if folders}))
    found = records(read("csv", f"{place}/m.csv", image_roots=roots))
    assert len(found) == sum(bool(folders) for folders in remedies.values())


def test_folders_next_to_the_manifest_are_not_looked_at_where_images_lie_where_it_says(
    bucket_server: BucketServer, place: str
) -> None:
    for name in ("0.jpg", "train/0.jpg", "train/1.jpg"):
        _write(place, bucket_server, name, b"x")
    _write(place, bucket_server, "m.csv", table("0.jpg", "1.jpg"))
    items = read("csv", f"{place}/m.csv")
    assert [key for key, *_ in records(items)] == ["0.jpg"]
    assert reasons(items) == [("m.csv:3", "not found")]


def test_only_the_first_faults_name_the_folder(bucket_server: BucketServer, place: str) -> None:
    for number in range(1, 150):
        _write(place, bucket_server, f"train/{number}.jpg", b"x")
    _write(place, bucket_server, "m.csv", table(*(f"{number}.jpg" for number in range(150))))
    details = [item.detail for item in read("csv", f"{place}/m.csv") if isinstance(item, Failure)]
    assert len(details) == 150
    assert [at for at, detail in enumerate(details) if "--image_root" in detail] == list(range(1, 100))
