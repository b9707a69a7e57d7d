"""The reasons of failed and skipped inputs, found in the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# The position of stage and reason among the arguments of a call; None where the call implies the stage.
_CALLS: dict[str, tuple[int | str, int]] = {
    "BadInput": (0, 1),
    "Failure": (1, 2),
    "undecodable": ("decode", 0),
    "skipped": ("list", 1),
}


class Reason(NamedTuple):
    """A reason, and the step that finds it."""

    stage: str
    reason: str


def reasons() -> dict[Reason, set[str]]:
    """Every reason that the code gives as a constant, with the modules that give it."""
    trees = {
        path: ast.parse(path.read_text("utf-8"))
        for path in sorted([*ROOT.glob("transforms/**/*.py"), *ROOT.glob("pipelines/**/*.py")])
    }
    constants = {path: dict(_constants(tree)) for path, tree in trees.items()}
    every = {name: value for own in constants.values() for name, value in own.items()}
    found: dict[Reason, set[str]] = {}
    for path, tree in trees.items():
        names = every | constants[path]
        for node in ast.walk(tree):
            for one in _of_call(node, names):
                found.setdefault(one, set()).add(str(path.relative_to(ROOT)))
    return found


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                    yield target.id, node.value.value


def _of_call(node: ast.AST, names: dict[str, str]) -> Iterator[Reason]:
    if not isinstance(node, ast.Call):
        return
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    stage_at, reason_at = _CALLS.get(name, ("", 0))
    if not stage_at and name != "BadInput" or len(node.args) <= reason_at:
        return
    stages = [stage_at] if isinstance(stage_at, str) else _texts(node.args[stage_at], names)
    for stage in stages or ["?"]:
        for reason in _texts(node.args[reason_at], names) or [f"?? {ast.unparse(node)[:90]}"]:
            yield Reason(stage, reason)


def _texts(node: ast.expr, names: dict[str, str]) -> list[str]:
    """The texts that an expression may have; none if it is not made of constants."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.Name):
        return [names[node.id]] if node.id in names else []
    if isinstance(node, ast.Attribute):
        return [names[node.attr]] if node.attr in names else []
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, names), *_texts(node.orelse, names)]
    return []
