"""The command, given a pipe where it reads a file: one line and an exit status, at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.pipelines import convert
from tests.sources.small_inputs import INPUTS
from tests.sources.special_cases import NUMBERS, failing_on_alarm, files_of, put

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """Fails what does not answer."""
    with failing_on_alarm():
        yield


@pytest.mark.parametrize(
    ("name", "pipe", "flags"),
    [
        ("yolo-yaml", "data.yaml", []),
        ("yolo-darknet", "obj.data", ["--source=yolo"]),
        ("imagenet-list", "val.txt", ["--source=imagenet"]),
        ("imagenet-list", "synset_words.txt", []),
        ("imagenet", "meta.mat", ["--source=imagenet"]),
        ("tfrecord-versions", "latest.json", ["--source=tfrecord"]),
        ("openimages", "train-annotations-bbox.csv", []),
        ("idx", "train-labels-idx1-ubyte", []),
        ("coco-boxes", "train/_annotations.coco.json", ["--source=coco"]),
        ("csv", "m.csv", ["--annotations={in}/m.csv"]),
        ("folder", "classes.txt", ["--label_file={in}/classes.txt"]),
        ("folder", "photos", ["--input={in}/photos"]),
    ],
)
def test_a_pipe_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, pipe: str, flags: list[str]
) -> None:
    root = tmp_path / "in"
    put(root, files_of(name))
    (root / pipe).unlink(missing_ok=True)
    os.mkfifo(root / pipe)
    given = [flag.replace("{in}", str(root)) for flag in flags]
    call = [*([] if any(one.startswith("--input") for one in given) else [f"--input={root}"]), *given]
    signal.alarm(5)
    with pytest.raises(SystemExit) as caught:
        convert.main([*call, f"--output={tmp_path}/out"], "recordmill convert")
    signal.alarm(0)
    said = capsys.readouterr().err
    assert (caught.value.code, said.count("\n")) == (2, 1)
    assert said.startswith("recordmill convert: error: ")
    assert f"{root}/{pipe}'" in said and "it is a pipe; a regular file is expected" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_pipes_links_and_sockets_cost_one_record_each(tmp_path: Path) -> None:
    root, out = tmp_path / "in", tmp_path / "out"
    put(root, INPUTS["folder"].files(NUMBERS))
    put(tmp_path, {"secret.png": b"secret"})
    os.mkfifo(root / "cat/pipe.png")
    (root / "cat/gone.png").symlink_to("nowhere")
    (root / "cat/out.png").symlink_to(tmp_path / "secret.png")
    call = [sys.executable, "-m", "recordmill.pipelines.convert", f"--input={root}", f"--output={out}"]
    done = subprocess.run(
        [*call, "--max_failure_ratio=1"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    failures = [json.loads(line) for line in (out / "failures.jsonl").read_text().splitlines()]
    assert {(one["key"], one["reason"]) for one in failures} == {
        ("cat/pipe.png", "not a file"),
        ("cat/gone.png", "not found"),
        ("cat/out.png", "outside the input root"),
    }
