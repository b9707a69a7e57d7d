"""Inputs whose annotations nothing reads are refused, with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.refusals import check_unread
from recordmill.transforms.sources.look import Look
from tests.buckets.server import BucketServer

CVAT = "<annotations><version>1.1</version><image id='0' name='1.jpg' width='2' height='2'/></annotations>"
VOC = "<annotation><filename>1.jpg</filename><size><width>2</width></size></annotation>"


def looked(root: str, **options: Any) -> Look:
    return Look(SourceConfig("auto", root, **options))


def grow(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("list_attr_celeba.txt", "", "CelebA's lists"),
        ("data.yaml", "names: [cat]", "the classes of a YOLO dataset"),
        ("below/data.yml", "nc: 1", "the classes of a YOLO dataset"),
        ("Anno/list_bbox_celeba.csv", "", "CelebA's lists"),
        ("identity_CelebA.txt", "", "CelebA's lists"),
        ("train/data-00000-of-00001.arrow", "", "Arrow files"),
        ("train/digitStruct.mat", "", "annotations of MATLAB"),
        ("devkit/cars_train_annos.mat", "", "annotations of MATLAB"),
        ("imagelabels.mat", "", "annotations of MATLAB"),
        ("annotations.xml", CVAT, "annotations in CVAT's own XML"),
    ],
)
def test_known_formats_are_refused(tmp_path: Path, name: str, text: str, what: str) -> None:
    root = grow(tmp_path, {"1.jpg": "", name: text})
    with pytest.raises(ValueError) as caught:
        check_unread(looked(root))
    message = str(caught.value)
    assert message.startswith(f"--input is {root!r}, where {name!r} holds {what}")
    assert message.endswith("; for the images without them give --source folder") and "\n" not in message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.txt", "1.jpg is the best one\n"),
        ("SHA256SUMS.txt", "9f86d081 1.jpg\n"),
        ("files.txt", "1.jpg\n"),
        ("LICENSE", ""),
        ("summary.csv", "size,count\n10,20\n"),
        ("config.json", '{"name": "photos"}'),
        ("list_attr_other.txt", ""),
        ("celeba/readme.txt", ""),
        ("x.mat", ""),
        ("1.arrow.txt", ""),
        ("x.xml", VOC.replace("1.jpg", "x.jpg")),
        ("x.xml", "no XML"),
        (".hidden/imagelabels.mat", ""),
    ],
)
def test_others_are_not(tmp_path: Path, name: str, text: str) -> None:
    check_unread(looked(grow(tmp_path, {"1.jpg": "", name: text})))


def test_only_some_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = grow(tmp_path, {"1.xml": VOC, "2.xml": VOC, "3.xml": VOC, "4.xml": CVAT})
    monkeypatch.setattr("recordmill.transforms.sources.detection.refusals._OPENED", 3)
    monkeypatch.setattr("recordmill.transforms.sources.look._NAMES", 4)
    check_unread(looked(root))
    monkeypatch.setattr("recordmill.transforms.sources.detection.refusals._OPENED", 4)
    with pytest.raises(ValueError, match="'4.xml' holds annotations in CVAT's own XML"):
        check_unread(looked(root))


def test_folders_to_skip_are_not_looked_at(tmp_path: Path) -> None:
    root = grow(tmp_path, {"out/x.arrow": ""})
    check_unread(looked(root, skip_dirs=(f"{root}/out",)))


def test_a_bucket(bucket: str, bucket_server: BucketServer) -> None:
    bucket_server.put(f"{bucket}/in/1.jpg", b"x")
    check_unread(looked(f"{bucket}/in"))
    bucket_server.put(f"{bucket}/in/a.xml", CVAT.encode())
    with pytest.raises(ValueError, match="'a.xml' holds annotations in CVAT's own XML"):
        check_unread(looked(f"{bucket}/in"))


def test_the_remedy_repeats_the_image_roots_of_the_call(tmp_path: Path) -> None:
    photos = grow(tmp_path / "photos", {"1.jpg": "", "2.jpg": ""})
    root = grow(tmp_path / "in", {"labels.csv": "image,label\n1.jpg,a\n2.jpg,b\n"})
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / "in" / name).symlink_to(tmp_path / "photos" / name)
    with pytest.raises(ValueError) as raised:
        check_unread(looked(root, image_roots=(photos,)))
    remedy = f"give --input {root} --annotations {root}/labels.csv --image_root {photos}; for the images"
    assert remedy in str(raised.value)
