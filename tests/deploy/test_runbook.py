"""deploy/README.md: its make commands are run with a gcloud that notes, its figures held against files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from recordmill.pipelines.options.convert import CONVERT
from tests.deploy.test_make import Made
from tests.deploy.test_metadata import PARAMETERS, matches
from tests.deploy.test_terraform import named, resources
from tests.docs.pages import blocks, commands, in_backticks, rows, section

DEPLOY = Path(__file__).parents[2] / "deploy"
README = (DEPLOY / "README.md").read_text("utf-8")
COMMANDS = [words for block in blocks(README) if block.language == "shell" for words in commands(block.text)]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    "command", [words for words in COMMANDS if words[0] == "make"], ids=lambda words: words[1]
)
def test_make_takes_the_commands(command: list[str], tmp_path: Path) -> None:
    make = Made(tmp_path)
    made = make(*command[1:])
    assert made.returncode == 0, made.stderr
    *_, last = make.calls()
    if "--parameters" in last:
        text = last[last.index("--parameters") + 1]
        given = dict(one.split("=", 1) for one in text.removeprefix("^~^").split("~"))
        assert [name for name, value in given.items() if not matches(name, value)] == []


def test_convert_takes_the_commands() -> None:
    (command,) = [words for words in COMMANDS if words[0] == "recordmill"]
    args, others = CONVERT.parser("recordmill").parse_known_args(command[2:])
    assert args.plan is True
    assert args.runner == "DataflowRunner"
    assert [flag.split("=")[0] for flag in others] == ["--project", "--region", "--temp_location"]


def test_terraform_is_given_variables_that_it_has() -> None:
    variables = named("variable")
    given = [words[words.index("-var") :] for words in COMMANDS if "-var" in words]
    assert len(given) == 2
    for words in given:
        names = {word.split("=")[0] for word in words if "=" in word}
        assert names <= set(variables)
        assert {name for name, variable in variables.items() if "default" not in variable} <= names


def test_the_table_has_every_variable() -> None:
    table = section("### Variables", README)
    described = {name: default for names, _, default, _ in rows(table) for name in in_backticks(names)}
    variables = named("variable")
    assert described.keys() == variables.keys()
    for name, default in described.items():
        value = variables[name].get("default", "required")
        assert default.strip("`") == json.dumps(value).strip('"')


def test_the_files_are_all_there_are() -> None:
    told = {
        name.rstrip("/")
        for row in re.findall(r"^\| (`.*?) \|", README.partition("\n## ")[0], re.MULTILINE)
        for name in re.findall("`(.*?)`", row)
    }
    there = {path.name for path in DEPLOY.iterdir()}
    assert told | {"README.md", "requirements.lock"} == there


def test_links_lead_somewhere() -> None:
    titles = re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
    targets = re.findall(r"\]\(#([^)]+)\)", README)
    assert targets
    assert set(targets) <= anchors


def test_the_figures_are_those_of_terraform() -> None:
    text = " ".join(README.split())
    (rule,) = resources()["google_storage_bucket", "work"]["lifecycle_rule"]
    assert f"temporary files are deleted after {rule['condition'][0]['age']} days" in text
    (keep, _) = resources()["google_artifact_registry_repository", "images"]["cleanup_policies"]
    assert keep["most_recent_versions"][0]["keep_count"] == 10
    assert "the ten newest images are kept" in text
    assert f"`max_workers` ({named('variable')['max_workers']['default']} in Terraform)" in text
    assert "evaluated each hour" in text
    keep = named("variable")["keep_versions"]["default"]
    assert f"`keep_versions={keep}`" in text
    assert f"`keep_versions` ({keep}; null keeps all)" in text
    (absent,) = resources()["google_monitoring_alert_policy", "no_success"]["conditions"]
    assert absent["condition_prometheus_query_language"][0]["evaluation_interval"] == "3600s"


def test_the_names_in_backticks_are_parameters_or_variables() -> None:
    known = {*PARAMETERS, *named("variable")}
    for name in (
        "overwrite",
        "dataset_version",
        "keep_versions",
        "versions",
        "output_folder",
        "paused",
        "writer",
        "max_failure_ratio",
        "read_buckets",
        "days_without_success",
        "kms_key",
    ):
        assert name in known
        assert f"`{name}" in README
