"""docs/promises.md: each test that it names is there, and has a figure; the figures are those of a run."""

import re

from docs.figures import PAGE, ROOT, ROW, figures, with_figures

RESULTS = """<testsuites><testsuite>
<testcase classname="tests.storage.test_lock" name="test_kills[a]"><properties>
<property name="kills" value="1200"/><property name="kills" value="34"/></properties></testcase>
<testcase classname="tests.storage.test_lock" name="test_kills[b]"><properties>
<property name="kills" value="1"/><property name="bits" value="1"/></properties></testcase>
<testcase classname="tests.storage.test_lock" name="test_one"/>
<testcase classname="tests.test_flags" name="test_two[a]"/>
<testcase classname="tests.test_flags" name="test_two[b]"/>
<testcase classname="tests.test_flags" name="test_none"><skipped/></testcase>
</testsuite></testsuites>"""


def test_each_test_is_there_and_has_a_figure() -> None:
    page = PAGE.read_text("utf-8")
    rows = list(ROW.finditer(page))
    assert page.count("`tests/") == len(rows) > 25
    for row in rows:
        path, _, name = row[2].partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE), row[2]
        assert re.fullmatch(r" [\d,]+ \w.* ", row[3]), row[2]


def test_each_promise_has_a_section() -> None:
    headings = re.findall(r"^## (\d)\. ", PAGE.read_text("utf-8"), re.MULTILINE)
    assert headings == [str(number) for number in range(1, 8)]


def test_figures_of_results() -> None:
    found = figures(RESULTS)
    assert found == {
        "tests/storage/test_lock.py::test_kills": "1,235 kills, 1 bit",
        "tests/storage/test_lock.py::test_one": "1 case",
        "tests/test_flags.py::test_two": "2 cases",
        "tests/test_flags.py::test_none": "",
    }
    page = "| a | `tests/test_flags.py::test_two` |  |\n| b | `tests/test_flags.py::test_none` | 3 kills |\n"
    assert with_figures(page, found) == (
        "| a | `tests/test_flags.py::test_two` | 2 cases |\n"
        "| b | `tests/test_flags.py::test_none` | 3 kills |\n"
    )
