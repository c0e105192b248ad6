"""Promotion of a training: the manifest of a model with the weights of one repeat, and the way back to its lock."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore, copy_blob
from benchlock.artifacts.digest import Descriptor, Digest, from_hex
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.harness.core.training_job import WEIGHTS
from benchlock.evaluator.records.evidence_status import refuse_unverified
from benchlock.evaluator.records.run_types import RecordedRuns, Run, RunFilter, RunId
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.runner.run_outcome import weights_role
from benchlock.registry.artifact_names import Reference
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Recipe, plain
from benchlock.registry.manifests.manifest_types import TrainingOrigin
from benchlock.registry.manifests.recipe_checks import is_initial

MANIFEST: Final = "manifest.yaml"
SEARCHED: Final = 20
"""The maximum number of runs of a lock that are searched for the weights of a model."""
_SHARED: Final = ("license", "task", "framework", "inputs", "outputs")
"""The keys that a model takes over from its recipe."""


def write_trained_model(
    run: Run, lock: Lock, store: BlobStore, target: Reference, folder: Path, *, repeat: int, below_target: bool
) -> Path:
    """Write the manifest and the files of a trained model to a folder; return the path of the manifest.

    The manifest depends on the lock and the weights alone, so a run with equal weights gives the same digest.

    Args:
        run: A finished run of the lock.
        lock: The lock of a recipe.
        store: The store of the weights and of the recipe's files.
        target: The name and the version of the model.
        folder: The folder to write to.
        repeat: The repeat whose weights the model gets.
        below_target: Whether a repeat may have missed the target.

    Raises:
        InvalidInputError: The run is not of a recipe, or has no such repeat.
        RefusedError: The run failed, or the repeat missed the target.
        IntegrityError: The record contradicts its evidence, or a blob is damaged.
    """
    facts = _find_repeat(run, lock, repeat, below_target=below_target)
    assert run.end is not None
    recipe = read_manifests(lock, store)["recipe"]
    assert isinstance(recipe, Recipe)
    kept = [file for file in recipe.files if not is_initial(file)]
    for file in kept:
        assert file.sha256 is not UNSET
        assert file.size is not UNSET
        copy_blob(store, Descriptor(from_hex(file.sha256), file.size), folder / file.path, name=file.path)
    copy_blob(store, run.end.blobs[weights_role(repeat)], folder / WEIGHTS, name=WEIGHTS)
    files = [{"path": file.path, "role": plain(file.role), "source": f"./{file.path}"} for file in kept]
    document = {
        "schema": 1,
        "kind": "model",
        "name": target.name,
        "version": str(target.version),
        "description": f"Trained by recipe/{recipe.name}@{recipe.version}",
        **{key: plain(getattr(recipe, key)) for key in _SHARED},
        "format": "safetensors",
        "code": plain(recipe.network),
        "files": [*files, {"path": WEIGHTS, "role": "weights", "source": f"./{WEIGHTS}"}],
        "trained": {"lock": lock.id, "repeat": repeat, "seed": facts["seed"], "weights": facts["weights"]},
    }
    path = folder / MANIFEST
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return path


def find_origin(records: RecordedRuns, origin: TrainingOrigin) -> RunId | None:
    """Return a verified run whose repeat has the weights that a model states as its origin; None if there is none.

    Anyone can state an origin in a manifest; a run of the lock shows it. The newest ``SEARCHED`` runs are searched.
    """
    chosen = RunFilter(lock=Digest(origin.lock), outcome="done")
    for entry in records.list_entries(chosen=chosen, limit=SEARCHED, examine=False):
        if isinstance(entry, Run) and _has_weights(records.get(entry.id), origin):
            return entry.id
    return None


def _has_weights(run: Run, origin: TrainingOrigin) -> bool:
    """Whether a run is verified, and its repeat has the weights of ``origin``."""
    if run.end is None or run.evidence is None or run.evidence.state != "verified":
        return False
    repeats = run.end.details.get("training", {}).get("repeats", ())
    return [repeat.get("weights") for repeat in repeats][origin.repeat : origin.repeat + 1] == [origin.weights]


def _find_repeat(run: Run, lock: Lock, repeat: int, *, below_target: bool) -> Mapping[str, Any]:
    """Return the recorded facts of a repeat that may be promoted."""
    if lock.target is UNSET:
        what = f"{run.id} trained nothing: its lock evaluates {lock.subject.name}"
        raise InvalidInputError(what, where=run.id, next_step="choose a run with the level training")
    if run.end is None or run.end.outcome != "done":
        outcome = "has not ended" if run.end is None else f"ended as {run.end.outcome}"
        raise RefusedError(f"{run.id} {outcome}", where=run.id, next_step="promote a finished run")
    refuse_unverified(run.id, run.evidence)
    repeats = run.end.details["training"]["repeats"]
    if not 0 <= repeat < len(repeats):
        what = f"{run.id} has no repeat {repeat}"
        raise InvalidInputError(what, where="repeat", next_step=f"choose a number from 0 to {len(repeats) - 1}")
    facts: Mapping[str, Any] = repeats[repeat]
    if not facts["reached"] and not below_target:
        missed = f"{lock.target.metric} {lock.target.value:g} on the split {lock.target.split}"
        raise RefusedError(
            f"repeat {repeat} of {run.id} missed its target, {missed}",
            where=run.id,
            next_step="promote another repeat, or state that the model may be below the target",
        )
    return facts
