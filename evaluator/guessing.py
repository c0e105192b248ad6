"""Whether a run's answers are no better than guessing, by the test that golden tensors are made with."""

import io

from benchlock.artifacts.store import BlobStore, read
from benchlock.evaluator.goldens import answered, doubt
from benchlock.evaluator.records.runs import Run
from benchlock.evaluator.runner.verification import read_manifests
from benchlock.registry.inspection.protobuf import MalformedError
from benchlock.registry.inspection.safetensors import read_header
from benchlock.registry.lockfile import Lock
from benchlock.registry.manifests import Model

LARGEST = 64 << 20
"""Bytes of predictions that are looked at: they may have to come from a server."""
_MOST_RIGHT = 0.6
"""Share of right answers above which nobody guesses, even among two classes."""


def find_guessing(lock: Lock, run: Run, store: BlobStore) -> str | None:
    """Return why the answers of a run are no better than chance; None if they are, or if it is not known.

    The number of classes is that of the stored scores.

    Raises:
        IntegrityError: A manifest or the predictions are missing, or not what their digests say.
    """
    if run.end is None or run.end.outcome != "done":
        return None
    top1 = next((one for one in run.end.metrics if one.name == "top1" and one.batch is None), None)
    blob = run.end.blobs.get("predictions")
    if top1 is None or blob is None or top1.value > _MOST_RIGHT or blob.size > LARGEST:
        return None
    model = read_manifests(lock, store)["model"]
    assert isinstance(model, Model)
    content = read(store, blob.digest, name=f"{run.id} predictions", most=LARGEST)
    try:
        tensors = read_header(io.BytesIO(content), len(content))
    except MalformedError:
        return None
    names = {one.name for one in model.outputs if one.type == "class-scores"}
    shapes = {one.name: {"shape": list(one.shape)} for one in tensors if one.name in names and len(one.shape) > 1}
    result = answered(model, {"outputs": shapes}, {"top1": {"value": top1.value, "n": top1.n}}) if shapes else None
    reason = None if result is None else doubt(result, ())
    if reason is None:
        return None
    return (
        f"no better than chance: {reason}; compare the labels, label_offset and preprocessing (scale, order of "
        "channels, layout) with those of the model's author, or check it with golden tensors (benchlock golden)"
    )
