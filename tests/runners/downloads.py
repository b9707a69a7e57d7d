"""What the runners need that is not Python: built or fetched once, and kept outside the checkout."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import apache_beam
import pytest

VERSION = apache_beam.__version__
CACHE = Path(os.environ.get("RECORDMILL_CACHE") or "~/.cache/recordmill").expanduser()
_MINUTES = 15

# Where Maven has not the job server in one piece, it is put together of its parts: the newest runner of which
# all are there.
_PARTS = ("beam-runners-flink-1.19", "2.62.0")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>recordmill</groupId>
  <artifactId>job-server</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.beam</groupId><artifactId>{}</artifactId><version>{}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.30</version></dependency>
  </dependencies>
</project>
"""


def flink_job_server() -> Path:
    """The jar of Beam's job server for Flink, which holds, or names, the classes of Flink too; else skips."""
    whole = CACHE / f"beam-runners-flink-1.20-job-server-{VERSION}.jar"
    parts = CACHE / "-".join(("job-server", *_PARTS)) / "job-server.jar"
    for jar in (whole, parts):
        if jar.exists():
            return jar
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}, which the job server of Flink wants")
    CACHE.mkdir(parents=True, exist_ok=True)
    artifact = f"-Dartifact=org.apache.beam:{whole.stem.removesuffix(f'-{VERSION}')}:{VERSION}"
    if not _maven("dependency:copy", artifact, f"-DoutputDirectory={CACHE}"):
        return whole
    if said := _gather(parts):
        pytest.skip(f"Maven has no job server of Flink: {said}")
    return parts


def _gather(jar: Path) -> str:
    """Fetches all that the runner is made of, and makes a jar that names it; or says why not."""
    folder = jar.parent
    folder.mkdir(exist_ok=True)
    (folder / "pom.xml").write_text(_POM.format(*_PARTS))
    copied = folder / "jars"
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={copied}")
    if said := _maven(f"--file={folder / 'pom.xml'}", *goal):
        return said
    names = " ".join(f"jars/{path.name}" for path in sorted(copied.glob("*.jar")))
    lines = ["Manifest-Version: 1.0", "Main-Class: org.apache.beam.runners.flink.FlinkJobServerDriver"]
    # A line has 72 bytes at most, and goes on behind a space.
    classes = f"Class-Path: {names}"
    lines += [classes[:70], *(f" {classes[start : start + 69]}" for start in range(70, len(classes), 69))]
    unfinished = folder / "unfinished"
    with zipfile.ZipFile(unfinished, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "\r\n".join([*lines, "", ""]))
    unfinished.replace(jar)
    return ""


def _maven(*args: str) -> str:
    """Runs Maven; what is wrong, or nothing."""
    call = ["mvn", "--batch-mode", "--quiet", *args]
    try:
        done = subprocess.run(call, cwd=CACHE, capture_output=True, text=True, timeout=_MINUTES * 60)
    except subprocess.TimeoutExpired:
        return f"no end after {_MINUTES} minutes"
    errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
    return (errors or ["Maven failed"])[0] if done.returncode else ""


def prism() -> Path:
    """The program Prism of Beam's own version, built from its Go module; else skips."""
    program = CACHE / f"prism-{VERSION}" / "prism"
    if program.exists():
        return program
    if shutil.which("go") is None:
        pytest.skip("there is no go, which Prism is built with")
    program.parent.mkdir(parents=True, exist_ok=True)
    module = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{VERSION}"
    environment = {**os.environ, "GOBIN": str(program.parent)}
    done = subprocess.run(
        ["go", "install", module], cwd=CACHE, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"Prism cannot be built: {done.stderr.strip().splitlines()[-1:]}")
    return program
