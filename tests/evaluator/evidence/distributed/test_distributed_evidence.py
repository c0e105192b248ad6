"""Metrics of distributed trainings from blobs, blobs that were altered, and what a record says of each rank."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import to_builtins
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.distributed.distributed_evidence import (
    DistributedEvidence,
    UnsynchronizedError,
    measure_distributed,
)
from benchlock.evaluator.evidence.distributed.rank_details import describe_ranks, list_rank_rows, read_rank_details
from benchlock.evaluator.harness.training import digest_weights, encode_weights
from benchlock.evaluator.statistics.metric_types import metric_faults
from tests.support.resolution.recipes import ask_distributed, recipes

STEPS = 5  # the first is a warm-up
GRADIENTS = 1000
LOSSES = np.linspace(2, 1, 2 * STEPS).reshape(STEPS, 2)
NAMES = ("single", "rank-0", "rank-1")


class Blobs:
    """The blobs of a training of two ranks whose bits are those of the reference."""

    def __init__(self, folder: Path) -> None:
        self.files = {role: folder / role for name in NAMES for role in (name, f"weights-{name}")}
        times = np.asarray([[100, 8, 10, 12, 10], [50, 6, 6, 6, 6], [50, 4, 5, 4, 5]]) * 1_000_000
        self.write("single", loss=LOSSES, step_ns=times[0])
        for rank in range(2):
            sent = np.full(STEPS, GRADIENTS + 10 * rank)
            logical = np.full(STEPS, GRADIENTS)
            self.write(f"rank-{rank}", loss=LOSSES[:, rank].copy(), step_ns=times[1 + rank], sent=sent, logical=logical)
        for name in NAMES:
            self.write_weights(name, 1.0)

    def write(self, role: str, **columns: NDArray[Any]) -> None:
        kept = load_file(self.files[role]) if self.files[role].exists() else {}
        save_file({**kept, **columns}, self.files[role])

    def write_weights(self, name: str, value: float) -> None:
        self.files[f"weights-{name}"].write_bytes(encode_weights({"w": np.full(3, value, np.float32)}))

    def measure(self) -> DistributedEvidence:
        single, *ranks = (digest_weights(self.files[f"weights-{name}"].read_bytes()) for name in NAMES)
        shelf = recipes()
        manifests = {manifest.kind: manifest for manifest in shelf.chosen.all()}
        document = {"distributed": {"reference": single, "ranks": ranks}}
        return measure_distributed(shelf.lock(ask_distributed()), manifests, self.files, document)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path)


def test_metrics_are_those_after_the_warm_up_by_the_slowest_rank(blobs: Blobs) -> None:
    evidence = blobs.measure()
    values = {metric.name: metric.value for metric in evidence.metrics}
    assert values == pytest.approx({
        "steps_per_second": 1 / 0.006,
        "communication": GRADIENTS + 5,
        "communication_logical": GRADIENTS,
        "speedup": 10 / 6,
        "efficiency": 10 / 12,
        "loss_difference": 0,
    })  # fmt: skip
    assert {metric.n for metric in evidence.metrics} == {STEPS - 1}
    assert evidence.claimed == pytest.approx(0.14 + 0.074)
    assert evidence.details.is_bit_equal
    assert evidence.details.ratio == pytest.approx(1.005)  # all-reduce of two ranks sends the gradients once


def test_an_efficiency_above_1_is_possible(blobs: Blobs) -> None:
    """Such as that of ranks whose reference ran while the machine was busy."""
    blobs.write("single", step_ns=np.asarray([100, 80, 100, 120, 100]) * 1_000_000)
    metrics = blobs.measure().metrics
    assert next(metric.value for metric in metrics if metric.name == "efficiency") == pytest.approx(100 / 12)
    assert list(metric_faults(metrics)) == []


def test_the_record_describes_each_rank(blobs: Blobs) -> None:
    details = read_rank_details({"ranks": to_builtins(blobs.measure().details)})
    assert details is not None
    assert "2 ranks end with equal weights, with losses and weights that are bit-equal" in describe_ranks(details)
    assert list(list_rank_rows(details))[1] == ("1", "4.5 ms", "1010 B", "1000 B", "1")
    assert read_rank_details({}) is None
    assert read_rank_details({"ranks": {"ranks": 5}}) is None


def test_a_different_loss_or_reference_is_not_bit_equal(blobs: Blobs) -> None:
    blobs.write("rank-1", loss=LOSSES[:, 1] + 2e-3)
    details = blobs.measure().details
    assert not details.is_bit_equal
    assert details.loss_difference == pytest.approx(1e-3)  # the mean of two ranks
    assert "differ by at most 0.001" in describe_ranks(details)
    blobs.write("rank-1", loss=LOSSES[:, 1].copy())
    blobs.write_weights("single", 2.0)
    assert not blobs.measure().details.is_bit_equal


def test_ranks_with_different_weights_are_not_synchronized(blobs: Blobs) -> None:
    blobs.write_weights("rank-1", 2.0)
    with pytest.raises(UnsynchronizedError, match="the weights of rank-1 differ from those of rank-0"):
        blobs.measure()


ALTERED: dict[str, tuple[Callable[[Blobs], object], str]] = {
    "a step is missing": (
        lambda blobs: blobs.write("rank-0", loss=np.ones(4)),
        "the blob rank-0 lacks loss of 5 steps",
    ),
    "negative": (lambda blobs: blobs.write("rank-0", sent=np.full(STEPS, -1)), "values of sent out of range"),
    "infinite": (lambda blobs: blobs.write("rank-1", loss=np.full(STEPS, np.inf)), "losses that are not finite"),
    "no samples": (lambda blobs: blobs.files.pop("single"), "the blob single is missing"),
    "other weights": (lambda blobs: blobs.write_weights("single", 3.0), "states other weights"),
    "no weights": (
        lambda blobs: blobs.files["weights-rank-1"].write_bytes(encode_weights({})),
        "the blob weights-rank-1 has no weights",
    ),
    "weights that are no tensors": (
        lambda blobs: blobs.files["weights-rank-0"].write_bytes(b""),
        "the blob weights-rank-0 is malformed",
    ),
    "not a file": (lambda blobs: blobs.files["rank-1"].write_bytes(b"{"), "the blob rank-1 is missing or malformed"),
}


@pytest.mark.parametrize("name", ALTERED)
def test_altered_evidence_is_found(blobs: Blobs, name: str) -> None:
    alter, words = ALTERED[name]
    digests = [digest_weights(blobs.files[f"weights-{name}"].read_bytes()) for name in ("single", "rank-0", "rank-1")]
    stated = {"reference": digests[0], "ranks": digests[1:]}
    alter(blobs)
    shelf = recipes()
    manifests = {manifest.kind: manifest for manifest in shelf.chosen.all()}
    with pytest.raises(InvalidInputError, match=words):
        measure_distributed(shelf.lock(ask_distributed()), manifests, blobs.files, {"distributed": stated})
