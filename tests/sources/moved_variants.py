"""Other ways to give a dataset: folders around it, links, a piece missing; and a verdict on each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tests.sources.moved_cases import CASES, Case, Expected, Missing, Refused, piece_removed
from tests.sources.moved_reading import Reading, difference, leads_to, misleading, read
from tests.sources.moved_trees import Tree, lay_out, link_files, pack

Verdict = Literal[
    "same", "stated", "single class", "leads on", "refused", "DEAD END", "MISLEADS", "LESS", "CRASH"
]
"""The verdicts.

`same`: equal to the reference. `stated`: equal to what the case states for a missing piece. `single class`: a
flat folder of images, in a folder, is one class. `refused`: as the case states. Refused, and a call that the
message names gives the reference (`leads on`), gives something else (`MISLEADS`), or none gives it
(`DEAD END`). `LESS`: read, and different from the reference.
"""

_MANY = 250  # folders
_FIGURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c6360"
    "6060000000040001f61738550000000049454e44ae426082"
)
GOOD: frozenset[Verdict] = frozenset(("same", "stated", "single class", "leads on", "refused"))
"""Verdicts under which the user has the dataset, or no dataset and a way to it."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The verdict on a variant.

    Attributes:
        case: the dataset.
        variant: how it was given.
        verdict: on it.
        detail: the difference, or the message.
        argv: of the call.
    """

    case: str
    variant: str
    verdict: Verdict
    detail: str
    argv: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Given:
    """A call on a tree that is laid out.

    Attributes:
        argv: of the call.
        images: the folder that a user knows to hold the images, for `--image_root`.
    """

    argv: tuple[str, ...]
    images: str | None = None


def call(case: Case, root: Path, given: Path | None = None, *flags: str) -> tuple[str, ...]:
    """The call on a dataset.

    Args:
        case: the dataset.
        root: its folder.
        given: the folder that is given instead of it.
        flags: further ones.
    """
    ours = (flag.format(root=root) for flag in case.flags)
    return ("--input", str(given or root / case.input), *ours, *flags)


def reference(case: Case, corpus: Path, work: Path) -> Reading:
    """What is read by the call that is right."""
    root = lay_out(case.tree(corpus), work / "right")
    return read([flag.format(root=root) for flag in case.right] if case.right else call(case, root))


def _itself(case: Case, tree: Tree, work: Path) -> Given:
    return Given(call(case, lay_out(tree, work / "dataset")))


def _wrapped(case: Case, tree: Tree, work: Path) -> Given:
    return Given(call(case, lay_out(tree, work / "outer/dataset"), work / "outer"))


def _wrapped_twice(case: Case, tree: Tree, work: Path) -> Given:
    return Given(call(case, lay_out(tree, work / "outer/inner/dataset"), work / "outer"))


def _with_readme(case: Case, tree: Tree, work: Path) -> Given:
    given = _wrapped(case, tree, work)
    (work / "outer/README.md").write_text("# A dataset\n\nSee docs.\n")
    (work / "outer/docs").mkdir()
    return given


def _deep(case: Case, tree: Tree, work: Path) -> Given:
    return Given(call(case, lay_out(tree, work / "outer/1/2/3/4/dataset"), work / "outer"))


def _among_many(case: Case, tree: Tree, work: Path) -> Given:
    given = _wrapped(case, tree, work)
    for number in range(_MANY):
        (work / f"outer/about {number}").mkdir()
        (work / f"outer/about {number}/notes.md").write_text("Nothing to see.\n")
    return given


def _near_picture(case: Case, tree: Tree, work: Path) -> Given:
    given = _with_readme(case, tree, work)
    (work / "outer/docs/figure.png").write_bytes(_FIGURE)
    return given


def _linked(case: Case, tree: Tree, work: Path) -> Given:
    lay_out(tree, work / "store")
    root = link_files(work / "store", work / "links")
    return Given(call(case, root), str(work / "store"))


def _linked_with_root(case: Case, tree: Tree, work: Path) -> Given:
    given = _linked(case, tree, work)
    return dataclasses.replace(given, argv=(*given.argv, "--image_root", str(work / "store")))


def _linked_wrapped(case: Case, tree: Tree, work: Path) -> Given:
    lay_out(tree, work / "store")
    root = link_files(work / "store", work / "outer/dataset")
    return Given(call(case, root, work / "outer", "--image_root", str(work / "store")), str(work / "store"))


def _folder_linked(case: Case, tree: Tree, work: Path) -> Given:
    lay_out(tree, work / "store/real")
    (work / "outer").mkdir()
    (work / "outer/dataset").symlink_to(work / "store/real")
    return Given(call(case, work / "outer/dataset", work / "outer"), str(work / "store/real"))


def _folder_linked_with_root(case: Case, tree: Tree, work: Path) -> Given:
    given = _folder_linked(case, tree, work)
    return dataclasses.replace(given, argv=(*given.argv, "--image_root", str(work / "store/real")))


def _given_link(case: Case, tree: Tree, work: Path) -> Given:
    """The input itself is a link to the dataset."""
    lay_out(tree, work / "store/real")
    (work / "link").symlink_to(work / "store/real")
    return Given(call(case, work / "link"))


def _named(case: Case, tree: Tree, work: Path) -> Given:
    return _with_source(case, Given(call(case, lay_out(tree, work / "dataset"))))


def _named_wrapped(case: Case, tree: Tree, work: Path) -> Given:
    return _with_source(case, _wrapped(case, tree, work))


def _named_wrapped_twice(case: Case, tree: Tree, work: Path) -> Given:
    return _with_source(case, _wrapped_twice(case, tree, work))


def _zipped(case: Case, tree: Tree, work: Path) -> Given:
    return Given(call(case, work / "a.zip", pack(lay_out(tree, work / "dataset"), work / "a.zip")))


def _zipped_wrapped(case: Case, tree: Tree, work: Path) -> Given:
    archive = pack(lay_out(tree, work / "dataset"), work / "outer/a.zip", "dataset/")
    return Given(call(case, work / "outer", archive.parent))


def _tarred(case: Case, tree: Tree, work: Path) -> Given:
    return Given(
        call(case, work / "a.tar", pack(lay_out(tree, work / "dataset"), work / "a.tar", "dataset/"))
    )


def _with_source(case: Case, given: Given) -> Given:
    assert isinstance(case.expected, Expected)
    return dataclasses.replace(given, argv=(*given.argv, "--source", case.expected.source))


_NEAR_PICTURE = "next to a picture"
VARIANTS: Mapping[str, Callable[[Case, Tree, Path], Given]] = {
    "itself": _itself,
    "in one folder": _wrapped,
    "in two folders": _wrapped_twice,
    "in a folder with README.md and docs": _with_readme,
    "in five folders": _deep,
    "among many folders": _among_many,
    _NEAR_PICTURE: _near_picture,
    "links and --image_root": _linked_with_root,
    "links without --image_root": _linked,
    "links in a folder, and --image_root": _linked_wrapped,
    "a link to it in a folder, and --image_root": _folder_linked_with_root,
    "a link to it in a folder": _folder_linked,
    "a link to it": _given_link,
    "a ZIP of it": _zipped,
    "a ZIP of its folder, in a folder": _zipped_wrapped,
    "a tar of its folder": _tarred,
    "--source": _named,
    "--source, in one folder": _named_wrapped,
    "--source, in two folders": _named_wrapped_twice,
}


_PACKED = ("a ZIP", "a tar")
_MAY_BE_REFUSED = (*_PACKED, "in five folders", "among many folders")  # without the way on


def variants_of(case: Case) -> list[str]:
    """The variants that apply to a case."""
    left_out: tuple[str, ...] = ("--source",) if isinstance(case.expected, Refused) else ()
    left_out += (_NEAR_PICTURE,) if case.flat else ()
    left_out += _PACKED if any("{root}" in flag for flag in case.flags) else ()
    return [name for name in VARIANTS if not name.startswith(left_out)]


def judged(case: Case, variant: str, expected: Reading, corpus: Path, work: Path) -> Outcome:
    """Gives a dataset in another way.

    Args:
        case: the dataset.
        variant: a name in `VARIANTS`.
        expected: the reading of the right folder.
        corpus: folder of the real inputs.
        work: an empty folder.
    """
    given = VARIANTS[variant](case, case.tree(corpus), work)
    reading = read(given.argv)
    end = functools.partial(Outcome, case.name, variant, argv=given.argv)
    if reading.status == "crashed":
        return end("CRASH", reading.message)
    if isinstance(case.expected, Refused):
        if variant.startswith(_MAY_BE_REFUSED) and reading.status != "read":
            return end("refused", _ending(reading))
        return end(_of_refused(case.expected, reading), _ending(reading))
    if reading.status == "read":
        less = difference(reading, expected)
        if less and case.flat and _is_single_class(reading, expected):
            return end("single class", less)
        return end("LESS" if less else "same", less)
    if variant.startswith(_MAY_BE_REFUSED):
        return end("refused", _ending(reading))
    if not (case.flat or variant == _NEAR_PICTURE) and (other := misleading(reading, expected)) is not None:
        return end("MISLEADS", f"{_ending(reading)} => {' '.join(other.argv)}: {difference(other, expected)}")
    found = leads_to(reading, expected, given.images)
    if found is None:
        return end("DEAD END", _ending(reading))
    return end("leads on", f"{_ending(reading)} => {' '.join(found.argv)}")


def _of_refused(expected: Refused, reading: Reading) -> Verdict:
    """The verdict on a dataset that no source reads: the message gives the reason, or what to give."""
    if reading.status == "read":
        return "LESS"
    words = (expected.message, "image_root", "give one of them")
    return "refused" if any(word in reading.message for word in words) else "DEAD END"


def _is_single_class(reading: Reading, expected: Reading) -> bool:
    """Whether a flat folder became a class, and nothing else is wrong."""
    bare = [{**vars_of(one), "labels": ()} for one in reading.records.values()]
    right = [{**vars_of(one), "labels": ()} for one in expected.records.values()]
    return len(reading.labels) == 1 and not expected.labels and bare == right


def vars_of(one: object) -> dict[str, object]:
    """The fields of a dataclass."""
    return {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}  # type: ignore[arg-type]


def _ending(reading: Reading) -> str:
    text = reading.message.removeprefix("recordmill convert: error: ")
    return f"{reading.status}: {text}"


def judged_without(case: Case, missing: Missing, is_wrapped: bool, corpus: Path, work: Path) -> Outcome:
    """Gives a dataset of which a piece is missing."""
    tree = piece_removed(case, missing, corpus)
    plain = Given(call(case, lay_out(tree, work / "dataset"))) if not is_wrapped else None
    given = plain or _wrapped(case, tree, work)
    reading = read(given.argv)
    name = f"without {missing.pieces}{', in one folder' if is_wrapped else ''}"
    end = functools.partial(Outcome, case.name, name, argv=given.argv)
    if reading.status == "crashed":
        return end("CRASH", reading.message)
    wrong = [_unlike(reading, one) for one in missing.outcomes]
    if is_wrapped and _is_flat(tree) and reading.labels == {"dataset": len(reading.records)}:
        return end("single class", _ending(reading))
    if "" in wrong:
        return end("stated" if reading.status == "read" else "refused", _ending(reading))
    return end("LESS" if reading.status == "read" else "DEAD END", "; or ".join((*wrong, _ending(reading))))


def _is_flat(tree: Tree) -> bool:
    return all("/" not in path for path in tree)


def unlike(reading: Reading, expected: Expected) -> str:
    """How a reading differs from the numbers of a case; empty where it does not."""
    if reading.status != "read":
        return f"{_ending(reading)}, and not {expected.source}"
    parts = []
    for name in ("source", "splits", "labels", "boxes", "masks"):
        here, there = getattr(reading, name), getattr(expected, name)
        if not _fits(here, there):
            parts.append(f"{name} {here} and not {there}")
    return "; ".join(parts)


def _unlike(reading: Reading, expected: Expected | Refused) -> str:
    if isinstance(expected, Expected):
        return unlike(reading, expected)
    if reading.status == "read":
        return f"read as {reading.source}, and not refused"
    return "" if expected.message.lower() in reading.message.lower() else f"nothing of {expected.message!r}"


def _fits(here: object, there: object) -> bool:
    if not (isinstance(here, Mapping) and isinstance(there, Mapping) and "*" in there):
        return here == there
    rest = {name: count for name, count in there.items() if name != "*"}
    return sum(here.values()) == there["*"] and all(here.get(name) == count for name, count in rest.items())


_SIBLING, _OTHER_SIBLING = "yolo_dataset/strict", "coco_dataset/coco_instances"


def sibling_of(case: Case) -> Case:
    """Another dataset, of another source."""
    is_yolo = isinstance(case.expected, Expected) and case.expected.source == "yolo"
    return CASES[_OTHER_SIBLING if is_yolo else _SIBLING]


def judged_next_to_another(case: Case, expected: Sequence[Reading], corpus: Path, work: Path) -> Outcome:
    """Gives a folder with two datasets: it has to be refused, with the way to each.

    Where the call names the annotations of one, that one has to be read.

    Args:
        case: the dataset.
        expected: the readings of the dataset and of its sibling.
        corpus: folder of the real inputs.
        work: an empty folder.
    """
    lay_out(sibling_of(case).tree(corpus), work / "outer/another")
    given = _wrapped(case, case.tree(corpus), work)
    reading = read(given.argv)
    end = functools.partial(Outcome, case.name, "next to another one", argv=given.argv)
    if reading.status == "crashed":
        return end("CRASH", reading.message)
    if reading.status == "read":
        less = "" if "--annotations" in case.flags else f"read as {reading.source}: {reading.message}"
        less = less or difference(reading, expected[0])
        return end("LESS" if less else "same", less)
    if isinstance(case.expected, Refused):
        return end("refused", _ending(reading))
    wanted = [] if case.flags else [expected[1]]  # the flags of the one may not fit the other
    if case.expected.source != "folder":
        wanted.append(expected[0])
    found = [leads_to(reading, one, None) for one in wanted]
    if None in found:
        return end("DEAD END", _ending(reading))
    return end("leads on", _ending(reading))
