"""A dataset as a tf.data input pipeline: `load_dataset`. Needs TensorFlow, and no Beam.

train = load_dataset("out/", "train", size=(224, 224), batch_size=32, shuffle=True, as_supervised=True)
model.fit(train, epochs=5)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from recordmill.pipelines.input.splits import Piece, counted, known_records, pieces_of
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.reading.dataset import Dataset, class_names, find_dataset
from recordmill.transforms.reading.inference import sample_records, specs_of

if TYPE_CHECKING:
    import tensorflow as tf

    from recordmill.pipelines.input.elements import Lists
    from recordmill.pipelines.input.plan import Resize
    from recordmill.pipelines.input.shards import ShardBy


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """The description of a dataset.

    Attributes:
        splits: number of records by split; None if neither a manifest nor an index contains it.
        features: types of the features by stored name; for sequences, of the context.
        feature_lists: types of one step of each list, for sequences.
        class_names: class names by stored id: `class_names[label]`. Empty if the dataset has none.
    """

    splits: Mapping[str, int | None]
    features: Mapping[str, FeatureSpec]
    feature_lists: Mapping[str, FeatureSpec]
    class_names: tuple[str, ...]


def dataset_info(path: str) -> DatasetInfo:
    """Reads the description of a dataset from its metadata; `path` is as for `load_dataset`.

    Raises:
        ValueError: there is nothing to read.
    """
    dataset = find_dataset(path)
    specs = specs_of(dataset, sample_records(dataset) if dataset.manifest is None else ())
    splits = {
        name: known_records([Piece(shard) for shard in shards])
        for name, shards in counted(dataset.splits).items()
    }
    return DatasetInfo(splits, specs.features, specs.feature_lists, class_names_of(dataset))


def class_names_of(dataset: Dataset) -> tuple[str, ...]:
    """Class names by stored id; an id that no class has is `unused_<id>`."""
    return LabelMap({}, class_names(dataset).names).class_names() or ()


def load_dataset(
    path: str,
    split: str = "train",
    *,
    decode: bool = True,
    size: int | tuple[int, int] | None = None,
    resize: Resize = "stretch",
    antialias: bool = False,
    channels: int | None = None,
    dtype: str | None = None,
    features: Sequence[str] | None = None,
    lists: Lists = "ragged",
    batch_size: int | None = None,
    drop_remainder: bool = False,
    shuffle: bool | int = False,
    seed: int | None = None,
    repeat: bool | int = False,
    as_supervised: bool = False,
    one_hot: bool | int = False,
    deterministic: bool | None = None,
    shard: tuple[int, int] | None = None,
    shard_by: ShardBy = "auto",
) -> tf.data.Dataset:
    """The records of a split, parsed and decoded, as a tf.data.Dataset of dicts.

    The keys are the names of the stored features, except that the four lists of box edges become one tensor.
    `recordmill schema` prints plain TensorFlow code that returns the same tensors. In the table, h, w and c
    are the height, width and channels of an image, n is the number of objects, and T the number of steps of a
    sequence:

    | feature | element_spec, of one record |
    |---|---|
    | the image (`image/encoded`, `image_raw`) | uint8 or uint16 (h, w, c); its bytes with `decode=False` |
    | a mask of classes (`image/segmentation/class/encoded`, …) | uint8 (h, w, 1); 255 means ignore |
    | a mask of instances (`image/panoptic/instance/encoded`, …) | uint16 (h, w, 1); 0 means none |
    | boxes (`image/object/bbox`, `…/part/bbox`) | float32 (n, 4): ymin, xmin, ymax, xmax in [0, 1] |
    | masks of objects (`image/object/mask`) | uint8 (n, h, w); 1 on the object, otherwise 0 |
    | classes, areas, … of objects | (n,); the key points of all objects are in one list |
    | `image/height`, `image/width` | int64 (): size of the stored image; `size` does not change it |
    | the label, with `one_hot` | float32 (classes,): 1 for each label of the record |
    | a feature of one value | its dtype, () |
    | a feature of any number of values | its dtype, (None,) |
    | a list of a sequence | shape of one step, after T; a RaggedTensor if a step has any number of values |
    | frames of a sequence | uint8 or uint16 (T, h, w, c) |

    If a list and a context feature of a sequence have the same name, the key of the context feature is
    `context/<name>`. `batch_size` adds the batch as the first dimension of all shapes. h and w are defined if
    `size` is given, or if all images have one size. `as_supervised` returns pairs of the image (or frames)
    and a target: the label; the mask if there are no labels; the dict of all `image/object/…` if there are no
    masks either.

    Order of processing: shards are shuffled; records of several shards are interleaved and shuffled; then
    parsed, decoded and resized in parallel; batched; repeated; prefetched. The dataset has a cardinality if a
    manifest or an index contains the number of records. Then exactly this number is read, or an error is
    raised.

    `tf.distribute` splits the dataset between workers by files if there are at least as many shards as
    workers, otherwise by records. If `shard` is given, it does not split the dataset.

    Args:
        path: the folder of a dataset, or of its versions (the version in latest.json is read); a folder of
            TFRecords without a manifest, one file, or a pattern such as `out/train-*` or
            `out/train@16.tfrecord`; local or `gs://`; uncompressed, gzip or zlib. Without a manifest, the
            first records of each split determine the names and dtypes of features.
        split: `train`, `train[:90%]`, `train[100:200]`, `train[-10%:]`, `train+val`, `all`. Percentages
            are rounded to records, as in TFDS. If the dataset has metadata, only the shards of the split are
            read. Files without a split in their names belong to `train`.
        decode: whether to decode images and masks to pixels. Shapes are compared with the stored shapes.
            EXIF orientation is ignored, because `recordmill convert` has applied it. Only the first frame of
            an animation is read.
        size: height and width of images and masks, or one number for both; boxes and key points are adjusted.
        resize: `stretch`: tf.image.resize; `pad`: tf.image.resize_with_pad; `crop_or_pad`:
            tf.image.resize_with_crop_or_pad, which does not scale. Images are scaled bilinearly and rounded
            to their dtype. Masks use the nearest pixel; class masks are padded with 255 (ignore), others with
            0. A crop clips boxes, and drops objects that are outside, with their values in all lists.
        antialias: `antialias` of tf.image.resize, for scaling down.
        channels: 1, 3 or 4 converts all images to this number; 0 keeps the channels of each image. None: 1 if
            all images are grey, 4 if some have alpha, otherwise 3, according to features.json or the first
            records; an image that would lose colour or alpha is then an error.
        dtype: dtype of pixels: `uint8` or `uint16`. None: the stored dtype, according to features.json or the
            first records; an image that would lose bits is then an error.
        features: names of the tensors to read, as in the table; other features are not parsed.
        lists: how to batch lists of different lengths: `ragged`, or `padded` with -1, 0.0 and b"".
        batch_size: records in a batch. Images in a batch must have the same size; otherwise, give `size`.
        drop_remainder: whether to drop the last batch if it is smaller.
        shuffle: whether to shuffle shards and records in each epoch; or the number of records in the shuffle
            buffer. True: as many undecoded records as fit into 256 MB, at most 50,000.
        seed: seed of the shuffle. With a seed, each run has the same order, unless `deterministic=False`. The
            default is 0 if TF_CONFIG names several workers.
        repeat: True for endless epochs, or the number of epochs.
        as_supervised: whether to return pairs instead of dicts, for `fit` of Keras.
        one_hot: whether to return the label as a vector with the length of `class_names`; or the number of
            classes.
        deterministic: whether each run has the same order. None: yes, unless shuffled without a seed. True
            without `shuffle`: the stored order, shard by shard.
        shard: (number of workers, index of this worker): reads only the part of this worker, such as
            `(context.num_input_pipelines, context.input_pipeline_id)`.
        shard_by: `file`: each worker reads its own shards; `record`: each worker reads the same number of
            records, plus or minus one; `auto`: `file` if there are at least as many shards as workers,
            otherwise `record`.

    Returns:
        The dataset. Its `class_names` holds the class names by stored id; it is empty if there are none.

    Raises:
        ImportError: TensorFlow is not installed.
        ValueError: an argument is wrong, or there is nothing to read. The message has a correct value.
        tf.errors.InvalidArgumentError: during reading, if an image is damaged, does not have its stored
            shape, or cannot be converted. The message has the key of the record, except for small PNGs that
            are damaged between their header and their end.
        tf.errors.DataLossError: during reading, if a shard is damaged.
    """
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError("load_dataset needs TensorFlow: pip install 'recordmill[tensorflow]'") from error
    from recordmill.pipelines.input.elements import Batching, elements_of
    from recordmill.pipelines.input.plan import Asked, plan_of
    from recordmill.pipelines.input.shards import Worker, auto_shard_policy, records_of

    asked = Asked(decode, size, resize, antialias, channels, dtype, features, as_supervised, one_hot)
    batching = Batching(batch_size, drop_remainder, lists)
    worker = Worker(shard, shard_by, shuffle, seed, repeat, deterministic)
    dataset = find_dataset(path)
    pieces = pieces_of(dataset, split)
    names = class_names_of(dataset)
    plan = plan_of(dataset, pieces, asked, names, batching.batch_size is not None)
    records = records_of(pieces, worker)
    found = elements_of(records, plan, batching)
    if repeat is not False:
        found = found.repeat(None if repeat is True else repeat)
    options = tf.data.Options()
    options.deterministic = worker.is_deterministic
    options.experimental_distribute.auto_shard_policy = auto_shard_policy(pieces, worker)
    found = found.prefetch(tf.data.AUTOTUNE).with_options(options)
    found.class_names = names
    return found
