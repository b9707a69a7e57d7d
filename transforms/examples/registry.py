"""The schemas people can name. A new one is a file beside this and a line here."""

from __future__ import annotations

from transforms.examples.classification import CLASSIFICATION
from transforms.examples.imagenet import IMAGENET
from transforms.examples.plain import PLAIN
from transforms.examples.schema import Schema
from transforms.examples.tabular import FEATURES_ALONE

_SCHEMAS: tuple[Schema, ...] = (CLASSIFICATION, IMAGENET, PLAIN)
SCHEMAS: dict[str, Schema] = {schema.name: schema for schema in _SCHEMAS}


def choose_schema(name: str, has_images: bool) -> Schema:
    """The schema for `--schema`: `auto` is classification; without images it is the features alone.

    Raises:
        ValueError: the name is unknown, or the schema needs images and there are none.
    """
    if name != "auto" and name not in SCHEMAS:
        *others, last = SCHEMAS
        raise ValueError(f"--schema is {name!r}; it may be auto, {', '.join(others)} or {last}")
    if has_images:
        return CLASSIFICATION if name == "auto" else SCHEMAS[name]
    if name != "auto":
        raise ValueError(
            f"--schema is {name!r}, which needs images, and the input has none; leave it at auto"
        )
    return FEATURES_ALONE
