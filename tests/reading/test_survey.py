"""What is in records: made by protobuf and framed here, whole and damaged."""

import gzip
import io
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from PIL import Image

from recordmill.transforms.examples.framing import DamagedRecordError
from recordmill.transforms.reading import inspected as inspected_module
from recordmill.transforms.reading import shard, survey_record
from recordmill.transforms.reading.dataset import find_dataset
from recordmill.transforms.reading.inspected import (
    Count,
    Inspected,
    Limits,
    Taken,
    estimated,
    first_records,
    head_count,
    inspected,
    numbered_record,
    spread,
    spread_records,
)
from recordmill.transforms.reading.shard import (
    Damage,
    Record,
    heads_in,
    index_count,
    locations,
    opened,
    records_and_damage,
)
from recordmill.transforms.reading.survey import Survey
from recordmill.transforms.reading.survey_record import COMPLETE, shown_record
from recordmill.transforms.reading.survey_record import Limits as Shown
from recordmill.transforms.records import BadInput
from tests.protos import Example, FeatureMessage, SequenceExample

PAYLOADS = [bytes([number]) * (100 * number + 1) for number in range(1, 7)]
SIZES = [len(payload) + 16 for payload in PAYLOADS]
OFFSETS = [sum(SIZES[:number]) for number in range(6)]


def crc(data: bytes) -> bytes:
    value = google_crc32c.value(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(*payloads: bytes) -> bytes:
    """As record_writer.h says."""
    found = b""
    for payload in payloads:
        length = struct.pack("<Q", len(payload))
        found += length + crc(length) + payload + crc(payload)
    return found


FILE = framed(*PAYLOADS)


def feature(value: Any) -> Any:
    """A Feature; of no kind where the value is None."""
    made = FeatureMessage()
    values = value if isinstance(value, list) else [value]
    if value is None:
        return made
    if all(isinstance(one, int) for one in values):
        made.int64_list.value.extend(values)
    elif isinstance(values[0], float):
        made.float_list.value.extend(values)
    else:
        made.bytes_list.value.extend(one.encode() if isinstance(one, str) else one for one in values)
    return made


def example(**features: Any) -> bytes:
    """A serialised Example; `image__encoded` is image/encoded."""
    made = Example()
    for name, value in features.items():
        made.features.feature[name.replace("__", "/")].CopyFrom(feature(value))
    return bytes(made.SerializeToString())


def sequence(context: dict[str, Any], lists: dict[str, list[Any]]) -> bytes:
    made = SequenceExample()
    for name, value in context.items():
        made.context.feature[name].CopyFrom(feature(value))
    for name, steps in lists.items():
        for value in steps:
            made.feature_lists.feature_list[name].feature.add().CopyFrom(feature(value))
    return bytes(made.SerializeToString())


def picture(width: int, height: int, image_format: str = "PNG", mode: str = "RGB", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (width, height), 7).save(buffer, image_format, **options)
    return buffer.getvalue()


def items(path: Path, data: bytes, most: int | None = None) -> list[Record | Damage]:
    path.write_bytes(data)
    with opened(str(path)) as file:
        return list(records_and_damage(file, len(data), most))


def whole(*numbers: int, shift: int = 0) -> list[Record]:
    return [
        Record(number, OFFSETS[number] + shift, len(PAYLOADS[number]), PAYLOADS[number]) for number in numbers
    ]


def flipped(at: int) -> bytes:
    return FILE[:at] + bytes([FILE[at] ^ 1]) + FILE[at + 1 :]


@pytest.mark.parametrize("at", [OFFSETS[2], OFFSETS[2] + 7, OFFSETS[2] + 9])
def test_a_damaged_length_costs_one_record(at: int, tmp_path: Path) -> None:
    *before, damage, third, fourth, fifth = items(tmp_path / "x", flipped(at))
    assert before == whole(0, 1)
    assert [third, fourth, fifth] == whole(3, 4, 5)
    assert isinstance(damage, Damage)
    assert (damage.number, damage.offset, damage.resumed, damage.lost) == (
        2,
        OFFSETS[2],
        OFFSETS[3],
        SIZES[2],
    )
    assert damage.fault.endswith("does not have the checksum stored with it")


@pytest.mark.parametrize("at", [OFFSETS[2] + 12, OFFSETS[3] - 5, OFFSETS[3] - 1])
def test_a_damaged_payload_costs_one_record(at: int, tmp_path: Path) -> None:
    *before, damage, third, fourth, fifth = items(tmp_path / "x", flipped(at))
    assert [*before, third, fourth, fifth] == whole(0, 1, 3, 4, 5)
    fault = "its 301 bytes do not have the checksum stored with them"
    assert damage == Damage(2, OFFSETS[2], fault, OFFSETS[3])


def test_bytes_that_are_gone_or_too_many(tmp_path: Path) -> None:
    start, end = OFFSETS[2] + 20, OFFSETS[2] + 50
    *_, damage, third, fourth, fifth = items(tmp_path / "x", FILE[:start] + FILE[end:])
    assert [third, fourth, fifth] == whole(3, 4, 5, shift=-30)
    assert isinstance(damage, Damage) and damage.lost == SIZES[2] - 30
    first, second, damage, third, *_ = items(
        tmp_path / "y", FILE[: OFFSETS[2]] + bytes(999) + FILE[OFFSETS[2] :]
    )
    assert damage == Damage(2, OFFSETS[2], damage.fault, OFFSETS[2] + 999)  # type: ignore[union-attr]
    assert third == Record(3, OFFSETS[2] + 999, 301, PAYLOADS[2])


@pytest.mark.parametrize("kept", [1, 11, 12, 300])
def test_a_file_that_is_cut_off(kept: int, tmp_path: Path) -> None:
    *before, damage = items(tmp_path / "x", FILE[: OFFSETS[3] + kept])
    assert before == whole(0, 1, 2)
    assert isinstance(damage, Damage)
    assert (damage.number, damage.offset, damage.lost) == (3, OFFSETS[3], kept)
    assert damage.fault.startswith("the file ends in it")


def test_a_record_within_a_damaged_one_is_none(tmp_path: Path) -> None:
    # its head lies in what is passed over, and its payload has another checksum
    false = framed(b"x" * 50)[:-4] + b"none"
    data = framed(b"first") + b"\xff" * 20 + false + framed(b"last")
    first, damage, last = items(tmp_path / "x", data)
    assert first == Record(0, 0, 5, b"first")
    assert isinstance(damage, Damage) and damage.lost == 20 + len(false)
    assert last == Record(2, 21 + 20 + len(false), 4, b"last")


def test_as_much_is_looked_through_as_is_allowed(tmp_path: Path) -> None:
    data = framed(b"first") + b"\xff" * 5000 + framed(b"last")
    assert [type(item) for item in items(tmp_path / "x", data)] == [Record, Damage, Record]
    *_, damage = items(tmp_path / "x", data, most=4000)
    assert isinstance(damage, Damage) and damage.resumed is None and damage.lost is None


def test_a_head_on_the_edge_of_two_blocks_is_found(tmp_path: Path) -> None:
    for shift in (0, 1, 6, 11, 12):
        junk = b"\xff" * (shard._BLOCK + 1 - shift)
        *_, last = items(tmp_path / "x", junk + framed(b"last"))
        assert last == Record(1, len(junk), 4, b"last")


@pytest.mark.parametrize("length", [0, 1, 255, 256, 70_000, 1 << 24, (1 << 31) + 5, (1 << 32) - 1])
def test_heads_are_told_by_their_checksum(length: int) -> None:
    head = struct.pack("<Q", length)
    assert heads_in(b"\0" * 9 + head + crc(head) + b"\xff") == [9]
    assert heads_in(head + crc(head)[:3]) == []
    assert heads_in(bytes(500)) == []


def test_compressed_files(tmp_path: Path) -> None:
    for packed in (gzip.compress(FILE), zlib.compress(FILE)):
        assert items(tmp_path / "x", packed) == whole(0, 1, 2, 3, 4, 5)
    payload = flipped(OFFSETS[2] + 20)
    *before, damage, third, fourth, fifth = items(tmp_path / "x", gzip.compress(payload))
    assert [*before, third, fourth, fifth] == whole(0, 1, 3, 4, 5)
    assert isinstance(damage, Damage) and damage.resumed == OFFSETS[3]
    # behind a damaged length, nothing in a stream that cannot go back
    *before, damage = items(tmp_path / "x", gzip.compress(flipped(OFFSETS[2])))
    assert before == whole(0, 1)
    assert isinstance(damage, Damage) and damage.resumed is None
    noise = bytes(range(256)) * 40
    packed = gzip.compress(framed(noise, noise[::-1]))
    *_, damage = items(tmp_path / "x", packed[:-30])
    assert isinstance(damage, Damage) and damage.fault == "the compressed file is cut off"


def test_a_record_that_is_too_large_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "LARGEST", 400)
    found = items(tmp_path / "x", FILE)
    assert [isinstance(item, Record) and item.payload is None for item in found] == [False] * 3 + [True] * 3
    assert [item.offset for item in found] == OFFSETS
    *_, damage = items(tmp_path / "x", FILE[:-1])
    assert isinstance(damage, Damage) and (damage.number, damage.lost) == (5, SIZES[5] - 1)


def test_counting(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(FILE)
    assert list(locations(str(path), len(FILE))) == list(zip(OFFSETS, SIZES, strict=True))
    assert head_count(str(path), len(FILE), None) == Count(6, "heads")
    assert head_count(str(path), len(FILE), 2) == Count(round(2 * len(FILE) / sum(SIZES[:2])), "estimate")
    assert estimated(0, 0, 50) == Count(0, "estimate")
    path.write_bytes(flipped(OFFSETS[4] + 1))
    with pytest.raises(DamagedRecordError, match=f"record 4 at byte {OFFSETS[4]}: its length"):
        head_count(str(path), len(FILE), None)
    path.write_bytes(FILE[:-1])
    with pytest.raises(DamagedRecordError, match=f"record 5 at byte {OFFSETS[5]}: the file ends in it"):
        head_count(str(path), len(FILE) - 1, None)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0 100\n100 50\n", 2),
        ("0 100\n100 50", 2),
        ("0 100\n100 49\n", None),
        ("0 100\n", None),
        ("no index\n", None),
        ("", None),
    ],
)
def test_an_index_counts_if_it_ends_where_the_file_does(text: str, count: int | None, tmp_path: Path) -> None:
    (tmp_path / "x.idx").write_text(text)
    assert index_count(str(tmp_path / "x.idx"), 150) == count


def test_some_numbers_are_spread() -> None:
    assert spread(10, 20) == list(range(10))
    assert spread(100, 4) == [0, 33, 66, 99]
    assert spread(100, 1) == [0]
    assert spread(0, 5) == []


def surveyed(*payloads: bytes, renames: dict[str, str] | None = None, names: Any = None) -> dict[str, Any]:
    survey = Survey(renames or {}, names or {})
    for payload in payloads:
        survey.add(Record(0, 0, len(payload), payload))
    return survey.as_json()


def test_numbers_and_lists() -> None:
    found = surveyed(
        example(a=[1, -5], b=0.1, c=[1.5, math.nan, math.inf], e=[]),
        example(a=[], b=2.5, d=1, e=None),
        example(a=[7, 7, 7]),
    )["features"]
    assert found["a"] == {
        "dtype": ["int64"],
        "records": 3,
        "share": 1,
        "length": {"min": 0, "max": 3},
        "values": 5,
        "range": {"min": -5, "max": 7},
        "distinct": [
            {"value": 7, "count": 3},
            {"value": -5, "count": 1},
            {"value": 1, "count": 1},
        ],
    }
    assert found["b"]["range"] == {"min": 0.1, "max": 2.5}
    assert (found["c"]["range"], found["c"]["not_finite"]) == ({"min": 1.5, "max": 1.5}, 2)
    assert (found["d"]["records"], found["d"]["share"]) == (1, 0.333333)
    assert found["e"]["dtype"] == ["int64", "none"] and found["e"]["values"] == 0


def test_texts_and_bytes() -> None:
    found = surveyed(
        example(
            text="é" * 3000, short=["a", "b", "a"], bytes=b"\xff\x00", ctrl="\x1b[31m", many=list(range(25))
        )
    )["features"]
    assert found["text"]["bytes"] == {"min": 6000, "max": 6000}
    assert found["text"]["text"] and "distinct" not in found["text"]
    assert found["short"]["distinct"] == [{"value": "a", "count": 2}, {"value": "b", "count": 1}]
    assert not found["bytes"]["text"]
    assert found["bytes"]["distinct"] == [{"value": "0xff00", "count": 1}]
    assert not found["ctrl"]["text"]
    assert "distinct" not in found["many"]


def test_images_are_told_by_their_headers() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    found = surveyed(
        example(image__encoded=picture(30, 20), image__height=20, image__width=30),
        example(image__encoded=picture(50, 40, "JPEG", exif=exif), image__height=40, image__width=49),
        example(
            image__encoded=picture(5, 6, "TIFF"), masks=[picture(2, 3, mode="L"), picture(2, 3), b"none"]
        ),
        example(image__encoded=picture(9, 9)[:-30]),
        example(image__encoded=b"no image at all"),
    )
    images = found["features"]["image/encoded"]["images"]
    assert images["formats"] == {"png": 2, "jpeg": 1, "tiff": 1, "unknown": 1}
    assert images["height"] == {"min": 6, "max": 40} and images["width"] == {"min": 5, "max": 50}
    assert images["turned_by_exif"] == 1
    assert images["faults"] == {"truncated": 1, "image of no known format": 1}
    assert {"height": 20, "width": 30, "count": 1} in images["sizes"]
    masks = found["features"]["masks"]
    assert (masks["values"], masks["images"]["count"], masks["images"]["channels"]) == (
        3,
        2,
        {"1": 1, "3": 1},
    )
    assert found["images_misdeclared"] == 1


def test_raw_pixels_have_the_shape_beside_them() -> None:
    pixels = {"height": 4, "width": 5, "depth": 3}
    found = surveyed(example(image_raw=bytes(60), **pixels), example(image_raw=bytes(61), **pixels))
    images = found["features"]["image_raw"]["images"]
    assert images["count"] == 1 and images["formats"] == {"raw": 1}
    assert images["sizes"] == [{"height": 4, "width": 5, "count": 1}]
    negative = surveyed(example(image_raw=bytes(60), height=-4, width=-5, depth=3))
    assert "images" not in negative["features"]["image_raw"]
    renamed = surveyed(example(pix=bytes(60), **pixels), renames={"pix": "image_raw"})
    assert renamed["features"]["pix"]["images"]["formats"] == {"raw": 1}


def test_classes() -> None:
    found = surveyed(
        example(image__class__label=[3, 4], image__class__text=["cat", "dog"], other=3),
        example(image__class__label=3, image__object__class__text=["nose", "ear", "ear"]),
        example(label=1.5),
        names={4: "hound"},
    )["classes"]
    assert found == {
        "image/class/label": [
            {"label": 3, "count": 2, "name": "cat"},
            {"label": 4, "count": 1, "name": "hound"},
        ],
        "image/object/class/text": [{"label": "ear", "count": 2}, {"label": "nose", "count": 1}],
    }


def test_sequences_and_what_is_no_example() -> None:
    words = ["one", "two", "two"]
    found = surveyed(
        sequence({"id": 7}, {"word": words, "frame": [picture(4, 3)] * 2}),
        sequence({"id": 8}, {"word": ["four"], "label": [1, 1]}),
        example(id=9),
        b"",
        b"hello",
    )
    assert found["kinds"] == {
        "examples": 2,
        "sequence_examples": 2,
        "without_features": 1,
        "others": 1,
        "not_looked_into": 0,
    }
    assert found["features"]["id"]["share"] == 0.75
    word = found["feature_lists"]["word"]
    assert (word["steps"], word["values"], word["records"]) == ({"min": 1, "max": 3}, 4, 2)
    assert found["feature_lists"]["frame"]["images"]["sizes"] == [{"height": 3, "width": 4, "count": 2}]
    assert found["classes"] == {"label": [{"label": 1, "count": 2}]}


def test_memory_is_bounded_by_what_numbers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_record, "MOST_NUMBER_BYTES", 1000)
    kinds = surveyed(
        example(a=list(range(990))),
        example(a=b"x" * 5000, b=[1.0] * 100),
        example(a=[1.0] * 251),
        sequence({"a": 1}, {"b": [[1.0] * 150, [1.0] * 150]}),
        sequence({"a": 1}, {"b": [b"x" * 5000]}),
    )["kinds"]
    assert (kinds["examples"], kinds["sequence_examples"], kinds["not_looked_into"]) == (1, 1, 3)


def written(folder: Path, *sizes: int) -> list[list[bytes]]:
    """Files of so many records each, without an index; their payloads."""
    made = []
    for number, size in enumerate(sizes):
        payloads = [example(number=100 * number + at, file=number) for at in range(size)]
        name = f"train-{number:05d}-of-{len(sizes):05d}.tfrecord"
        (folder / name).write_bytes(framed(*payloads))
        made.append(payloads)
    return made


def looked_at(path: Path, records: int | None = 1000, **limits: int) -> Inspected:
    return inspected(find_dataset(str(path)), Limits(records, **limits))


def test_a_sample_is_even_over_the_files(tmp_path: Path) -> None:
    written(tmp_path, 50, 3, 60)
    found = looked_at(tmp_path, 13)
    assert [file.read for file in found.files] == [5, 3, 5]
    assert [file.ended for file in found.files] == [False, True, False]
    assert [file.count for file in found.files] == [
        Count(50, "heads"),
        Count(3, "reading"),
        Count(60, "heads"),
    ]
    assert not found.whole and found.sound and found.records() == (113, True)
    assert looked_at(tmp_path, 113).whole
    assert looked_at(tmp_path, None).whole
    assert looked_at(tmp_path, 1000, size=100).size < 200
    assert looked_at(tmp_path, 1000, values=10).survey.records == 5


def test_counts_are_of_the_index_or_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 50)
    path = tmp_path / "train-00000-of-00001.tfrecord"
    size = path.stat().st_size
    lines = "".join(f"{offset} {length}\n" for offset, length in locations(str(path), size))
    (tmp_path / "train-00000-of-00001.idx").write_text(lines)
    assert looked_at(tmp_path, 4).files[0].count == Count(50, "index")
    (tmp_path / "train-00000-of-00001.idx").write_text(lines.replace("\n", "1\n"))
    stale = looked_at(tmp_path, 4)
    assert stale.files[0].count == Count(50, "heads") and "its index" in stale.files[0].faults[0]
    (tmp_path / "train-00000-of-00001.idx").unlink()
    monkeypatch.setattr(inspected_module, "_MOST_HEADS", 10)
    count = looked_at(tmp_path, 4).files[0].count
    assert count is not None and not count.exact and 48 <= count.records <= 52
    packed = tmp_path / "packed.tfrecord.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert looked_at(tmp_path, 4).files[0].packed
    assert looked_at(tmp_path, None).files[0].count == Count(50, "reading")


def test_damage_behind_the_sample_is_seen_by_the_heads(tmp_path: Path) -> None:
    written(tmp_path, 50)
    path = tmp_path / "train-00000-of-00001.tfrecord"
    places = list(locations(str(path), path.stat().st_size))
    data = bytearray(path.read_bytes())
    data[places[30][0]] ^= 1
    path.write_bytes(data)
    found = looked_at(tmp_path, 4)
    assert not found.sound and found.files[0].damage[0][:2] == (30, places[30][0])
    (tmp_path / "x.idx").write_text("".join(f"{offset} {length}\n" for offset, length in places))
    path.rename(tmp_path / "x.tfrecord")
    by_index = looked_at(tmp_path / "x.tfrecord", 4)
    assert by_index.sound and by_index.records() == (50, True)
    shown = list(spread_records(by_index.files, 50))
    assert [number for number, one in enumerate(shown) if isinstance(one, BadInput)] == [30]
    path = tmp_path / "x.tfrecord"
    assert looked_at(tmp_path, None).records() == (49, True)


def numbers(taken: Any) -> list[int]:
    return [
        Example.FromString(one.record.payload).features.feature["number"].int64_list.value[0] for one in taken
    ]


def test_single_records(tmp_path: Path) -> None:
    payloads = written(tmp_path, 5, 0, 40)
    dataset = find_dataset(str(tmp_path))
    assert numbers(first_records(dataset, 7)) == [0, 1, 2, 3, 4, 200, 201]
    for number in (0, 4, 5, 44):
        taken = numbered_record(dataset.shards, number)
        assert taken.record.payload == [*payloads[0], *payloads[2]][number]
    with pytest.raises(IndexError, match="45"):
        numbered_record(dataset.shards, 45)
    found = list(spread_records(looked_at(tmp_path).files, 5))
    assert numbers(found) == [0, 206, 217, 228, 239]


def test_single_records_around_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(flipped(OFFSETS[2] + 20))
    dataset = find_dataset(str(path))
    assert numbered_record(dataset.shards, 3).record == whole(3)[0]
    with pytest.raises(DamagedRecordError, match=f"record 2 at byte {OFFSETS[2]}: its 301 bytes"):
        numbered_record(dataset.shards, 2)
    index = "".join(f"{offset} {size}\n" for offset, size in zip(OFFSETS, SIZES, strict=True))
    (tmp_path / "x.idx").write_text(index)
    found = list(spread_records(looked_at(path).files, 6))
    assert [type(one) for one in found] == [Taken, Taken, BadInput, Taken, Taken]
    (tmp_path / "x.idx").write_text(index.replace("\n", " 7\n", 1))
    assert numbered_record(find_dataset(str(path)).shards, 3).record == whole(3)[0]
    (tmp_path / "x.idx").unlink()
    assert all(isinstance(one, Taken) for one in spread_records(looked_at(path).files, 6))


def test_a_record_in_readable_form() -> None:
    payload = example(
        image__encoded=picture(30, 20, "JPEG"),
        numbers=list(range(10)),
        text="x" * 100,
        share=0.1,
        odd=[math.nan, -math.inf],
        blob=b"\xff" * 20,
        none=None,
    )
    record = Record(3, 50, len(payload), payload)
    found = shown_record(record, {}, Shown(values=3, letters=10, digits=4))
    assert {name: found[name] for name in ("number", "offset", "bytes", "kind")} == {
        "number": 3,
        "offset": 50,
        "bytes": len(payload),
        "kind": "example",
    }
    features = found["features"]
    size = len(picture(30, 20, "JPEG"))
    image = {"format": "jpeg", "height": 20, "width": 30, "channels": 3}
    assert features["image/encoded"]["values"] == [{"bytes": size, "image": image}]
    assert features["numbers"] == {"dtype": "int64", "length": 10, "values": [0, 1, 2]}
    assert features["text"]["values"] == [{"bytes": 100, "text": "x" * 10, "shortened": True}]
    assert features["share"]["values"] == [0.1]
    assert features["odd"]["values"] == ["NaN", "-Infinity"]
    assert features["blob"]["values"] == [{"bytes": 20, "hex": "ff ff ff ff"}]
    assert features["none"] == {"dtype": "none", "length": 0, "values": []}
    whole = shown_record(record, {}, COMPLETE)["features"]
    assert whole["numbers"]["values"] == list(range(10)) and whole["text"]["values"][0]["text"] == "x" * 100
    other = shown_record(Record(0, 0, 5, b"hello"), {}, COMPLETE)
    assert (other["kind"], other["content"]) == ("other", {"bytes": 5, "text": "hello"})
    assert shown_record(Record(0, 0, 1 << 30, None), {}, COMPLETE)["kind"] == "not_looked_into"
    payload = sequence({"id": 1}, {"word": ["a", "b", "c"]})
    lists = shown_record(Record(0, 0, len(payload), payload), {}, Shown(steps=2))["feature_lists"]
    assert lists["word"]["steps"] == 3
    assert [step["values"][0]["text"] for step in lists["word"]["first"]] == ["a", "b"]
