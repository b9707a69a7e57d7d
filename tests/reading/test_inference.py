"""What records have in common is told by the first ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.reading.dataset import find_dataset
from recordmill.transforms.reading.inference import image_name, infer_specs, sample_images
from tests.protos import (
    BytesList,
    Example,
    FeatureList,
    FeatureLists,
    FeatureMessage,
    Features,
    FloatList,
    Int64List,
    SequenceExample,
)


def feature(*values: Any) -> Any:
    if not values:
        return FeatureMessage()
    if isinstance(values[0], bytes):
        return FeatureMessage(bytes_list=BytesList(value=values))
    if isinstance(values[0], float):
        return FeatureMessage(float_list=FloatList(value=values))
    return FeatureMessage(int64_list=Int64List(value=values))


def example(**features: tuple[Any, ...]) -> bytes:
    found = {name.replace("_in_", "/"): feature(*values) for name, values in features.items()}
    data: bytes = Example(features=Features(feature=found)).SerializeToString()
    return data


@pytest.mark.parametrize(
    ("values", "spec"),
    [
        ([(1,), (2,)], FeatureSpec("int64")),
        ([(1.5,), (2.5,)], FeatureSpec("float32")),
        ([(b"a",), (b"",)], FeatureSpec("string")),
        ([(1,), (2, 3)], FeatureSpec("int64", (None,))),
        ([(1, 2), (2, 3)], FeatureSpec("int64", (None,))),
        ([(1,), ()], FeatureSpec("int64", (None,))),
        ([(), ()], None),
    ],
)
def test_kinds_and_shapes(values: list[tuple[Any, ...]], spec: FeatureSpec | None) -> None:
    found = infer_specs([example(a=one) for one in values])
    assert found.features == ({} if spec is None else {"a": spec})
    assert found.feature_lists == {}


def test_a_feature_that_some_lack_is_a_list() -> None:
    found = infer_specs([example(a=(1,), b=(1,)), example(a=(1,))])
    assert found.features == {"a": FeatureSpec("int64"), "b": FeatureSpec("int64", (None,))}


def test_values_of_objects_are_lists_though_there_is_one_of_each() -> None:
    name = "image/object/bbox/xmin"
    found = infer_specs([example(image_in_object_in_bbox_in_xmin=(0.5,))] * 2)
    assert found.features == {name: FeatureSpec("float32", (None,))}


def test_sequences() -> None:
    lists = {
        "frame": FeatureList(feature=[feature(b"a"), feature(b"b")]),
        "words": FeatureList(feature=[feature(b"a", b"b"), feature(b"c")]),
        "none": FeatureList(),
    }
    sequence = SequenceExample(
        context=Features(feature={"label": feature(1)}), feature_lists=FeatureLists(feature_list=lists)
    )
    found = infer_specs([sequence.SerializeToString()])
    assert found.features == {"label": FeatureSpec("int64")}
    assert found.feature_lists == {"frame": FeatureSpec("string"), "words": FeatureSpec("string", (None,))}


@pytest.mark.parametrize(
    ("payloads", "message"),
    [
        ([], "there is no record"),
        ([b"\xff\xff"], "record 0 is not a tf.train.Example"),
        ([example(a=(1,)), example(a=(b"x",))], "'a' is bytes in one record and int64 in another"),
    ],
)
def test_what_cannot_be_told(payloads: list[bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        infer_specs(payloads)


PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


@pytest.mark.parametrize(
    ("features", "name", "codec", "dtype"),
    [
        ({"image": (PNG,)}, "image", "image", "uint8"),
        ({"jpeg": (PNG[:24] + b"\x10" + PNG,)}, "jpeg", "image", "uint16"),
        ({"image_raw": (bytes(6),), "height": (2,), "width": (3,)}, "image_raw", "raw", "uint8"),
        (
            {"image_raw": (bytes(12),), "height": (2,), "width": (3,), "dtype": (b"uint16",)},
            "image_raw",
            "raw",
            "uint16",
        ),
        # not 2 x 3 pixels with alpha
        ({"image_raw": (bytes(24),), "height": (2,), "width": (3,), "dtype": (b"float32",)}, None, "", ""),
        ({"image": (b"path/of/a.jpg",)}, None, "", ""),
        ({"label": (1,)}, None, "", ""),
    ],
)
def test_images_are_found_by_what_they_are(
    tmp_path: Path, features: dict[str, tuple[Any, ...]], name: str | None, codec: str, dtype: str
) -> None:
    (tmp_path / "a.tfrecord").write_bytes(b"")
    dataset = find_dataset(str(tmp_path))
    payloads = [example(**features)]
    assert image_name(infer_specs(payloads), dataset, payloads) == name
    if name:
        [image] = sample_images(payloads, name, dataset)
        assert (image.codec, image.dtype, image.data) == (codec, dtype, features[name][0])
