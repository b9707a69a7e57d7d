"""deploy/Dockerfile: read, since no engine is at hand that would build it."""

import ast
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
# What the lock's markers are asked about.
IMAGE_PYTHON = {
    "python_version": "3.11",
    "python_full_version": "3.11.9",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
    "extra": "",
}


def instructions() -> list[tuple[str, str]]:
    """(INSTRUCTION, the rest) of each instruction of the Dockerfile."""
    lines = (ROOT / "deploy/Dockerfile").read_text("utf-8").replace("\\\n", " ").splitlines()
    found = [line.partition(" ") for line in lines if line.strip() and not line.startswith("#")]
    return [(name, " ".join(rest.split())) for name, _, rest in found]


def args() -> dict[str, str]:
    """Defaults of the build arguments, images without their digests."""
    pairs = [rest.partition("=") for name, rest in instructions() if name == "ARG"]
    return {name: value.partition("@")[0] for name, equals, value in pairs if equals}


def expanded(text: str) -> str:
    for name, value in args().items():
        text = text.replace(f"${{{name}}}", value)
    assert "$" not in text
    return text


def bases() -> list[str]:
    """The image of each stage."""
    return [expanded(rest.split()[0]) for name, rest in instructions() if name == "FROM"]


def pins(path: str) -> dict[str, str]:
    """version by package, of a lock, as the image's Python reads it."""
    found: dict[str, str] = {}
    for line in (ROOT / path).read_text("utf-8").replace("\\\n", " ").splitlines():
        text, *hashes = line.split(" --hash=")
        assert hashes and all(each.startswith("sha256:") for each in hashes), line
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(IMAGE_PYTHON):
            (pin,) = requirement.specifier
            assert pin.operator == "==", line
            found[canonicalize_name(requirement.name)] = pin.version
    return found


def setup_arguments() -> dict[str, object]:
    """The literal arguments of setup.py."""
    tree = ast.parse((ROOT / "setup.py").read_text("utf-8"))
    (call,) = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "setup"
    ]
    arguments = {}
    for keyword in call.keywords:
        try:
            arguments[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except ValueError:
            continue
    return arguments


def test_python_and_beam_are_the_same_everywhere() -> None:
    python = IMAGE_PYTHON["python_version"]
    beam = pins("requirements-dev.lock")["apache-beam"]
    launcher = f"python{python.replace('.', '')}-template-launcher-base"
    assert [image if "launcher" not in image else image.partition(":")[0] for image in bases()] == [
        f"apache/beam_python{python}_sdk:{beam}",
        f"gcr.io/dataflow-templates-base/{launcher}",
        f"python:{python}-slim",
        f"python:{python}-slim",
    ]
    assert SpecifierSet(str(setup_arguments()["python_requires"])).contains(f"{python}.9")
    compiled = re.search(
        r"--python-version (\S+) --python-platform linux", (ROOT / "Makefile").read_text("utf-8")
    )
    assert compiled is not None
    assert compiled[1] == python


@pytest.mark.parametrize(
    "path", ["requirements.lock", "deploy/requirements.lock", "deploy/vertex/requirements.lock"]
)
def test_the_pins_are_those_of_the_largest_lock(path: str) -> None:
    some, lock = pins(path), pins("requirements-dev.lock")
    assert len(some) > 50
    different = {name: version for name, version in some.items() if lock.get(name) != version}
    assert {name for name in different if name in lock or not name.startswith("nvidia-")} == set()


def test_all_that_a_conversion_needs_is_there_and_nothing_else() -> None:
    image = pins("deploy/requirements.lock")
    arguments = setup_arguments()
    extras, needed = arguments["extras_require"], arguments["install_requires"]
    assert isinstance(extras, dict)
    assert isinstance(needed, list)
    for text in [*needed, *extras["gcp"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(image[canonicalize_name(requirement.name)]), text
    assert "google-cloud-dataflow-client" in image
    unwanted = {canonicalize_name(Requirement(text).name) for text in [*extras["tensorflow"], *extras["dev"]]}
    unwanted -= {"apache-beam"}
    assert {"tensorflow", "pytest", "mypy"} <= unwanted
    assert not unwanted & set(image)
    assert not [name for name in image if "tensorflow" in name or "keras" in name]


def ignored(path: str) -> bool:
    """Whether .dockerignore leaves a path out: the last line that matches it, or a folder of it, decides."""
    out = False
    parents = [path, *(str(parent) for parent in Path(path).parents if str(parent) != ".")]
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!").removeprefix("**/")
        names = [part for each in parents for part in (each, Path(each).name)] if "**/" in line else parents
        depth = pattern.count("/")
        if any(fnmatch(name, pattern) and ("**/" in line or name.count("/") == depth) for name in names):
            out = not line.startswith("!")
    return out


def test_what_is_copied_is_there_and_not_ignored() -> None:
    copied = []
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from="):
            copied += rest.split()[:-1]
    assert {"setup.py", "recordmill", "pipelines", "transforms", "deploy/requirements.lock"} <= set(copied)
    for path in copied:
        assert (ROOT / path).exists(), path
        assert not ignored(path), path
    for path in (
        "tests/conftest.py",
        ".git/config",
        "deploy/terraform/launch.tf",
        "pipelines/__pycache__/x.pyc",
    ):
        assert ignored(path), path
    assert not ignored("transforms/shards/manifest.schema.json")


def test_stages_that_are_copied_from_are_there() -> None:
    stages = {rest.split(" AS ")[1] for name, rest in instructions() if name == "FROM" and " AS " in rest}
    sources = [
        re.findall(r"--from=(\S+) (\S+) (\S+)", rest) for name, rest in instructions() if name == "COPY"
    ]
    copied = [found for each in sources for found in each]
    assert {stage for stage, _, _ in copied} == stages
    # Where the launcher and the boot program are looked for.
    assert ("beam", "/opt/apache/beam", "/opt/apache/beam") in copied
    program = "/opt/google/dataflow/python_template_launcher"
    assert ("launcher", program, program) in copied
    assert instructions()[-1] == ("ENTRYPOINT", '["/opt/apache/beam/boot"]')


def test_the_package_is_installed_whole_and_checked() -> None:
    runs = [shlex.split(rest) for name, rest in instructions() if name == "RUN"]
    assert any("check" in run[run.index("pip", 1) :] for run in runs if run.count("pip") > 1)
    for run in runs:
        assert not {"-e", "--editable"} & set(run)
        if "install" in run and run[:2] == ["uv", "pip"]:
            assert "--compile-bytecode" in run
    assert [word for run in runs for word in run if word.startswith("--only")] == ["--only-binary=:all:"]


def test_the_launcher_finds_the_entry_file() -> None:
    values = dict(rest.split("=", 1) for name, rest in instructions() if name == "ENV")
    path = expanded(values["FLEX_TEMPLATE_PYTHON_PY_FILE"])
    folder, _, entry = path.partition("/site-packages/")
    assert folder == f"/usr/local/lib/python{IMAGE_PYTHON['python_version']}"
    assert (
        (ROOT / entry.removeprefix("recordmill/"))
        .read_text("utf-8")
        .endswith('if __name__ == "__main__":\n    sys.exit(main())\n')
    )
    # With either of these the launcher would stage what is in the image already.
    assert not [name for name in values if name.endswith(("_SETUP_FILE", "_REQUIREMENTS_FILE"))]
