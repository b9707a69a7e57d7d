"""Imports go one way: pipelines -> transforms -> its pure folders -> libraries."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEAM, TENSORFLOW = "apache_beam", "tensorflow"

# What a file may import of our own, by the longest prefix of its module.
ALLOWED = {
    "transforms.flags": (),
    "transforms.flag_values": (),
    "transforms.records": ("transforms.flags",),
    "transforms.internal_errors": ("transforms.records",),
    "transforms.map_image": ("transforms.records",),
    "transforms.storage": ("transforms.records", "transforms.flags", "transforms.storage"),
    "transforms.images": (
        "transforms.flags",
        "transforms.flag_values",
        "transforms.internal_errors",
        "transforms.records",
        "transforms.images",
    ),
    "transforms.annotations": ("transforms.records", "transforms.images", "transforms.annotations"),
    "transforms.examples": ("transforms.records", "transforms.examples"),
    "transforms.examples.framing": (),
    "transforms.examples.wire": ("transforms.records",),
    "transforms.sources": (
        "transforms.internal_errors",
        "transforms.records",
        "transforms.flags",
        "transforms.flag_values",
        "transforms.storage",
        "transforms.examples.framing",
        "transforms.examples.label_map",
        "transforms.examples.record_view",
        "transforms.examples.wire",
        "transforms.sources",
    ),
    "transforms.workers": ("transforms.internal_errors", "transforms.records", "transforms.workers"),
    "transforms.config": (
        "transforms.flags",
        "transforms.flag_values",
        "transforms.records",
        "transforms.images.policy",
        "transforms.map_image",
        "transforms.examples",
    ),
    "transforms.shards": (
        "transforms.internal_errors",
        "transforms.map_image",
        "transforms.records",
        "transforms.config",
        "transforms.storage",
        "transforms.images",
        "transforms.annotations",
        "transforms.examples",
        "transforms.shards",
        "transforms.workers",
    ),
    "transforms.reading": (
        "transforms.internal_errors",
        "transforms.records",
        "transforms.config",
        "transforms.storage",
        "transforms.images",
        "transforms.annotations",
        "transforms.examples",
        "transforms.sources",
        "transforms.shards",
        "transforms.reading",
        "transforms.workers",
    ),
    "transforms.pages": ("transforms.sources", "transforms.pages"),
    "transforms.reporting": (
        "transforms.records",
        "transforms.storage",
        "transforms.images",
        "transforms.examples",
        "transforms.sources",
        "transforms.shards",
        "transforms.reading",
        "transforms.pages",
        "transforms.reporting",
        "transforms.workers",
    ),
    "transforms.sweeping": (
        "transforms.flags",
        "transforms.flag_values",
        "transforms.internal_errors",
        "transforms.records",
        "transforms.storage",
        "transforms.images",
        "transforms.examples",
        "transforms.shards",
        "transforms.pages",
        "transforms.sweeping",
        "transforms.workers",
    ),
    "transforms": ("transforms",),
    "pipelines": ("transforms", "pipelines"),
    "benchmarks": ("transforms", "pipelines", "benchmarks"),
}
# Where records are read back.
WITH_TENSORFLOW = ("pipelines.input", "benchmarks")
# Modules that a spawned writer, or the launcher before it has checked a call, must be able to import.
WITHOUT_BEAM = (
    "transforms.records",
    "transforms.flags",
    "transforms.flag_values",
    "transforms.config",
    "transforms.map_image",
    "transforms.storage",
    "transforms.images",
    "transforms.annotations",
    "transforms.examples",
    "transforms.sources",
    "transforms.shards",
    "transforms.pages",
    "transforms.sweeping",
    "transforms.reading",
    "transforms.reporting",
    "transforms.workers",
    "pipelines",
)


def modules() -> list[tuple[str, Path]]:
    found = []
    for top in ("pipelines", "transforms", "benchmarks"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def imported(path: Path) -> list[tuple[str, bool]]:
    """(module, whether at the top level) of each import."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names += [(f"{node.module}.{alias.name}", id(node) in top) for alias in node.names]
    assert not [name for name, _ in names if starts_with(name, ("pipelines", "transforms"))], path
    return [(name.removeprefix("recordmill."), at_top) for name, at_top in names]


def starts_with(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def test_arrows() -> None:
    for module, path in modules():
        check_arrows(module, path)


def check_arrows(module: str, path: Path) -> None:
    allowed = ALLOWED[max((prefix for prefix in ALLOWED if starts_with(module, (prefix,))), key=len)]
    for name, at_top in imported(path):
        if starts_with(name, ("pipelines", "transforms", "tests", "benchmarks", "deploy")):
            assert starts_with(name, allowed), f"{module} imports {name}"
        if not module.startswith(WITH_TENSORFLOW):
            assert not starts_with(name, (TENSORFLOW, "tensorflow_datasets")), f"{module} imports {name}"
        if starts_with(module, WITHOUT_BEAM):
            assert not (at_top and starts_with(name, (BEAM,))), f"{module} imports {name} at its top"


def test_only_the_root_of_transforms_needs_beam() -> None:
    pure = [module for module, _ in modules() if starts_with(module, WITHOUT_BEAM[:-1])]
    assert len(pure) > 20
    for module, path in modules():
        if module in pure:
            assert not any(starts_with(name, (BEAM,)) for name, _ in imported(path)), module


def test_no_module_of_pipelines_hides_a_standard_one() -> None:
    import sys

    names = {path.stem for path in (ROOT / "pipelines").glob("*.py")}
    assert not names & set(sys.stdlib_module_names)
