"""Changes a module of ours in interpreters that tests start, from the moment it is imported."""

from pathlib import Path

_FINDER = """
import importlib.abc, importlib.machinery, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != {module!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            patch(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


def patched_site(folder: Path, module: str, patch: str) -> Path:
    """A folder to put first on PYTHONPATH.

    Args:
        folder: where it is made.
        module: name of the module that is changed.
        patch: program text that defines `patch(module)`.
    """
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(patch + _FINDER.format(module=module))
    return site
