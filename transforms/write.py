"""WriteDataset: from records and failures to a published dataset; all of a conversion but its source.

with beam.Pipeline() as p:
    p | MyOwnRecords() | WriteDataset("out/", DatasetConfig(num_shards=4))
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
import uuid
from collections.abc import Callable, Mapping

import apache_beam as beam

from recordmill.transforms.annotations.sample import Sample
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.duplicates import FindDuplicates, images_of_shard
from recordmill.transforms.flags import naming_parameters
from recordmill.transforms.identify import IdentifyImages
from recordmill.transforms.map_image import MapImage
from recordmill.transforms.plan import PlanDataset
from recordmill.transforms.publish import Publish, Written
from recordmill.transforms.records import ClassNames, Failure, ImageRecord
from recordmill.transforms.shards.manifest import Provenance
from recordmill.transforms.shards.previous import Recipe, program_versions
from recordmill.transforms.storage.layout import Run
from recordmill.transforms.storage.output import check_path
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.storage.versions import assembly_folder, check_home, version_to_write
from recordmill.transforms.survey import SurveyRecords
from recordmill.transforms.write_shards import WriteShards
from recordmill.transforms.write_tfrecords import WriteTFRecords

_COMMAND_LENGTH = 200


class WriteDataset(beam.PTransform):
    """Writes a dataset: PCollection[ImageRecord | Failure | ClassNames] -> PCollection[str], the path of
    manifest.json after publication.

    Args:
        output: folder of the dataset, local or `gs://`. It must be new or empty; with `overwrite`, it may
            also hold a dataset. With `dataset_version`, it is the folder of all versions.
        config: how records are built, split, sharded and published.
        source: settings of the source for the manifest, such as `kind` and `input`.
        job: name of the job, for the manifest.
        source_reason: reason for the choice of the source, for the manifest.
        map_image: a function from a `Sample` to one `Sample`, several, or None to leave the image out; a
            short form of `DatasetConfig(map_image=MapImage.of(function))`.

    Attributes:
        run: the folders of the job. A source may unpack files into `run.scratch`, which the job removes.
    """

    @naming_parameters()
    def __init__(
        self,
        output: str,
        config: DatasetConfig,
        source: Mapping[str, object] | None = None,
        job: str = "",
        source_reason: str = "",
        map_image: Callable[[Sample], object] | None = None,
    ) -> None:
        super().__init__()
        check_path(output)
        if map_image is not None:
            config = dataclasses.replace(config, map_image=MapImage.of(map_image))
        self._config = config
        self._source = dict(source or {"kind": "pcollection", "input": ""})
        self._job = job
        self._source_reason = source_reason
        home = version = ""
        if config.dataset_version is not None:
            check_home(output)
            home = absolute(output)
            version = str(version_to_write(home, config.dataset_version))
        self.run = Run(
            assembly_folder(home, version) if version else absolute(output),
            config.digest(program_versions(), self._source),
            uuid.uuid4().hex,
            shlex.join(sys.argv)[:_COMMAND_LENGTH],
            home,
            version,
        )

    def expand(self, entries: beam.PCollection[ImageRecord | Failure | ClassNames]) -> beam.PCollection[str]:
        """Records to a survey, to a plan, to shards; shards to a dataset."""
        config, run = self._config, self.run
        if config.identifies_images:
            identify = IdentifyImages(config, run.scratch, run.hashes, run.token)
            entries = (entries | "IdentifyImages" >> identify).entries
        surveyed = entries | "SurveyRecords" >> SurveyRecords(config, run.scratch, run.token)
        recipe = Recipe.of(config, program_versions(), self._source) if run.version else None
        plan = surveyed | "PlanDataset" >> PlanDataset(config, run.output, run, recipe)
        if config.writer == "beam":
            written = surveyed | "WriteTFRecords" >> WriteTFRecords(config, plan, run)
        else:
            reports = surveyed | "WriteShards" >> WriteShards(config, plan, run)
            written = Written(reports, reports | "FindDuplicates" >> FindDuplicates(images_of_shard))
        runner = type(entries.pipeline.runner).__name__
        provenance = Provenance(self._source, run.digest, runner, self._job, run.version, self._source_reason)
        publish = Publish(run, config, plan, surveyed.failures, provenance, written, recipe)
        return written.reports | "Publish" >> publish
