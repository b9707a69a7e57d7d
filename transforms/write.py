"""WriteDataset: from records and failures to a published dataset; all of a conversion but its source.

with beam.Pipeline() as p:
    p | MyOwnRecords() | WriteDataset("out/", DatasetConfig(num_shards=4))
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import apache_beam as beam

from transforms import coders as _coders  # noqa: F401  (registers the coders)
from transforms.config import DatasetConfig
from transforms.images.versions import codec_versions
from transforms.plan import PlanDataset
from transforms.publish import Publish
from transforms.records import Failure, ImageRecord
from transforms.shards.manifest import Provenance
from transforms.storage.output import check_path, run_folder
from transforms.survey import SurveyRecords
from transforms.write_shards import WriteShards


class WriteDataset(beam.PTransform):
    """PCollection[ImageRecord | Failure] -> PCollection[str]: the path of manifest.json, once published.

    Args:
        output: folder of the dataset; empty, or none yet.
        config: how records are built, split, sharded and published.
        source: what the records came from, for the manifest: `kind` and `input`, and what else the
            source was told.
        job: name of the job, for the manifest.
    """

    def __init__(
        self,
        output: str,
        config: DatasetConfig,
        source: Mapping[str, object] | None = None,
        job: str = "",
    ) -> None:
        super().__init__()
        check_path(output)
        self._output = os.path.abspath(output)
        self._config = config
        self._source = dict(source or {"kind": "pcollection", "input": ""})
        self._job = job
        self._digest = config.digest(codec_versions(), self._source)

    @property
    def run(self) -> str:
        """The folder that holds what is not published yet."""
        return run_folder(self._output, self._digest[:16])

    def expand(self, entries: beam.PCollection[ImageRecord | Failure]) -> beam.PCollection[str]:
        """Records to a survey, to a plan, to shards; shards to a dataset."""
        config = self._config
        surveyed = entries | "SurveyRecords" >> SurveyRecords(config)
        plan = surveyed | "PlanDataset" >> PlanDataset(config, self._output, self.run)
        reports = surveyed | "WriteShards" >> WriteShards(config, plan, os.path.join(self.run, "shards"))
        provenance = Provenance.start(
            self._source, self._digest, type(entries.pipeline.runner).__name__, self._job
        )
        return reports | "Publish" >> Publish(
            self._output, self.run, config, plan, surveyed.failures, provenance
        )
