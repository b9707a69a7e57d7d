"""Keras models fitted on `load_dataset`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recordmill
from tests.lazy import keras
from tests.readers.drawn import CLASSES, SIZE, keys_of, pixels_of


def model(shape: tuple[int, int, int], loss: str) -> Any:
    """A linear classifier of pixels."""
    keras.utils.set_random_seed(0)
    layers = [keras.Input(shape), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
    made = keras.Sequential([*layers, keras.layers.Dense(len(CLASSES), activation="softmax")])
    made.compile(keras.optimizers.SGD(0.01), loss, metrics=["accuracy"])
    return made


@pytest.mark.slow
def test_a_model_learns_what_each_image_is(classes: Path) -> None:
    options: dict[str, Any] = {"batch_size": 6, "as_supervised": True}
    train = recordmill.load_dataset(str(classes), "train", shuffle=True, seed=1, **options)
    assert train.class_names == CLASSES
    fitted = model((*SIZE, 3), "sparse_categorical_crossentropy")
    history = fitted.fit(train, epochs=15, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0] / 3
    # Asked of the pictures themselves, which no pipeline has read.
    keys = keys_of("train")
    told = fitted.predict(np.stack([pixels_of(key) for key in keys]), verbose=0).argmax(axis=1)
    assert told.tolist() == list(keys.values())
    assert fitted.evaluate(recordmill.load_dataset(str(classes), "train", **options), verbose=0)[1] == 1


@pytest.mark.slow
def test_validation_and_epochs_cut_from_an_endless_dataset(classes: Path) -> None:
    options: dict[str, Any] = {"size": (12, 16), "as_supervised": True, "one_hot": True}
    train = recordmill.load_dataset(
        str(classes), "train", batch_size=4, repeat=True, shuffle=True, seed=0, **options
    )
    held_out = recordmill.load_dataset(str(classes), "val", batch_size=4, **options)
    assert (int(train.cardinality()), int(held_out.cardinality())) == (-1, 2)
    fitted = model((12, 16, 3), "categorical_crossentropy")
    history = fitted.fit(train, epochs=3, steps_per_epoch=7, validation_data=held_out, verbose=0)
    assert {name: len(values) for name, values in history.history.items()} == dict.fromkeys(
        ("loss", "accuracy", "val_loss", "val_accuracy"), 3
    )
    assert int(fitted.optimizer.iterations) == 21


@pytest.mark.slow
def test_epochs_end_where_the_split_does(classes: Path) -> None:
    train = recordmill.load_dataset(str(classes), "train[:50%]", batch_size=4, as_supervised=True)
    fitted = model((*SIZE, 3), "sparse_categorical_crossentropy")
    fitted.fit(train, epochs=2, verbose=0)
    assert int(fitted.optimizer.iterations) == 2 * 3  # 9 records
