"""label_map.pbtxt: written, and read by protobuf's own text_format; read, from files of the field."""

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.examples.label_map import label_map_text
from recordmill.transforms.examples.labels import LabelMap, read_label_map, read_label_texts

_Field = descriptor_pb2.FieldDescriptorProto


def _label_map_class() -> Any:
    """The message of object_detection/protos/string_int_label_map.proto, as far as these files have it."""
    file = descriptor_pb2.FileDescriptorProto(name="label_map.proto", package="object_detection.protos")
    item = file.message_type.add(name="StringIntLabelMapItem")
    fields = {"name": (1, _Field.TYPE_STRING), "id": (2, _Field.TYPE_INT32)}
    for name, (number, kind) in (fields | {"display_name": (3, _Field.TYPE_STRING)}).items():
        item.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    point = item.nested_type.add(name="KeypointMap")
    point.field.add(name="id", number=1, type=_Field.TYPE_INT32, label=_Field.LABEL_OPTIONAL)
    point.field.add(name="label", number=2, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    nested = ".object_detection.protos.StringIntLabelMapItem"
    item.field.add(
        name="keypoints",
        number=4,
        type=_Field.TYPE_MESSAGE,
        type_name=f"{nested}.KeypointMap",
        label=_Field.LABEL_REPEATED,
    )
    item.field.add(name="ancestor_ids", number=5, type=_Field.TYPE_STRING, label=_Field.LABEL_REPEATED)
    whole = file.message_type.add(name="StringIntLabelMap")
    whole.field.add(
        name="item", number=1, type=_Field.TYPE_MESSAGE, type_name=nested, label=_Field.LABEL_REPEATED
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("object_detection.protos.StringIntLabelMap")
    )


LABEL_MAP = _label_map_class()


def _parsed(text: str) -> list[tuple[int, str, str]]:
    message = text_format.Parse(text, LABEL_MAP())
    return [(item.id, item.name, item.display_name) for item in message.item]


def test_the_text() -> None:
    labels = LabelMap.build(
        [], classes={0: "background", 3: "/m/01", 1: "it's"}, texts={"/m/01": "Bird"}, first_id=1
    )
    text = label_map_text(labels.labels, labels.texts)
    assert text == (
        "item {\n  id: 1\n  name: 'it\\'s'\n}\nitem {\n  id: 3\n  name: '/m/01'\n  display_name: 'Bird'\n}\n"
    )
    assert _parsed(text) == [(1, "it's", ""), (3, "/m/01", "Bird")]
    assert label_map_text({}, {}) == ""


@given(
    st.dictionaries(st.integers(1, 99), st.text(min_size=1), max_size=5).filter(
        lambda names: len(set(names.values())) == len(names)
    )
)
def test_any_name_is_read_back_by_protobuf_and_by_us(names: dict[int, str]) -> None:
    stored = {number: name.encode("utf-8", "replace").decode() for number, name in names.items()}
    text = label_map_text(dict(sorted(names.items())), {})
    assert _parsed(text) == [(number, name, "") for number, name in sorted(stored.items())]
    if names and len(set(stored.values())) == len(names):
        assert read_label_map(text) == stored


FILE = """\ufeff# Classes
item {
  name: "/m/01g317"  # a code
  id: 1
  display_name: "person"
  keypoints { id: 1 label: "nose" }
  keypoints: [ { id: 2, label: 'eye' }, < id: 3; label: "ear" > ]
  ancestor_ids: ["/m/a", "/m/b"]
}
item: { id: 18, name: 'do' "g" }; item < id: 90 display_name: "caf\\303\\251 \\x41\\n\\'" >
"""


def test_what_files_of_the_field_have() -> None:
    assert read_label_map(FILE) == {1: "/m/01g317", 18: "dog", 90: "café A\n'"}
    assert read_label_texts(FILE) == {"/m/01g317": "person"}
    by_protobuf = _parsed(FILE.removeprefix("\ufeff"))
    assert [(number, name or display) for number, name, display in by_protobuf] == list(
        read_label_map(FILE).items()
    )
    assert read_label_map("item: [{id: 1 name: 'a'}, {id: 2 name: 'b'}]") == {1: "a", 2: "b"}
    assert read_label_map(r"item { id: 1 name: '\u00e9\U0001F600' }") == {1: "é\U0001f600"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: there is no item; each class needs item { id: 1 name: 'its name' }"),
        ("item { id: 1 }", "line 1: this item has neither name nor display_name"),
        ("\nitem { name: 'a' }", "line 2: this item has no id; it must be an integer from 0 to 2147483647"),
        ("item { id: -1 name: 'a' }", "line 1: this item has id -1; it must be an integer from 0"),
        ("item { id: 2147483648 name: 'a' }", "line 1: this item has id 2147483648"),
        ("item { id: 99999999999999 name: 'a' }", "line 1: this item has id 99999999999999"),
        ("item { id: one name: 'a' }", "line 1: this item has id one"),
        ("item {id: 1 name: 'a'}\nitem {id: 1 name: 'b'}", "line 2: id 1 is also the item's in line 1"),
        ("item {id: 1 name: 'a'}\nitem {id: 2 name: 'a'}", "line 2: name 'a' is also the item's in line 1"),
        ("item {id: 1 name: 'a'} item {id: 1 name: 'b'}", "line 1: id 1 is also the item's in line 1"),
        ("item: [{id: 1 name: 'a'}, {id: 2 name: 'a'}]", "line 1: name 'a' is also the item's in line 1"),
        ("person\ndog\n", "line 1: expected item { … }, got person"),
        ("item { id: 1\n name: 'a }", "line 2: String missing ending quote"),
        ("item { id: 1\n name: 'a'\n", "line 3: expected the name of a field, or }, got the end of the file"),
        ("item {\n id: : 1 }", "line 2: expected a value, got :"),
        ("item {\n id 1 }", "line 2: expected :, got 1"),
        ("item\n(id)", "line 2: expected {, got ("),
        ("item { 'id': 1 }", "line 1: expected the name of a field, or }, got 'id'"),
        (r"item { id: 1 name: '\UFFFFFFFF' }", "line 1: 'rawunicodeescape' codec can't decode bytes"),
        (r"item { id: 1 name: '\377' }", "line 1: Couldn't parse string: 'utf-8' codec"),
        ("item { a " + "{ a " * 5000, "line 1: messages are nested deeper than 20"),
        ("item { a: " + "[" * 5000, "line 1: lists are nested deeper than 20"),
    ],
)
def test_bad_label_maps_name_the_line(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_label_map(text)
    assert str(caught.value).startswith(message)


_BASE = "item { id: 1 name: 'a' keypoints { id: 2 label: 'x' } } item { id: 2, name: 'c' 'd' }"


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, len(_BASE) - 1), st.sampled_from("{}<>[]:,;'\"\\# \n1-ax")), max_size=3)
)
def test_a_damaged_file_is_refused_or_read_as_protobuf_reads_it(changes: list[tuple[int, str]]) -> None:
    characters = list(_BASE)
    for place, character in changes:
        characters[place] = character
    text = "".join(characters)
    try:
        ours = read_label_map(text)
        theirs = {number: name for number, name, _ in _parsed(text)}
    except (ValueError, text_format.ParseError):  # fields that protobuf does not know are nothing to us
        return
    assert theirs == ours
