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
        splits: number of records of each; None where neither a manifest nor an index has it.
        features: of each record by stored name, of a sequence its context.
        feature_lists: of sequences, one step of each list.
        class_names: by stored id: `class_names[label]`. Empty if the dataset has none.
    """

    splits: Mapping[str, int | None]
    features: Mapping[str, FeatureSpec]
    feature_lists: Mapping[str, FeatureSpec]
    class_names: tuple[str, ...]


def dataset_info(path: str) -> DatasetInfo:
    """The description of the dataset at a path, as `load_dataset` takes it, from its metadata.

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

    The names are those of the stored features, except that the four lists of box edges become one tensor.
    `recordmill schema` prints plain TensorFlow code that gives the same tensors. With h, w, c for the height,
    width and channels of an image, n for the objects of a record, T for the steps of a sequence:

    | feature | element_spec, of one record |
    |---|---|
    | the image (`image/encoded`, `image_raw`) | uint8 or uint16 (h, w, c); its bytes with `decode=False` |
    | a mask of classes (`image/segmentation/class/encoded`, …) | uint8 (h, w, 1); 255 means ignore |
    | a mask of instances (`image/panoptic/instance/encoded`, …) | uint16 (h, w, 1); 0 means none |
    | boxes (`image/object/bbox`, `…/part/bbox`) | float32 (n, 4): ymin, xmin, ymax, xmax in [0, 1] |
    | masks of objects (`image/object/mask`) | uint8 (n, h, w), 1 where the object is |
    | classes, areas, … of objects | (n,); key points of all objects in one list |
    | `image/height`, `image/width` | int64 (), of the stored image, whatever `size` is |
    | the label, with `one_hot` | float32 (classes,); of several labels each is 1 |
    | a feature of one value | its dtype, () |
    | a feature of any number of values | its dtype, (None,) |
    | a list of a sequence | as one step with T before it; a RaggedTensor if a step has any number of values |
    | frames of a sequence | uint8 or uint16 (T, h, w, c) |

    If a list of a sequence has the name of a feature of its context, the latter is `context/<name>`.
    `batch_size` puts the batch before all shapes; h and w are defined with `size`, or if all images have one
    size. `as_supervised` makes pairs of the image (or frames) and a target: the label; without labels the
    mask; without masks the dict of all `image/object/…`.

    Order of the steps: shards, shuffled; records of several shards interleaved, shuffled; parsed, decoded
    and resized in parallel; batched; repeated; prefetched. The number of elements is defined wherever a
    manifest or an index has the number of records; then exactly that many are read, or an error is raised.

    `tf.distribute` splits the dataset between workers by files if there are at least as many shards as
    workers, and by records otherwise; with `shard` it does not split.

    Args:
        path: a dataset's folder, or the folder of its versions, of which latest.json names the one that is
            read; a folder of TFRecords without a manifest, one file or a pattern such as `out/train-*` or
            `out/train@16.tfrecord`; local or `gs://`; uncompressed, gzip or zlib. Without a manifest, names
            and dtypes of features are those of the first records of each split.
        split: `train`, `train[:90%]`, `train[100:200]`, `train[-10%:]`, `train+val`, `all`; per cent are
            rounded to records as TFDS does. Of a dataset with metadata, no other shards are read. Files
            whose names have no split are `train`.
        decode: whether images and masks become pixels, whose shapes are compared with the stored ones. EXIF
            orientation is ignored, because `recordmill convert` has applied it. Of animations the first
            frame is read.
        size: height and width of images and masks, or one number for both; boxes and key points are adjusted.
        resize: `stretch`: tf.image.resize; `pad`: tf.image.resize_with_pad; `crop_or_pad`:
            tf.image.resize_with_crop_or_pad, which does not scale. Bilinear, rounded to the image's dtype;
            masks by the nearest pixel, padded with 255 (ignore) for classes, else 0. A crop clips boxes;
            objects that are outside are dropped, with their values in all lists.
        antialias: of tf.image.resize, when scaling down.
        channels: 1, 3 or 4, to which images are converted; 0 to keep those of each image. None: 1 if all
            images are grey, 4 if some have alpha, else 3; by features.json, else by the first records. An
            image that would lose colour or alpha by that is an error.
        dtype: of pixels: `uint8` or `uint16`. None: as stored, by features.json, else by the first records;
            an image that would lose bits by that is an error.
        features: names of the tensors that are read, as in the table; others are not parsed.
        lists: how lists of different lengths are batched: `ragged`, or `padded` with -1, 0.0 and b"".
        batch_size: records in a batch. Images must have one size: give `size` if they have several.
        drop_remainder: whether to drop a last batch that has fewer.
        shuffle: whether to shuffle shards and records in each epoch; or a number, the records of the
            shuffle buffer. True is as many as take 256 MB, 50,000 at most. They wait undecoded.
        seed: of the shuffle; with one, each run yields the same order, unless `deterministic=False`. If
            TF_CONFIG names several workers, it is 0 by default.
        repeat: True for endless epochs, or their number.
        as_supervised: pairs instead of dicts, for Keras' `fit`.
        one_hot: the label as a vector, as long as `class_names`; or a number, the number of classes.
        deterministic: whether the order is the same in each run. None: unless shuffled without a seed.
            True without `shuffle` is the stored order, one shard after the other.
        shard: (number of workers, index of this one): the part of the split for one of several workers, as
            `(context.num_input_pipelines, context.input_pipeline_id)`.
        shard_by: `file`: each worker reads shards of its own; `record`: equally many records, to one more
            or less; `auto`: by file if there are at least as many shards as workers.

    Returns:
        The dataset. Its `class_names` are the names of classes by stored id, empty if the dataset has none.

    Raises:
        ImportError: TensorFlow is not installed.
        ValueError: an argument is wrong, or there is nothing to read; names it and a correct value.
        tf.errors.InvalidArgumentError: while reading: an image is damaged, does not have its stored shape, or
            cannot be converted as asked; names the record's key, except for small PNGs that are damaged
            between head and end.
        tf.errors.DataLossError: while reading: a shard is damaged.
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
