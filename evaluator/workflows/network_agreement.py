"""The agreement of two runs of one batch in several numbers of parts: outcome by outcome, output by output."""

from collections.abc import Iterator, Mapping
from typing import Final

from benchlock.artifacts.blob_store import FileStore, verify
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.networks.network_evidence import NetworkPart, read_parts
from benchlock.evaluator.evidence.networks.network_texts import name_parts
from benchlock.evaluator.records.prediction_agreement import PredictionAgreement, Terms, compare_predictions
from benchlock.evaluator.records.run_comparison import differing_processors
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.runner.run_outcome import outputs_role

_WEAKEST_FIRST: Final = ("different", None, "same decisions", "within tolerance", "bit-equal")


def compare_networks(
    original: Run, again: Run, store: FileStore, terms: Mapping[str, Terms]
) -> PredictionAgreement | None:
    """Compare two runs by number of parts: outcome, class of failure and outputs; None unless both are done.

    Args:
        original: The original run.
        again: The new run.
        store: The store of their outputs.
        terms: The terms by which each output is compared.

    Raises:
        IntegrityError: Outputs do not match their digest.
        InvalidInputError: A record is malformed.
    """
    sides = [_read(run) for run in (original, again)]
    if None in sides:
        return None
    agreements = [
        (before, _compare_part(place, (before, after), (original, again), store, terms))
        for place, (before, after) in enumerate(zip(sides[0] or (), sides[1] or (), strict=True))
    ]
    compared = [agreement for _, agreement in agreements if agreement is not None]
    if not compared:
        return None
    reasons = [
        f"{name_parts(part.parts)}: {reason}"
        for part, agreement in agreements
        for reason in (() if agreement is None else agreement.reasons)
    ]
    weakest = min((agreement.agreement for agreement in compared), key=_WEAKEST_FIRST.index)
    return PredictionAgreement(weakest, tuple(reasons), max(agreement.samples for agreement in compared), {})


def list_equal_failures(original: Run, again: Run) -> Iterator[str]:
    """Yield a sentence on each number of parts that ran out of memory in both runs."""
    sides = [_read(run) or () for run in (original, again)]
    for before, after in zip(sides[0], sides[1], strict=False):
        if before.failure is not None and after.failure is not None:
            yield f"{name_parts(before.parts)}: {before.failure.kind} in both runs"


def _read(run: Run) -> tuple[NetworkPart, ...] | None:
    """Return the results of a done run by number of parts; None for any other run."""
    if run.end is None or run.end.outcome != "done":
        return None
    return read_parts(run.end.details.get("network"))


def _compare_part(
    place: int,
    parts: tuple[NetworkPart, NetworkPart],
    runs: tuple[Run, Run],
    store: FileStore,
    terms: Mapping[str, Terms],
) -> PredictionAgreement | None:
    """Return the agreement for one number of parts; None if both ran out of memory."""
    ends = tuple("done" if part.failure is None else part.failure.kind for part in parts)
    if ends[0] != ends[1]:
        return PredictionAgreement("different", (f"the original was {ends[0]}, the rerun was {ends[1]}",), 0, {})
    if ends[0] != "done":
        return None
    role, paths = outputs_role(place), []
    for run in runs:
        assert run.end is not None
        blob = run.end.blobs.get(role)
        if blob is None:
            what = f"{run.id} has no outputs {name_parts(parts[0].parts)}"
            raise InvalidInputError(what, where=run.id, next_step="choose another run")
        verify(store, blob.digest, name=f"{run.id} {role}", size=blob.size)
        paths.append(store.path(blob.digest))
    return compare_predictions(paths[0], paths[1], terms, other_processor=differing_processors(*runs))
