"""Records into TFRecords: features, schemas, labels, framing, index, TFDS metadata; no Beam or TensorFlow."""

SCHEMA_NAMES = ("classification", "imagenet", "detection", "segmentation", "panoptic", "plain", "sequence")
"""The schemas by the names that `--schema` has for them; `registry` holds the schemas."""

MASK_SCHEMAS = frozenset(("segmentation", "panoptic", "plain"))
"""The schemas that may store a mask of the classes of an image."""
