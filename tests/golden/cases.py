"""The golden conversions, and the SHA-256 of what they write, recorded in digests.json.

python -m tests.golden.cases [NAME …]    records the digests again, of all cases or of those named
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from recordmill.transforms.images.versions import codec_versions
from tests.fuzz import parser_seeds
from tests.golden import inputs
from tests.pipelines.conversion import convert

DIGESTS = Path(__file__).with_name("digests.json")
FILES = ("*.tfrecord", "index/*.idx", "features.json", "*.labels.txt", "label_map.pbtxt", "failures.jsonl")
ALL = "--include_annotations=masks,keypoints,captions"
MASKS = "--include_annotations=masks"
# Jobs of more than one conversion.
OVERWRITE, RESUME, VERSIONS = "overwrite", "resume", "versions"


@dataclasses.dataclass(frozen=True)
class Case:
    """A conversion, or several into the same output.

    Attributes:
        draw: makes the input in a folder.
        flags: of `convert`.
        place: what --input is, below that folder.
        job: `OVERWRITE`, `RESUME`, `VERSIONS`, or empty for a single conversion.
        status: exit status of the last conversion.
    """

    draw: Callable[[Path], None]
    flags: tuple[str, ...] = ()
    place: str = ""
    job: str = ""
    status: int = 0


def _sources() -> Iterator[tuple[str, Case]]:
    """Every source, in several of its forms."""
    for name, seed in parser_seeds.seeds().items():
        if name.startswith("small-") and name not in ("small-labelme-web", "small-tar"):
            continue
        flags = [f"--source={seed.kind}"]
        for option, value in seed.options.items():
            text = value if isinstance(value, str) else ",".join(value)
            flags.append(f"--{option}={text}")
        if name == "jsonl":
            flags.append("--limit=2")  # its third row has the image of the second
        flags += [f"--annotations={{input}}/{path}" for path in seed.annotations]
        yield f"source-{name}", Case(inputs.seed(name), tuple(flags), seed.place)


def _policies() -> Iterator[tuple[str, Case]]:
    """Every image policy, over images of all kinds."""
    for flags in (
        "",
        "--validate=header",
        "--exif=ignore",
        "--metadata=strip",
        "--image_format=jpeg",
        "--image_format=jpeg --jpeg_quality=60 --reencode=always --subsampling=444",
        "--image_format=jpeg --reencode=needed --subsampling=422",
        "--image_format=jpeg --target_ssim=0.95",
        "--image_format=jpeg --alpha=flatten --background=#3366cc",
        "--image_format=webp --jpeg_quality=80",
        "--image_format=png",
        "--image_format=raw",
        "--image_format=tensor",
        "--alpha=fail",
        "--color=rgb",
        "--color=gray --alpha=flatten",
        "--max_side=20",
        "--short_side=14 --image_format=jpeg",
        "--size=16x24",
        "--size=16x24 --fit=crop --image_format=raw",
        "--size=30x30 --fit=pad --background=red --image_format=png",
        "--optimize=lossless",
        "--optimize=lossless-progressive",
    ):
        name = flags.replace("--", "").replace("=", "-").replace(" ", "-") or "keep"
        yield f"images-{name}", Case(inputs.images, (*flags.split(), "--num_shards=2"))


def _schemas() -> Iterator[tuple[str, Case]]:
    """Every schema, boxes and masks through geometry."""
    geometries = ("", "--size=40x40 --fit=pad", "--size=30x50 --fit=crop --boxes=drop", "--max_side=50")
    for number, geometry in enumerate(geometries):
        flags = ("--schema=detection,segmentation", ALL, *geometry.split())
        yield f"boxes-geometry-{number}", Case(inputs.scenes, ("--source=coco", *flags))
        flags = ("--schema=segmentation", *(flag for flag in geometry.split() if "boxes" not in flag))
        yield f"masks-geometry-{number}", Case(inputs.masks, ("--source=masks", *flags))
    coco = ("--source=coco", ALL)
    yield "boxes-fail", Case(inputs.scenes, (*coco, "--boxes=fail"))
    yield "boxes-exif-ignore", Case(inputs.scenes, (*coco, "--exif=ignore"))
    for schema in ("panoptic", "plain", "detection,panoptic", "segmentation", "imagenet", "classification"):
        yield f"schema-{schema}", Case(inputs.scenes, (*coco, f"--schema={schema}"))
    yield "masks-plain", Case(inputs.masks, ("--source=masks", "--schema=plain"))
    yield "schema-sequence", Case(inputs.clips, ("--source=frames", "--image_format=jpeg", "--max_side=16"))
    for schema in ("classification", "imagenet", "plain", "detection"):
        yield f"photos-{schema}", Case(inputs.photos, (f"--schema={schema}",), "photos")


def _shards() -> Iterator[tuple[str, Case]]:
    """Splits, groups, orders, numbers of shards, labels, selection; both writers; several conversions."""
    split = "--splits=train=0.6,val=0.2,test=0.2"
    for name, flags in {
        "order-key": "--order=key --num_shards=3",
        "seed": "--seed=7 --num_shards=3",
        "splits": split,
        "groups-pattern": rf"{split} --group_pattern=-(g\d)-",
        "shards-by-split": f"{split} --num_shards=train=5,val=2,test=1",
        "shard-size": "--shard_size=8KB",
        "reader-hosts": "--reader_hosts=2",
        "labels": r"--label_pattern=-(g\d)- --label_offset=5",
        "label-file": "--label_file={input}/names.txt",
        "selection": "--include=circle/* --include=square/* --exclude=*-g1-* --limit=9",
        "rename": "--rename=image/encoded=img,image/class/label=label",
        "beam": "--writer=beam --num_shards=2",
        "beam-splits": f"{split} --writer=beam --image_format=png",
    }.items():
        yield f"shards-{name}", Case(inputs.photos, tuple(flags.split()), "photos")
    yield "shards-table", Case(inputs.photos, ("--label_column=label",), "table.csv")
    yield "shards-groups", Case(inputs.photos, ("--splits=a=0.5,b=0.5", "--group_by=patient"), "table.csv")
    yield "shards-beam-boxes", Case(inputs.scenes, ("--source=coco", ALL, "--writer=beam"))
    jpeg = ("--image_format=jpeg", "--num_shards=3")
    for job in (OVERWRITE, RESUME, VERSIONS):
        yield f"shards-{job}", Case(inputs.photos, jpeg, "photos", job)
    yield "masks-versions", Case(inputs.masks, ("--source=masks", "--size=20x20"), job=VERSIONS)
    yield "boxes-versions", Case(inputs.scenes, ("--source=coco", ALL, "--num_shards=2"), job=VERSIONS)


CASES: dict[str, Case] = {
    name: case for cases in (_sources, _policies, _schemas, _shards) for name, case in cases()
}


def run(case: Case, folder: Path) -> dict[str, str]:
    """Draws the input, converts it, and returns the digests of what was written, by path."""
    folder = folder.resolve()
    source, output = folder / "input", folder / "out"
    case.draw(source)
    flags = [flag.replace("{input}", str(source)) for flag in case.flags]
    call = ["--input", source / case.place, "--output", output, "--direct_num_workers=1", *flags]
    accepting = [*call, "--max_failure_ratio=1"]
    if case.job == RESUME:
        broken = next(path for path in sorted(source.rglob("*.jpg")))
        broken.write_bytes(broken.read_bytes()[:300])
        assert convert(*call, "--max_failure_ratio=0") == 1
        assert convert(*accepting) == case.status
    elif case.job == VERSIONS:
        assert convert(*accepting, "--dataset_version=auto") == case.status
        pictures = sorted(path for path in source.rglob("*.jpg"))
        pictures[0].write_bytes(pictures[1].read_bytes())
        pictures[2].write_bytes(b"no image")
        assert convert(*accepting, "--dataset_version=auto") == case.status
    else:
        assert convert(*accepting) == case.status
        if case.job == OVERWRITE:
            assert convert(*accepting, "--seed=3", "--overwrite") == case.status
    homes = sorted(output.glob("[0-9]*.*.*")) if case.job == VERSIONS else [output]
    paths = sorted(path for home in homes for pattern in FILES for path in home.glob(pattern))
    found = {str(path.relative_to(output)): path.read_bytes() for path in paths}
    assert any(name.endswith(".tfrecord") for name in found)
    if "--writer=beam" in flags:
        found = _unordered(found)
    if "failures.jsonl" in found:
        found["failures.jsonl"] = found["failures.jsonl"].replace(str(source).encode(), b"INPUT")
    return {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}


def _unordered(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files of Beam's writer, which puts records into any shard in any order: the sorted records by split."""
    records: dict[str, list[bytes]] = {}
    others = {}
    for name, data in files.items():
        if not name.endswith(".tfrecord"):
            if not name.startswith("index/"):
                others[name] = data
            continue
        frames = records.setdefault(name.partition("-")[0], [])
        while data:
            end = struct.unpack_from("<Q", data)[0] + 16
            frames.append(data[:end])
            data = data[end:]
    return {**others, **{f"{split}, sorted": b"".join(sorted(every)) for split, every in records.items()}}


def main(names: list[str]) -> None:
    """Records the digests of cases; drops those of cases that are gone."""
    recorded = json.loads(DIGESTS.read_text("utf-8"))["cases"] if DIGESTS.exists() else {}
    found = {}
    for name, case in CASES.items():
        if names and name not in names:
            found[name] = recorded[name]
            continue
        folder = Path(tempfile.mkdtemp())
        try:
            found[name] = run(case, folder)
        finally:
            shutil.rmtree(folder)
        print(name, "as before" if found[name] == recorded.get(name) else "CHANGED", flush=True)
    text = json.dumps({"codecs": codec_versions(), "cases": found}, indent=1, sort_keys=True)
    DIGESTS.write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
