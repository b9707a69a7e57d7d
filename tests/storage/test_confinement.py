"""Paths that the input names lead to files inside the roots, or nowhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import BadInput
from recordmill.transforms.storage.confinement import CachedPages, Confinement, LocatedFile
from recordmill.transforms.storage.file_system import scheme_of
from recordmill.transforms.storage.local import version_of
from recordmill.transforms.storage.paths import below, tidy_uri
from tests.conftest import Figure


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """in/ and more/ are roots; in-side/ and out/ are not."""
    for name in ("in/a.jpg", "in/sub/b.jpg", "more/c.jpg", "in-side/d.jpg", "out/e.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "in/to_b.jpg").symlink_to("sub/b.jpg")
    (tmp_path / "in/to_more").symlink_to("../more")
    (tmp_path / "in/to_out").symlink_to("../out")
    (tmp_path / "in/to_e.jpg").symlink_to(tmp_path / "out/e.jpg")
    (tmp_path / "in/dangling.jpg").symlink_to("nowhere.jpg")
    (tmp_path / "in/loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "in/deep").symlink_to("sub")
    return tmp_path


def find(tree: Path, path: str) -> LocatedFile:
    confinement = Confinement([str(tree / "in"), str(tree / "more")])
    return confinement.find(path, confinement.roots)


@pytest.mark.parametrize(
    ("path", "file", "key"),
    [
        ("a.jpg", "in/a.jpg", "a.jpg"),
        ("./sub//./b.jpg", "in/sub/b.jpg", "sub/b.jpg"),
        ("sub/../a.jpg", "in/a.jpg", "a.jpg"),
        ("../in/a.jpg", "in/a.jpg", "a.jpg"),
        ("c.jpg", "more/c.jpg", "c.jpg"),
        ("../more/c.jpg", "more/c.jpg", "c.jpg"),
        ("{tree}/in/sub/b.jpg", "in/sub/b.jpg", "sub/b.jpg"),
        ("{tree}//more/c.jpg", "more/c.jpg", "c.jpg"),
        ("to_b.jpg", "in/sub/b.jpg", "to_b.jpg"),
        ("to_more/c.jpg", "more/c.jpg", "to_more/c.jpg"),
        ("deep/../a.jpg", "in/a.jpg", "a.jpg"),
    ],
)
def test_finds_files_inside(tree: Path, path: str, file: str, key: str) -> None:
    os.utime(tree / file, ns=(1, 1_718_031_234_567_890_123))  # file systems keep it in less detail
    located = find(tree, path.format(tree=tree))
    assert located == LocatedFile(str(tree / file), key, len(file), version_of(os.stat(tree / file)))


def test_leads_to_files_inside(tree: Path) -> None:
    confinement = Confinement([str(tree / "in"), str(tree / "more")])
    for path, real in (("a.jpg", "in/a.jpg"), ("to_b.jpg", "in/sub/b.jpg"), ("to_more/c.jpg", "more/c.jpg")):
        assert confinement.leads_to(f"{tree}/in/{path}") == f"{tree}/{real}"
        assert confinement.inner(f"{tree}/in/{path}") == f"{tree}/{real}"
    assert confinement.leads_to(f"{tree}/in/none.jpg") == f"{tree}/in/none.jpg"
    for path, number, said in (
        (
            "to_e.jpg",
            errno.EXDEV,
            f"it leads to '{tree}/out/e.jpg', outside the input root; give --image_root",
        ),
        (
            "to_out/e.jpg",
            errno.EXDEV,
            f"it leads to '{tree}/out/e.jpg', outside the input root; give --image_",
        ),
        ("dangling.jpg", errno.ENOENT, f"it leads to '{tree}/in/nowhere.jpg', where nothing is"),
    ):
        with pytest.raises(OSError, match="it leads to") as caught:
            confinement.leads_to(f"{tree}/in/{path}")
        assert (caught.value.errno, caught.value.filename) == (number, f"{tree}/in/{path}")
        assert str(caught.value.strerror).startswith(said)
    assert confinement.inner(f"{tree}/in/to_e.jpg") == f"{tree}/in/to_e.jpg"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../out/e.jpg", "outside the input root"),
        ("../../../../../../../../etc/passwd", "outside the input root"),
        ("/etc/passwd", "outside the input root"),
        ("{tree}/out/e.jpg", "outside the input root"),
        ("{tree}/in/../out/e.jpg", "outside the input root"),
        ("../in-side/d.jpg", "outside the input root"),
        ("{tree}/in-side/d.jpg", "outside the input root"),
        ("to_out/e.jpg", "outside the input root"),
        ("to_e.jpg", "outside the input root"),
        ("to_out/nothing.jpg", "outside the input root"),
        ("~/a.jpg", "not found"),
        ("$HOME/a.jpg", "not found"),
        ("nothing.jpg", "not found"),
        ("a.jpg/below.jpg", "not found"),
        ("dangling.jpg", "not found"),
        ("loop.jpg", "not found"),
        ("sub\\b.jpg", "not found"),
        ("sub", "not a file"),
        ("sub/", "not a file"),
        ("sub/.", "not a file"),
        ("a\0.jpg", "not a file name"),
        ("half \ud83d.jpg", "not a file name"),
        ("x" * 300 + ".jpg", "name too long"),
        ("gs://bucket/a.jpg", "outside the input root"),
        ("HTTP://host/a.jpg", "not a local path"),
    ],
)
def test_nothing_else_is_found_or_opened(
    tree: Path, monkeypatch: pytest.MonkeyPatch, path: str, reason: str
) -> None:
    monkeypatch.setattr("os.open", lambda *_: pytest.fail("opened"))
    monkeypatch.setattr("builtins.open", lambda *_: pytest.fail("opened"))
    with pytest.raises(BadInput) as caught:
        find(tree, path.format(tree=tree))
    assert (caught.value.stage, caught.value.reason) == ("manifest", reason)


@pytest.mark.parametrize("times", [1, 3, 4])
@pytest.mark.parametrize(
    ("path", "failing", "file"),
    [
        ("a.jpg", "in/a.jpg", "in/a.jpg"),
        ("deep/b.jpg", "in/deep", "in/sub/b.jpg"),  # a link that cannot be looked at is one all the same
        ("to_b.jpg", "in/to_b.jpg", "in/sub/b.jpg"),
        ("sub/../to_more/c.jpg", "in/to_more", "more/c.jpg"),
    ],
)
def test_faults_that_pass_do_not_show(
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    waits: list[float],
    path: str,
    failing: str,
    file: str,
    times: int,
) -> None:
    confinement = Confinement([str(tree / "in"), str(tree / "more")])
    lstat, calls = os.lstat, 0

    def flaky(target: str) -> os.stat_result:
        nonlocal calls
        calls += target == str(tree / failing)
        if target == str(tree / failing) and calls <= times:
            raise OSError(errno.EIO, os.strerror(errno.EIO), target)
        return lstat(target)

    monkeypatch.setattr(os, "lstat", flaky)
    if times < 4:
        assert confinement.find(path, confinement.roots).path == str(tree / file)
    else:
        with pytest.raises(OSError, match="Input/output error"):
            confinement.find(path, confinement.roots)
    assert len(waits) == min(times, 3)


def test_messages_say_where_it_was_looked_for_and_the_remedy(tree: Path) -> None:
    with pytest.raises(BadInput, match=rf"'x.jpg', looked for in {tree}/in, {tree}/more"):
        find(tree, "x.jpg")
    with pytest.raises(BadInput, match="has backslashes"):
        find(tree, "sub\\b.jpg")
    with pytest.raises(BadInput, match=r"'\.\./out/e.jpg'; give --image_root"):
        find(tree, "../out/e.jpg")


def test_dot_dot_counts_from_where_a_link_leads(tree: Path) -> None:
    (tree / "in/far").symlink_to("../more")
    (tree / "sibling.jpg").write_bytes(b"x")
    with pytest.raises(BadInput, match="outside"):  # in/far/../sibling.jpg is not in/sibling.jpg
        find(tree, "far/../sibling.jpg")


def test_a_root_may_be_reached_through_a_link(tree: Path) -> None:
    (tree / "alias").symlink_to("in")
    confinement = Confinement([str(tree / "alias")])
    assert confinement.roots == (str(tree / "in"),)
    by_alias = confinement.find(f"{tree}/alias/sub/b.jpg", ())
    assert (by_alias.path, by_alias.key) == (f"{tree}/in/sub/b.jpg", "sub/b.jpg")


def test_resolve_does_not_need_the_file(tree: Path) -> None:
    confinement = Confinement([str(tree / "in")])
    assert confinement.resolve(f"{tree}/in/new/../x.jpg") == f"{tree}/in/x.jpg"
    assert confinement.resolve(f"{tree}/in") == f"{tree}/in"
    for path, reason in [
        (f"{tree}/in/../x", "outside the input root"),
        (f"{tree}/in/x\0", "not a file name"),
        ("s3://bucket/x", "not a local path"),
    ]:
        with pytest.raises(BadInput) as caught:
            confinement.resolve(path, "list")
        assert (caught.value.stage, caught.value.reason) == ("list", reason)


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("gs://b/a", "gs"),
        ("S3://b/a", "s3"),
        ("/a://b", ""),
        ("a/b", ""),
        ("C:\\a", ""),
        ("c://a", ""),
        ("://a", ""),
    ],
)
def test_scheme_of(path: str, scheme: str) -> None:
    assert scheme_of(path) == scheme


PARTS = st.sampled_from(
    ["..", ".", "", "in", "out", "sub", "deep", "to_out", "to_more", "to_e.jpg", "a.jpg", "b.jpg"]
)


def test_no_path_escapes(tree: Path, figure: Figure) -> None:
    confinement = Confinement([str(tree / "in"), str(tree / "more")])

    @given(st.lists(PARTS, min_size=1, max_size=6), st.booleans())
    def check(parts: list[str], absolute: bool) -> None:
        figure("paths", 1)
        path = "/".join(parts)
        path = f"{tree}/in/{path}" if absolute else path
        try:
            located = confinement.find(path, confinement.roots)
        except BadInput:
            return
        assert os.path.realpath(located.path) == located.path
        assert located.path.startswith((f"{tree}/in/", f"{tree}/more/"))
        assert ".." not in located.key.split("/") and not located.key.startswith("/")

    check()


@pytest.mark.parametrize(
    ("uri", "tidy"),
    [
        ("gs://b/a.jpg", "gs://b/a.jpg"),
        ("gs://b//x/./y/../a.jpg", "gs://b/x/a.jpg"),
        ("gs://b/x/", "gs://b/x"),
        ("gs://b/x/..", "gs://b"),
        ("gs://b/...", "gs://b/..."),
        ("gs://b/.a/..b/c..", "gs://b/.a/..b/c.."),
        ("gs://b", "gs://b"),
        ("gs://b/../c", None),
        ("gs://b/x/../../c", None),
    ],
)
def test_tidy_uri(uri: str, tidy: str | None) -> None:
    if tidy is None:
        with pytest.raises(ValueError, match="leads out of its bucket"):
            tidy_uri(uri)
    else:
        assert tidy_uri(uri) == tidy


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("/a", "/a/b/c", "b/c"),
        ("/", "/a", "a"),
        ("/a", "/ab", None),
        ("gs://b", "gs://b/x", "x"),
        ("gs://b/x", "gs://b/xy", None),
        ("gs://b/x", "/gs://b/x/y", None),
    ],
)
def test_below(root: str, path: str, expected: str | None) -> None:
    assert below(root, path) == expected


URI_PARTS = st.sampled_from(["..", ".", "", "in", "in-side", "out", "more", "a.jpg", "b", "gs:"])


def test_no_uri_escapes(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is asked for is there: what comes back, or is looked at, is below a root."""
    listed = []

    def everything(self: CachedPages, uri: str, root: str) -> tuple[int, int]:
        listed.append((uri, root))
        return 1, 2

    monkeypatch.setattr(CachedPages, "find", everything)
    confinement = Confinement(["gs://b/in", f"{tree}/in", "gs://b/more/"])

    @given(
        st.lists(URI_PARTS, min_size=1, max_size=6),
        st.sampled_from(["", "/", "gs://b/", "gs://", "gs://b/in/"]),
    )
    def check(parts: list[str], start: str) -> None:
        listed.clear()
        try:
            located = confinement.find(start + "/".join(parts), confinement.roots)
        except BadInput:
            return
        finally:
            assert all(uri.startswith(root) and ".." not in uri.split("/") for uri, root in listed)
            assert {root for _, root in listed} <= {"gs://b/in/", "gs://b/more/"}
        assert located.path.startswith(("gs://b/in/", "gs://b/more/", f"{tree}/in/"))
        assert ".." not in located.key.split("/") and located.path.endswith(f"/{located.key}")

    check()
