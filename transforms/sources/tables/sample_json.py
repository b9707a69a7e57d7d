"""The JSON object that goes with one sample, as labels and free features."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput, FeatureValue

_LABEL_KEYS = ("label", "class")


@internal_errors("annotations")
def flattened(text: str) -> tuple[tuple[str | int, ...], dict[str, FeatureValue]]:
    """Labels (`label`, or else `class`) and free features of a JSON object; objects in it as `a/b`.

    Lists of values of one type stay lists; other lists become JSON text; null is left out.

    Raises:
        BadInput: stage `annotations`, `not JSON` or `not a JSON object`.
    """
    try:
        return _split_off(json.loads(text), text)
    except (ValueError, RecursionError) as error:
        raise BadInput("annotations", "not JSON", str(error)) from error


def _split_off(told: Any, text: str) -> tuple[tuple[str | int, ...], dict[str, FeatureValue]]:
    if not isinstance(told, dict):
        raise BadInput("annotations", "not a JSON object", f"it is {text[:40]!r}")
    labels: tuple[str | int, ...] = ()
    for key in _LABEL_KEYS:
        if (found := _labels(told.get(key))) is not None:
            labels = found
            del told[key]
            break
    return labels, dict(_features(told, ""))


def _labels(value: Any) -> tuple[str | int, ...] | None:
    """A value as labels; None where it is none."""
    values = value if isinstance(value, list) else [value]
    fits = bool(values) and all(isinstance(one, (str, int)) and not isinstance(one, bool) for one in values)
    return tuple(values) if fits and "" not in values else None


def _features(told: dict[str, Any], prefix: str) -> Iterator[tuple[str, FeatureValue]]:
    for key, value in told.items():
        if isinstance(value, dict):
            yield from _features(value, f"{prefix}{key}/")
        elif value is not None:
            yield f"{prefix}{key}", feature_value(value)


def feature_value(value: Any) -> FeatureValue:
    """A value as a free feature: itself, a list of values of one type, else JSON text."""
    if isinstance(value, (str, int, float, bytes)):
        return value
    if isinstance(value, list) and _is_flat(value):
        return tuple(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_flat(values: list[Any]) -> bool:
    """Whether a list's values are of one type; whole numbers and others are."""
    kinds = {type(value) for value in values}
    return kinds <= {int, float} or (len(kinds) == 1 and kinds <= {str, bool, bytes})
