"""The reasons of failed and skipped inputs, found in the code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# The position of stage and reason among the arguments of a call, or the stage that the call implies.
_CALLS: dict[str, tuple[int | str, int]] = {
    "BadInput": (0, 1),
    "Failure": (1, 2),
    "undecodable": ("decode", 0),
    "skipped": ("list", 1),
    "left_out": ("list", 1),
    "unclaimed": ("list", 0),
    "_bad": ("annotations", 0),
    "_conflict": ("annotations", 0),
    "_looked_up": ("annotations", 2),
}
_SKIPS = ("skipped", "left_out", "unclaimed")
# Raised as errors, which the source turns into skipped inputs.
_SKIPPED_ERRORS = ("in no list of ImageSets",)
# These write no failures.jsonl.
_READERS = ("pages", "reading", "reporting", "sweeping")


class Reason(NamedTuple):
    """A reason of failures.jsonl: the step that finds it, and what becomes of the input."""

    stage: str
    reason: str
    outcome: str = "failed"


def reasons() -> set[Reason]:
    """Every reason that the code gives as a constant."""
    trees = {
        ".".join(("recordmill", *path.relative_to(ROOT).with_suffix("").parts)): ast.parse(
            path.read_text("utf-8")
        )
        for path in sorted((ROOT / "transforms").rglob("*.py"))
        if not set(path.parts) & set(_READERS)
    }
    constants = {module: _assigned(tree.body) for module, tree in trees.items()}
    everywhere = {name: texts for own in constants.values() for name, texts in own.items()}
    found = set()
    for tree in trees.values():
        names = {**everywhere, **_imported(tree, constants), **_assigned(ast.walk(tree))}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                found.update(_of_call(node, names))
    return found


def _imported(tree: ast.Module, constants: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    return {
        alias.asname or alias.name: constants[node.module][alias.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in constants
        for alias in node.names
        if alias.name in constants[node.module]
    }


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[str]]:
    """The texts that are assigned to each name or attribute."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if name := getattr(target, "id", getattr(target, "attr", "")):
                    found.setdefault(name, []).extend(_texts(node.value, {}))
    return found


def _of_call(node: ast.Call, names: dict[str, list[str]]) -> Iterator[Reason]:
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    if name == "append" and ast.unparse(node.func).endswith("notes.append"):
        pair = node.args[0]
        assert isinstance(pair, ast.Tuple)
        yield from (Reason("annotations", reason, "kept") for reason in _texts(pair.elts[0], names))
    if name not in _CALLS or len(node.args) <= _CALLS[name][1]:
        return
    stage, reason_at = _CALLS[name]
    stages = [stage] if isinstance(stage, str) else _texts(node.args[stage], names)
    is_skipped = name in _SKIPS or any(word.arg == "skipped" for word in node.keywords)
    for one in stages:
        for reason in _texts(node.args[reason_at], names):
            yield Reason(one, reason, "skipped" if is_skipped or reason in _SKIPPED_ERRORS else "failed")


def _texts(node: ast.expr, names: dict[str, list[str]]) -> list[str]:
    """The texts that an expression may be; none if it is computed."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) and node.value else []
    if isinstance(node, ast.Name | ast.Attribute):
        return names.get(getattr(node, "id", getattr(node, "attr", "")), [])
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, names), *_texts(node.orelse, names)]
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in _texts(value, names)]
    return []
