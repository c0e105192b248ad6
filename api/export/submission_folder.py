"""A run as a submission folder that MLCommons' log parser and submission checker read, in the division ``open``.

The layout is that of versions 6.0 and 6.1 of ``tools/submission/submission_checker`` in
https://github.com/mlcommons/inference. benchlock does not run LoadGen in its accuracy mode, so the accuracy log states
that benchlock wrote it. Facts that no record has are ``not recorded``.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from benchlock.api.export.exported_run import ExportedRun
from benchlock.api.export.text_formats import code, format_markdown
from benchlock.artifacts.atomic_files import convert_disk_errors, create_file, open_regular
from benchlock.artifacts.blob_store import BlobStore, copy_blob
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.artifacts.user_output import escape_line
from benchlock.evaluator.evidence.timed_phases import PERFORMANCE
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.registry.lock.lockfile import Lock, dump
from benchlock.registry.manifests import Model, files_of
from benchlock.registry.manifests.metric_definitions import is_quality

DIVISION: Final = "open"
SCENARIOS: Final = {
    "single_stream": "SingleStream",
    "multi_stream": "MultiStream",
    "server": "Server",
    "offline": "Offline",
}
_MISSING: Final = "not recorded"
_MARK: Final = "exported by benchlock; not an MLPerf result, not verified by MLCommons"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LARGEST_MAPPING: Final = 1 << 20
_DETAIL, _SUMMARY = "mlperf_log_detail.txt", "mlperf_log_summary.txt"
_ABSENT_FACTS: Final = (
    *("host_storage_capacity", "host_storage_type", "host_processors_per_node", "host_processor_frequency"),
    *("host_processor_caches", "host_processor_interconnect", "host_memory_configuration", "host_networking"),
    *("host_network_card_count", "host_networking_topology", "accelerator_frequency", "accelerator_host_interconnect"),
    *("accelerator_interconnect", "accelerator_interconnect_topology", "accelerator_memory_configuration"),
    *("accelerator_on-chip_memories", "cooling", "system_type_detail"),
)
"""The fields of a system description that the checker requires, and no record has."""

_README: Final = """\
# {title}

This is not an MLPerf result. The folder has the layout of a submission to MLCommons in the division `open`, so that
MLCommons' tools can read it. It was not submitted to MLCommons, nor reviewed or verified by it. MLPerf is a trademark
of MLCommons: do not use the name for these numbers, and do not compare them with results published under it.

{table}
benchlock wrote the files in `accuracy`, not LoadGen; `hash` is the SHA-256 of the stored predictions. Complete what is
"{missing}" in `measurements.json` and in the system description, and correct its `status` and `system_type`.

To repeat the run: `benchlock run src/{lockfile}`. To read its evidence: `benchlock get {run}`.
"""


def write_submission(
    run: Run, lock: Lock, exported: ExportedRun, store: BlobStore, folder: Path, names: tuple[str, str]
) -> Path:
    """Write a verified run as a submission into ``folder``, which may have other submissions; return its own folder.

    Args:
        run: The run.
        lock: Its lock.
        exported: The same run, as ``export_run`` returned it after verification.
        store: The store of the manifests and the evidence.
        folder: The root of the submission; it is created, and existing files of the same run's place are replaced.
        names: The name of the submitter, and MLCommons' name of the benchmark, empty if there is none.

    Raises:
        InvalidInputError: A name is malformed, or ``model_mapping.json`` in the folder is.
        RefusedError: LoadGen did not drive the run, or it has no quality metric.
        UnavailableError: A file cannot be written.
    """
    submitter, benchmark = names
    _check(run, exported, submitter, benchmark)
    root, model = folder / DIVISION / submitter, _make_file_name(exported.subject.name)
    system = _make_file_name(f"{exported.cpu_model} {exported.accelerator or 'CPU'}")
    place = root / "results" / system / model / SCENARIOS[exported.scenario]
    lockfile = f"{model}-{SCENARIOS[exported.scenario]}.lock"
    files = {
        root / "systems" / f"{system}.json": _format(_describe_system(run, exported, submitter)),
        root / "src" / lockfile: dump(lock),
        place / "README.md": _describe_run(exported, lockfile),
        place / "user.conf": _describe_settings(lock),
        place / "measurements.json": _format(_describe_model(lock, store)),
        **{place / "accuracy" / name: text for name, text in _describe_accuracy(run, exported).items()},
    }
    if benchmark:
        path = root / "model_mapping.json"
        files[path] = _format(_read_mapping(path) | {model: benchmark})
    for path, text in files.items():
        _write(path, text)
    assert run.end is not None
    for role, name in ((PERFORMANCE.log, _DETAIL), (PERFORMANCE.summary, _SUMMARY)):
        copy_blob(store, run.end.blobs[role], place / "performance" / "run_1" / name, name=f"{run.id} {role}")
    return place


def _make_file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:100] or "unnamed"


def _check(run: Run, exported: ExportedRun, submitter: str, benchmark: str) -> None:
    for option, name in (("--submitter", submitter), ("--benchmark", benchmark or "none")):
        if not _NAME.fullmatch(name):
            step = "use letters, digits, '.', '_' and '-', such as my-lab"
            raise InvalidInputError(f"invalid name {name!r} for {option}", where=option, next_step=step)
    blobs = {} if run.end is None else run.end.blobs
    if exported.scenario not in SCENARIOS or PERFORMANCE.log not in blobs:
        reason = f"{run.id} has no log of LoadGen: its scenario is {exported.scenario}"
        raise RefusedError(reason, where=run.id, next_step=f"export a run of {', '.join(SCENARIOS)}")
    if not any(is_quality(metric.metric) for metric in exported.metrics) or "predictions" not in blobs:
        reason = f"{run.id} has no quality metric, which a submission needs"
        raise RefusedError(reason, where=run.id, next_step="export a run of a request with a metric such as top1")


def _describe_system(run: Run, exported: ExportedRun, submitter: str) -> dict[str, Any]:
    """Return the system description; the host reports one node."""
    host, framework, image = run.start.host, exported.artifacts["framework"], exported.artifacts["image"]
    memories = [size for size in host.get("accelerator_memory") or () if isinstance(size, int)]
    accelerators = exported.accelerator.split("; ") if exported.accelerator else []
    return dict.fromkeys(_ABSENT_FACTS, _MISSING) | {
        "division": DIVISION,
        "submitter": submitter,
        "status": "rdi",
        "system_type": "edge",
        "system_name": exported.cpu_model or _MISSING,
        "number_of_nodes": "1",
        "host_processor_model_name": exported.cpu_model or _MISSING,
        "host_processor_core_count": str(host.get("cores") or _MISSING),
        "host_memory_capacity": f"{host['memory'] / 1e9:.1f} GB" if isinstance(host.get("memory"), int) else _MISSING,
        "accelerators_per_node": str(len(accelerators)),
        "accelerator_model_name": ", ".join(dict.fromkeys(accelerators)) or "none",
        "accelerator_memory_capacity": f"{min(memories) / 1e9:.1f} GB" if memories else "none",
        "framework": f"{framework.name} {framework.version}",
        "operating_system": str(host.get("kernel") or _MISSING),
        "other_software_stack": f"image {image.name} {image.version} ({image.digest})",
        "hw_notes": "",
        "sw_notes": f"{_MARK}; {exported.isolation} on {exported.platform}",
    }


def _describe_model(lock: Lock, store: BlobStore) -> dict[str, str]:
    model = read_manifests(lock, store)["model"]
    assert isinstance(model, Model)
    weights = [file for file in files_of(model) if file.role in ("graph", "weights")]
    return {
        **dict.fromkeys(("retraining", "weight_data_types", "weight_transformations"), _MISSING),
        "input_data_types": ", ".join(dict.fromkeys(port.dtype for port in model.inputs)) or _MISSING,
        "starting_weights_filename": ", ".join(f"{file.path} (sha256:{file.sha256})" for file in weights) or _MISSING,
    }


def _describe_settings(lock: Lock) -> str:
    """Return the settings of LoadGen in the form of its configuration files."""
    scenario, prefix = lock.scenario, f"*.{SCENARIOS[str(lock.scenario['name'])]}."
    settings = {
        "min_duration": round(scenario["min_duration"] * 1000),
        "min_query_count": scenario.get("min_queries", scenario.get("min_samples")),
        "samples_per_query": scenario.get("samples_per_query"),
        "target_qps": scenario.get("target_qps"),
        "target_latency": round(scenario["target_latency"] * 1000) if "target_latency" in scenario else None,
        **{f"{name}_rng_seed": seed for name, seed in scenario["seeds"].items()},
    }
    lines = [f"{prefix}{key} = {value}\n" for key, value in settings.items() if value is not None]
    return f"# {_MARK}\n{''.join(lines)}"


def _describe_accuracy(run: Run, exported: ExportedRun) -> dict[str, str]:
    """Return the files of the accuracy phase by name."""
    assert run.end is not None
    quality = [metric for metric in exported.metrics if is_quality(metric.metric)]
    lines = [
        f"accuracy={metric.value * 100:.3f}%, good={round(metric.value * metric.n)}, total={metric.n}"
        if metric.metric == "top1"
        else f"{metric.metric}={metric.value:.6g}"
        for metric in quality
    ]
    notice = f"LoadGen did not write this log: benchlock did, from the accuracy phase of {run.id}"
    entries = {
        "benchlock_notice": notice,
        "effective_scenario": SCENARIOS[exported.scenario],
        "effective_test_mode": "accuracy phase of benchlock",
        "effective_accuracy_sample_count": quality[0].n,
    }
    origin = {"is_error": False, "is_warning": False, "file": "benchlock", "line_no": 0}
    common = {"time_ms": 0.0, "namespace": "benchlock", "metadata": origin}
    logged = (json.dumps({"key": key, "value": value, **common}) for key, value in entries.items())
    digest = run.end.blobs["predictions"].digest.removeprefix("sha256:")
    return {
        "accuracy.txt": "".join(f"{line}\n" for line in (*lines, f"hash={digest}")),
        # The digest of the predictions stands for them; LoadGen's list of answers is empty outside its accuracy mode.
        "mlperf_log_accuracy.json": "[\n]\n",
        _DETAIL: "".join(f":::MLLOG {line}\n" for line in logged),
        _SUMMARY: f"{notice}\n",
    }


def _describe_run(exported: ExportedRun, lockfile: str) -> str:
    title = code(f"{exported.subject.name} {exported.subject.version}, {SCENARIOS[exported.scenario]}")
    table = format_markdown(exported)
    return _README.format(title=title, table=table, missing=_MISSING, lockfile=lockfile, run=exported.run)


def _format(document: Mapping[str, Any]) -> str:
    texts = {key: escape_line(value) if isinstance(value, str) else value for key, value in document.items()}
    return json.dumps(texts, indent=2) + "\n"


def _read_mapping(path: Path) -> dict[str, str]:
    """Return the mapping of an earlier export into the same folder; empty if there is none."""
    if not path.exists():
        return {}
    try:
        with open_regular(path) as file:
            return msgspec.json.decode(file.read(_LARGEST_MAPPING), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        reason = f"{path} is not a mapping of model names: {error}"
        raise InvalidInputError(reason, where=str(path), next_step="remove it, or export to another folder") from error


def _write(path: Path, text: str) -> None:
    with convert_disk_errors(f"{path} cannot be written", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with create_file(path) as file:
            file.write(text.encode())
