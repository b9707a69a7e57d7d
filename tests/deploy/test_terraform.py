"""deploy/terraform: parsed, and its names followed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import hcl2
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from benchmarks.drawings import draw_folder
from recordmill.pipelines.options.convert import parse_convert
from recordmill.transforms.read import ReadSource
from recordmill.transforms.write import WriteDataset
from tests.dataflow.test_counters import counters

FOLDER = Path(__file__).parents[2] / "deploy/terraform"
WIDE_ROLES = re.compile(r"roles/(owner|editor|viewer|.*\.[aA]dmin|admin)$")
PROJECT_ROLES = {
    "roles/dataflow.worker",
    "roles/dataflow.developer",
    "roles/cloudbuild.builds.editor",
    "roles/logging.logWriter",
    "roles/serviceusage.serviceUsageConsumer",
}
BUCKET_ROLES = {"roles/storage.objectViewer", "roles/storage.objectUser", "roles/storage.legacyBucketReader"}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three images of three labels."""
    folder = tmp_path / "photos"
    assert len(list(draw_folder(folder, each=1))) == 3
    return folder


def unquoted(tree: Any) -> Any:
    """A parsed tree without the quotes around keys and plain texts, and without notes of the parser."""
    if isinstance(tree, dict):
        return {key.strip('"'): unquoted(value) for key, value in tree.items() if not key.startswith("__")}
    if isinstance(tree, list):
        return [unquoted(value) for value in tree]
    return tree.strip('"') if isinstance(tree, str) else tree


def parsed() -> dict[str, list[Any]]:
    """The blocks of all files, by kind."""
    blocks: dict[str, list[Any]] = {}
    for path in sorted(FOLDER.glob("*.tf")):
        with path.open(encoding="utf-8") as file:
            for kind, found in unquoted(hcl2.load(file)).items():
                blocks.setdefault(kind, []).extend(found)
    return blocks


BLOCKS = parsed()


def named(kind: str) -> dict[str, Any]:
    """Blocks with one label, by it."""
    found = [pair for block in BLOCKS[kind] for pair in block.items()]
    assert len(dict(found)) == len(found)
    return dict(found)


def resources(kind: str = "resource") -> dict[tuple[str, str], Any]:
    """Resources, or data, by type and name."""
    found = [
        ((type_, name), body)
        for block in BLOCKS[kind]
        for type_, named_ in block.items()
        for name, body in named_.items()
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def texts(tree: Any) -> Iterator[str]:
    """Every text in a tree."""
    if isinstance(tree, str):
        yield tree
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []:
        yield from texts(value)


def used(pattern: str, without: str = "") -> set[str]:
    """What a pattern finds in all blocks but those of a kind."""
    return {
        found
        for kind, blocks in BLOCKS.items()
        if kind != without
        for text in texts(blocks)
        for found in re.findall(pattern, text)
    }


def test_every_file_is_read() -> None:
    assert len(list(FOLDER.glob("*.tf"))) >= 8
    assert {"terraform", "provider", "variable", "locals", "resource", "data", "output"} == set(BLOCKS)


def test_variables_are_declared_and_used() -> None:
    declared = set(named("variable"))
    assert used(r"\bvar\.(\w+)") == declared
    assert used(r"\bvar\.(\w+)", without="variable") == declared
    for name, variable in named("variable").items():
        assert variable["description"].endswith("."), name
        assert "type" in variable, name


def test_locals_are_declared_and_used() -> None:
    declared = {name for block in BLOCKS["locals"] for name in block}
    assert used(r"\blocal\.(\w+)") == declared


def test_resources_that_are_named_are_there() -> None:
    declared = {f"{type_}.{name}" for type_, name in resources()}
    # Not in texts, such as dataflow.googleapis.com: only what Terraform evaluates.
    named_ = used(r"(?<![\w./])(google_\w+\.\w+)")
    data = used(r"\bdata\.(google_\w+\.\w+)")
    assert named_ <= declared
    assert {f"{type_}.{name}" for type_, name in resources("data")} == data
    assert all(f"{type_}.{name}" in named_ or is_an_end(type_) for type_, name in resources())


def is_an_end(type_: str) -> bool:
    """Whether nothing has to refer to resources of a type."""
    return type_.endswith("_iam_member") or "alert_policy" in type_ or type_ == "google_cloud_scheduler_job"


def test_the_provider_is_pinned() -> None:
    (block,) = BLOCKS["terraform"]
    (providers,) = block["required_providers"]
    assert re.fullmatch(r"~> \d+\.\d+", providers["google"]["version"])
    assert block["required_version"]
    assert {type_.split("_")[0] for type_, _ in resources()} == {"google"}


def roles() -> dict[str, set[str]]:
    """Roles that are granted, by the type of what they are granted on."""
    found: dict[str, set[str]] = {}
    for (type_, _), body in resources().items():
        if "_iam_" in type_:
            assert type_.endswith("_iam_member"), "a binding or policy would take the rights of others"
            found.setdefault(type_.removesuffix("_iam_member"), set()).add(body["role"])
    return found


def test_rights_are_few() -> None:
    granted = roles()
    assert granted["google_project"] == PROJECT_ROLES
    assert granted["google_storage_bucket"] == BUCKET_ROLES
    for each in granted.values():
        assert [role for role in each if WIDE_ROLES.fullmatch(role)] == []
    assert not {"allUsers", "allAuthenticatedUsers"} & set(texts(BLOCKS["resource"]))


def test_the_scheduler_may_act_as_the_worker() -> None:
    acts = resources()["google_service_account_iam_member", "starter_acts_as_worker"]
    assert acts["role"] == "roles/iam.serviceAccountUser"
    assert acts["service_account_id"] == "${google_service_account.worker.name}"
    starters = [block["starters"] for block in BLOCKS["locals"] if "starters" in block]
    assert "scheduler = google_service_account.scheduler.member" in starters[0]
    job = resources()["google_cloud_scheduler_job", "convert"]
    (target,) = job["http_target"]
    (token,) = target["oauth_token"]
    assert token["service_account_email"] == "${google_service_account.scheduler.email}"
    assert target["http_method"] == "POST"
    assert target["uri"].endswith("/projects/${var.project}/locations/${var.region}/flexTemplates:launch")
    # Without these the first launch may come before its rights.
    assert "${google_service_account_iam_member.starter_acts_as_worker}" in job["depends_on"]


def test_buckets_are_private_and_temporary_files_go() -> None:
    buckets = {name: body for (type_, name), body in resources().items() if type_ == "google_storage_bucket"}
    assert set(buckets) == {"work", "datasets"}
    for name, body in buckets.items():
        assert body["uniform_bucket_level_access"] is True
        assert body["public_access_prevention"] == "enforced"
        assert body["name"] == f"${{local.names.{name}}}"
        assert "${google_kms_crypto_key_iam_member.agents}" in body["depends_on"]
        assert body["dynamic"][0]["encryption"]["content"][0]["default_kms_key_name"]
    (rule,) = buckets["work"]["lifecycle_rule"]
    assert rule["action"] == [{"type": "Delete"}]
    prefixes = [prefix.strip('"') for prefix in rule["condition"][0]["matches_prefix"]]
    assert prefixes == ["builds/", "staging/", "temp/"]
    # Datasets stay.
    assert [rule["action"] for rule in buckets["datasets"]["lifecycle_rule"]] == [
        [{"type": "AbortIncompleteMultipartUpload"}]
    ]


def alerts() -> dict[str, Any]:
    return {
        name: body for (type_, name), body in resources().items() if type_ == "google_monitoring_alert_policy"
    }


def test_there_are_alerts_for_a_failed_job_and_for_none() -> None:
    found = alerts()
    assert set(found) == {"failed", "not_launched", "no_success"}
    for body in found.values():
        assert body["notification_channels"] == "${var.notification_channels}"
        assert "deploy/README.md" in body["documentation"][0]["content"]
    (failed,) = found["failed"]["conditions"][0]["condition_threshold"]
    assert "dataflow.googleapis.com/job/is_failed" in failed["filter"]
    assert "${var.name}" in failed["filter"]
    (absent,) = found["no_success"]["conditions"][0]["condition_prometheus_query_language"]
    assert "[${var.days_without_success}d]" in absent["query"]
    # Of a metric of log lines alerts see 25 hours; a metric that never was is no success either.
    labels = r'\{monitored_resource="dataflow_job",job_name="\$\{var.name\}",metric_name=~"\w+\|\w+"\}'
    assert re.search(f"job_user_counter{labels}", absent["query"].replace('\\"', '"'))
    assert "logging_googleapis_com" not in absent["query"]
    assert "or vector(0)" in absent["query"]
    assert absent["disable_metric_validation"] is True


def test_what_is_made_waits_for_its_service() -> None:
    used_ = "${google_project_service.used}"
    for (type_, name), body in resources().items():
        if type_ == "google_project_service" or used_ in body.get("depends_on", []):
            continue
        # What it refers to has waited.
        named_ = [text for text in texts(body) if re.search(r"\bgoogle_\w+\.\w+\.|\blocal\.starters\b", text)]
        assert named_, (type_, name)


@pytest.mark.slow
def test_a_job_counts_what_the_alert_looks_for(photos: Path, tmp_path: Path) -> None:
    published, unchanged = looked_for()
    found = counters(photos, tmp_path / "out", "shards")
    assert sum(found[published].values()) == 1
    assert unchanged not in found
    assert (tmp_path / "out/manifest.json").exists()


@pytest.mark.slow
def test_an_unchanged_job_counts_what_the_alert_looks_for(photos: Path, tmp_path: Path) -> None:
    published, unchanged = looked_for()
    output = str(tmp_path / "out")
    call = [f"--input={photos}", f"--output={output}", "--dataset_version=auto", "--num_shards=1"]
    for counted, not_counted in ((published, unchanged), (unchanged, published)):
        options = parse_convert(call, "convert")
        pipeline = beam.Pipeline(FnApiRunner())
        write = WriteDataset(output, options.dataset, options.source.as_json())
        _ = pipeline | ReadSource(options.source) | write
        result = pipeline.run()
        result.wait_until_finish()
        found = {
            counter.key.metric.name: counter.committed for counter in result.metrics().query()["counters"]
        }
        assert found[counted] == 1
        assert not_counted not in found
    assert [path.parent.name for path in (tmp_path / "out").glob("*/manifest.json")] == ["1.0.0"]


def looked_for() -> list[str]:
    """The counters that tell of a job that has ended well."""
    (absent,) = alerts()["no_success"]["conditions"][0]["condition_prometheus_query_language"]
    (names,) = re.findall(r'metric_name=~\\?"([\w|]+)', absent["query"])
    return list(names.split("|"))


def test_texts_that_alerts_refer_to_are_in_the_runbook() -> None:
    readme = (FOLDER.parent / "README.md").read_text("utf-8")
    headings = set(re.findall(r"^#+ (.*)$", readme, re.MULTILINE))
    for body in alerts().values():
        for heading in re.findall(r'See \\?"(.*?)\\?" in', body["documentation"][0]["content"]):
            assert heading in headings
