"""Trains an image classifier on a dataset of recordmill, and exports it.

python -m trainer.task --data out/ --job_dir job/
python -m trainer.task --train_files 'out/train-*' --eval_files 'out/val-*' --job_dir job/ --epochs 10
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import posixpath
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from recordmill import dataset_info, load_dataset
from trainer.arguments import parsed
from trainer.checkpoints import Checkpoints, newest
from trainer.model import classifier

_LARGEST_SIDE = 224


@dataclasses.dataclass(frozen=True)
class Data:
    """The data for training and evaluation.

    Attributes:
        train: path and split.
        evaluation: the same; None for no evaluation.
        class_names: by id; empty if the dataset has no class names.
    """

    train: tuple[str, str]
    evaluation: tuple[str, str] | None
    class_names: tuple[str, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Trains and exports; returns the exit status."""
    args = parsed(argv)
    try:
        data = _data(args)
        size, channels = _shape(data.train, args.image_size)
        num_classes = args.num_classes or len(data.class_names)
        if not num_classes:
            raise ValueError("--num_classes is not given, and the dataset has no class names")
    except ValueError as error:
        print(f"trainer.task: error: {error}", file=sys.stderr)
        return 2
    keras.utils.set_random_seed(args.seed)
    found = newest(args.checkpoint_dir)
    model, seen = found or (classifier(size, channels, num_classes, args.learning_rate), 0)
    options: dict[str, Any] = {
        "size": size,
        "channels": channels,
        "batch_size": args.batch_size,
        "as_supervised": True,
    }
    train = load_dataset(*data.train, shuffle=True, seed=args.seed + seen, **options)
    evaluation = None if data.evaluation is None else load_dataset(*data.evaluation, **options)
    history = model.fit(
        train,
        validation_data=evaluation,
        initial_epoch=seen,
        epochs=args.epochs,
        callbacks=[Checkpoints(args.checkpoint_dir)],
        shuffle=False,  # load_dataset shuffles
        verbose=2,
    )
    metrics = {"epochs": max(seen, args.epochs), "history": history.history}
    metrics |= {} if evaluation is None else model.evaluate(evaluation, verbose=0, return_dict=True)
    export(model, args.model_dir, data.class_names, metrics)
    print(json.dumps({"model": args.model_dir, **metrics}))
    return 0


def export(model: keras.Model, folder: str, class_names: Sequence[str], metrics: Mapping[str, Any]) -> None:
    """Writes the model as a SavedModel, which Vertex AI serves, and as model.keras in the same folder.

    From float32 images of 0 to 255, the SavedModel computes probabilities by class id. class_names.json has
    the names of the classes, metrics.json the measurements.
    """
    model.export(folder, verbose=False)
    model.save(posixpath.join(folder, "model.keras"))
    for name, content in (("class_names.json", list(class_names)), ("metrics.json", metrics)):
        with tf.io.gfile.GFile(posixpath.join(folder, name), "w") as file:
            file.write(json.dumps(content))


def _data(args: argparse.Namespace) -> Data:
    """Raises ValueError if there is nothing to read."""
    if args.train_files is not None:
        evaluation = None if args.eval_files is None else (args.eval_files, "all")
        return Data((args.train_files, "all"), evaluation, dataset_info(args.train_files).class_names)
    info = dataset_info(args.data)
    split = args.eval_split or next(
        (one for one in ("val", "validation", "test") if one in info.splits), None
    )
    evaluation = None if split is None else (args.data, split)
    return Data((args.data, args.train_split), evaluation, info.class_names)


def _shape(train: tuple[str, str], image_size: int | None) -> tuple[int, int]:
    """Side and channels of the images to train on."""
    image, _ = next(iter(load_dataset(*train, as_supervised=True)))
    height, width, channels = image.shape
    return image_size or min(_LARGEST_SIDE, max(height, width)), channels


if __name__ == "__main__":
    sys.exit(main())
