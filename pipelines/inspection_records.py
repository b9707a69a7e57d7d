"""What `recordmill inspect` prints of single records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.pipelines.inspection_text import Line, named, paragraph, printed, quoted, table
from recordmill.transforms.reading.survey_classes import CLASS_KEYS


def record_lines(
    record: Mapping[str, Any], names: Mapping[int, str], renames: Mapping[str, str], room: int | None
) -> list[Line]:
    """A record of `shown_record`, with its `file`, in lines.

    Args:
        record: that is shown.
        names: of classes by id.
        renames: our name of a feature, by the name that it is stored under.
        room: columns of the terminal; None for any number.
    """
    place = f"record {record['number']:,} of {printed(record['file'])}, at byte {record['offset']:,}"
    title = f"{place}, {record['bytes']:,} bytes"
    lines = [Line(line.text, bold=True) for line in paragraph(title, room)]
    if record["kind"] == "not_looked_into":
        return [*lines, *paragraph("too large to be looked into", room, 2)]
    if record["kind"] == "other":
        content = f"not a tf.train.Example: {_bytes(record['content'])}"
        return [*lines, *paragraph(content, room, 2)]
    rows = []
    for name, feature in record["features"].items():
        known = names if renames.get(name, name) in CLASS_KEYS else {}
        rows.append((named(name), _feature(feature, known)))
    for name, steps in record.get("feature_lists", {}).items():
        known = names if renames.get(name, name) in CLASS_KEYS else {}
        first = steps["first"]
        rows.append((named(name), f"{steps['steps']:,} step{'' if steps['steps'] == 1 else 's'}"))
        rows += [(f"  step {number}", _feature(step, known)) for number, step in enumerate(first)]
        if steps["steps"] > len(first) and first:
            rows.append(("  …", f"{steps['steps'] - len(first):,} more"))
    return [*lines, *(table(rows, room) or [Line("  no feature")])]


def _feature(feature: Mapping[str, Any], names: Mapping[int, str]) -> str:
    values: Sequence[Any] = feature["values"]
    length = feature["length"]
    told = [_value(value, names) for value in values]
    if length == 1:
        return told[0]
    if not length:
        return "[]" if feature["dtype"] != "none" else "nothing, of no dtype"
    images = any(isinstance(value, Mapping) and "image" in value for value in values)
    between = "; " if images else ", "  # what is told of an image has commas
    if length > len(values):
        return f"[{between.join(told)}{between}…] {length:,} values"
    return f"[{between.join(told)}]"


def _value(value: Any, names: Mapping[int, str]) -> str:
    if not isinstance(value, Mapping):
        name = names.get(value) if isinstance(value, int) else None
        return f"{value} ({printed(name)})" if name and name != str(value) else f"{value}"
    image = value.get("image")
    return _bytes(value) if image is None else f"{_image(image)}, {value['bytes']:,} bytes"


def _bytes(value: Mapping[str, Any]) -> str:
    if "text" in value:
        text = quoted(value["text"])
        return f"{text[:-1]}…' {value['bytes']:,} bytes" if value.get("shortened") else text
    shown = len(value["hex"].split())
    dots = " …" if value["bytes"] > shown else ""
    return f"{value['bytes']:,} bytes: {value['hex']}{dots}" if shown else "no bytes"


def _image(image: Mapping[str, Any]) -> str:
    told = [printed(image["format"])]
    if "height" in image:
        told.append(f"{image['height']} high, {image['width']} wide")
    if "channels" in image:
        told.append(f"{image['channels']} channel{'' if image['channels'] == 1 else 's'}")
    if "orientation" in image:
        told.append(f"EXIF orientation {image['orientation']}")
    if "fault" in image:
        told.append(printed(image["fault"]))
    return ", ".join(told)
