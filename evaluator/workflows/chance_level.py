"""Comparison of a run's accuracy with chance and with the most frequent label.

The test for guessing is the one that golden tensors are made with.
"""

import io
from collections import Counter
from pathlib import Path
from typing import Any

from benchlock.artifacts.blob_store import BlobStore, read
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.isolation.child_process import CallerBlobs
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import Limits
from benchlock.evaluator.evidence.prediction_scores import lay_labels, list_label_files, open_workspace
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.datasets import open_samples
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.runner.job_folder import job_document
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.evaluator.workflows.golden_decisions import count_answers, explain_doubt
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.tensor_files import read_header
from benchlock.registry.lock.lockfile import Lock, dump, load
from benchlock.registry.manifests import Model

LARGEST = 64 << 20
"""The maximum size of predictions, and of files with labels, in bytes; they may have to come from a server."""
_MAX_RIGHT = 0.6
"""The share of correct predictions above which a model does not guess, even with two classes."""
_ROUNDING = 1e-6
"""The maximum rounding error of the product of top1 and the number of samples."""


def find_guessing(lock: Lock, run: Run, store: BlobStore) -> str | None:
    """Return why top1 is no better than chance or the most frequent label; None if it is better or unknown.

    The number of classes is that of the stored scores.

    Raises:
        IntegrityError: A manifest or the predictions are missing, or do not match their digests.
    """
    if run.end is None or run.end.outcome != "done":
        return None
    top1 = next((metric for metric in run.end.metrics if metric.name == "top1" and metric.batch is None), None)
    if top1 is None:
        return None
    return _find_chance(lock, run, top1, store) or _find_majority(lock, top1, store)


def _find_chance(lock: Lock, run: Run, top1: Metric, store: BlobStore) -> str | None:
    assert run.end is not None
    blob = run.end.blobs.get("predictions")
    if blob is None or top1.value > _MAX_RIGHT or blob.size > LARGEST:
        return None
    model = read_manifests(lock, store)["model"]
    assert isinstance(model, Model)
    content = read(store, blob.digest, name=f"{run.id} predictions", most=LARGEST)
    try:
        tensors = read_header(io.BytesIO(content), len(content))
    except MalformedError:
        return None
    names = {output.name for output in model.outputs if output.type == "class-scores"}
    scores = [tensor for tensor in tensors if tensor.name in names and len(tensor.shape) > 1]
    shapes = {tensor.name: {"shape": list(tensor.shape)} for tensor in scores}
    result = count_answers(model, {"outputs": shapes}, {"top1": {"value": top1.value, "n": top1.n}}) if shapes else None
    reason = None if result is None else explain_doubt(result, ())
    if reason is None:
        return None
    return (
        f"no better than chance: {reason}; compare labels, label_offset and preprocessing (scale, channel "
        "order, layout) with those of the model's author, or check them with golden tensors"
    )


def _find_majority(lock: Lock, top1: Metric, store: BlobStore) -> str | None:
    """Return why top1 is no better than the most frequent label; None if it is better or unknown."""
    manifests = read_manifests(lock, store)
    try:
        if sum(blob.size for _, blob in list_label_files(lock, manifests, store)) > LARGEST:
            return None
        with open_workspace(None) as folder:
            lay_labels(lock, manifests, store, folder)
            arguments = {"lock": dump(lock), "labels": str(folder)}
            task = "the count of the labels"
            top = run_isolated(f"{__name__}:count_labels", arguments, limits=Limits(), subject=task, blobs=store)
    except BenchlockError:
        return None
    if top is None or top["samples"] != top1.n or top1.value * top1.n > top["count"] + _ROUNDING:
        return None
    return (
        f"no better than always predicting the most frequent label: top1 is {top1.value:.4g}, and {top['count']} of "
        f"{top1.n} samples ({top['count'] / top1.n:.1%}) have label {top['label']}; measure a split with "
        "balanced labels"
    )


def count_labels(arguments: dict[str, Any], blobs: CallerBlobs) -> dict[str, int] | None:
    """Count the most frequent label of a split in a child process; None if the labels are not classes."""
    lock = load(arguments["lock"], "the lock of the run")
    job = parse_job(job_document(lock, "cpu", read_manifests(lock, blobs)))
    labels = open_samples(job.dataset, Path(arguments["labels"]), job.model.task).labels or ()
    counts = Counter(label for label in labels if isinstance(label, int))
    if not counts or counts.total() != len(labels):
        return None
    ((label, count),) = counts.most_common(1)
    return {"label": label, "count": count, "samples": len(labels)}
