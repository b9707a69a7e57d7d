"""Other settings, codecs or programs: nothing is reused, it says why, and the bytes are from scratch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recordmill.transforms.shards import previous
from recordmill.transforms.shards.previous import package_version
from tests.pipelines.conversion import convert, digests
from tests.pipelines.versions.edits import put
from tests.pipelines.versions.homes import NEXT, Rerun, assert_same_version, latest, taken_over, work


def differs(rerun: Rerun, folder: Path, reason: str, *flags: str, compared: bool = True) -> None:
    """Converts the unchanged input once more, which makes all images anew, and says why.

    Where it is compared, the result is that of starting over.
    """
    put(rerun.input, rerun.edit.before)
    home = rerun.home(folder)
    assert rerun.convert(home, *flags) == 0
    assert taken_over(home / NEXT) == {"from": "1.0.0", "records": 0, "shards": 0, "reason": reason}
    assert work(home / NEXT)[1] == 30
    assert latest(home) == NEXT
    if not compared:
        return
    assert rerun.convert(folder / "scratch/out", *flags, version=NEXT) == 0
    assert_same_version(home / NEXT, folder / "scratch/out" / NEXT)


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--jpeg_quality=81", "--jpeg_quality was 80, is 81"),
        ("--subsampling=444", '--subsampling was "420", is "444"'),
        ("--image_format=webp", '--image_format was "jpeg", is "webp"'),
        ("--reencode=always", '--reencode was "smaller", is "always"'),
        ("--max_side=20", "--max_side was null, is 20"),
        ("--color=gray", '--color was "keep", is "gray"'),
        ("--exif=ignore", '--exif was "apply", is "ignore"'),
        ("--optimize=lossless", '--optimize was "none", is "lossless"'),
        ("--validate=header", '--validate was "decode", is "header"'),
        ("--metadata=strip", '--metadata was "auto", is "strip"'),
        ("--schema=imagenet", '--schema was "auto", is "imagenet"'),
        ("--seed=1", "--seed was 0, is 1"),
        ("--order=key", '--order was "shuffled", is "key"'),
        ("--splits=train=0.5,val=0.5", '--splits was {}, is {"train": 0.5, "val": 0.5}'),
        ("--rename=image/encoded=x", '--rename was {}, is {"image/encoded": "x"}'),
        ("--label_offset=3", "--label_offset was null, is 3"),
    ],
)
@pytest.mark.slow
def test_each_flag_that_decides_a_byte(flag: str, reason: str, some: Rerun, tmp_path: Path) -> None:
    # What each of them makes from scratch is tested with the inputs.
    differs(
        some, tmp_path, reason, flag, compared=flag.startswith(("--image_format", "--splits", "--rename"))
    )


@pytest.mark.slow
def test_it_is_printed(some: Rerun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    difference = "--jpeg_quality was 80, is 81; --seed was 0, is 1"
    differs(some, tmp_path, difference, "--jpeg_quality=81", "--seed=1")
    printed = " ".join(capsys.readouterr().out.split())
    assert f"reused nothing of version 1.0.0: {difference}" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--exclude=a/*", "--exclude was"),
        ("--label_pattern=^([a-z])", "--label_pattern was"),
        ("--limit=7", "--limit was"),
    ],
)
def test_what_the_source_is_told(flag: str, reason: str, some: Rerun, tmp_path: Path) -> None:
    """It may read images otherwise; only what is told of the source is known here."""
    put(some.input, some.edit.before)
    home = some.home(tmp_path)
    assert some.convert(home, flag) == 0
    assert taken_over(home / NEXT)["reason"].startswith(reason)
    assert some.convert(tmp_path / "scratch/out", flag, version=NEXT) == 0
    assert_same_version(home / NEXT, tmp_path / "scratch/out" / NEXT)


@pytest.mark.slow
def test_another_codec(some: Rerun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = previous.codec_versions()
    monkeypatch.setattr(previous, "codec_versions", lambda: {**found, "pillow": "99.1"})
    differs(some, tmp_path, f'pillow was "{found["pillow"]}", is "99.1"')


@pytest.mark.slow
def test_another_recordmill(some: Rerun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        return "99" if name == "recordmill" else package_version(name)

    monkeypatch.setattr(previous, "package_version", version)
    differs(some, tmp_path, f'recordmill was "{package_version("recordmill")}", is "99"')


@pytest.mark.slow
def test_a_version_of_version_0_1_is_not_reused(
    some: Rerun, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its settings and its lineage have an older format."""
    home = some.home(tmp_path)
    state = home / "1.0.0/state"
    settings = json.loads((state / "settings.json").read_text())
    recipe = settings.pop("recipe")
    (state / "settings.json").write_text(json.dumps({**settings, **recipe, "format_version": 1}))
    for path in state.glob("*.rows.gz"):
        path.rename(path.with_name(f"{path.name.partition('.')[0]}.jsonl.gz"))
    reason = f"another version of recordmill wrote {state}/settings.json (format 1, not 2)"
    put(some.input, some.edit.after)
    assert some.convert(home) == 0
    assert taken_over(home / NEXT) == {"from": "1.0.0", "records": 0, "shards": 0, "reason": reason}
    assert capfd.readouterr().err.count(reason) == 1
    assert_same_version(home / NEXT, some.scratch)
    assert work(home / NEXT)[1] == 30


SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize("shards", [3, *(pytest.param(number, marks=SLOW) for number in (1, 4, 7, 30))])
def test_another_number_of_shards_takes_over_all_the_same(shards: int, some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    put(some.input, some.edit.after)
    flag = f"--num_shards={shards}"
    assert some.convert(tmp_path / "scratch/out", flag, version=NEXT) == 0
    some.edited()
    assert some.convert(home, flag) == 0
    assert_same_version(home / NEXT, tmp_path / "scratch/out" / NEXT)
    assert work(home / NEXT) == (2, 2, 0)
    assert taken_over(home / NEXT)["records"] == 28


@pytest.mark.slow
def test_another_number_of_shards_alone_is_a_change(some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    put(some.input, some.edit.before)
    assert some.convert(home, "--num_shards=2") == 0
    assert work(home / NEXT) == (0, 0, 0)
    assert len(list((home / NEXT).glob("*.tfrecord"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "flag", ["--max_failure_ratio=0.5", "--direct_num_workers=1", "--keep_versions=5", "--quiet"]
)
def test_what_decides_no_byte_is_no_change(flag: str, some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    put(some.input, some.edit.before)
    assert some.convert(home, flag) == 0
    assert not (home / NEXT).exists()


@pytest.mark.slow
def test_without_a_number_of_shards_that_of_the_version_before_is_kept(some: Rerun, tmp_path: Path) -> None:
    """Of whatever flags it was."""
    put(some.input, some.edit.after)
    call = ["--input", str(some.input), "--image_format=jpeg", "--jpeg_quality=80"]
    home = some.home(tmp_path)
    assert convert(*call, "--output", home, "--dataset_version=auto") == 0
    assert len(list((home / NEXT).glob("*.tfrecord"))) == 4
    assert digests(home / NEXT) == digests(some.scratch)
