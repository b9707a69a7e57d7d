"""label_map.pbtxt: the classes of the TF Object Detection API.

Source of the format: object_detection/protos/string_int_label_map.proto, in protobuf's text format.
"""

from __future__ import annotations

import re

from recordmill.transforms.examples.labels import LabelMap


def label_map_text(labels: LabelMap) -> str:
    """The text of label_map.pbtxt: an item for each class, but for id 0, which is the background there."""
    return "".join(
        _item(number, name, labels.texts.get(name, name)) for number, name in labels.labels.items() if number
    )


def _item(number: int, name: str, display: str) -> str:
    lines = [f"  id: {number}", f"  name: {_quoted(name)}"]
    if display != name:
        lines.append(f"  display_name: {_quoted(display)}")
    return "\n".join(["item {", *lines, "}", ""])


def _quoted(value: str) -> str:
    """A text in quotes, as UTF-8; characters that UTF-8 cannot encode become `?`."""
    value = value.encode("utf-8", "replace").decode()
    value = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\{ord(match[0]):03o}", value) + "'"
