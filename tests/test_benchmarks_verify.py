"""What `benchmarks.verify` measures: the same records on both sides, and the ratio of their times."""

from pathlib import Path

import pytest

from benchmarks.drawings import draw_folder
from benchmarks.verify import goal, times
from benchmarks.verify_loop import main
from tests.pipelines.conversion import convert

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six images, JPEG and PNG."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    assert len(list(draw_folder(folder, each=2))) == 6
    output = folder.parent / "out"
    assert convert("--input", folder, "--output", output, "--num_shards=2", "--quiet") == 0
    return output


def test_the_bare_loop_decodes_every_image(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tf = pytest.importorskip("tensorflow")
    pixels = 0
    for record in tf.data.TFRecordDataset(sorted(map(str, dataset.glob("*.tfrecord")))):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        pixels += features["image/height"].int64_list.value[0] * features["image/width"].int64_list.value[0]
    main(str(dataset), "1")
    assert int(capsys.readouterr().out) == pixels > 0


def test_both_are_whole_commands(dataset: Path) -> None:
    verify, decode = times(dataset, 1)
    assert verify > 0 < decode


@pytest.mark.parametrize(("verify", "met"), [(15.0, True), (15.1, False)])
def test_the_goal(verify: float, met: bool) -> None:
    found = goal("kept", verify, 10.0)
    assert found.met == met and found.measured.startswith(f"{verify / 10:.2f} (")
