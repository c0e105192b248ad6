"""The submission folder: its files, the facts that MLCommons' checker needs, and runs that it cannot be made of."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.api.export.exported_run import ExportedRun
from benchlock.api.export.submission_folder import write_submission
from benchlock.api.export.text_formats import select_metrics
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.harness.performance.loadgen_traces import split_entries
from benchlock.evaluator.records.run_types import Run
from benchlock.registry.lock.lockfile import Lock, load
from tests.api.export.conftest import NASTY
from tests.support.api.commands import Commands

PLACE = "open/a-lab/results/A-CPU-CPU/digits/SingleStream"
FILES = {
    "open/a-lab/model_mapping.json",
    "open/a-lab/src/digits-SingleStream.lock",
    "open/a-lab/systems/A-CPU-CPU.json",
    f"{PLACE}/README.md",
    f"{PLACE}/measurements.json",
    f"{PLACE}/user.conf",
    f"{PLACE}/accuracy/accuracy.txt",
    f"{PLACE}/accuracy/mlperf_log_accuracy.json",
    f"{PLACE}/accuracy/mlperf_log_detail.txt",
    f"{PLACE}/accuracy/mlperf_log_summary.txt",
    f"{PLACE}/performance/run_1/mlperf_log_detail.txt",
    f"{PLACE}/performance/run_1/mlperf_log_summary.txt",
}
NEEDED = (
    *("division", "submitter", "system_type", "status", "system_name", "number_of_nodes", "host_processor_model_name"),
    *("host_processors_per_node", "host_processor_core_count", "host_memory_capacity", "host_memory_configuration"),
    *("host_storage_capacity", "host_storage_type", "host_networking", "host_network_card_count"),
    *("host_networking_topology", "accelerators_per_node", "accelerator_model_name", "accelerator_memory_capacity"),
    *("accelerator_host_interconnect", "accelerator_memory_configuration", "accelerator_interconnect", "cooling"),
    *("framework", "operating_system", "other_software_stack"),
)
"""The fields of a system description that must not be empty, and those that must be there."""
PRESENT = (
    *("host_processor_frequency", "host_processor_caches", "host_processor_interconnect", "accelerator_frequency"),
    *("accelerator_interconnect_topology", "accelerator_on-chip_memories", "hw_notes", "sw_notes"),
    "system_type_detail",
)


@pytest.fixture
def folder(run: Run, lock: Lock, exported: ExportedRun, registry: LocalRegistry, tmp_path: Path) -> Path:
    root = tmp_path / "submission"
    place = write_submission(run, lock, exported, registry.store, root, ("a-lab", "resnet"))
    assert place == root / PLACE
    return root


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def read_entries(path: Path) -> dict[str, Any]:
    lines = [json.loads(text) for _, text in split_entries(path.read_text())]
    assert len(lines) == len(path.read_text().splitlines())
    assert not any(line["metadata"].get("is_error") for line in lines)
    return {line["key"]: line["value"] for line in lines}


def test_every_file_has_its_place_in_the_open_division(folder: Path, lock: Lock) -> None:
    assert files_of(folder) == FILES
    assert load((folder / "open/a-lab/src/digits-SingleStream.lock").read_text(), "lock").id == lock.id


def test_loadgens_logs_are_those_of_the_run(folder: Path, run: Run, registry: LocalRegistry) -> None:
    assert run.end is not None
    for role, name in (("loadgen-detail", "mlperf_log_detail.txt"), ("loadgen-summary", "mlperf_log_summary.txt")):
        written = (folder / PLACE / "performance" / "run_1" / name).read_bytes()
        assert written == registry.store.path(run.end.blobs[role].digest).read_bytes()
    assert (
        read_entries(folder / PLACE / "performance" / "run_1" / "mlperf_log_detail.txt")["result_validity"] == "VALID"
    )


def test_the_descriptions_have_the_fields_that_the_checker_needs(folder: Path, exported: ExportedRun) -> None:
    system = json.loads((folder / "open/a-lab/systems/A-CPU-CPU.json").read_text())
    assert all(system[name] for name in NEEDED)
    assert set(system) == {*NEEDED, *PRESENT}
    assert (system["division"], system["submitter"], system["status"]) == ("open", "a-lab", "rdi")
    assert int(system["number_of_nodes"]) * int(system["accelerators_per_node"]) == 0
    assert (system["host_memory_capacity"], system["cooling"]) == ("25.8 GB", "not recorded")
    measured = json.loads((folder / PLACE / "measurements.json").read_text())
    assert all(measured.values())
    assert measured["input_data_types"] == "float32"
    assert re.search(r"sha256:[0-9a-f]{64}", measured["starting_weights_filename"])
    assert set(measured) == {
        *("input_data_types", "retraining", "starting_weights_filename", "weight_data_types", "weight_transformations")
    }
    assert json.loads((folder / "open/a-lab/model_mapping.json").read_text()) == {exported.subject.name: "resnet"}


def test_the_accuracy_is_that_of_the_run_and_its_log_says_who_wrote_it(folder: Path, run: Run) -> None:
    assert run.end is not None
    top1 = next(metric for metric in run.end.metrics if metric.name == "top1")
    lines = (folder / PLACE / "accuracy" / "accuracy.txt").read_text().splitlines()
    assert lines[0] == f"accuracy={top1.value:.3%}, good=1, total=2"
    assert lines[-1] == f"hash={run.end.blobs['predictions'].digest.removeprefix('sha256:')}"
    entries = read_entries(folder / PLACE / "accuracy" / "mlperf_log_detail.txt")
    assert (entries["effective_scenario"], entries["effective_accuracy_sample_count"]) == ("SingleStream", 2)
    assert entries["benchlock_notice"].startswith("LoadGen did not write this log")
    assert not any(key.startswith(("loadgen_", "result_")) for key in entries)


def test_the_settings_are_those_of_the_lock(folder: Path, lock: Lock) -> None:
    lines = (folder / PLACE / "user.conf").read_text().splitlines()
    assert f"*.SingleStream.min_duration = {round(lock.scenario['min_duration'] * 1000)}" in lines
    assert f"*.SingleStream.qsl_rng_seed = {lock.scenario['seeds']['qsl']}" in lines
    assert not any("None" in line for line in lines)


def test_no_number_goes_under_the_name_of_mlperf(folder: Path, run: Run) -> None:
    text = (folder / PLACE / "README.md").read_text()
    assert "This is not an MLPerf result." in text
    assert "nor reviewed or verified" in text
    assert run.id in text
    assert run.start.lock in text
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "README.md" and "performance" not in path.parts:
            assert not re.search(r"(?i)(?<!not an )mlperf(?!_log)", path.read_text()), path


def test_a_second_run_joins_the_folder(
    folder: Path, run: Run, lock: Lock, exported: ExportedRun, registry: LocalRegistry
) -> None:
    other = replace(exported, artifacts={**exported.artifacts, "model": replace(exported.subject, name="other")})
    write_submission(run, lock, other, registry.store, folder, ("a-lab", "bert-99"))
    mapping = json.loads((folder / "open/a-lab/model_mapping.json").read_text())
    assert mapping == {"digits": "resnet", "other": "bert-99"}
    assert files_of(folder) > FILES


def test_a_malformed_mapping_is_refused(
    folder: Path, run: Run, lock: Lock, exported: ExportedRun, registry: LocalRegistry
) -> None:
    for content in (b"", b"[1]", b'{"a": 1}', b"\xff"):
        (folder / "open/a-lab/model_mapping.json").write_bytes(content)
        with pytest.raises(InvalidInputError, match="not a mapping"):
            write_submission(run, lock, exported, registry.store, folder, ("a-lab", "resnet"))


def test_a_name_that_would_leave_the_folder_is_refused(
    run: Run, lock: Lock, exported: ExportedRun, registry: LocalRegistry, tmp_path: Path
) -> None:
    for names in (("../up", ""), ("", ""), (".", ""), ("a/b", ""), ("a-lab", "../resnet"), ("é", "")):
        with pytest.raises(InvalidInputError, match="invalid name"):
            write_submission(run, lock, exported, registry.store, tmp_path / "submission", names)
    assert not (tmp_path / "submission").exists()


def test_foreign_text_stays_in_its_field_and_in_the_folder(
    nasty: ExportedRun, run: Run, lock: Lock, registry: LocalRegistry, tmp_path: Path
) -> None:
    root = tmp_path / "submission"
    renamed = {**nasty.artifacts, "model": replace(nasty.subject, name=f"../../{NASTY}")}
    hostile = replace(nasty, scenario="single_stream", artifacts=renamed)
    place = write_submission(run, lock, hostile, registry.store, root, ("a-lab", ""))
    assert place.resolve().is_relative_to(root.resolve())
    assert len(files_of(root)) == len(FILES) - 1
    system = json.loads(next((root / "open/a-lab/systems").iterdir()).read_text())
    assert "\u202e" not in system["system_name"]
    assert "\n" not in system["system_name"]


def test_a_run_without_loadgen_or_quality_is_refused(
    run: Run, lock: Lock, exported: ExportedRun, registry: LocalRegistry, tmp_path: Path
) -> None:
    assert run.end is not None
    without_log = replace(run.end, blobs={key: blob for key, blob in run.end.blobs.items() if "loadgen" not in key})
    latency = select_metrics(exported, ["latency_p50"])
    for changed, shown, reason in (
        (run, replace(exported, scenario="batch_sweep"), "no log of LoadGen"),
        (replace(run, end=without_log), exported, "no log of LoadGen"),
        (run, latency, "no quality metric"),
    ):
        with pytest.raises(RefusedError, match=reason) as caught:
            write_submission(changed, lock, shown, registry.store, tmp_path / "submission", ("a-lab", ""))
        assert caught.value.next_step


def test_the_command_writes_the_folder_and_needs_a_submitter(run: Run, registry: LocalRegistry, tmp_path: Path) -> None:
    commands = Commands(registry.home)
    target = tmp_path / "submission"
    error = commands.error(2, "export", run.id, "--format", "mlperf", "-o", target)
    assert "name of the submitter" in str(error)
    done = commands.finished("export", run.id, "--format", "mlperf", "-o", target, "--submitter", "a-lab")
    assert done.returncode == 0, done.stderr
    assert "not an MLPerf result" in done.stderr
    assert files_of(target) == FILES - {"open/a-lab/model_mapping.json"}
