"""A dataset builder of TensorFlow Datasets, in one process or as a Beam pipeline.

python -m benchmarks.peers.tfds_builder WORK INPUT OUTPUT
python -m benchmarks.peers.tfds_builder WORK INPUT OUTPUT beam
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from benchmarks.peers.items import KEPT, Item, Row, list_items, read_rows
from benchmarks.peers.tensorflow_loop import stored


def features(work: str, items: list[Item]) -> Any:
    """The features of a work, as TFDS's guide declares them."""
    if work == "rows":
        types = {"customer": np.int64, "score": np.float32, "city": np.str_, "note": np.str_}
        return tfds.features.FeaturesDict(types)
    found: dict[str, Any] = {"image": tfds.features.Image(), "image/filename": tfds.features.Text()}
    names = sorted({one.class_name for item in items for one in item.boxes or (item,)})
    if items[0].boxes:
        box = {"bbox": tfds.features.BBoxFeature(), "label": tfds.features.ClassLabel(names=names)}
        found["objects"] = tfds.features.Sequence(box)
    else:
        found["label"] = tfds.features.ClassLabel(names=names)
    return tfds.features.FeaturesDict(found)


def values(item: Item | Row, number: int, work: str) -> tuple[str | int, dict[str, Any]]:
    """Key and values of an example; kept images come as paths, others as JPEGs by TensorFlow."""
    if isinstance(item, Row):
        return number, item._asdict()
    found: dict[str, Any] = {
        "image": item.path if work in KEPT else io.BytesIO(stored(item.path, work)[0]),
        "image/filename": item.key,
    }
    if item.boxes:
        found["objects"] = [
            {"bbox": tfds.features.BBox(box.ymin, box.xmin, box.ymax, box.xmax), "label": box.class_name}
            for box in item.boxes
        ]
    else:
        found["label"] = item.class_name
    return item.key, found


def builder(work: str, source: Path, output: Path, use_beam: bool) -> Any:
    """A builder for the input."""
    items: list[Any] = [] if work == "rows" else list_items(source)

    class Photographs(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(builder=self, features=features(work, items))

        def _split_generators(self, dl_manager: Any, pipeline: Any = None) -> dict[str, Any]:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            if use_beam:
                import apache_beam as beam

                found = list(enumerate(read_rows(source) if work == "rows" else items))
                return beam.Create(found) | beam.MapTuple(lambda number, item: values(item, number, work))
            return self._in_order()

        def _in_order(self) -> Iterator[Any]:
            found = read_rows(source) if work == "rows" else items
            return (values(item, number, work) for number, item in enumerate(found))

    return Photographs(data_dir=str(output), file_format="tfrecord")


def main(work: str, source: str, output: str, runner: str = "") -> None:
    """Builds the dataset."""
    made = builder(work, Path(source), Path(output), bool(runner))
    config = tfds.download.DownloadConfig(try_download_gcs=False)
    if runner:
        import apache_beam as beam

        config.beam_runner = "DirectRunner"
        config.beam_options = beam.options.pipeline_options.PipelineOptions()
    made.download_and_prepare(download_config=config)


if __name__ == "__main__":
    main(*sys.argv[1:])
