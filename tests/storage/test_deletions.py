"""Every call that deletes or overwrites is in the table of docs/deletion.md, with its proof."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import Figure

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs/deletion.md"
FOLDERS = ("pipelines", "transforms", "deploy")
# By module or object, since `list.remove` and `str.replace` are not about files.
_CALLS = re.compile(
    r"shutil\.(rmtree|move|copy\w*)"
    r"|os\.(remove|unlink|rename|renames|replace|rmdir|removedirs|truncate|ftruncate|link|symlink)"
    r"|(file_system\(.*\)|system|self|self\.system)\.(remove\w*|move|link|put|write|rename_folder)"
    r"|(tf\.io\.gfile|gfile)\.(remove|rename|rmtree|copy)"
    r"|.*\.(unlink|rmdir|write_text|write_bytes|touch|rewrite|upload_from_\w+|delete_blob\w*)"
    r"|(found|blob\(uri\)|file)\.(delete|truncate)"
    r"|remove_marked_folder|remove_existing|remove_empty_folders|remove_files|write_file|replace_own"
)


_LAST = re.compile(
    r"rm\w*|re\w*|un\w*|copy\w*|move|put|\w*link|delete\w*|\w*truncate|write\w*|touch|upload\w*"
)


def written(call: ast.Call) -> bool:
    """Whether a call opens a file to write it."""
    modes = [arg.value for arg in call.args[1:2] if isinstance(arg, ast.Constant)]
    modes += [
        word.value.value
        for word in call.keywords
        if word.arg == "mode" and isinstance(word.value, ast.Constant)
    ]
    return (
        isinstance(call.func, ast.Name)
        and call.func.id == "open"
        and any(set("wax+") & set(str(mode)) for mode in modes)
    )


def deletes(node: ast.AST) -> bool:
    """Whether a node is the name of a call that deletes or overwrites, or opens a file to write it."""
    if isinstance(node, ast.Attribute):  # quick, since there are many
        return bool(_LAST.fullmatch(node.attr) and _CALLS.fullmatch(ast.unparse(node)))
    if isinstance(node, ast.Name):
        return bool(_CALLS.fullmatch(node.id))
    return isinstance(node, ast.Call) and written(node)


def deleting(node: ast.AST, name: str = "") -> Iterator[str]:
    """The functions below a node, by their qualified names, that delete or overwrite."""
    for child in ast.iter_child_nodes(node):
        is_named = isinstance(child, ast.FunctionDef | ast.ClassDef)
        inner = f"{name}.{child.name}".lstrip(".") if is_named else name
        if name and deletes(child):
            yield name
        yield from deleting(child, inner)


def in_code() -> set[tuple[str, str]]:
    return {
        (str(path.relative_to(ROOT)), name)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in deleting(ast.parse(path.read_text("utf-8")))
    }


def in_table() -> dict[tuple[str, str], str]:
    found = {}
    for line in TABLE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`"):
            found.update(
                {(cells[0].strip("`"), name): cells[3] for name in re.findall(r"`([^`]+)`", cells[1])}
            )
    return found


def test_every_deletion_and_overwrite_is_in_the_table(figure: Figure) -> None:
    table, code = in_table(), in_code()
    figure("functions", len(code))
    missing, stale = sorted(code - table.keys()), sorted(table.keys() - code)
    assert not missing, f"add them to {TABLE.name}, with their proofs: {missing}"
    assert not stale, f"{TABLE.name} names functions that delete or overwrite nothing: {stale}"


def test_every_proof_is_one_of_those_that_count() -> None:
    known = ("Own", "Marker", "Manifest", "Digest", "Contents", "Named", "see the callers", "there is none")
    assert [proof for proof in in_table().values() if not proof.startswith(known)] == []
