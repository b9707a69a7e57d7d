"""The images of COCO annotation files, and where the annotations of each are: on disk, not in memory."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import json
import math
from array import array
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from recordmill.transforms.records import BadInput, Failure, FeatureValue
from recordmill.transforms.sources.coco.categories import CocoClasses
from recordmill.transforms.sources.coco.files import CocoFile
from recordmill.transforms.sources.coco.images import CocoPlaces
from recordmill.transforms.sources.coco.json_sections import Element, JsonSections
from recordmill.transforms.sources.coco.spool import AnnotationSpool, Spooled
from recordmill.transforms.sources.names import is_unicode, printable
from recordmill.transforms.storage.confinement import LocatedFile
from recordmill.transforms.storage.files import open_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Sorted = tuple[NDArray[np.intp], NDArray[np.intp]]  # annotations by row, and where each row's begin

# Of an image's entry, what is no free feature.
_KNOWN = frozenset(
    ("id", "file_name", "width", "height", "license", "coco_url", "flickr_url", "date_captured", "url")
)
_NO_ROW = -1
_NO_FEATURES: Mapping[str, FeatureValue] = {}


@dataclasses.dataclass(slots=True)
class CocoImage:
    """An image that files list; filled as they are read.

    Attributes:
        name: as the first of them calls it.
        source_id: its id in the first of them.
        file: number of the first of them.
        place: where it is, or why that is not known.
        size: (height, width), or None.
        features: further values of its entry.
        fault: why it cannot be a record all the same.
    """

    name: str
    source_id: int | str
    file: int
    place: LocatedFile | BadInput
    size: tuple[int, int] | None
    features: Mapping[str, FeatureValue]
    fault: BadInput | None = None

    @property
    def key(self) -> str:
        """Key of its record."""
        return printable(self.name) if isinstance(self.place, BadInput) else self.place.key


class _Entry(NamedTuple):
    """A valid entry of `images`."""

    id: int | str
    name: str
    size: tuple[int, int] | None
    features: Mapping[str, FeatureValue]


class CocoIndex:
    """The images of the files of one split, each once, however many files list it.

    Args:
        spool: where annotations go.
        places: finds images.
        classes: that categories are added to.
        include: what of `masks`, `keypoints` and `captions` is taken.

    Attributes:
        images: in the order in which they were listed.
        rows: number in `images` by key; images that are not there have a key with a NUL.
        files: that were read, in order.
    """

    def __init__(
        self, spool: AnnotationSpool, places: CocoPlaces, classes: CocoClasses, include: tuple[str, ...]
    ) -> None:
        self.images: list[CocoImage] = []
        self.rows: dict[str, int] = {}
        self.files: list[CocoFile] = []
        self._spool = spool
        self._places = places
        self._classes = classes
        self._include = include
        self._starts: list[int] = []  # of the files in the spool
        self._row = array("i")  # by annotation, as the two below
        self._offset = array("q")
        self._length = array("i")
        self._sorted: _Sorted | None = None

    def read(self, file: CocoFile) -> Iterator[Failure]:
        """Reads a file once, sections in any order; yields what belongs to no image.

        Raises:
            JobError: it is broken; or the disk is full.
            OSError: it cannot be read.
        """
        self.files.append(file)
        self._starts.append(self._spool.size)
        numbers = _ImageNumbers()
        first = len(self._row)
        counts: collections.Counter[str] = collections.Counter()
        with open_file(file.path) as stream:
            for element in JsonSections(stream, file.path).elements():
                counts[element.section] += 1
                try:
                    self._take(element, numbers)
                except BadInput as fault:
                    name = _named(element.section, element.value, f"number {counts[element.section]}")
                    yield Failure(f"{file.name}:{name}", fault.stage, fault.reason, printable(fault.detail))
        for at in range(first, len(self._row)):
            number = self._row[at]
            self._row[at] = numbers.rows[number]
            if self._row[at] == _NO_ROW:
                yield self._without_image(at, numbers.id_of(number))

    def annotations(self, row: int) -> Iterator[Spooled]:
        """The annotations of an image, file by file, each in its order."""
        order, bounds = self._sorted or self._sort()
        for at in order[bounds[row] : bounds[row + 1]].tolist():
            offset = self._offset[at]
            yield Spooled(self._file_at(offset), self._spool.read(offset, self._length[at]))

    def _file_at(self, offset: int) -> int:
        return bisect.bisect_right(self._starts, offset) - 1

    def _sort(self) -> _Sorted:
        import numpy as np

        self._spool.flush()
        rows = np.array(self._row, np.int32)
        order = np.argsort(rows, kind="stable")
        self._sorted = order, np.searchsorted(rows[order], np.arange(len(self.images) + 1))
        return self._sorted

    def _take(self, element: Element, numbers: _ImageNumbers) -> None:
        """Takes an element of the file that is read. Raises BadInput where it cannot be used."""
        if element.section == "images":
            self._list(_entry(element.value), numbers)
        elif element.section == "annotations":
            self._row.append(numbers.number(_image_id(element.value)))
            self._offset.append(self._spool.size)
            self._length.append(self._spool.add(_kept(element, self._include)))
        elif element.section == "categories":
            self._classes.add(element.value, self.files[-1].name)

    def _list(self, entry: _Entry, numbers: _ImageNumbers) -> None:
        """Takes an image of the file that is read. Raises BadInput where it lists that twice."""
        number = numbers.number(entry.id)
        if numbers.rows[number] != _NO_ROW:
            other = self.images[numbers.rows[number]].name
            detail = f"{other!r} and {entry.name!r} have the id {entry.id!r}"
            raise BadInput("annotations", "image id twice", detail)
        place: LocatedFile | BadInput
        try:
            place = self._places.image(self.files[-1], entry.name)
            key = place.key
        except BadInput as fault:
            place, key = fault, f"\0{entry.name}"
        row = self.rows.setdefault(key, len(self.images))
        if row in numbers.listed:
            detail = f"{entry.name!r} has the ids {numbers.id_of(numbers.listed[row])!r} and {entry.id!r}"
            raise BadInput("annotations", "image twice", detail)
        if row == len(self.images):
            self.images.append(
                CocoImage(entry.name, entry.id, len(self.files) - 1, place, entry.size, entry.features)
            )
        else:
            _join(self.images[row], entry)
        numbers.rows[number] = row
        numbers.listed[row] = number

    def _without_image(self, at: int, image: int | str) -> Failure:
        self._spool.flush()
        known = self._spool.read(self._offset[at], self._length[at])
        name = _named("annotations", known, f"of image {image}")
        detail = f"the file lists no image with the id {image!r}"
        key = printable(f"{self.files[-1].name}:{name}")
        return Failure(key, "annotations", "annotation without its image", printable(detail))


class _ImageNumbers:
    """The image ids of one file, numbered as they are met, be it in an annotation before its image.

    Attributes:
        rows: of the index, by number; -1 where the image was not listed yet.
        listed: numbers by row.
    """

    def __init__(self) -> None:
        self._numbers: dict[int | str, int] = {}
        self._ids: list[int | str] = []
        self.rows = array("i")
        self.listed: dict[int, int] = {}

    def number(self, image: int | str) -> int:
        """The number of an image id."""
        number = self._numbers.setdefault(image, len(self.rows))
        if number == len(self.rows):
            self.rows.append(_NO_ROW)
            self._ids.append(image)
        return number

    def id_of(self, number: int) -> int | str:
        """The image id of a number."""
        return self._ids[number]


def _entry(value: Any) -> _Entry:
    """An entry of `images`. Raises BadInput where it has no id or name."""
    if not isinstance(value, dict):
        raise BadInput("annotations", "image is not an object", str(value)[:100])
    image = _id(value.get("id"))
    if image is None:
        raise BadInput("annotations", "image without an id", f"id is {value.get('id')!r}")
    name, url = value.get("file_name"), value.get("coco_url")
    if name is None and isinstance(url, str):
        name = "/".join(url.split("/")[-2:])  # LVIS names images by their URL alone: .../train2017/1.jpg
    if not isinstance(name, str) or not name.strip():
        raise BadInput("annotations", "image without a file name", f"file_name is {value.get('file_name')!r}")
    sides = [int(side) for side in (value.get("height"), value.get("width")) if _is_length(side)]
    size = (sides[0], sides[1]) if len(sides) == 2 else None
    features = {
        key: item
        for key, item in value.items()
        if key not in _KNOWN and isinstance(item, str | int | float) and is_unicode(f"{key}{item}")
    }
    return _Entry(image, name, size, features or _NO_FEATURES)


def _is_length(side: object) -> TypeGuard[int | float]:
    return isinstance(side, int | float) and 0 < side < math.inf and side == int(side)


def _join(image: CocoImage, entry: _Entry) -> None:
    """Adds what another file tells of an image."""
    if image.size and entry.size and image.size != entry.size:
        sizes = " and ".join(f"{width} x {height}" for height, width in (image.size, entry.size))
        image.fault = BadInput("annotations", "annotation files disagree on the size", sizes)
    image.size = image.size or entry.size
    if entry.features:
        image.features = {**entry.features, **image.features}


def _image_id(annotation: Any) -> int | str:
    """The image that an annotation is of. Raises BadInput where it tells none."""
    if not isinstance(annotation, dict):
        raise BadInput("annotations", "annotation is not an object", str(annotation)[:100])
    image = _id(annotation.get("image_id"))
    if image is None:
        raise BadInput(
            "annotations", "annotation without an image id", f"image_id is {annotation.get('image_id')!r}"
        )
    return image


def _id(value: object) -> int | str | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return value if isinstance(value, int) or is_unicode(value) else None


def _kept(element: Element, include: tuple[str, ...]) -> str:
    """The JSON of an annotation: the whole, or without outlines that nobody asked for."""
    value = element.value
    if "segmentation" not in value or "masks" in include or not value.get("bbox"):
        return element.text
    return json.dumps({key: item for key, item in value.items() if key != "segmentation"})


def _named(section: str, value: Any, otherwise: str) -> str:
    """What messages call an element of a list: by its id where it has one."""
    kind = section.removesuffix("s")
    number = _id(value.get("id")) if isinstance(value, dict) else None
    return printable(f"{kind} {otherwise if number is None else number}")
