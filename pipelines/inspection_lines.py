"""The text of `recordmill inspect`: the dataset, its features, classes and damage; single records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.filesize import decimal

from recordmill.pipelines.inspection_json import by_split, file_name
from recordmill.pipelines.terminal import Line, named, paragraph, quoted, table
from recordmill.transforms.pages.text import counted, visible
from recordmill.transforms.reading.inspected import FileFound, Inspected
from recordmill.transforms.reading.shard import LARGEST, Damage
from recordmill.transforms.reading.survey import CLASS_KEYS, ClassCount, Images, Range, Survey, Values
from recordmill.transforms.reading.survey_record import MOST_NUMBER_BYTES, json_value, text_of

_MOST_CLASSES = 30
_MOST_DISTINCT = 6
_MOST_SHOWN = 60  # characters of the distinct values of a key
_MOST_FILES = 20
_BAR = 30


def summary_lines(found: Inspected, room: int | None) -> list[Line]:
    """The summary of a dataset, without its records."""
    return [
        *_head(found, room),
        *_features("features", found.survey.features, found.survey, room),
        *_features("feature lists, by step", found.survey.lists, found.survey, room),
        *_classes(found, room),
        *_remarks(found, room),
        *_damage(found, room),
    ]


def _head(found: Inspected, room: int | None) -> list[Line]:
    rows = [("what", _what(found))]
    if (version := (found.dataset.manifest or {}).get("version")) is not None:
        rows.append(("version", visible(str(version))))
    rows += [("files", _files(found)), ("records", _records(found))]
    splits = by_split(found)
    if len(splits) > 1 or any(file.entry.split for file in found.files):
        for name, files in splits.items():
            count, exact = found.records(files)
            text = f"{'' if exact else 'about '}{counted(count, 'record')} in {counted(len(files), 'file')}"
            rows.append((f"split {visible(name)}", text))
    rows.append(("read", _read(found)))
    return [
        *(Line(line.text, bold=True) for line in paragraph(visible(found.dataset.path), room)),
        *table(rows, room),
    ]


def _what(found: Inspected) -> str:
    manifest, survey = found.dataset.manifest, found.survey
    if manifest is None:
        if not survey.records and any(file.damaged for file in found.files):
            return "no TFRecords"
        kinds = {
            "Examples": survey.examples,
            "SequenceExamples": survey.sequences,
            "records that are not Examples": survey.others,
        }
        held = ", ".join(name for name, count in kinds.items() if count)
        return f"TFRecords{f' of {held}' if held else ''}, without a manifest of Recordmill"
    extent = "a dataset" if found.dataset.is_whole else "part of a dataset"
    version = visible(str(manifest.get("recordmill", "unknown")))
    text = f"{extent} that Recordmill wrote" + (f" (version {version})" if version != "unknown" else "")
    schema = manifest["config"].get("schema")
    return text + (f", in the schema {visible(str(schema))}" if schema else "")


def _files(found: Inspected) -> str:
    size = sum(file.entry.size or 0 for file in found.files)
    packed = sum(bool(file.packed) for file in found.files)
    indexed = sum(file.entry.index is not None for file in found.files)
    total = len(found.files)
    parts = [counted(total, "file"), decimal(size)]
    parts.append("compressed" if packed == total else f"{packed} compressed" if packed else "not compressed")
    if indexed:
        parts.append("indexed" if indexed == total else f"{indexed} indexed")
    return ", ".join(parts)


def _records(found: Inspected) -> str:
    count, exact = found.records()
    by = {file.count.by for file in found.files if file.count is not None}
    sources = {
        "manifest": "from the manifest",
        "index": "from the index",
        "reading": "all read",
        "heads": "counted by their headers",
        "estimate": "estimated from the size of those that were read; --all counts them",
    }
    if by == {"reading"} and not found.sound:
        sources["reading"] = "that can be read"
    origin = ", ".join(text for name, text in sources.items() if name in by)
    return f"{'' if exact else 'about '}{count:,}{f', {origin}' if origin else ''}"


def _read(found: Inspected) -> str:
    survey = found.survey
    text = f"{counted(survey.records, 'record')}, {decimal(found.size)}"
    if survey.sizes.most is not None:
        text += f", {_bytes(survey.sizes)} each"
    if found.whole and found.sound:
        but = "" if not survey.unread else ", except in records that are too large"
        return f"all: {text}; every checksum was verified{but}"
    if found.whole:
        return f"all that can be: {text}"
    files = sum(file.read > 0 for file in found.files)
    return f"a sample: {text}, the first of {counted(files, 'file')}; --all reads all"


def _features(title: str, features: dict[str, Values], survey: Survey, room: int | None) -> list[Line]:
    if not features:
        return []
    rows = [
        (named(name), _kind(values), _share(values.records, survey.parsed), _values(values))
        for name, values in sorted(features.items())
    ]
    return [Line(""), Line(f"{title} ({len(features):,})", bold=True), *table(rows, room)]


def _kind(values: Values) -> str:
    """dtype and shape."""
    least, most = values.lengths.least, values.lengths.most
    dtype = " or ".join(name for name, _ in values.kinds.most_common() if name != "none") or "none"
    return dtype + ("" if least == most == 1 else f"[{least}]" if least == most else f"[{least}..{most}]")


def _share(records: int, total: int) -> str:
    if records == total:
        return "all"
    share = 100 * records / total
    return f"{share:.1f} %" if 0.1 <= share <= 99.9 else f"{records:,} of {total:,}"


def _values(values: Values) -> str:
    parts = []
    if values.steps.most is not None:
        parts.append(f"{_range(values.steps)} {'step' if values.steps.most == 1 else 'steps'}")
    if not values.count:
        return ", ".join([*parts, "always empty"])
    if values.images.count:
        parts += [_images(values.images), _bytes(values.sizes)]
        if values.images.count < values.count:
            parts.append(f"{values.images.count:,} of {values.count:,} values were seen to be images")
        return ", ".join(parts)
    if few := _distinct(values):
        parts.append(few)
    elif values.numbers.most is not None:
        parts.append(_range(values.numbers))
    elif values.sizes.most is not None:
        parts.append(f"{'text' if values.texts else 'bytes'}, {_bytes(values.sizes)}")
    if values.not_finite:
        parts.append(f"{values.not_finite:,} not finite")
    return ", ".join(parts)


def _distinct(values: Values) -> str:
    """The values if they are few and short, else an empty text."""
    rows = values.distinct_rows()
    if not 0 < len(rows) <= _MOST_DISTINCT:
        return ""
    shown = [
        quoted(value.decode())
        if isinstance(value, bytes) and text_of(value) is not None
        else str(json_value(value))
        for value, _ in rows
    ]
    if len(shown) == 1:
        return f"always {shown[0]}"
    text = ", ".join(f"{value} ({count:,})" for value, (_, count) in zip(shown, rows, strict=True))
    return text if len(text) <= _MOST_SHOWN else ""


def _images(images: Images) -> str:
    formats = images.formats.most_common()
    parts = [name if len(formats) == 1 else f"{name} {count:,}" for name, count in formats]
    if images.heights.most is not None:
        parts += [f"height {_range(images.heights)}", f"width {_range(images.widths)}"]
    if images.channels:
        channels = " or ".join(map(str, sorted(images.channels)))
        parts.append(f"{channels} {'channel' if channels == '1' else 'channels'}")
    if images.turned:
        parts.append(f"{images.turned:,} turned by EXIF")
    parts += [f"{count:,} {visible(fault)}" for fault, count in images.faults.most_common()]
    return ", ".join(parts)


def _range(found: Range) -> str:
    least, most = (
        f"{number:.6g}" if isinstance(number, float) else f"{number:,}"
        for number in (found.least, found.most)
    )
    return least if least == most else f"{least} to {most}"


def _bytes(found: Range) -> str:
    least, most = int(found.least or 0), int(found.most or 0)
    if most < 1000:
        return counted(least, "byte") if least == most else f"{least} to {most} bytes"
    return decimal(least) if least == most else f"{decimal(least)} to {decimal(most)}"


def _classes(found: Inspected, room: int | None) -> list[Line]:
    lines = []
    where = "" if found.whole else " in the sample"
    for name, classes in found.survey.classes.items():
        rows = classes.counts()
        lines += [Line(""), Line(f"classes of {name}{where} ({len(rows):,})", bold=True)]
        shown, left = rows[:_MOST_CLASSES], [row.times for row in rows[_MOST_CLASSES:]]
        most = max(row.times for row in shown)
        lines += table([_class(row, most) for row in shown], room)
        if left:
            text = f"and {len(left):,} more, {min(left):,} to {max(left):,} each; --json has all"
            lines += paragraph(text, room, 2)
    return lines


def _class(row: ClassCount, most: int) -> tuple[str, ...]:
    label = str(row.label) if isinstance(row.label, int) else quoted(row.label)
    bar = "#" * max(round(_BAR * row.times / most), 1)
    return label, "" if row.name == label else visible(row.name), f"{row.times:,}", bar


def _remarks(found: Inspected, room: int | None) -> list[Line]:
    survey = found.survey
    parts = [visible(note) for note in found.notes]
    if survey.misdeclared:
        images = counted(survey.misdeclared, "image")
        parts.append(f"{images} with another height or width than their features")
    if survey.others:
        parts.append(f"{counted(survey.others, 'record')} without a tf.train.Example: only sizes are shown")
    if survey.empty:
        parts.append(f"{counted(survey.empty, 'record')} without any feature")
    if survey.unread:
        limits = f"{decimal(LARGEST)}, or {decimal(MOST_NUMBER_BYTES)} of numbers, at most"
        parts.append(f"{counted(survey.unread, 'record')} too large to be looked into: {limits}")
    if survey.left_out:
        parts.append(f"only {len(survey.features):,} keys are shown; there are more")
    lines = [line for text in parts for line in paragraph(f"- {text}", room, 2)]
    return [Line(""), *lines] if lines else []


def _damage(found: Inspected, room: int | None) -> list[Line]:
    faulty = [file for file in found.files if file.damaged or file.faults]
    if not faulty:
        return []
    lines = [Line(""), Line("damage", bold=True)]
    for file in faulty[:_MOST_FILES]:
        for text in _file_damage(file, visible(file_name(found.dataset, file.entry))):
            lines += paragraph(text, room, 2)
    if len(faulty) > _MOST_FILES:
        lines += paragraph(f"and {counted(len(faulty) - _MOST_FILES, 'file')} more; --json has all", room, 2)
    return lines


def _file_damage(file: FileFound, name: str) -> list[str]:
    """The damage of a file, a line each."""
    shown = file.damage[:5]
    parts = [damage_text(damage, file) for damage in shown]
    if file.damaged > len(shown):
        parts.append(f"{counted(file.damaged - len(shown), 'more place')} like this")
    if file.damaged:
        parts.append(f"{counted(file.read, 'record')} could be read")
    return [*(f"{name} {visible(fault)}" for fault in file.faults), *(f"{name}: {part}" for part in parts)]


def damage_text(damage: Damage, file: FileFound) -> str:
    """The position of damage, and the bytes that are lost."""
    unpacked = " of the decompressed file" if file.packed else ""
    text = f"record {damage.number:,} at byte {damage.offset:,}{unpacked}: {visible(damage.fault)}; "
    if damage.resumed is None:
        return text + "nothing after it was read"
    if damage.resumed == file.entry.size:
        return text + f"the last {damage.lost:,} bytes are lost"
    return text + f"{damage.lost:,} bytes are lost, and the next record is at byte {damage.resumed:,}"


def record_lines(
    record: Mapping[str, Any], names: Mapping[int, str], renames: Mapping[str, str], room: int | None
) -> list[Line]:
    """A record of `shown_record`, with its `file`, in lines.

    Args:
        renames: the schema's name of each renamed feature, by its stored name.
    """
    position = f"record {record['number']:,} of {visible(record['file'])}, at byte {record['offset']:,}"
    title = f"{position}, {record['bytes']:,} bytes"
    lines = [Line(line.text, bold=True) for line in paragraph(title, room)]
    if record["kind"] == "not_looked_into":
        return [*lines, *paragraph("too large to be looked into", room, 2)]
    if record["kind"] == "other":
        content = f"not a tf.train.Example: {_record_bytes(record['content'])}"
        return [*lines, *paragraph(content, room, 2)]
    lists = record.get("feature_lists", {})
    classes = {
        name: names if renames.get(name, name) in CLASS_KEYS else {} for name in (*record["features"], *lists)
    }
    rows = [(named(name), _feature(feature, classes[name])) for name, feature in record["features"].items()]
    for name, steps in lists.items():
        first = steps["first"]
        rows.append((named(name), counted(steps["steps"], "step")))
        rows += [(f"  step {number}", _feature(step, classes[name])) for number, step in enumerate(first)]
        if steps["steps"] > len(first) and first:
            rows.append(("  …", f"{steps['steps'] - len(first):,} more"))
    return [*lines, *(table(rows, room) or [Line("  no feature")])]


def _feature(feature: Mapping[str, Any], names: Mapping[int, str]) -> str:
    values: Sequence[Any] = feature["values"]
    length = feature["length"]
    texts = [_record_value(value, names) for value in values]
    if length == 1:
        return texts[0]
    if not length:
        return "[]" if feature["dtype"] != "none" else "nothing, of no dtype"
    images = any(isinstance(value, Mapping) and "image" in value for value in values)
    between = "; " if images else ", "  # the description of an image has commas
    if length > len(values):
        return f"[{between.join(texts)}{between}…] {length:,} values"
    return f"[{between.join(texts)}]"


def _record_value(value: Any, names: Mapping[int, str]) -> str:
    if not isinstance(value, Mapping):
        name = names.get(value) if isinstance(value, int) else None
        return f"{value} ({visible(name)})" if name and name != str(value) else f"{value}"
    image = value.get("image")
    return _record_bytes(value) if image is None else f"{_image(image)}, {value['bytes']:,} bytes"


def _record_bytes(value: Mapping[str, Any]) -> str:
    if "text" in value:
        text = quoted(value["text"])
        return f"{text[:-1]}…' {value['bytes']:,} bytes" if value.get("shortened") else text
    shown = len(value["hex"].split())
    dots = " …" if value["bytes"] > shown else ""
    return f"{value['bytes']:,} bytes: {value['hex']}{dots}" if shown else "no bytes"


def _image(image: Mapping[str, Any]) -> str:
    parts = [visible(image["format"])]
    if "height" in image:
        parts.append(f"{image['height']} high, {image['width']} wide")
    if "channels" in image:
        parts.append(counted(image["channels"], "channel"))
    if "orientation" in image:
        parts.append(f"EXIF orientation {image['orientation']}")
    if "fault" in image:
        parts.append(visible(image["fault"]))
    return ", ".join(parts)
