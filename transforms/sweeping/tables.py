"""The figures of a sweep, for programs: sweep.csv and sweep.json.

Both have one row a setting, with the same names; a missing figure is empty or null:

    setting, group, value         the setting; `value` is the quality, or the target SSIM
    flags                         of `convert` with the same effect
    images, failed                stored, and refused by the setting
    source_bytes                  of the files that were stored
    tfrecord_bytes, image_bytes   of complete records, and of the stored images alone
    ratio, bytes_per_image        tfrecord_bytes per byte of the files, and per image
    encode_images_per_second, decode_images_per_second   of one process
    compared, identical           images that were compared, and those with the pixels of the source
    ssim_mean, ssim_worst, ssim_worst_key, psnr_mean     luma SSIM; PSNR in dB of the images that differ

sweep.json also has, for each row, encode_seconds, decode_seconds, qualities (number of images by the
JPEG quality that --target_ssim chose; 0: the source was kept) and policy; and at its root format_version,
input, source_kind, images, failures (a count for each reason), started, packages and notes.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Any

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.sweeping.results import Row, Setting, Sweep

FORMAT_VERSION = 1
COLUMNS = (
    *("setting", "group", "value", "flags", "images", "failed"),
    *("source_bytes", "tfrecord_bytes", "image_bytes", "ratio", "bytes_per_image"),
    *("encode_images_per_second", "decode_images_per_second", "compared", "identical"),
    *("ssim_mean", "ssim_worst", "ssim_worst_key", "psnr_mean"),
)
_MEASURED = tuple(
    field.name for field in dataclasses.fields(Row) if field.name not in ("setting", "qualities")
)
_DIGITS = 6
_TUPLES = ("size", "background")


def csv_text(sweep: Sweep) -> str:
    """sweep.csv: a header, and a line for each setting; floats have six significant digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in sweep.rows:
        values = _values(row)
        cells = [values[name] for name in COLUMNS]
        writer.writerow([f"{one:.{_DIGITS}g}" if isinstance(one, float) else one for one in cells])
    return out.getvalue()


def json_text(sweep: Sweep) -> str:
    """sweep.json: the exact figures, and their origin."""
    document = {
        "format_version": FORMAT_VERSION,
        "input": sweep.input,
        "source_kind": sweep.source_kind,
        "images": sweep.images,
        "failures": dict(sorted(sweep.failures.items())),
        "started": sweep.started,
        "packages": dict(sorted(sweep.packages.items())),
        "notes": list(sweep.notes),
        "rows": [_json_row(row) for row in sweep.rows],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def read_json(text: str) -> Sweep:
    """The sweep that `json_text` wrote, without its crops; raises ValueError for another format version."""
    document = json.loads(text)
    if (found := document["format_version"]) != FORMAT_VERSION:
        raise ValueError(f"format_version of sweep.json is {found}; this program reads {FORMAT_VERSION}")
    return Sweep(
        input=document["input"],
        source_kind=document["source_kind"],
        images=document["images"],
        failures=document["failures"],
        started=document["started"],
        rows=tuple(_row(values) for values in document["rows"]),
        crops=(),
        notes=tuple(document["notes"]),
        packages=document["packages"],
    )


def _values(row: Row) -> dict[str, Any]:
    measured = {name: getattr(row, name) for name in _MEASURED}
    return {
        "setting": row.setting.name,
        "group": row.setting.group,
        "value": row.setting.value,
        "flags": row.setting.flags,
        **measured,
        "ratio": row.ratio,
        "bytes_per_image": row.bytes_per_image,
        "encode_images_per_second": row.encode_rate,
        "decode_images_per_second": row.decode_rate,
    }


def _json_row(row: Row) -> dict[str, Any]:
    return {
        **_values(row),
        "qualities": {str(quality): row.qualities[quality] for quality in sorted(row.qualities)},
        "policy": dataclasses.asdict(row.setting.policy),
    }


def _row(values: Mapping[str, Any]) -> Row:
    policy: dict[str, Any] = {
        name: tuple(value) if name in _TUPLES and value is not None else value
        for name, value in values["policy"].items()
    }
    setting = Setting(values["setting"], values["group"], values["value"], ImagePolicy(**policy))
    qualities = {int(quality): count for quality, count in values["qualities"].items()}
    return Row(setting=setting, qualities=qualities, **{name: values[name] for name in _MEASURED})
