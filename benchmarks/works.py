"""What is compared: pieces of work, and the programs that do them."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.inputs import draw_manifest, shape_paths
from benchmarks.measure import ROOT
from benchmarks.peers.items import KEPT, short_side
from benchmarks.photographs import draw_boxes, draw_photographs, draw_pngs, draw_small

PEERS = ROOT / "build" / "peers"
"""The environments of other programs, as `make benchmark` installs them."""


@dataclasses.dataclass(frozen=True)
class Work:
    """A piece of work: what it converts to what.

    Attributes:
        name: as the programs take it.
        title: in tables.
        draw: draws an input of a number of items.
        flags: of `recordmill convert`.
        codecs: whether the codecs cost most, so that the limit is a loop that only calls them.
        share: the part of the number of images that is used.
    """

    name: str
    title: str
    draw: Callable[[Path, int], None]
    flags: tuple[str, ...] = ()
    codecs: bool = False
    share: float = 1.0


_ENCODE = ("--image_format=jpeg", "--jpeg_quality=90", "--reencode=always")
WORKS = (
    Work("kept", "photographs, kept", draw_photographs, codecs=True),
    Work("q90", "photographs to JPEG, quality 90", draw_photographs, _ENCODE, codecs=True),
    Work(
        "side256",
        "photographs to a short side of 256",
        draw_photographs,
        (*_ENCODE, "--short_side=256"),
        codecs=True,
    ),
    Work("png", "PNG to JPEG, quality 90", draw_pngs, _ENCODE, codecs=True, share=0.25),
    Work("small", "PNGs of 32 × 32, kept", draw_small),
    Work("rows", "rows of a CSV", draw_manifest),
    Work("boxes", "detection: kept, seven boxes each", draw_boxes),
)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that is compared.

    Attributes:
        name: of the program.
        title: in tables.
        command: (work, input, output) -> the command.
        works: names of what it can do; empty for all.
        meanwhile: what it does besides, and does not do, for the page.
    """

    name: str
    title: str
    command: Callable[[Work, Path, Path], list[str]]
    works: tuple[str, ...] = ()
    meanwhile: str = ""


def convert(source: Path, output: Path, *flags: str) -> list[str]:
    """Arguments of `python` for a conversion by recordmill."""
    return ["-m", "recordmill", "convert", "--input", str(source), "--output", str(output), *flags]


def _recordmill(*flags: str) -> Callable[[Work, Path, Path], list[str]]:
    return lambda work, source, output: [
        sys.executable,
        *convert(source, output, "--quiet", *work.flags, *flags),
    ]


def _module(
    name: str, *arguments: str, environment: str = "", discard: bool = False
) -> Callable[[Work, Path, Path], list[str]]:
    """A module of benchmarks.peers, run by the Python of its environment."""
    python = str(PEERS / environment / "bin" / "python") if environment else sys.executable
    return lambda work, source, output: [
        *(python, "-m", f"benchmarks.peers.{name}", work.name, str(source)),
        *("-" if discard else str(output), *arguments),
    ]


def _img2dataset(work: Work, source: Path, output: Path) -> list[str]:
    """The command with a CSV of file:// addresses, which is written next to the input."""
    listed = source.with_suffix(".csv")
    if not listed.exists():
        with listed.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(("url", "label"))
            lines.writerows((path.as_uri(), path.parent.name) for path in sorted(source.rglob("*.*")))
    encode: tuple[str, ...] = ("--encode_quality=90", "--resize_mode=no")
    if work.name in KEPT:
        encode = ("--disable_all_reencoding=True",)
    elif side := short_side(work.name):
        encode = (
            encode[0],
            "--resize_mode=keep_ratio",
            f"--image_size={side}",
            "--resize_only_if_bigger=True",
        )
    return [
        *("env", "NO_ALBUMENTATIONS_UPDATE=1"),  # it would ask a server for a newer version of itself
        *(str(PEERS / "img2dataset" / "bin" / "img2dataset"), f"--url_list={listed}", "--input_format=csv"),
        *("--url_col=url", "--save_additional_columns=[label]", "--output_format=tfrecord"),
        *(f"--output_folder={output}", "--processes_count=2", "--thread_count=16", "--enable_wandb=False"),
        *encode,
        *("--number_sample_per_shard=500", "--disallowed_header_directives=[]"),
    ]


_TENSORFLOW = "tensorflow"
PROGRAMS = (
    Program(
        "recordmill",
        "Recordmill",
        _recordmill(),
        meanwhile="decodes each image to find damage; digests, index, report; resumes; syncs to disk",
    ),
    Program(
        "header",
        "Recordmill, `--validate header`",
        _recordmill("--validate=header"),
        KEPT,
        "as above, but reads only the header and the end of an image",
    ),
    Program(
        "beam_writer",
        "Recordmill, `--writer beam`",
        _recordmill("--writer=beam"),
        meanwhile="as the first; Beam's own writer; no resume, no index",
    ),
    Program(
        "beam",
        "plain Beam, `WriteToTFRecord`",
        _module("beam_pipeline"),
        meanwhile="no check of pixels, no counts, no restart; a damaged image ends it",
    ),
    Program(
        "tfds",
        "TFDS builder",
        _module("tfds_builder", environment=_TENSORFLOW),
        meanwhile="statistics and metadata; checks neither images nor duplicates; a damaged image ends it",
    ),
    Program(
        "tfds_beam",
        "TFDS builder on Beam",
        _module("tfds_builder", "beam", environment=_TENSORFLOW),
        meanwhile="as the TFDS builder",
    ),
    Program(
        "tensorflow",
        "loop with TensorFlow",
        _module("tensorflow_loop", environment=_TENSORFLOW),
        meanwhile="decodes each image to know its size; ignores ICC profiles; one process; no restart",
    ),
    Program(
        "img2dataset",
        "img2dataset, `file://`",
        _img2dataset,
        ("kept", "q90", "side256", "png", "small"),
        "counts failures, resumes by shard; does not decode kept images; no numbers of classes",
    ),
    Program(
        "loop",
        "loop without TensorFlow, all cores",
        _module("process_loop"),
        meanwhile="the limit: records by the same functions; no check of pixels, no counts, no restart",
    ),
    Program(
        "codecs",
        "codec calls alone, all cores",
        _module("process_loop", discard=True),
        tuple(work.name for work in WORKS if work.codecs),
        "the limit of what decodes or encodes: reads, decodes (PNGs by Pillow), encodes, writes nothing",
    ),
)


def link_images(source: Path) -> Callable[[Path, int], None]:
    """Makes a folder of hard links or copies of a number of images of one's own, in classes of equal size."""

    def make(folder: Path, number: int) -> None:
        found = sorted(path for path in source.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
        if not found:
            raise SystemExit(f"--input {source}: no .jpg, .jpeg or .png in it")
        for path, target in zip(found[:number], shape_paths(folder, min(number, len(found))), strict=True):
            target.with_suffix(path.suffix.lower()).write_bytes(path.read_bytes())

    return make
