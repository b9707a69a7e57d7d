"""WriteToTFRecord that creates nothing before the first record, and whose errors name the file."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io import filebasedsink, iobase
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindow, TimestampedValue

from recordmill.transforms.beam_credentials import spare_search
from recordmill.transforms.records import JobError
from recordmill.transforms.storage.faults import fault, naming_faults


class WriteToTFRecord(beam.io.WriteToTFRecord):
    """PCollection[bytes] -> PCollection[str]: the paths of the shards.

    It deletes whatever has the names of its shards: give it a folder of its own.
    """

    def __init__(self, prefix: str, num_shards: int) -> None:
        super().__init__(
            prefix,
            file_name_suffix=".tfrecord",
            num_shards=num_shards,
            compression_type=CompressionTypes.UNCOMPRESSED,
        )
        self._prefix = prefix

    def expand(self, payloads: beam.PCollection[bytes]) -> beam.PCollection[str]:
        """As Beam's, around its sink."""
        # Beam dates what it has written after the end of the global window, where Prism has no side inputs.
        return (
            payloads
            | iobase.Write(NamingSink(self._sink, self._prefix))
            | "DateInWindow" >> beam.Map(in_global_window_time).with_output_types(str)
        )


def in_global_window_time(path: str) -> TimestampedValue:
    """`path`, dated at the end of the global window."""
    return TimestampedValue(path, GlobalWindow().max_timestamp())


class NamingSink(iobase.Sink):
    """A sink of Beam that makes nothing before the first record, and whose OSErrors are JobErrors."""

    def __init__(self, sink: filebasedsink.FileBasedSink, prefix: str) -> None:
        self._sink = sink
        self._prefix = prefix
        self.num_shards = sink.num_shards
        self.convert_fn = sink.convert_fn

    def display_data(self) -> dict[str, Any]:
        shown: dict[str, Any] = self._sink.display_data()
        return shown

    def initialize_write(self) -> str:
        """Names a folder of unfinished files.

        This step waits for nothing, not even for the job to hold its output: the first file makes the folder.
        """
        folder, _ = FileSystems.split(self._prefix)
        return str(FileSystems.join(folder, f"beam-temp-{uuid.uuid4().hex}"))

    def open_writer(self, init_result: str, uid: str) -> NamingWriter:
        self._make_ready()
        with naming_faults(init_result):
            return NamingWriter(self._sink.open_writer(init_result, uid))

    def pre_finalize(self, init_result: str, writer_results: Iterable[str]) -> None:
        """Deletes what has the shards' names."""
        self._make_ready()
        with naming_faults(self._prefix):
            self._sink.pre_finalize(init_result, writer_results)

    def finalize_write(
        self, init_result: str, writer_results: Iterable[str], pre_finalize_result: None
    ) -> Iterator[str]:
        """Gives the finished files their names."""
        self._make_ready()
        try:
            with naming_faults(self._prefix):
                yield from self._sink.finalize_write(init_result, writer_results, pre_finalize_result)
        except JobError:
            raise
        except Exception as error:  # a plain Exception is what Beam makes of files that it cannot rename
            raise JobError(f"{self._prefix}: the finished shards cannot be renamed: {error}") from error

    def _make_ready(self) -> None:
        spare_search(self._prefix)


class NamingWriter(iobase.Writer):
    """A writer of Beam, whose OSErrors become JobErrors."""

    def __init__(self, writer: filebasedsink.FileBasedSinkWriter) -> None:
        self._writer = writer

    def write(self, value: bytes) -> None:
        """One record."""
        try:
            self._writer.write(value)
        except OSError as error:
            raise fault(error, self._writer.temp_shard_path) from error

    def at_capacity(self) -> bool:
        return False

    def close(self) -> str:
        """Finishes the file; its path."""
        with naming_faults(self._writer.temp_shard_path):
            return str(self._writer.close())
