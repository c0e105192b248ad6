"""Metrics of a distributed training, recomputed from the losses, times, bytes and weights of its processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, load_file

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.distributed.rank_details import RankDetail, RankDetails
from benchlock.evaluator.harness.core.distributed_job import SINGLE, DistributedJob
from benchlock.evaluator.harness.core.job_parser import parse_distributed
from benchlock.evaluator.harness.training import digest_weights
from benchlock.evaluator.runner.job_folder import job_document
from benchlock.evaluator.statistics.metric_types import Interval, Metric, find_definitions
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Manifest

_LONGEST_NS: Final = 1 << 53
_NANOSECONDS: Final = 1e-9
_LARGEST: Final = 256 << 20
_LARGEST_WEIGHTS: Final = 1 << 30

Column = NDArray[Any]


@dataclass(frozen=True, slots=True)
class DistributedEvidence:
    """The metrics of a distributed training, what the details say of its ranks, and the seconds of its steps.

    ``measurement`` is the digest of their durations.
    """

    metrics: tuple[Metric, ...]
    details: RankDetails
    claimed: float
    measurement: Digest


@dataclass(frozen=True, slots=True)
class RankSamples:
    """The samples of all processes of a distributed training.

    Attributes:
        reference_loss: The loss of each rank's part of a batch, in the reference [steps, ranks].
        reference_ns: The duration of each step of the reference [steps].
        loss: The same losses in the ranks [steps, ranks].
        step_ns: The duration of each step in each rank [steps, ranks].
        sent: The bytes that each rank sent in a step [steps, ranks].
        logical: The bytes of gradients that each rank exchanged in a step [steps, ranks].
    """

    reference_loss: NDArray[np.float64]
    reference_ns: NDArray[np.int64]
    loss: NDArray[np.float64]
    step_ns: NDArray[np.int64]
    sent: NDArray[np.int64]
    logical: NDArray[np.int64]

    @property
    def loss_difference(self) -> float:
        """The largest difference of the mean loss of a step from that of the reference."""
        return float(np.abs(self.loss.mean(axis=1) - self.reference_loss.mean(axis=1)).max())

    @property
    def is_bit_equal(self) -> bool:
        """Whether every loss has the bits of the reference."""
        return self.loss.tobytes() == self.reference_loss.tobytes()


def read_ranks(files: Mapping[str, Path], processes: int, steps: int) -> RankSamples:
    """Read the samples of all processes.

    Args:
        files: The files of the blobs, by role.
        processes: The number of ranks.
        steps: The number of steps, warm-up included.

    Raises:
        InvalidInputError: A file is missing or malformed, or has values out of range.
    """
    single = _read(SINGLE, files)
    ranks = {role: _read(role, files) for role in (f"rank-{rank}" for rank in range(processes))}

    def columns(name: str, dtype: Any) -> Column:  # noqa: ANN401 - a type of numpy
        return np.stack([_column(role, tensors, name, dtype, (steps,)) for role, tensors in ranks.items()], axis=1)

    return RankSamples(
        reference_loss=_column(SINGLE, single, "loss", np.float64, (steps, processes)),
        reference_ns=_column(SINGLE, single, "step_ns", np.int64, (steps,)),
        loss=columns("loss", np.float64),
        step_ns=columns("step_ns", np.int64),
        sent=columns("sent", np.int64),
        logical=columns("logical", np.int64),
    )


def _read(role: str, files: Mapping[str, Path]) -> Mapping[str, Column]:
    try:
        if files[role].stat().st_size > _LARGEST:
            raise InvalidInputError(f"the blob {role} has more than {_LARGEST} bytes")
        tensors: Mapping[str, Column] = load_file(files[role])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the blob {role} is missing or malformed: {error}") from error
    return tensors


def _column(role: str, tensors: Mapping[str, Column], name: str, dtype: Any, shape: tuple[int, ...]) -> Column:  # noqa: ANN401 - as above
    column = tensors.get(name)
    if column is None or column.dtype != dtype or column.shape != shape:
        raise InvalidInputError(f"the blob {role} lacks {name} of {shape[0]} steps")
    if dtype is np.int64 and (column.min() < 0 or float(column.sum(dtype=np.float64)) > _LONGEST_NS):
        raise InvalidInputError(f"the blob {role} has values of {name} out of range")
    if dtype is np.float64 and not np.isfinite(column).all():
        raise InvalidInputError(f"the blob {role} has losses that are not finite")
    return column


def measure_distributed(
    lock: Lock, manifests: Mapping[Kind, Manifest], files: Mapping[str, Path], document: Mapping[str, Any]
) -> DistributedEvidence:
    """Compute the metrics of a distributed training from the blobs of a finished run.

    Args:
        lock: The lock of a recipe with a distribution.
        manifests: Its manifests.
        files: The files of the blobs, by role.
        document: The ``result.json``.

    Raises:
        InvalidInputError: A blob is malformed, or contradicts the lock or the result, or the ranks end with different
            weights.
    """
    job = parse_distributed(job_document(lock, "cpu", manifests))
    samples = read_ranks(files, job.processes, job.all_steps)
    weights = _check_weights(job, files, document["distributed"])
    values = _measure(samples, job)
    metrics = tuple(
        Metric(
            definition.name,
            values[definition.name],
            definition.unit,
            definition.direction,
            job.steps,
            Interval(None, None),
            definition.version,
        )
        for definition in find_definitions(lock)
    )
    seconds = float(samples.reference_ns.sum() + samples.step_ns.max(axis=1).sum()) * _NANOSECONDS
    details = _describe(samples, job, has_equal_weights=len(weights) == 1)
    return DistributedEvidence(metrics, details, seconds, digest_bytes(samples.step_ns.tobytes()))


def _measure(samples: RankSamples, job: DistributedJob) -> dict[str, float]:
    """Return the value of each metric; times and bytes are those after the warm-up, losses those of all steps."""
    step_ns, single_ns = (max(float(np.median(column[job.warmup :])), 1.0) for column in _durations(samples))
    speedup = single_ns / step_ns
    return {
        "steps_per_second": 1 / (step_ns * _NANOSECONDS),
        "communication": float(samples.sent[job.warmup :].mean()),
        "communication_logical": float(samples.logical[job.warmup :].mean()),
        "speedup": speedup,
        "efficiency": speedup / job.processes,
        "loss_difference": samples.loss_difference,
    }


def _describe(samples: RankSamples, job: DistributedJob, *, has_equal_weights: bool) -> RankDetails:
    counted = slice(job.warmup, None)
    ranks = tuple(
        RankDetail(
            seconds=float(np.median(samples.step_ns[counted, rank])) * _NANOSECONDS,
            sent=float(samples.sent[counted, rank].mean()),
            gradients=float(samples.logical[counted, rank].mean()),
            loss=float(samples.loss[-1, rank]),
        )
        for rank in range(job.processes)
    )
    needed = 2 * (job.processes - 1) / job.processes * float(samples.logical[counted].mean())
    return RankDetails(
        ranks,
        samples.is_bit_equal and has_equal_weights,
        samples.loss_difference,
        float(samples.sent[counted].mean()) / max(needed, 1.0),
    )


def _durations(samples: RankSamples) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the duration of each step in the slowest rank, and in the reference."""
    return samples.step_ns.max(axis=1), samples.reference_ns


def _check_weights(job: DistributedJob, files: Mapping[str, Path], stated: object) -> frozenset[str]:
    """Return the digests of all weights.

    Raises:
        InvalidInputError: The result states other digests, or the ranks have different weights.
    """
    if not isinstance(stated, Mapping):
        raise InvalidInputError("the result states no digests of weights")
    roles = [f"weights-{name}" for name in (SINGLE, *job.ranks)]
    for role in roles:
        if role not in files:
            raise InvalidInputError(f"the evidence lacks the blob {role}")
    single, *ranks = (digest_weights(_read_weights(role, files[role])) for role in roles)
    if stated.get("reference") != single or stated.get("ranks") != ranks:
        raise InvalidInputError("the result states other weights than its blobs")
    different = [name for name, digest in zip(job.ranks, ranks, strict=True) if digest != ranks[0]]
    if different:
        raise UnsynchronizedError(f"the weights of {', '.join(different)} differ from those of {job.ranks[0]}")
    return frozenset((single, *ranks))


def _read_weights(role: str, path: Path) -> bytes:
    """Return the content of a file of weights; raise where it is none, or is too large to be read."""
    try:
        if path.stat().st_size > _LARGEST_WEIGHTS:
            raise InvalidInputError(f"the blob {role} has more than {_LARGEST_WEIGHTS} bytes")
        content = path.read_bytes()
        names = load(content).keys()
    except (SafetensorError, OSError, ValueError) as error:
        raise InvalidInputError(f"the blob {role} is malformed: {error}") from error
    if not names:
        raise InvalidInputError(f"the blob {role} has no weights")
    return content


class UnsynchronizedError(InvalidInputError):
    """The error of a training whose ranks end with different weights."""
