"""Whether a record agrees with its evidence: verified, contradicted or unverified."""

from dataclasses import dataclass
from typing import Final, Literal

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import IntegrityError, InvalidInputError

State = Literal["verified", "contradicted", "unverified"]

PEAK_LOGS: Final = "peak-loadgen-detail"
"""The role of the blob that has LoadGen's logs of the probes of a peak."""
FOLDER: Final = "evidence"
"""The folder in a registry's home: labels while they are read, and which records agreed."""
SCRATCH: Final = f"{FOLDER}/labels"

REPORTED_FIELDS = (
    "attempt",
    "details.accelerators",
    "details.accuracy",
    "details.audits",
    "details.cpus",
    "details.golden",
    "details.harness",
    "details.loadgen.trace_cost",
    "details.part_of",
    "details.performance.batch",
    "details.performance.cpu_scope",
    "details.performance.loaded_samples",
    "details.performance.overhead",
    "details.performance.timed",
    "details.pipeline.batch",
    "details.pipeline.cpu_scope",
    "details.pipeline.preparing_threads",
    "details.pipeline.timed",
    "details.python",
    "details.threads",
    "details.verified",
    "ended_at",
    "host",
    "packages",
    "process",
    "run",
    "started_at",
    "timings",
)
"""The fields of a record that nothing can recompute: facts of the host and of the process, and moments.

Those that the harness reports (packages, its timings, the audits) are still compared with its ``result.json``.
"""
PEAK_FIELDS = ("details.peak", "metrics.peak_qps")
"""Reported too of a run whose harness left no logs of the probes of its peak."""
FAILURE_FIELDS = ("details.exit_code", "failure.class", "failure.message", "outcome")
"""Reported too of a failed run: the host says why, where the engine, a limit or the kernel ended it."""

HOST_FAILURES = ("timeout", "out-of-memory", "engine", "output")
"""The classes of those failures."""


@dataclass(frozen=True, slots=True)
class EvidenceStatus:
    """The result of comparing a record with its blobs.

    Attributes:
        state: ``verified``: every figure follows from the blobs. ``contradicted``: a figure or a fact differs.
            ``unverified``: it could not be compared, since a blob is missing, for example.
        reasons: Each difference, or why nothing could be compared.
        reported: The fields that are reported and not recomputed.
        self_reported: Names of metrics that are self-reported, whatever the record says: its harness is no released
            one, or it is older than such marks.
        measurement: A digest of the latencies of the timed calls, if the run is verified and has some.
        damaged: Whether nothing could be compared because a blob is missing or damaged.
    """

    state: State
    reasons: tuple[str, ...] = ()
    reported: tuple[str, ...] = REPORTED_FIELDS
    damaged: bool = False
    self_reported: tuple[str, ...] = ()
    measurement: Digest | None = None

    @property
    def words(self) -> str:
        """The state as messages word it."""
        return {
            "verified": "verified against its evidence",
            "contradicted": "contradicts its evidence",
            "unverified": "not verified",
        }[self.state]

    @property
    def sentence(self) -> str:
        """The state with its reasons, as one sentence about a record."""
        reasons = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{'' if self.state == 'contradicted' else 'is '}{self.words}{reasons}"


RUN_AGAIN: Final = (
    "run the lock again with `benchlock rerun LOCK`, import the run's bundle again, or restore the file from a backup"
)
"""What helps where a file that a run left is damaged."""


class UnverifiedError(InvalidInputError):
    """A record could not be compared with its evidence here, where nothing is damaged: a library is missing, say."""

    code = "unverified"


def refuse_unverified(run: str, status: EvidenceStatus | None) -> None:
    """Raise unless the run agrees with its evidence, as far as anyone compared them.

    Args:
        run: The id of the run.
        status: The state of its evidence; None where nobody compared them.

    Raises:
        IntegrityError: It does not agree, or its evidence is missing or damaged.
        UnverifiedError: It could not be compared for another reason.
    """
    if status is None or status.state == "verified":
        return
    if status.state == "unverified" and not status.damaged:
        raise UnverifiedError(
            f"the record of {run} {status.sentence}",
            where=run,
            next_step="compare it with the version of benchlock that made it, with its libraries (`benchlock doctor`)",
        )
    raise IntegrityError(
        f"the record of {run} {status.sentence}",
        where=run,
        next_step="run the lock again, or ask the one who made the run for it again",
    )
