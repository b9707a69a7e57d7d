"""The messages of tf.train by protobuf, without TensorFlow, whose import takes seconds.

The classes come from descriptors in a private pool: a second definition in the default pool would clash with
TensorFlow's when both are imported.
Source of the format: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "recordmill"
_Field = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="recordmill/example.proto", package=_PACKAGE, syntax="proto3"
    )
    scalars = {"BytesList": _Field.TYPE_BYTES, "FloatList": _Field.TYPE_FLOAT, "Int64List": _Field.TYPE_INT64}
    for name, field_type in scalars.items():
        message = file.message_type.add(name=name)
        message.field.add(name="value", number=1, type=field_type, label=_Field.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(scalars, 1):
        field = _message_field(feature, name.replace("List", "_list").lower(), number, name)
        field.oneof_index = 0
    feature_list = file.message_type.add(name="FeatureList")
    _message_field(feature_list, "feature", 1, "Feature").label = _Field.LABEL_REPEATED
    _map_message(file, "Features", "feature", "Feature")
    _map_message(file, "FeatureLists", "feature_list", "FeatureList")
    _message_field(file.message_type.add(name="Example"), "features", 1, "Features")
    sequence = file.message_type.add(name="SequenceExample")
    _message_field(sequence, "context", 1, "Features")
    _message_field(sequence, "feature_lists", 2, "FeatureLists")
    return file


def _message_field(
    message: descriptor_pb2.DescriptorProto, name: str, number: int, type_name: str
) -> descriptor_pb2.FieldDescriptorProto:
    """Adds a field that holds another message."""
    return message.field.add(
        name=name,
        number=number,
        type=_Field.TYPE_MESSAGE,
        type_name=f".{_PACKAGE}.{type_name}",
        label=_Field.LABEL_OPTIONAL,
    )


def _map_message(file: descriptor_pb2.FileDescriptorProto, name: str, field: str, value: str) -> None:
    """Adds a message whose one field is `map<string, value> field = 1`."""
    message = file.message_type.add(name=name)
    entry = message.nested_type.add(name=field.title().replace("_", "") + "Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    _message_field(entry, "value", 2, value)
    _message_field(message, field, 1, f"{name}.{entry.name}").label = _Field.LABEL_REPEATED


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


Example = _class("Example")
SequenceExample = _class("SequenceExample")
Features = _class("Features")
FeatureLists = _class("FeatureLists")
FeatureList = _class("FeatureList")
FeatureMessage = _class("Feature")
BytesList = _class("BytesList")
FloatList = _class("FloatList")
Int64List = _class("Int64List")
