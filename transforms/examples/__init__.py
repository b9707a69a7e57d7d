"""Records into TFRecords: features, schemas, labels, framing, index, TFDS metadata; no Beam or TensorFlow."""
