"""Reading XML that strangers wrote, and finding it."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.transforms.records import AnnotatedObject, BadInput, Box, Part, Scalar
from recordmill.transforms.sources.annotated_tree import FileAnnotations
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.look import Look
from recordmill.transforms.sources.small_files import (
    MAX_XML_BYTES,
    parse_xml,
    read_files,
)
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.sources.voc.xml import is_voc_xml, read_voc_xml, what_else
from tests.buckets.server import BucketServer

BOMB = (
    b"""<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><annotation>&b;</annotation>"""
)
EXTERNAL = b"""<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation><a>&x;</a></annotation>"""


def voc(objects: str = "", before: str = "") -> bytes:
    return f"<annotation>{before}{objects}</annotation>".encode()


def box(xmin: str = "1", ymin: str = "2", xmax: str = "3", ymax: str = "4") -> str:
    values = {"ymin": ymin, "xmax": xmax, "ymax": ymax, "xmin": xmin}  # any order
    return "<bndbox>" + "".join(f"<{name}>{one}</{name}>" for name, one in values.items()) + "</bndbox>"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not XML"),
        (b"plain", "not XML"),
        (b"<a><b></a>", "not XML"),
        (b"<a>\xff</a>", "not XML"),
        (b'<?xml version="1.0" encoding="none-such"?><a/>', "not XML"),
        (BOMB, "XML with a document type"),
        (EXTERNAL, "XML with a document type"),
        (b'<!DOCTYPE a SYSTEM "http://localhost/a.dtd"><a/>', "XML with a document type"),
        (b"<a>" * 101 + b"</a>" * 101, "XML too large"),
        (b"<a>" + b"<b/>" * 500_000 + b"</a>", "XML too large"),
        (b"<a>" + b" " * MAX_XML_BYTES + b"</a>", "XML too large"),
    ],
)
def test_xml_that_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_xml(data)
    assert (caught.value.stage, caught.value.reason) == ("annotations", reason)


def test_xml_in_other_encodings() -> None:
    text = '<?xml version="1.0" encoding="{}"?><a>é</a>'
    for encoding in ("utf-8", "iso-8859-1", "utf-16"):
        assert parse_xml(text.format(encoding).encode(encoding)).text == "é"
    assert parse_xml(b"<a>" * 100 + b"</a>" * 100).tag == "a"


def test_all_of_voc() -> None:
    before = (
        "<folder>VOC2012</folder><filename> a.jpg </filename><segmented>1</segmented>"
        "<size><width>500</width><height>375</height><depth>3</depth></size>"
    )
    person = (
        "<object><name> person </name><pose>Frontal</pose><truncated>1</truncated><difficult>0</difficult>"
        f"<occluded>1</occluded>{box('0.1', '2', '300.25', '4')}<part><name>head</name>{box()}</part>"
        "</object>"
    )
    found = read_voc_xml(voc(person, before))
    attributes: dict[str, Scalar] = {"difficult": 0, "truncated": 1, "occluded": 1, "view": "Frontal"}
    parts = (Part("head", Box(1, 2, 3, 4)),)
    expected = AnnotatedObject("person", Box(0.1, 2, 300.25, 4), parts=parts, attributes=attributes)
    assert found == FileAnnotations("a.jpg", "VOC2012", (375, 500), (expected,))
    assert read_voc_xml(b"<annotation/>") == FileAnnotations("", "", None, ())
    zero = "<size><width>0</width><height>0</height></size>"
    assert read_voc_xml(voc(before=zero)).size is None


def test_what_others_add_to_voc() -> None:
    cvat = (
        "<attributes><attribute><name>color</name><value>red</value></attribute>"
        "<attribute><name>difficult</name><value>very</value></attribute></attributes>"
    )
    points = "".join(f"<y{at}>{at + 0.5}</y{at}><x{at}>{at * at}</x{at}>" for at in (2, 1, 10, 3))
    objects = (
        f"<object><name>a</name>{box()}{cvat}<truncated>Unspecified</truncated></object>"
        f"<object><name>b</name><polygon>{points}</polygon></object>"
    )
    first, second = read_voc_xml(voc(objects)).objects
    assert first == AnnotatedObject("a", Box(1, 2, 3, 4), attributes={"color": "red"})
    assert second == AnnotatedObject("b", mask=((1.0, 1.5, 4.0, 2.5, 9.0, 3.5, 100.0, 10.5),))


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"<annotations><version>1.1</version></annotations>", "CVAT XML"),
        (b"<html/>", "its root is <html>"),
        (voc("<object><name>a</name></object>"), "object 1 has no bndbox and no polygon"),
        (voc("<object><name>a</name><robndbox/></object>"), "rotated boxes are not read"),
        (voc(f"<object>{box()}</object>"), "object 1 has no name"),
        (voc(f"<object><name>a</name>{box(xmax='wide')}</object>"), "object 1: xmax is 'wide', not a number"),
        (voc(f"<object><name>a</name>{box(ymin='nan')}</object>"), "object 1: ymin is 'nan', not a number"),
        (voc(f"<object><name>a</name>{box(ymin='inf')}</object>"), "ymin is 'inf'"),
        (voc("<object><name>a</name><bndbox><xmin>1</xmin></bndbox></object>"), "ymin is ''"),
        (voc(f"<object><name>a</name>{box()}<part>{box()}</part></object>"), "object 1, part 1 has no name"),
        (voc(f"<object><name>a</name>{box()}<difficult>2</difficult></object>"), "difficult is '2'"),
        (voc("<object><name>a</name><polygon><x1>1</x1></polygon></object>"), "less than three points"),
        (voc(before="<size><width>1.5</width><height>2</height></size>"), "size/width is '1.5'"),
    ],
)
def test_what_is_not_voc(data: bytes, detail: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_voc_xml(data)
    assert (caught.value.stage, caught.value.reason) == ("annotations", "not VOC XML")
    assert detail in caught.value.detail


def test_telling_the_kinds_of_xml() -> None:
    assert is_voc_xml(b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- by hand -->\n<annotation verified="yes">\n')
    assert not is_voc_xml(b"<annotation><object><polygon><pt><x>1</x>")
    assert not is_voc_xml(b"<annotations><version>1.1</version>")
    assert not is_voc_xml(b"<annotation><source><database>ILSVRC_2012</database>")
    assert what_else(b'<?xml version="1.0"?>\n<annotations>\n <version>1.1</version>') == "CVAT XML"
    assert what_else(b"<annotation><folder>a</folder>") is None
    assert what_else(b"<annotations>") is None


def test_files_are_read_in_order_and_large_ones_are_not(
    tmp_path: Path, bucket: str, bucket_server: BucketServer
) -> None:
    for number in range(40):
        (tmp_path / f"{number:02}.xml").write_bytes(b"x" * (number + 1))
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")
    for place in (str(tmp_path), f"{bucket}/in"):
        files = [file for file in Tree(place).files() if isinstance(file, TreeFile)]
        found = list(read_files(((file, file) for file in files), 30))
        assert [file for file, _ in found] == files
        assert [data for _, data in found[:30]] == [b"x" * (number + 1) for number in range(30)]
        faults = {data.reason if isinstance(data, BadInput) else "" for _, data in found[30:]}
        assert faults == {"annotation file too large"}
        gone = TreeFile("no.xml", f"{place}/no.xml", 3, 0)
        ((_, fault),) = read_files([(gone, gone)])
        assert isinstance(fault, BadInput) and (fault.stage, fault.reason) == ("annotations", "not found")


def test_first_files_are_those_nearest_to_the_top(tmp_path: Path) -> None:
    for name in (
        "z.xml",
        "a/1.xml",
        "a/2.xml",
        "a/3.xml",
        "a/4.xml",
        ".hidden/x.xml",
        "b/c/5.XML",
        "b/6.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "loop").symlink_to(tmp_path)
    look = Look(SourceConfig("auto", str(tmp_path)))
    found = list(look.first_files(("xml",)))
    assert found == ["z.xml", "a/1.xml", "a/2.xml", "a/3.xml", "b/c/5.XML"]
    assert [look.head(key) for key in found] == [key.encode() for key in found]
    assert (look.head(found[1], 3), look.head("none")) == (b"a/1", b"")
