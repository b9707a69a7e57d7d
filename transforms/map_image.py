"""MapImage: a function of the user that runs between an image and its record, as a value that can be sent."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import inspect
import itertools
import os
import pickle
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from recordmill.transforms.records import JobError

_SPEC = re.compile(r"(?P<module>[^\W\d][\w.]*):(?P<name>[^\W\d][\w.]*)(@(?P<version>[\w.-]+))?")
_VERSION = re.compile(r"[\w.-]+")
# Of the digest, in hex: enough to distinguish two sources.
_DIGITS = 16
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclasses.dataclass(frozen=True)
class MapImage:
    """A function from a `Sample` to one `Sample`, several, or none. Workers get it with its code.

    Attributes:
        module: of the function.
        name: its qualified name.
        identity: the stated version, or a SHA-256 of its source. Functions with the same name and identity
            count as the same function, whose shards are reused.
        pickled: the function; None if it comes from a manifest.
    """

    module: str
    name: str
    identity: str
    pickled: bytes | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.label}@{self.identity}"

    @property
    def label(self) -> str:
        """Module and name."""
        return f"{self.module}:{self.name}"

    @classmethod
    def of(cls, function: Callable[[Any], object], version: str = "") -> MapImage:
        """A function of this program.

        Args:
            function: gets a `Sample`.
            version: identifies the function. Without it, the source of its module and of the modules that it
                imports does, except installed ones.

        Raises:
            ValueError: not a function; an invalid version; or neither a version nor a source.
        """
        if not callable(function):
            raise ValueError(f"map_image is {function!r}; give a function, or MapImage.of(function)")
        name = getattr(function, "__qualname__", type(function).__qualname__)
        module = sys.modules.get(getattr(function, "__module__", None) or type(function).__module__)
        home = module.__name__ if module is not None else "?"
        label = f"{home}:{name}"
        if version and not _VERSION.fullmatch(version):
            raise ValueError(
                f"the version of map_image is {version!r}; it may have letters, digits, ., _ and -"
            )
        own = _own_modules(module) if module is not None else []
        if not version:
            version = _source_digest(own) if _is_in_module(function, name, module) else ""
        if not version:
            raise ValueError(
                f"map_image is {label}, and no source identifies it: name a function at the top level of a "
                "module, or state a version, with MapImage.of(function, version='1')"
            )
        return cls(home, name, version, _pickled(function, own, label))

    @classmethod
    def parse(cls, text: str) -> MapImage:
        """The function of `MODULE:FUNCTION[@VERSION]`, in a module of the current folder or an installed one.

        Raises:
            ValueError: there is none, or it cannot be imported; the message names the flag.
        """
        found = _SPEC.fullmatch(text)
        if found is None:
            raise ValueError(f"--map_image is {text!r}; it may be MODULE:FUNCTION or MODULE:FUNCTION@VERSION")
        folder = os.getcwd()
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            module = importlib.import_module(found["module"])
        except (Exception, SystemExit) as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name
            if missing and f"{found['module']}.".startswith(f"{missing}."):
                reason = f"there is no module {missing!r}, neither in {folder!r} nor installed"
            else:
                reason = f"importing {found['module']!r} fails with {type(error).__name__}: {error}"
            raise ValueError(f"--map_image is {text!r}: {reason}") from error
        try:
            function = functools.reduce(getattr, found["name"].split("."), module)
        except AttributeError as error:
            where = getattr(module, "__file__", None) or module.__name__
            raise ValueError(f"--map_image is {text!r}: {where} has no {found['name']!r}") from error
        if not callable(function):
            raise ValueError(f"--map_image is {text!r}: {found['name']!r} is not a function")
        try:
            made = cls.of(function, found["version"] or "")
        except ValueError as error:
            detail = f"no source identifies it: state a version, such as {text}@1"
            raise ValueError(f"--map_image is {text!r}: {detail}") from error
        return dataclasses.replace(made, module=found["module"], name=found["name"])

    @classmethod
    def named(cls, text: str) -> MapImage:
        """The function from its text in a manifest, as `str` writes it; it cannot be loaded."""
        label, _, identity = text.rpartition("@")
        module, _, name = label.partition(":")
        return cls(module, name, identity)

    def load(self) -> Callable[[Any], object]:
        """The function.

        Raises:
            JobError: this machine lacks a module that the function needs.
        """
        try:
            function: Callable[[Any], object] = pickle.loads(self.pickled or b"")  # made by this job  # nosec B301
        except Exception as error:
            raise JobError(
                f"--map_image is {self.label}, which this worker cannot load: {type(error).__name__}: "
                f"{error}; install what it imports on the workers"
            ) from error
        return function


def _is_in_module(function: object, name: str, module: ModuleType | None) -> bool:
    """Whether the module has the function under its name, so that the source of the module determines it."""
    try:
        return functools.reduce(getattr, name.split("."), module) is function
    except AttributeError:
        return False


def _own_modules(module: ModuleType) -> list[ModuleType]:
    """The module and those that it imports, except installed ones; by name."""
    found: dict[str, ModuleType] = {}
    todo = [module]
    while todo:
        one = todo.pop()
        if one.__name__ not in found:
            found[one.__name__] = one
            if _is_own(one):
                todo += _imported(one)
    return [found[name] for name in sorted(found)]


def _imported(module: ModuleType) -> Iterator[ModuleType]:
    """The own modules that a module or its functions import, with their packages."""
    names = [value.__name__ for value in vars(module).values() if isinstance(value, ModuleType)]
    with contextlib.suppress(OSError, TypeError, SyntaxError, ValueError):  # its source is not known
        for node in ast.walk(ast.parse(_source(module))):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                dots = "." * node.level
                package = importlib.util.resolve_name(f"{dots}{node.module or ''}", module.__package__)
                names += [f"{package}.{alias.name}" for alias in node.names]
    for name in names:
        for parent in itertools.accumulate(name.split("."), "{}.{}".format):
            one = _module(parent)
            if one is None or not _is_own(one):
                break
            yield one
            if not hasattr(one, "__path__"):
                break


def _module(name: str) -> ModuleType | None:
    """The module of a name; one that is not yet imported is not executed. None if there is none."""
    if name in sys.modules:
        return sys.modules[name]
    try:
        spec = importlib.util.find_spec(name)
        return None if spec is None else importlib.util.module_from_spec(spec)
    except (Exception, SystemExit):  # of its package, which this imports
        return None


def _is_own(module: ModuleType) -> bool:
    """Whether a module is neither installed, nor part of Python or of this package."""
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if file is None or module.__name__.partition(".")[0] == "recordmill":
        return False
    path = os.path.realpath(file)
    if _INSTALLED & set(path.split(os.sep)):
        return False
    standard = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    return not any(path.startswith(f"{folder}{os.sep}") for folder in standard)


def _source_digest(modules: list[ModuleType]) -> str:
    """The start of a SHA-256 of the sources of modules; empty if one is not available."""
    hashed = hashlib.sha256()
    try:
        for module in modules:
            source = _source(module)
            hashed.update(b"%s %d\n%s" % (module.__name__.encode(), len(source), source))
    except (OSError, TypeError):
        return ""
    return f"sha256:{hashed.hexdigest()[:_DIGITS]}"


_sources: dict[int, tuple[object, bytes]] = {}


def _source(module: ModuleType) -> bytes:
    """The source of a module when this was first called: the file may be edited later.

    Raises:
        OSError, TypeError: it is not available.
    """
    imported = module.__spec__ or module  # a reloaded module has another one
    if id(imported) not in _sources:
        try:
            source = inspect.getsource(module).encode("utf-8", "surrogatepass")
        except (OSError, TypeError):
            file = getattr(module, "__file__", None)
            if os.path.getsize(file) if file else not hasattr(module, "__path__"):
                raise
            source = b""  # an empty file, or a package without one
        _sources[id(imported)] = (imported, source)
    return _sources[id(imported)][1]


def _pickled(function: object, modules: list[ModuleType], label: str) -> bytes:
    """A function with its code, so that workers need not have its module; by its name if that fails.

    Raises:
        ValueError: it cannot be pickled.
    """
    import cloudpickle

    for by_value in ([one for one in modules if _is_own(one) and one.__name__ in sys.modules], []):
        try:
            with _sent_with_code(by_value):
                packed: bytes = cloudpickle.dumps(function)
            return packed
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
    raise ValueError(f"map_image is {label}, which cannot be sent to workers: {detail}")


@contextlib.contextmanager
def _sent_with_code(modules: list[ModuleType]) -> Iterator[None]:
    """Within the block, functions and classes of these modules are pickled with their code."""
    import cloudpickle

    before = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in modules if module.__name__ not in before]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)
