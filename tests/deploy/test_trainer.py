"""deploy/vertex: the trainer is run on a tiny dataset; its job, image and README are held against it."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import recordmill
from benchmarks.inputs import draw_digits
from recordmill.pipelines.options.convert import CONVERT
from tests.lazy import keras, tf
from tests.pipelines.conversion import convert

VERTEX = Path(__file__).parents[2] / "deploy/vertex"
README = (VERTEX / "trainer/README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def trainer() -> Iterator[Any]:
    """The package, as it is imported in its folder: its modules `task` and `arguments`."""
    sys.path.insert(0, str(VERTEX))
    try:
        yield importlib.import_module("trainer.task")
    finally:
        sys.path.remove(str(VERTEX))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 digits, of which about 12 are the split `test`."""
    place = tmp_path_factory.mktemp("digits")
    draw_digits(place / "digits", 60)
    assert (
        convert("--input", place / "digits", "--output", place / "out", "--splits", "train=0.8,test=0.2") == 0
    )
    return place / "out"


@pytest.fixture(scope="module")
def trained(trainer: Any, digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job of one epoch."""
    job = tmp_path_factory.mktemp("job")
    argv = ["--data", str(digits), "--job_dir", str(job), "--epochs", "1", "--batch_size", "16"]
    assert trainer.main([*argv, "--num_classes", "10"]) == 0
    return job


def images_of(digits: Path) -> Any:
    images, _ = next(iter(recordmill.load_dataset(str(digits), "test", batch_size=100, as_supervised=True)))
    return images.numpy()


@pytest.mark.slow
def test_the_exported_models_are_the_trained_one(trained: Path, digits: Path) -> None:
    images = images_of(digits)
    assert images.shape[0] > 5 and images.shape[1:] == (28, 28, 1)
    last = keras.models.load_model(trained / "checkpoints/epoch-0001.keras")
    expected = last.predict(images, verbose=0)
    saved = tf.saved_model.load(str(trained / "model"))
    served = saved.serve(tf.cast(images, tf.float32)).numpy()
    np.testing.assert_allclose(served, expected, atol=1e-5)
    again = keras.models.load_model(trained / "model/model.keras").predict(images, verbose=0)
    np.testing.assert_array_equal(again, expected)
    np.testing.assert_allclose(expected.sum(axis=1), 1, atol=1e-5)
    assert expected.shape[1] == 10


@pytest.mark.slow
def test_the_metrics_are_those_of_the_model(trained: Path, digits: Path) -> None:
    metrics = json.loads((trained / "model/metrics.json").read_text())
    model = keras.models.load_model(trained / "model/model.keras")
    images, labels = next(
        iter(recordmill.load_dataset(str(digits), "test", batch_size=100, as_supervised=True))
    )
    told = model.predict(images.numpy(), verbose=0).argmax(axis=1)
    assert metrics["accuracy"] == pytest.approx(float((told == labels.numpy()).mean()))
    assert (metrics["epochs"], len(metrics["history"]["loss"])) == (1, 1)


@pytest.mark.slow
def test_a_job_goes_on_where_it_was_cut_off(
    trainer: Any, trained: Path, digits: Path, tmp_path: Path
) -> None:
    checkpoint = (trained / "checkpoints/epoch-0001.keras").read_bytes()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/epoch-0001.keras").write_bytes(checkpoint)
    (tmp_path / "checkpoints/unfinished.keras").write_bytes(checkpoint[:100])
    argv = ["--data", str(digits), "--job_dir", str(tmp_path), "--batch_size", "16", "--num_classes", "10"]
    assert trainer.main([*argv, "--epochs", "2"]) == 0
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "epoch-0001.keras",
        "epoch-0002.keras",
    ]
    metrics = json.loads((tmp_path / "model/metrics.json").read_text())
    assert (metrics["epochs"], len(metrics["history"]["loss"])) == (2, 1)
    before, after = (keras.models.load_model(tmp_path / f"checkpoints/epoch-000{n}.keras") for n in (1, 2))
    steps = [int(model.optimizer.iterations.numpy()) for model in (before, after)]
    assert steps[1] == 2 * steps[0] > 0


@pytest.mark.slow
def test_files_are_trained_on(trainer: Any, digits: Path, tmp_path: Path) -> None:
    argv = ["--train_files", f"{digits}/train-*", "--eval_files", f"{digits}/test-*", "--image_size", "20"]
    more = ["--epochs", "1", "--num_classes", "10", "--learning_rate", "0.01"]
    assert trainer.main([*argv, "--job_dir", str(tmp_path), *more]) == 0
    model = keras.models.load_model(tmp_path / "model/model.keras")
    assert model.input_shape == (None, 20, 20, 1)
    assert float(model.optimizer.learning_rate.numpy()) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "give either --data or --train_files"),
        (["--data", "a", "--train_files", "b"], "give either --data or --train_files"),
        (["--data", "a", "--eval_files", "b"], "--eval_files is 'b'"),
        (["--data", "a"], "--job_dir is not given, and neither is AIP_MODEL_DIR"),
        (["--data", "a", "--job_dir", "b", "--epochs", "0"], "'0' is not an integer from 1"),
        (["--data", "nowhere", "--job_dir", "b"], "nowhere' is not there"),
    ],
)
def test_a_wrong_call_is_refused(
    trainer: Any,
    argv: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AIP_MODEL_DIR", raising=False)
    try:
        status = trainer.main(argv)
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    assert told in capsys.readouterr().err


def test_the_places_that_vertex_gives(trainer: Any) -> None:
    arguments = importlib.import_module("trainer.arguments")
    environment = {"AIP_MODEL_DIR": "gs://b/job/model/", "AIP_CHECKPOINT_DIR": "gs://b/job/checkpoints/"}
    args = arguments.parsed(["--data", "gs://b/out"], environment)
    assert (args.model_dir, args.checkpoint_dir) == ("gs://b/job/model", "gs://b/job/checkpoints")
    args = arguments.parsed(["--data", "gs://b/out", "--job_dir", "here"], environment)
    assert (args.model_dir, args.checkpoint_dir) == ("here/model", "here/checkpoints")


# Of google/cloud/aiplatform/v1/custom_job.proto, machine_resources.proto and io.proto.
SPEC: dict[str, Any] = {
    "workerPoolSpecs": [
        {
            "machineSpec": {"machineType": str, "acceleratorType": str, "acceleratorCount": int},
            "replicaCount": int,
            "containerSpec": {"imageUri": str, "args": [str]},
        }
    ],
    "baseOutputDirectory": {"outputUriPrefix": str},
    "scheduling": {"restartJobOnWorkerRestart": bool},
}


def check(value: Any, spec: Any) -> None:
    """Fails on a field that a message has not, or of another type."""
    if isinstance(spec, dict):
        assert set(value) <= set(spec)
        for name, inner in value.items():
            check(inner, spec[name])
    elif isinstance(spec, list):
        for inner in value:
            check(inner, spec[0])
    else:
        assert type(value) is spec


def test_the_job_gives_flags_that_there_are(trainer: Any) -> None:
    job = yaml.safe_load((VERTEX / "job.yaml").read_text("utf-8"))
    check(job, SPEC)
    (pool,) = job["workerPoolSpecs"]
    environment = {"AIP_MODEL_DIR": "gs://b/model/", "AIP_CHECKPOINT_DIR": "gs://b/checkpoints/"}
    args = importlib.import_module("trainer.arguments").parsed(pool["containerSpec"]["args"], environment)
    assert args.data == "gs://BUCKET/records/NAME"


def commands() -> list[list[str]]:
    """The commands of README's shell blocks."""
    text = "".join(re.findall(r"^```shell\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
    return [shlex.split(line) for line in text.replace("\\\n", " ").splitlines()]


def test_the_commands_of_the_readme(trainer: Any) -> None:
    found = {tuple(words[:3]): words for words in commands()}
    training = found["python", "-m", "trainer.task"]
    assert importlib.import_module("trainer.arguments").parsed(training[3:]).epochs == 4
    conversion = found["recordmill", "convert", "--input"]
    assert CONVERT.parser("recordmill").parse_args(conversion[2:]).splits is not None
    creation = found["gcloud", "ai", "custom-jobs"]
    assert creation[3] == "create"
    flags = dict(word.split("=", 1) for word in creation[4:])
    assert set(flags) == {"--project", "--region", "--display-name", "--config"}
    (script,) = [words[2] for words in commands() if words[0] == "sed"]
    text = (VERTEX / "job.yaml").read_text("utf-8").split("\n", 1)[1]
    for expression in script.split("; "):
        old, new = re.fullmatch(r"s/(\w+)/([\w-]+)/", expression).groups()  # type: ignore[union-attr]
        text = "\n".join(line.replace(old, new, 1) for line in text.splitlines())
    image = yaml.safe_load(text)["workerPoolSpecs"][0]["containerSpec"]["imageUri"]
    assert image in {words[-1] for words in commands() if words[:2] == ["docker", "push"]}
    assert not re.search(r"REGION|PROJECT|BUCKET|NAME", text)


def test_the_flags_are_all_told(trainer: Any) -> None:
    actions = importlib.import_module("trainer.arguments").parser()._actions
    flags = {option for action in actions for option in action.option_strings if option.startswith("--")}
    told = set(re.findall(r"(?<![\w-])--\w+", README.split("## On Vertex AI")[0]))
    assert told - {"--input", "--output", "--splits"} == flags - {"--help"}


def test_the_image_has_what_the_trainer_imports() -> None:
    named = {
        re.split(r"[\[=<>]", line)[0]
        for line in (VERTEX / "requirements.txt").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    }
    assert "apache-beam" not in named
    required = (VERTEX.parents[1] / "setup.py").read_text("utf-8")
    assert all(name in required for name in named - {"keras"})  # TensorFlow brings Keras
    copied = re.findall(
        r"^COPY (?!--from)(.*) \S+$", (VERTEX / "Dockerfile").read_text("utf-8"), re.MULTILINE
    )
    assert all((VERTEX.parents[1] / path).exists() for line in copied for path in line.split())
    allowed = (VERTEX / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    for path in (path for line in copied for path in line.split()):
        assert any(
            path == one[1:] or path.startswith(f"{one[1:]}/") for one in allowed if one.startswith("!")
        ), path
