"""Flags of the trainer, and the variables that Vertex AI sets."""

from __future__ import annotations

import argparse
import os
import posixpath
from collections.abc import Mapping, Sequence


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(
        prog="python -m trainer.task",
        description="Trains a small image classifier on TFRecords, and exports it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    data = flags.add_argument_group("data")
    data.add_argument("--data", metavar="PATH", help="a dataset; local or gs://")
    data.add_argument("--train_split", default="train", help="split of --data to train on, also train[:90%%]")
    data.add_argument("--eval_split", help="split of --data to evaluate on; if not given, val or test")
    data.add_argument("--train_files", metavar="PATTERN", help="TFRecords to train on, instead of --data")
    data.add_argument("--eval_files", metavar="PATTERN", help="TFRecords to evaluate on")
    data.add_argument(
        "--image_size",
        type=_positive,
        help="side of the model's images; if not given, of the first, <= 224",
    )
    data.add_argument("--num_classes", type=_positive, help="required if the dataset has no class names")
    job = flags.add_argument_group("job")
    job.add_argument("--job_dir", metavar="DIR", help="for checkpoints and model; required outside Vertex AI")
    job.add_argument("--epochs", type=_positive, default=5, help="in total, including those before a restart")
    job.add_argument("--batch_size", type=_positive, default=64, help="images a step")
    job.add_argument("--learning_rate", type=float, default=1e-3, help="Adam's at the start")
    job.add_argument("--seed", type=int, default=0, help="of weights and order")
    return flags


def parsed(argv: Sequence[str] | None, environment: Mapping[str, str] = os.environ) -> argparse.Namespace:
    """The flags, with model_dir and checkpoint_dir.

    They are folders of --job_dir, or else the values of AIP_MODEL_DIR and AIP_CHECKPOINT_DIR, which Vertex AI
    sets. Exits with status 2 if the call is wrong.
    """
    flags = parser()
    args = flags.parse_args(argv)
    if (args.data is None) == (args.train_files is None):
        flags.error("give either --data or --train_files")
    if args.data is not None and args.eval_files is not None:
        flags.error(
            f"--eval_files is {args.eval_files!r}, but it belongs to --train_files; --data has --eval_split"
        )
    folders = {
        "model_dir": ("AIP_MODEL_DIR", "model"),
        "checkpoint_dir": ("AIP_CHECKPOINT_DIR", "checkpoints"),
    }
    for name, (variable, folder) in folders.items():
        path = posixpath.join(args.job_dir, folder) if args.job_dir else environment.get(variable, "")
        if not path:
            flags.error(f"--job_dir is not given, and neither is {variable}; give a folder, local or gs://")
        setattr(args, name, path.rstrip("/"))
    return args


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 1")
    return number
