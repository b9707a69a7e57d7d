"""deploy/metadata.json: the parameters of the template are the flags of convert."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawings import draw_folder
from recordmill.pipelines.options.convert import CONVERT, ConvertOptions, Running, parse_convert
from recordmill.pipelines.options.runner import Display, Runner
from recordmill.transforms.flags import flags_of
from tests.buckets.server import BucketServer

METADATA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "deploy/metadata.json").read_text("utf-8"))
PARAMETERS: dict[str, dict[str, Any]] = {one["name"]: one for one in METADATA["parameters"]}

# Of Beam's flags the one that every launch needs: others are fields of a launch's environment.
OF_BEAM = {"sdk_container_image"}
TYPES = {"TEXT", "NUMBER", "BOOLEAN", "ENUM", "GCS_READ_FILE", "GCS_READ_FOLDER", "GCS_WRITE_FOLDER"}
NUMBERS = {
    *("label_offset", "limit", "jpeg_quality", "target_ssim", "max_side", "short_side"),
    *("reader_hosts", "seed", "max_failure_ratio", "keep_versions"),
}

# (taken, refused) of each parameter.
EXAMPLES: dict[str, tuple[list[str], list[str]]] = {
    "input": (
        ["gs://inputs/photos", "gs://inputs", "gs://inputs/a b/ü.csv"],
        ["photos/", "/mnt/x", "gs://", "http://inputs/x"],
    ),
    "output": (
        ["gs://outputs/set", "gs://outputs/a/b/"],
        ["gs://outputs", "gs://outputs/", "out/", "s3://outputs/x"],
    ),
    "sdk_container_image": (
        [
            "us-central1-docker.pkg.dev/p/recordmill/recordmill:1.0",
            f"europe-docker.pkg.dev/p/r/recordmill@sha256:{'0' * 64}",
        ],
        ["recordmill", "us-central1-docker.pkg.dev/p/r/recordmill", "a b:1", ":1"],
    ),
    "source": (["auto", "folder", "coco", "tfrecord"], ["Folder", "", "a b"]),
    "include_annotations": (["masks", "masks,keypoints,captions"], ["boxes", "masks,", ""]),
    "mask_pattern": (["masks/{stem}_mask.png", "{name}", "../{parent}.png"], ["masks/x.png", ""]),
    "input_features": (["img=image/encoded", "a=b,c=d"], ["a", "a=", "=b", "a=b,", "a=b=c"]),
    "annotations": (["gs://inputs/list.csv"], ["list.csv", "gs://inputs", "gs://inputs/"]),
    "image_root": (["gs://inputs", "gs://inputs/images/"], ["images/"]),
    "image_column": (["path", "a b", "outer/inner"], [""]),
    "label_column": (["label", "a,b"], ["", "a,", ",a"]),
    "label_pattern": ([r"([a-z]+)_[0-9]+\.", "(?P<label>[^/]+)"], ["cat", "[a-z]+"]),
    "label_file": (["gs://inputs/labels.txt"], ["labels.txt"]),
    "label_offset": (["0", "1", "-1"], ["x", "1.5", ""]),
    "mask_values": (["11=255", "a b=0,34=car"], ["11", "11=", "=255", "1=2,", "1=2=3"]),
    "ignore_label": (["11", "Void,a b"], ["", "a,", ",a"]),
    "include": (["*.jpg", "**/a?/[!b]*"], [""]),
    "exclude": (["test/**"], [""]),
    "limit": (["1", "1000"], ["0", "-1", "1.5", "all"]),
    "image_format": (["keep", "jpeg", "png", "webp", "raw", "tensor"], ["gif", "JPEG"]),
    "jpeg_quality": (["1", "90", "100"], ["0", "101", "90.5", "high"]),
    "target_ssim": (["0.98", ".9", "1", "1.0"], ["0", "0.0", "98", "-0.5", "high"]),
    "subsampling": (["420", "422", "444"], ["4:2:0", "411"]),
    "reencode": (["smaller", "needed", "always"], ["never"]),
    "max_side": (["1", "1024"], ["0", "-1", "1.5"]),
    "short_side": (["1", "256"], ["0", "-1", "1.5"]),
    "size": (["224x320", "1X1"], ["224", "224x", "224*320", "-1x2"]),
    "fit": (["stretch", "pad", "crop"], ["cover"]),
    "color": (["keep", "rgb", "gray"], ["grey", "RGB"]),
    "alpha": (["keep", "flatten", "fail"], ["drop"]),
    "background": (["white", "#fff", "#00ff7F"], ["", "#ff", "1,2,3"]),
    "optimize": (["none", "lossless", "lossless-progressive"], ["lossy"]),
    "metadata": (["auto", "strip"], ["keep", "none"]),
    "validate": (["decode", "header"], ["none"]),
    "exif": (["apply", "ignore"], ["strip"]),
    "schema": (["auto", "classification", "imagenet", "detection,segmentation"], ["Coco", "a,", ""]),
    "boxes": (["clip", "drop", "fail"], ["keep"]),
    "map_image": (["textwrap:dedent", "textwrap:dedent@1.2"], ["textwrap", "textwrap:", "a b:c", "a:b@", ""]),
    "rename": (["image/encoded=jpeg", "a=b,c=d"], ["a", "a=", "=b", "a=b,", "a=b=c"]),
    "splits": (
        ["train=0.9,val=0.1", "all=1", "train=1.0", "a=.5,b=.5"],
        ["train", "train=", "train=2", "train=0.9;val=0.1", "a b=1"],
    ),
    "group_by": (["camera"], [""]),
    "group_pattern": ([r"^(\d+)_", "^[^_]+"], [""]),
    "num_shards": (["1", "99999", "train=16,val=2"], ["0", "100000", "-1", "train=0", "train=16,", "many"]),
    "shard_size": (["128MiB", "100MB", "1.5 GiB", "5000000", "1g"], ["big", "-1", "128 mebibytes", "MiB"]),
    "reader_hosts": (["1", "32"], ["0", "-4", "x"]),
    "seed": (["0", "42", "-7"], ["x", "1.5"]),
    "order": (["shuffled", "key"], ["random"]),
    "writer": (["auto", "shards", "beam"], ["tfds"]),
    "name": (["pets", "my set"], [""]),
    "max_failure_ratio": (["0", "0.01", "1", "1.0", ".5"], ["1.5", "-0.1", "1%", "x"]),
    "duplicates": (["keep", "fail", "drop"], ["Keep", "remove", ""]),
    "strict": (["true", "false", "True", "FALSE"], ["yes", "1", ""]),
    "overwrite": (["true", "false", "True", "FALSE"], ["yes", "1", ""]),
    "dataset_version": (
        ["auto", "1.0.0", "0.10.23"],
        ["1", "1.0", "v1.0.0", "01.0.0", "1.0.0.0", "1.0.0-rc1", "latest", ""],
    ),
    "keep_versions": (["1", "3"], ["0", "-1", "all"]),
}


def matches(name: str, value: str) -> bool:
    """Whether Dataflow takes a value: all regular expressions match all of it."""
    return all(re.fullmatch(pattern, value) for pattern in PARAMETERS[name]["regexes"])


def test_the_parameters_are_the_flags_but_those_of_a_terminal_or_one_machine() -> None:
    assert len(PARAMETERS) == len(METADATA["parameters"])
    of_terminals = {one.name for cls in (Running, Display, Runner) for one in flags_of(cls)}
    assert set(PARAMETERS) - OF_BEAM == {one.name for one in CONVERT.flags} - of_terminals
    assert METADATA["streaming"] is False
    assert METADATA["name"] == "Recordmill"


@pytest.mark.parametrize("name", list(PARAMETERS))
def test_a_parameter_is_described_and_typed(name: str) -> None:
    parameter = PARAMETERS[name]
    assert set(parameter) <= {
        *("name", "label", "helpText", "paramType", "regexes"),
        *("isOptional", "defaultValue", "enumOptions"),
    }
    assert parameter["label"]
    assert parameter["helpText"]
    assert parameter["paramType"] in TYPES
    assert (parameter["paramType"] == "NUMBER") == (name in NUMBERS)
    assert parameter.get("isOptional", False) == (name not in {"input", "output", *OF_BEAM})


@pytest.mark.parametrize("name", list(PARAMETERS))
def test_good_values_match_and_bad_ones_do_not(name: str) -> None:
    good, bad = EXAMPLES[name]
    assert good
    assert bad
    assert [value for value in good if not matches(name, value)] == []
    assert [value for value in bad if matches(name, value)] == []
    # What an engine without look-around takes, from end to end.
    for pattern in PARAMETERS[name]["regexes"]:
        assert pattern.startswith("^")
        assert pattern.endswith("$")
        assert "(?" not in pattern
    if "defaultValue" in PARAMETERS[name]:
        assert matches(name, PARAMETERS[name]["defaultValue"])


@pytest.mark.parametrize("name", sorted(set(PARAMETERS) - OF_BEAM))
def test_the_flag_takes_all_that_matches(name: str) -> None:
    for value in EXAMPLES[name][0]:
        args, others = CONVERT.parser("convert").parse_known_args([f"--{name}={value}"])
        assert others == []
        assert name in args.given


def test_a_launch_with_every_parameter_parses() -> None:
    argv = launched({name: EXAMPLES[name][0][-1] for name in PARAMETERS})
    args, others = CONVERT.parser("convert").parse_known_args(argv)
    assert {name for name in PARAMETERS if hasattr(args, name)} == set(PARAMETERS) - OF_BEAM
    assert args.overwrite is False
    assert args.splits == {"a": 0.5, "b": 0.5}
    assert args.shard_size == 1_000_000_000
    assert args.annotations == ("gs://inputs/list.csv",)
    # The rest is Beam's.
    assert "--sdk_container_image=europe-docker.pkg.dev/p/r/recordmill@sha256:" + "0" * 64 in others


def launched(parameters: dict[str, str]) -> list[str]:
    """The arguments that a Flex Template's launcher gives to the entry file."""
    given = [f"--{name}={value}" for name, value in parameters.items()]
    return [
        *given,
        "--runner=DataflowRunner",
        "--project=my-project",
        "--region=us-central1",
        "--job_name=nightly",
        "--temp_location=gs://pictures/temp",
        "--staging_location=gs://pictures/staging",
        "--template_location=gs://pictures/staging/template_launches/1/job_object",
        "--service_account_email=worker@my-project.iam.gserviceaccount.com",
        "--max_num_workers=20",
    ]


@pytest.fixture
def launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[dict[str, str]], ConvertOptions]]:
    """Checks a launch, on a bucket with images, labels and lists of them."""
    pytest.importorskip("google.cloud.dataflow", reason="Beam's parts for Google Cloud")
    photos = tmp_path / "photos"
    keys = [path.relative_to(photos).as_posix() for path in draw_folder(photos, each=2)]
    with BucketServer() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.host)
        bucket = server.bucket("pictures")
        server.upload_folder(photos, f"{bucket}/photos")
        rows = [f"{key},{key.split('/')[0]},{index}" for index, key in enumerate(keys)]
        server.put(f"{bucket}/list.csv", "\n".join(["file,kind,camera", *rows]).encode())
        server.put(f"{bucket}/labels.txt", b"circle\nsquare\ntriangle\n")
        yield lambda parameters: parse_convert(launched(parameters), "convert")


EVERYWHERE = {
    "input": "gs://pictures/photos",
    "output": "gs://pictures/out",
    "sdk_container_image": "us-central1-docker.pkg.dev/p/recordmill/recordmill:1",
    "limit": "5",
    "include": "**/*.jpg",
    "exclude": "square/**",
    "label_offset": "1",
    "label_file": "gs://pictures/labels.txt",
    "validate": "header",
    "exif": "ignore",
    "schema": "classification",
    "rename": "image/encoded=jpeg,image/class/label=y",
    "boxes": "drop",
    "map_image": "textwrap:dedent",
    "name": "pets",
    "max_failure_ratio": "0.05",
    "strict": "false",
    "overwrite": "true",
    "splits": "train=0.9,val=0.1",
}
BY_KEY = {
    "source": "folder",
    "label_pattern": r"([a-z]+)_[0-9]+\.",
    "group_pattern": r"_(\d+)",
    "num_shards": "train=4,val=1",
    "writer": "beam",
    "image_format": "webp",
    "jpeg_quality": "85",
    "max_side": "100",
}
BY_ROW = {
    "source": "csv",
    "annotations": "gs://pictures/list.csv",
    "image_root": "gs://pictures",
    "image_column": "file",
    "label_column": "kind",
    "group_by": "camera",
    "image_format": "jpeg",
    "target_ssim": "0.97",
    "subsampling": "444",
    "reencode": "always",
    "size": "48x64",
    "fit": "pad",
    "background": "#102030",
    "color": "rgb",
    "alpha": "fail",
    "optimize": "lossless",
    "metadata": "strip",
    "duplicates": "drop",
    "seed": "7",
    "order": "key",
    "shard_size": "1MiB",
    "writer": "shards",
    "dataset_version": "auto",
    "keep_versions": "3",
    "overwrite": "false",
}


def test_every_parameter_is_in_a_launch() -> None:
    of_masks = {"include_annotations", "mask_pattern", "mask_values", "ignore_label"}
    of_other_sources = {"input_features", *of_masks}
    assert {*EVERYWHERE, *BY_KEY, *BY_ROW, "reader_hosts", "short_side", *of_other_sources} == set(PARAMETERS)
    for parameters in (EVERYWHERE, BY_KEY, BY_ROW):
        assert [name for name, value in parameters.items() if not matches(name, value)] == []


def test_launches_are_checked_against_the_bucket(launch: Callable[[dict[str, str]], ConvertOptions]) -> None:
    by_key = launch({**EVERYWHERE, **BY_KEY})
    assert by_key.runner == "DataflowRunner"
    assert by_key.source.include == ("**/*.jpg",)
    assert by_key.dataset.overwrite is True
    assert by_key.dataset.num_shards == {"train": 4, "val": 1}
    assert by_key.dataset.label_names == ("circle", "square", "triangle")
    assert f"--sdk_container_image={EVERYWHERE['sdk_container_image']}" in by_key.beam_args
    # All is in the image.
    assert not [flag for flag in by_key.beam_args if flag.startswith(("--setup_file", "--requirements_file"))]
    by_row = launch({**EVERYWHERE, **BY_ROW})
    assert by_row.source.annotations == ("gs://pictures/list.csv",)
    assert by_key.dataset.policy.jpeg_quality == 85
    assert by_row.dataset.policy.size == (48, 64)
    assert by_row.dataset.policy.background == (16, 32, 48)
    assert by_row.dataset.shard_size == 1 << 20
    assert by_row.dataset.order == "key"
    assert by_key.dataset.boxes == "drop"
    assert (by_key.dataset.dataset_version, by_key.published) == (None, "gs://pictures/out")
    assert (by_row.dataset.dataset_version, by_row.dataset.keep_versions) == ("auto", 3)
    assert by_row.published == "gs://pictures/out/1.0.0"
    hosts = launch({**EVERYWHERE, "reader_hosts": "4", "short_side": "32", "overwrite": "false"})
    assert hosts.dataset.reader_hosts == 4
    assert hosts.dataset.overwrite is False


def test_defaults_given_as_text_change_nothing(launch: Callable[[dict[str, str]], ConvertOptions]) -> None:
    needed = {name: EVERYWHERE[name] for name in ("input", "output", "sdk_container_image")}
    defaults = {name: one["defaultValue"] for name, one in PARAMETERS.items() if "defaultValue" in one}
    assert launch({**needed, **defaults}) == launch(needed)
