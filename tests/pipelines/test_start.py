"""What a command imports: no more than it needs, since that is most of the time of a short job."""

import json
import subprocess
import sys

import pytest


def imported(code: str, *names: str) -> set[str]:
    """Which of the modules are imported after the code has run, in an interpreter of its own."""
    report = f"import json, sys; print(json.dumps(sorted({set(names)!r} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_imports_next_to_nothing() -> None:
    code = (
        "from recordmill.pipelines import cli\n"
        "try:\n    cli.main(['convert', '--help'])\n"
        "except SystemExit as stop:\n    assert stop.code == 0"
    )
    assert (
        imported(
            code, "numpy", "PIL", "rich.table", "apache_beam", "google.protobuf", "http.client", "jinja2"
        )
        == set()
    )


@pytest.mark.slow
def test_templates_are_read_when_a_page_is_made() -> None:
    modules = ("sweep", "publish", "reporting.tasks", "reporting.page", "sweeping.page")
    imports = "; ".join(f"import recordmill.transforms.{name}" for name in modules)
    assert imported(imports, "jinja2", "markupsafe", "matplotlib") == set()


SLOW = pytest.mark.slow
CLOUD = ("apache_beam.io.gcp.gcsfilesystem", "apache_beam.io.gcp.bigquery", "apitools", "pyarrow")


@pytest.mark.parametrize(
    ("is_command", "needs_cloud"),
    [(True, False), pytest.param(True, True, marks=SLOW), pytest.param(False, False, marks=SLOW)],
)
def test_beam_comes_without_the_parts_that_a_local_job_does_not_use(
    is_command: bool, needs_cloud: bool
) -> None:
    """But only in the process of the command: in others, Beam is not ours alone."""
    pytest.importorskip("apitools")
    code = (
        "from recordmill.pipelines.running import beam_import\n"
        f"{'beam_import.run_one_job()' if is_command else ''}\n"
        f"beam_import.import_beam({needs_cloud})"
    )
    expected = set() if is_command and not needs_cloud else set(CLOUD)
    assert imported(code, "apache_beam", *CLOUD) == {"apache_beam", *expected}
