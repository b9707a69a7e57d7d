"""Each bad call is one clear line, exit status 2, and nothing written."""

from pathlib import Path

import pytest

from benchmarks.drawings import draw
from recordmill.pipelines import cli
from recordmill.pipelines.options.convert import parse_convert
from recordmill.pipelines.options.source import check_apart
from tests.pipelines.conversion import convert


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("input")
    draw("circle", 1).save(folder / "a.jpg")
    return folder


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--input=nowhere"], "--input is 'nowhere': there is no such file or folder"),
        (["--input=s3://bucket/photos"], "--input is 's3://bucket/photos'"),
        (["--label_column="], "--label_column is empty; give a value, or remove the flag"),
        (["--async"], "--async needs --runner=DataflowRunner; --runner is 'DirectRunner'"),
        (
            ["--runner=DataflowRunner"],
            "--input is '{photos}', on this machine, which the workers of --runner=",
        ),
        (["--inptu=x"], "--inptu is not a flag; did you mean --input?"),
        (["--jpeg_qualty", "80"], "--jpeg_qualty is not a flag; did you mean --jpeg_quality?"),
        (["--direct_num_worker", "3"], "did you mean --direct_num_workers?"),
        (["--num_workers=abc"], "argument --num_workers: invalid int value: 'abc'"),
        (["--frobnicate"], "--frobnicate is not a flag; --help lists the flags"),
        (["photos"], "unexpected argument 'photos'; give the input with --input"),
        (["--image_format=jpeg", "--jpeg_quality=101"], "--jpeg_quality is 101; it may be 1 to 100"),
        (["--image_format=jpeg", "--jpeg_quality=high"], "--jpeg_quality is 'high'; it may be 1 to 100"),
        (
            ["--jpeg_quality=80"],
            "which only --image_format=jpeg or webp uses, or keep with a new size or colour",
        ),
        (["--image_format=gif"], "--image_format is 'gif'; it may be keep, jpeg, png, webp, raw or tensor"),
        (["--validate=no"], "--validate is 'no'; it may be decode or header"),
        (["--exif=no"], "--exif is 'no'; it may be apply or ignore"),
        (["--schema=x"], "error: --schema is 'x'; it may be auto, classification, imagenet"),
        (["--splits=train=0.8,val=0.3"], "--splits=train=0.8,val=0.3 adds up to 1.1; it must add up to 1"),
        (["--splits=train=0.8"], "--splits=train=0.8 adds up to 0.8; it must add up to 1"),
        (["--splits=train=0.8,val"], "'val' in 'train=0.8,val' is not of the form NAME=VALUE"),
        (["--splits=80/20"], "argument --splits: '80/20' names no split; write train=0.8,val=0.2\n"),
        (["--splits=70:20:10"], "names no split; write train=0.7,val=0.2,test=0.1\n"),
        (["--splits=90%,10%"], "names no split; write train=0.9,val=0.1\n"),
        (["--splits=1/2/3"], "names no split; write train=0.1667,val=0.3333,test=0.5\n"),
        (["--splits=random"], "names no split; write train=0.8,val=0.2\n"),
        (
            ["--input=my photos/*/*.jpg"],
            "--input is 'my photos/*/*.jpg', a pattern, but --input takes a folder; give "
            "--input 'my photos' --include '*/*.jpg'\n",
        ),
        (["--input=/x[1]/a.jpg"], "give --input / --include 'x[1]/a.jpg'\n"),
        (["--input=*.jpg"], "give --input . --include '*.jpg'\n"),
        (["--splits=a=0.5,a=0.5"], "'a' stands twice"),
        (["--splits=a b=1"], "--splits names a split 'a b'"),
        (["--splits=a=1,b=0"], "--splits gives b 0"),
        (["--group_by=x"], "--group_by keeps groups in one split of --splits, which is not given"),
        (["--splits=a=1", "--group_by=x", "--group_pattern=y"], "--group_by and --group_pattern"),
        (["--splits=a=1", "--group_pattern=("], "--group_pattern is '(': "),
        (["--label_pattern=cat"], "--label_pattern is 'cat', which has no group"),
        (["--num_shards=0"], "--num_shards is 0; it may be 1 to 99999"),
        (["--num_shards=train=x"], "'x' is not a number"),
        (["--num_shards=2", "--shard_size=1MB"], "--num_shards and --shard_size both decide"),
        (["--shard_size=big"], "'big' is not a size; write 128MiB, 100MB or a number of bytes"),
        (["--reader_hosts=0"], "--reader_hosts is 0; it may be 1 or more"),
        (["--max_failure_ratio=2"], "--max_failure_ratio is 2; it may be 0 to 1"),
        (["--max_failure_ratio=nan"], "--max_failure_ratio is nan; it may be 0 to 1"),
        (["--limit=0"], "--limit is 0; it may be 1 or more"),
        (
            ["--label_file=data.yaml"],
            "--label_file is 'data.yaml'; give a text file with one class name a line",
        ),
        (["--label_file=nowhere"], "--label_file is 'nowhere': No such file or directory"),
        (["--image_column=x"], "--image_column is 'x', and --source folder does not use it"),
        (["--plan=maybe"], "'maybe' is neither true nor false"),
        (["--verbose", "--quiet"], "--verbose and --quiet are both given"),
        (["--rename=a"], "'a' in 'a' is not of the form NAME=VALUE"),
    ],
)
def test_bad_call(
    args: list[str], message: str, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    call = args if any(arg.startswith("--input=") for arg in args) else [f"--input={photos}", *args]
    assert convert(*call, f"--output={output}") == 2
    printed = capfd.readouterr()
    assert message.format(photos=photos) in printed.err
    assert printed.err.startswith("recordmill convert: error: ")
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert not output.exists()


def test_an_output_that_is_a_pattern_to_beam(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call = ("--input", photos, "--output", tmp_path / "out[1]", "--num_shards=1")
    assert convert(*call, "--writer=beam") == 2
    assert "in which [ begins a pattern for Beam's own writer" in capfd.readouterr().err
    assert convert(*call, "--writer=shards") == 0


def test_a_runner_that_beam_does_not_know(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    args = ("--input", photos, "--output", tmp_path / "out", "--runner=NoRunner", "--quiet")
    assert convert(*args) == 2
    assert capfd.readouterr().err.startswith("recordmill convert: error: --runner is 'NoRunner': ")
    assert not (tmp_path / "out").exists()


def test_an_empty_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    assert convert("--input", tmp_path / "photos", "--output", tmp_path / "out") == 2
    assert str(tmp_path / "photos") in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["manifest.json", "train-00000-of-00001.tfrecord", ".hidden"])
def test_an_output_that_is_not_empty(
    name: str, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("kept")
    assert convert("--input", photos, "--output", tmp_path) == 2
    assert f"--output is {str(tmp_path)!r}" in capfd.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "kept")]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "--output is empty; give a folder, new or empty"),
        ("s3://bucket/out", "--output is 's3://bucket/out'; local folders and gs:// are written"),
        ("gs:///out", "--output is 'gs:///out'; it may be gs://BUCKET/FOLDER"),
        ("o\udce9", "--output is 'o\\udce9', which is not UTF-8"),
        ("{}/a.jpg/out", "a.jpg/out', which is in --input"),
        ("/proc/out", "--output is '/proc/out'"),
    ],
)
@pytest.mark.parametrize("plan", [[], ["--plan"]])
def test_an_output_that_cannot_be(
    output: str,
    message: str,
    plan: list[str],
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if output == "/proc/out":
        # Root may write anywhere but here; others are told before.
        monkeypatch.setattr("os.access", lambda path, mode: False)
    assert convert("--input", photos, f"--output={output.format(photos)}", *plan) == 2
    assert message in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_typo_in_a_flag_that_must_be_given(capfd: pytest.CaptureFixture[str]) -> None:
    assert convert("--input=x", "--outputs=y") == 2
    assert "--outputs is not a flag; did you mean --output?" in capfd.readouterr().err
    assert convert("--output=y") == 2
    assert "--input must be given" in capfd.readouterr().err


def test_a_pattern_that_the_shell_has_expanded(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = photos / "1.jpg", photos / "2.jpg"
    second.write_bytes(b"")
    assert convert("--output", tmp_path / "out", "--input", first, second) == 2
    assert capfd.readouterr().err == (
        f"recordmill convert: error: unexpected argument {str(second)!r}; --input takes one folder: "
        f"give --input {second.parent} --include '*.jpg'\n"
    )


def test_an_output_that_is_a_file(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("kept")
    assert convert("--input", photos, "--output", tmp_path / "file") == 2
    assert "which is a file" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("5kB", 5000), ("128MiB", 128 << 20), ("1.5 GiB", 3 << 29), ("2T", 2 * 10**12)],
)
def test_sizes(text: str, size: int, photos: Path, tmp_path: Path) -> None:
    options = parse_convert(
        [f"--input={photos}", f"--output={tmp_path / 'out'}", f"--shard_size={text}"], "x"
    )
    assert options.dataset.shard_size == size


@pytest.mark.parametrize(
    ("flags", "plan"),
    [(["--plan"], True), (["--plan=true"], True), (["--plan", "false"], False), ([], False)],
)
def test_booleans(flags: list[str], plan: bool, photos: Path, tmp_path: Path) -> None:
    options = parse_convert([f"--input={photos}", f"--output={tmp_path / 'out'}", *flags], "x")
    assert options.plan is plan


def test_flags_of_beam_pass(photos: Path, tmp_path: Path) -> None:
    call = [f"--input={photos}", f"--output={tmp_path / 'out'}", "--job_name=night", "--labels=a=b"]
    assert parse_convert(call, "x").beam_args == ("--runner=DirectRunner", "--job_name=night", "--labels=a=b")
    # What a portable runner's job server will know, we cannot.
    call = [f"--input={photos}", f"--output={tmp_path / 'out'}", "--runner=FlinkRunner", "--parallelism=2"]
    assert "--parallelism=2" in parse_convert(call, "x").beam_args
    assert parse_convert(call, "x").dataset.workers == 0


@pytest.mark.parametrize(
    ("source", "output", "message"),
    [
        ("photos", "photos", "--output is 'photos', which is --input; give another folder"),
        ("photos", "photos/../photos/", "--output is 'photos/../photos/', which is --input"),
        ("photos", "link", "--output is 'link', which is --input"),
        (
            "photos",
            "photos/out",
            "--output is 'photos/out', which is in --input, 'photos'; give a folder outside of it, such as "
            "{home}/photos-records\n",
        ),
        (".", "out", "which is in --input, '.'; give a folder outside of it, such as {home}-records\n"),
        ("link", "photos/out", "--output is 'photos/out', which is in --input, 'link'"),
        ("photos", "link/out", "--output is 'link/out', which is in --input, 'photos'"),
        ("~/photos", "~/photos/out", "--output is '{home}/photos/out', which is in --input"),
        ("photos", ".", "--output is '.', which contains --input, 'photos'; give a folder that does not"),
        ("photos/a.jpg", "photos", "--output is 'photos', which contains --input, 'photos/a.jpg'"),
        ("gs://pictures/in", "gs://pictures/in/", "--output is 'gs://pictures/in/', which is --input"),
        ("gs://pictures/in", "gs://pictures/in/out", "such as gs://pictures/in-records\n"),
        (
            "gs://pictures/in/a",
            "gs://pictures/in",
            "--output is 'gs://pictures/in', which contains --input, 'gs://pictures/in/a'",
        ),
    ],
)
@pytest.mark.parametrize("command", ["convert", "sweep"])
def test_input_and_output_in_one_another(
    command: str,
    source: str,
    output: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "photos").mkdir()
    draw("circle", 0, 32, 24).save(tmp_path / "photos" / "a.jpg")
    (tmp_path / "link").symlink_to("photos")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        cli.main([command, f"--input={source}", f"--output={output}"])
    assert caught.value.code == 2
    said = capfd.readouterr().err
    assert message.format(home=tmp_path) in said
    assert said.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("photos", "photos-records"),
        ("photos/labels.csv", "photos/out"),
        ("photos", "photo"),
        ("gs://pictures/in", "gs://pictures/in2"),
    ],
)
def test_input_and_output_side_by_side(source: str, output: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "labels.csv").write_text("path,label\n")
    local = "" if source.startswith("gs://") else f"{tmp_path}/"
    check_apart(f"{local}{source}", f"{local}{output}")
