"""Runs in the formats of other tools: what identifies each number, escaped foreign text, and runs that are refused."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from huggingface_hub import ModelCard
from msgspec.structs import replace

from benchlock.api.export.exported_run import ExportedMetric, ExportedRun, export_run
from benchlock.api.export.mlflow_run import log_to_mlflow
from benchlock.api.export.provenance_statement import format_statement
from benchlock.api.export.text_formats import (
    FORMATS,
    code,
    escape_markdown,
    format_badge,
    format_csv,
    format_markdown,
    format_model_card,
    select_metrics,
)
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError, RefusedError, UnavailableError
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.records.evidence_status import EvidenceStatus, UnverifiedError
from benchlock.evaluator.records.run_types import Hiding, Run
from benchlock.evaluator.records.timing_validity import calls_document
from benchlock.evaluator.statistics.metric_types import Calls
from benchlock.registry.lock.lockfile import Lock, dataset_of, list_blob_references
from benchlock.registry.text.yaml import read_yaml
from tests.support.evaluator.recorded import NOON

TEXTS: dict[str, Callable[[ExportedRun], str]] = dict(FORMATS)


def value_of(exported: ExportedRun, name: str) -> float:
    return next(metric.value for metric in exported.metrics if metric.metric == name)


def test_a_verified_run_is_exported_with_what_identifies_its_bytes(exported: ExportedRun, run: Run, lock: Lock) -> None:
    assert (exported.run, exported.lock) == (run.id, lock.id)
    assert exported.subject.digest == lock.subject.digest
    assert exported.artifacts["dataset"].digest == dataset_of(lock).digest
    assert exported.harness.released
    assert run.end is not None
    assert [metric.metric for metric in exported.metrics] == [metric.key for metric in run.end.metrics]


@pytest.mark.parametrize("name", TEXTS)
def test_every_format_has_the_ids_of_the_run_and_the_lock(name: str, exported: ExportedRun) -> None:
    text = TEXTS[name](select_metrics(exported, ["top1"]))
    assert exported.run in text
    assert exported.lock in text


def refused(run: Run, lock: Lock, registry: LocalRegistry) -> BenchlockError:
    with pytest.raises(BenchlockError) as caught:
        export_run(run, lock, registry.store, SILENT)
    assert caught.value.next_step
    return caught.value


def test_a_run_whose_evidence_was_damaged_after_its_verification_is_not_exported(
    run: Run, lock: Lock, registry: LocalRegistry
) -> None:
    assert run.end is not None
    assert run.evidence is not None
    assert run.evidence.state == "verified"
    path = registry.store.path(run.end.blobs["predictions"].digest)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    error = refused(run, lock, registry)
    assert isinstance(error, IntegrityError)
    assert "predictions" in error.what


def test_a_run_without_its_evidence_is_not_exported(run: Run, lock: Lock, registry: LocalRegistry) -> None:
    assert run.end is not None
    registry.store.path(run.end.blobs["predictions"].digest).unlink()
    assert isinstance(refused(run, lock, registry), IntegrityError)


@pytest.mark.parametrize(
    ("evidence", "kind"),
    [
        (EvidenceStatus("contradicted", ("top1 differs",)), IntegrityError),
        (EvidenceStatus("unverified", ("a blob is missing",), damaged=True), IntegrityError),
        (EvidenceStatus("unverified", ("a library is missing",)), UnverifiedError),
        (None, UnverifiedError),
    ],
)
def test_a_run_that_is_not_verified_is_not_exported(
    evidence: EvidenceStatus | None, kind: type[BenchlockError], run: Run, lock: Lock, registry: LocalRegistry
) -> None:
    assert isinstance(refused(replace(run, evidence=evidence), lock, registry), kind)


def test_a_run_without_a_result_and_a_hidden_run_are_not_exported(
    run: Run, lock: Lock, registry: LocalRegistry
) -> None:
    assert run.end is not None
    failed = replace(run.end, outcome="failed", failure_class="crash", failure_message="broken", metrics=())
    for changed in (
        replace(run, end=None),
        replace(run, end=failed),
        replace(run, end=replace(run.end, metrics=())),
        replace(run, hidden=Hiding("throttled", NOON)),
    ):
        assert isinstance(refused(changed, lock, registry), RefusedError)


def test_unreliable_and_self_reported_metrics_carry_notes(run: Run, lock: Lock, registry: LocalRegistry) -> None:
    assert run.end is not None
    details = {**run.end.details, "calls": calls_document(Calls(100, 50, "thread"))}
    metrics = tuple(replace(metric, self_reported=metric.name == "top1") for metric in run.end.metrics)
    changed = replace(run, end=replace(run.end, details=details, metrics=metrics))
    exported = export_run(changed, lock, registry.store, SILENT)
    notes = {metric.metric: metric.notes for metric in exported.metrics}
    assert notes["top1"] == ("self-reported",)
    assert notes["latency_p50"][0].startswith("unreliable: ")
    assert "`self-reported`" in format_markdown(exported)
    assert {result.metric_name for result in card_results(exported)} >= {"top1 (self-reported)"}
    with pytest.raises(RefusedError, match="without its notes"):
        format_badge(select_metrics(exported, ["top1"]))


def card_data(exported: ExportedRun) -> Any:  # noqa: ANN401 - huggingface_hub declares the type without its fields
    """The metadata as huggingface_hub reads it from the card; it raises if a required field is missing."""
    return ModelCard(format_model_card(exported)).data


def card_results(exported: ExportedRun) -> list[Any]:
    data = card_data(exported)
    assert data.eval_results
    return list(data.eval_results)


def test_a_model_card_is_valid_for_the_hub(exported: ExportedRun) -> None:
    results = card_results(exported)
    assert len(results) == len(exported.metrics)
    top1 = next(result for result in results if result.metric_name == "top1")
    assert (top1.task_type, top1.metric_type) == ("image-classification", "accuracy")
    assert top1.metric_value == value_of(exported, "top1")
    assert top1.metric_args["benchlock_lock"] == exported.lock
    assert top1.metric_args["benchlock_run"] == exported.run
    assert (top1.dataset_type, top1.dataset_split) == (exported.artifacts["dataset"].name, exported.split)
    assert top1.dataset_args["digest"] == exported.artifacts["dataset"].digest
    card_data(exported).to_yaml()


@pytest.mark.parametrize("value", [1e-05, 3e22, 0.25, 0.0, 1e-300])
def test_numbers_of_a_model_card_are_numbers_in_yaml_1_1_and_1_2(value: float, exported: ExportedRun) -> None:
    changed = replace(exported, metrics=(replace(exported.metrics[0], value=value),))
    (result,) = card_results(changed)  # PyYAML, 1.1
    front = format_model_card(changed).split("---\n")[1]
    ours = read_yaml(front, "card").value["model-index"][0]["results"][0]["metrics"][0]["value"]  # 1.2
    assert result.metric_value == ours == value
    assert isinstance(result.metric_value, float)


def test_texts_that_yaml_1_1_reads_as_other_values_stay_texts(exported: ExportedRun) -> None:
    renamed = {**exported.artifacts, "model": replace(exported.subject, name="no")}
    changed = replace(exported, artifacts=renamed, split="1_000")
    assert card_data(changed).model_name == "no"
    assert card_results(changed)[0].dataset_split == "1_000"


def test_hostile_text_stays_text_in_a_model_card(nasty: ExportedRun) -> None:
    results = card_results(nasty)
    assert len(results) == len(nasty.metrics)
    assert format_model_card(nasty).count("\n---\n") == 1
    assert '=HYPERLINK("http://evil")' in results[0].dataset_type
    assert "\n" not in results[0].dataset_type


def test_hostile_text_is_no_formula_in_csv(nasty: ExportedRun) -> None:
    rows = list(csv.DictReader(io.StringIO(format_csv(nasty))))
    assert len(rows) == len(nasty.metrics)
    cells = [cell for row in rows for cell in row.values()]
    texts = [cell for cell in cells if not re.fullmatch(r"-?[0-9.e+-]*", cell)]
    assert not [cell for cell in texts if cell.lstrip()[:1] in ("=", "+", "-", "@")]
    assert not [cell for cell in cells if "\n" in cell or "\u202e" in cell]
    assert rows[0]["cpu_model"].startswith("'=HYPERLINK")
    assert (rows[0]["run"], rows[0]["lock"]) == (nasty.run, nasty.lock)


def test_numbers_stay_numbers_in_csv(exported: ExportedRun) -> None:
    below_zero = replace(exported.metrics[0], value=-0.5)
    (row,) = csv.DictReader(io.StringIO(format_csv(replace(exported, metrics=(below_zero,)))))
    assert float(row["value"]) == -0.5


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\r=1"])
def test_no_text_cell_begins_as_a_formula(text: str, exported: ExportedRun) -> None:
    (row, *_) = csv.DictReader(io.StringIO(format_csv(replace(exported, cpu_model=text))))
    assert row["cpu_model"][0] in "'\\"


def test_hostile_text_has_no_markup_in_markdown(nasty: ExportedRun) -> None:
    text = format_markdown(nasty)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    pipes, metrics = [row.count("|") for row in rows], len(nasty.metrics) + 2
    assert set(pipes[:metrics]) == {6}
    assert set(pipes[metrics:]) == {5}
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<script>" not in outside
    assert "@everyone" not in outside
    assert "http://" not in outside
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("a", "`a`"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        ("a|b\\|", "`a\\x7cb\\\\x7c`"),
        ("", ""),
        ("a\nb", "`a\\nb`"),
    ],
)
def test_foreign_text_is_a_code_span(text: str, span: str) -> None:
    assert code(text) == span


def test_composed_text_has_no_markup() -> None:
    assert escape_markdown("a_b <b> [x](y) | `c`") == r"a\_b \<b\> \[x\]\(y\) \| \`c\`"


def test_hostile_text_is_escaped_in_a_badge(nasty: ExportedRun) -> None:
    metric = replace(nasty.metrics[0], notes=(), metric='"><script>alert(1)</script>')
    root = ET.fromstring(format_badge(replace(nasty, metrics=(metric,))))
    assert {element.tag.rpartition("}")[2] for element in root.iter()} == {"svg", "title", "rect", "g", "text"}
    assert "<script>" in "".join(root.itertext())


def test_a_badge_shows_one_metric(exported: ExportedRun) -> None:
    badge = format_badge(select_metrics(exported, ["top1"]))
    texts = [element.text for element in ET.fromstring(badge).iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["top1", f"{value_of(exported, 'top1'):.4f} | {exported.lock[:15]}"]
    with pytest.raises(InvalidInputError, match="one metric"):
        format_badge(exported)


def test_a_statement_names_the_files_of_the_run_and_everything_that_they_depend_on(run: Run, lock: Lock) -> None:
    statement = json.loads(format_statement(run, lock))
    assert run.end is not None
    assert {one["name"]: f"sha256:{one['digest']['sha256']}" for one in statement["subject"]} == {
        role: blob.digest for role, blob in run.end.blobs.items()
    }
    definition, details = (statement["predicate"][key] for key in ("buildDefinition", "runDetails"))
    assert definition["externalParameters"]["lock"] == lock.id
    assert definition["externalParameters"]["request"]["model"]["name"] == lock.subject.name
    digests = [f"sha256:{one['digest']['sha256']}" for one in definition["resolvedDependencies"]]
    assert len(digests) == len(set(digests))
    assert {artifact.digest for artifact in lock.artifacts().values()} | {lock.harness.digest} <= set(digests)
    assert {one.digest for one in list_blob_references(lock) if one.platform is None} <= set(digests)
    used = {str(one.platform) for one in list_blob_references(lock) if one.digest in digests and one.platform}
    assert used == {run.start.platform_name}
    assert details["metadata"]["invocationId"] == run.id


def test_formats_about_models_refuse_a_training(exported: ExportedRun) -> None:
    artifacts = dict(exported.artifacts)
    training = replace(exported, artifacts={"recipe": artifacts.pop("model")} | artifacts)
    with pytest.raises(RefusedError, match="evaluated recipe/"):
        format_model_card(training)
    assert json.loads(FORMATS["json"](training))["recipe"]["digest"] == exported.subject.digest
    operator = replace(training, artifacts={"operator": artifacts["image"]}, split="", task="")
    for name in ("csv", "markdown"):
        assert exported.artifacts["dataset"].digest not in TEXTS[name](operator)


def test_json_holds_every_field(exported: ExportedRun, nasty: ExportedRun) -> None:
    for each in (exported, nasty):
        text = FORMATS["json"](each)
        document = json.loads(text)
        assert "artifacts" not in document
        document["artifacts"] = {kind: document.pop(kind) for kind in each.artifacts}
        assert msgspec.convert(document, ExportedRun) == each
        assert "\u202e" not in text


def test_an_unknown_metric_is_named_with_the_known_ones(exported: ExportedRun) -> None:
    with pytest.raises(InvalidInputError) as caught:
        select_metrics(exported, ["top9"])
    assert "top1" in str(caught.value.next_step)


def test_without_mlflow_the_error_names_the_next_step(exported: ExportedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(UnavailableError, match="MLflow is not installed") as caught:
        log_to_mlflow(exported)
    assert "install" in str(caught.value.next_step)


@pytest.mark.filterwarnings("ignore")  # of MLflow
def test_a_run_is_logged_to_mlflow_once(exported: ExportedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow: install it beside benchlock to test the export to it")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    sweep = (*exported.metrics, replace(exported.metrics[0], metric="throughput@8", value=9.0))
    changed = replace(exported, metrics=sweep)
    logged, again = log_to_mlflow(changed), log_to_mlflow(changed)
    assert (logged.created, again.created, again.run_id) == (True, False, logged.run_id)
    run = mlflow.MlflowClient().get_run(logged.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["top1"] == value_of(exported, "top1")
    assert run.data.metrics["throughput/batch-8"] == 9.0
    assert run.data.tags["benchlock.run"] == exported.run
    assert run.data.tags["benchlock.lock"] == exported.lock
    assert run.data.tags["benchlock.model.digest"] == exported.subject.digest


def test_an_exported_metric_has_every_field_of_a_row(exported: ExportedRun) -> None:
    header = format_csv(exported).splitlines()[0].split(",")
    assert header[: len(ExportedMetric.__struct_fields__)] == list(ExportedMetric.__struct_fields__)
