"""Every file of the input is opened by one function, which opens regular files at paths without links."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What takes a path and opens it; `open_named` follows links that a listing has not resolved.
_OPENS = re.compile(
    r"open|open_named|(io|os|codecs|gzip|bz2|lzma|tarfile|local|dbm|shelve|wave)\.(open\w*|FileIO)"
    r"|os\.(mkfifo|popen)|(local\.)?_LocalFile|files\.\w*(read|open)\w*|self\.(open|read)|.*system(\(.*\))?\.open|read_bytes|read_text|read_json"
    r"|.*\.(read_bytes|read_text|memmap|fromfile|loadtxt|genfromtxt|loadmat|read_table|memory_map|OSFile)"
    r"|(np|numpy)\.load|mmap\.mmap|fileinput\.\w+|shutil\.\w+|subprocess\.\w+"
)
# What takes a path or an open file: an open file it has to be.
_TAKES = re.compile(
    r"(.*\.)?(Image\.open|ParquetFile|TarFile|ZipFile|GzipFile|ElementTree\.(parse|iterparse)|read_magic)"
)
_IS_OPEN = re.compile(r"stream|stored|file|archive|headers|io\.BytesIO\(.*")
_METHODS = ("check_readable", "write", "put", "link", "sync_folder", "free_bytes")
# Files of our own, by the function that opens them, and the one that opens the input.
_OURS = {
    ("transforms/storage/local.py", "open_regular"),
    ("transforms/storage/local.py", "_LocalReader._container"),  # of an open descriptor
    ("transforms/storage/files.py", "open_file"),
    ("transforms/storage/files.py", "open_named"),  # of what the caller names
    ("transforms/storage/files.py", "read_text"),
    ("transforms/storage/files.py", "read_json"),
    ("transforms/storage/files.py", "is_unfinished"),
    *(("transforms/storage/local.py", f"LocalFileSystem.{name}") for name in _METHODS),
}


def input_modules() -> list[Path]:
    """The modules that read the input."""
    storage = ("local", "files", "listing", "paths", "confinement", "reader", "zip_member", "spool")
    found = sorted((ROOT / "transforms/sources").rglob("*.py"))
    return found + [ROOT / f"transforms/storage/{name}.py" for name in storage]


def is_opening(call: ast.Call) -> bool:
    """Whether a call opens a path in another way than `open_file`."""
    name = ast.unparse(call.func)
    if _TAKES.fullmatch(name):
        given = [word.value for word in call.keywords if word.arg == "fileobj"] or call.args[:1]
        return not (given and _IS_OPEN.fullmatch(ast.unparse(given[0])))
    if name.endswith("open_file"):  # links are followed by who looks at where they lead
        return "real_path" in ast.unparse(call.args[0])
    return bool(_OPENS.fullmatch(name))


def openings(node: ast.AST, name: str = "") -> Iterator[tuple[str, str]]:
    """The functions below a node that open a path, and the calls that do."""
    for child in ast.iter_child_nodes(node):
        is_named = isinstance(child, ast.FunctionDef | ast.ClassDef)
        inner = f"{name}.{child.name}".lstrip(".") if is_named else name
        if isinstance(child, ast.Call) and is_opening(child):
            yield name, ast.unparse(child)
        yield from openings(child, inner)


def test_the_input_is_opened_in_one_place() -> None:
    found = [
        (str(path.relative_to(ROOT)), name, call)
        for path in input_modules()
        for name, call in openings(ast.parse(path.read_text("utf-8")))
    ]
    others = [one for one in found if one[:2] not in _OURS]
    assert others == [], "open them with recordmill.transforms.storage.files.open_file"
    assert {one[:2] for one in found} >= {("transforms/storage/local.py", "open_regular")}


def test_what_opens_a_path_is_seen() -> None:
    code = (
        "def f(path, stream):\n"
        "    open(path)\n    os.open(path, 0)\n    Path(path).read_bytes()\n    np.load(path)\n"
        "    Image.open(path)\n    zipfile.ZipFile(path)\n    gzip.open(path)\n    open_named(path)\n"
        "    pyarrow.parquet.ParquetFile(path)\n    scipy.io.loadmat(path)\n    tarfile.open(path)\n"
        "    Image.open(stream)\n    zipfile.ZipFile(stream)\n    open_file(path)\n"
        "    gzip.GzipFile(fileobj=stream)\n    pyarrow.parquet.ParquetFile(stream)\n"
    )
    seen = [call for _, call in openings(ast.parse(code))]
    assert len(seen) == 11
    assert [call for call in seen if "stream" in call or "open_file" in call] == []
