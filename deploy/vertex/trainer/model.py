"""A convolutional classifier for small images; its input is stored pixels."""

from __future__ import annotations

import keras

_LARGEST_GRID = 7
_FILTERS = (32, 64, 128, 192, 256, 256)


def classifier(image_size: int, channels: int, num_classes: int, learning_rate: float) -> keras.Model:
    """A compiled model.

    Args:
        image_size: side of the images.
        channels: of the images.
        num_classes: number of classes.
        learning_rate: of Adam.

    Returns:
        From float or uint8 images (batch, image_size, image_size, channels) of 0 to 255 to the probabilities
        (batch, num_classes) of the class ids.
    """
    inputs = keras.Input((image_size, image_size, channels), name="image")
    layer = keras.layers.Rescaling(1 / 255)(inputs)
    for filters in _FILTERS:
        layer = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(layer)
        layer = keras.layers.BatchNormalization(momentum=0.9)(layer)
        layer = keras.layers.ReLU()(layer)
        if layer.shape[1] <= _LARGEST_GRID:
            break
        layer = keras.layers.MaxPooling2D()(layer)
    layer = keras.layers.Flatten()(layer) if layer.shape[1] <= _LARGEST_GRID else _pooled(layer)
    layer = keras.layers.Dropout(0.3)(layer)
    outputs = keras.layers.Dense(num_classes, activation="softmax", name="probabilities")(layer)
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def _pooled(layer: keras.KerasTensor) -> keras.KerasTensor:
    return keras.layers.GlobalAveragePooling2D()(layer)
