"""The size of a conversion's job graph: what a launcher hands to a runner."""

from __future__ import annotations

from pathlib import Path


def job_graph_bytes(source: str, path: Path, output: Path) -> int:
    """Bytes of the pipeline that converts `path`, as `convert` builds it; nothing is run."""
    import apache_beam as beam

    from recordmill.transforms.config import DatasetConfig
    from recordmill.transforms.read import ReadSource
    from recordmill.transforms.sources.source import SourceConfig
    from recordmill.transforms.write import WriteDataset

    pipeline = beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner")
    config = SourceConfig(kind=source, input=str(path))
    settings = {"kind": source, "input": str(path)}
    write = WriteDataset(str(output), DatasetConfig(), settings)
    _ = pipeline | "ReadSource" >> ReadSource(config, f"{write.run}/scratch") | "WriteDataset" >> write
    return len(pipeline.to_runner_api().SerializeToString())
