"""ReadSource and WriteDataset in people's own pipelines."""

import gzip
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from benchmarks.drawings import draw_folder
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.read import ReadSource, list_part
from recordmill.transforms.records import Annotations, ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.write import WriteDataset
from tests.pipelines.conversion import digests, examples


@pytest.mark.slow
def test_a_full_output_is_refused_in_the_pipeline_too(tmp_path: Path) -> None:

    photos = tmp_path / "photos"
    list(draw_folder(photos, each=2))

    def write(num_shards: int) -> None:
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            records = pipeline | ReadSource(SourceConfig("folder", str(photos)))
            _ = records | WriteDataset(str(tmp_path / "out"), DatasetConfig(num_shards=num_shards))

    write(2)
    before = digests(tmp_path / "out")
    with pytest.raises(Exception, match="which holds a dataset already"):
        write(3)
    assert digests(tmp_path / "out") == before
    with pytest.raises(ValueError, match="WriteDataset.output is 's3://bucket/out'"):
        WriteDataset("s3://bucket/out", DatasetConfig())


@pytest.mark.slow
def test_own_records_with_values_of_numpy(tmp_path: Path) -> None:
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    from recordmill.transforms.config import DatasetConfig
    from recordmill.transforms.write import WriteDataset

    features = {"x": np.float32(0.5), "n": np.int16(7), "v": np.arange(4).reshape(2, 2), "t": "a[/b]"}
    record = ImageRecord("only", None, annotations=Annotations((), features))  # type: ignore[arg-type]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | beam.Create([record]) | WriteDataset(str(tmp_path / "out"), DatasetConfig())
    assert list(examples(tmp_path / "out")) == [{"x": [0.5], "n": [7], "v": [0, 1, 2, 3], "t": [b"a[/b]"]}]


def test_what_a_source_unpacks_outlives_the_start_of_other_processes(tmp_path: Path) -> None:
    sides = b"".join(side.to_bytes(4, "big") for side in (2, 3, 4))
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(bytes((0, 0, 8, 3)) + sides + bytes(range(24)))
    )
    items = list(list_part(None, SourceConfig(kind="idx", input=str(tmp_path)), None))
    records = [item for item in items if isinstance(item, ImageRecord)]
    code = "from recordmill.transforms.storage.scratch import scratch_folder; scratch_folder()"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True)
    reader = ImageReader()
    assert [list(reader.read(record.image)) for record in records if record.image] == [
        list(range(12)),
        list(range(12, 24)),
    ]
