"""Checkpoints, one each epoch: models with their optimiser, with which an interrupted job continues."""

from __future__ import annotations

import posixpath
import re
from typing import Any

import keras
import tensorflow as tf

_NAME = re.compile(r"epoch-(\d{4})\.keras")


class Checkpoints(keras.callbacks.Callback):
    """Writes one after each epoch; it gets its name after it is complete.

    Args:
        folder: local or `gs://`.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes the checkpoint of an epoch; Keras counts epochs from 0."""
        tf.io.gfile.makedirs(self._folder)
        part = posixpath.join(self._folder, "unfinished.keras")
        self.model.save(part)
        tf.io.gfile.rename(part, posixpath.join(self._folder, f"epoch-{epoch + 1:04d}.keras"))


def newest(folder: str) -> tuple[keras.Model, int] | None:
    """The newest model, and the number of its epochs; None if there is no model."""
    if not tf.io.gfile.isdir(folder):
        return None
    names = [name for name in tf.io.gfile.listdir(folder) if _NAME.fullmatch(name)]
    if not names:
        return None
    name = max(names)
    return keras.models.load_model(posixpath.join(folder, name)), int(name[len("epoch-") : -len(".keras")])
