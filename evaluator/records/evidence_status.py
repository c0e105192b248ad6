"""The state of a record's evidence: verified, contradicted or unverified."""

from typing import Final, Literal

from msgspec import Struct

from benchlock.artifacts.digest import DigestText
from benchlock.artifacts.errors import IntegrityError, InvalidInputError

State = Literal["verified", "contradicted", "unverified"]

PEAK_LOGS: Final = "peak-loadgen-detail"
"""The role of the blob with LoadGen's logs of the probes of a peak search."""
FOLDER: Final = "evidence"
"""The folder in a registry's home for labels while they are read, and for the results of comparisons."""
SCRATCH: Final = f"{FOLDER}/labels"

REPORTED_FIELDS = (
    "end.details.accelerators",
    "end.details.accuracy",
    "end.details.audits",
    "end.details.cpus",
    "end.details.energy",
    "end.details.golden",
    "end.details.harness",
    "end.details.loadgen.trace_cost",
    "end.details.part_of",
    "end.details.performance.batch",
    "end.details.performance.cpu_scope",
    "end.details.performance.loaded_samples",
    "end.details.performance.overhead",
    "end.details.performance.resources",
    "end.details.performance.timed",
    "end.details.pipeline.batch",
    "end.details.pipeline.cpu_scope",
    "end.details.pipeline.preparing_threads",
    "end.details.pipeline.timed",
    "end.details.python",
    "end.details.resources",
    "end.details.threads",
    "end.details.verified",
    "end.ended_at",
    "end.packages",
    "end.timings",
    "start.attempt",
    "start.host",
    "start.id",
    "start.process",
    "start.started_at",
)
"""The fields of a run that nothing can recompute: facts of the host and of the process, and times of day.

They are paths in the run's JSON document. A metric has its name as the last word.

The fields that the harness reports (packages, its timings, the audits) are still compared with its ``result.json``.
"""
PEAK_FIELDS = ("end.details.peak", "end.metrics.peak_qps")
"""Further reported fields of a run whose harness left no logs of the probes of its peak search."""
OUTCOME_FIELD = "end.outcome"
"""The further reported field of a cancelled or abandoned run."""
FAILURE_FIELDS = ("end.details.exit_code", "end.failure_class", "end.failure_message", OUTCOME_FIELD)
"""Further reported fields of a failed run: only the host knows that the engine, a limit or the kernel ended it."""

HOST_FAILURES = ("timeout", "out-of-memory", "engine", "output")
"""The classes of failures that only the host knows."""


class EvidenceStatus(Struct, frozen=True):
    """The result of comparing a record with its blobs.

    Attributes:
        state: ``verified``: every metric follows from the blobs. ``contradicted``: a metric or a fact differs.
            ``unverified``: the record could not be compared, for example because a blob is missing.
        reasons: Each difference, or why nothing could be compared.
        reported: The fields that are reported and not recomputed.
        self_reported: Names of metrics that are self-reported whatever the record says, because its harness is not a
            released one or is older than such marks.
        measurement: A digest of the latencies of the timed calls, if the run is verified and has some.
        damaged: Whether nothing could be compared because a blob is missing or damaged.
    """

    state: State
    reasons: tuple[str, ...] = ()
    reported: tuple[str, ...] = REPORTED_FIELDS
    damaged: bool = False
    self_reported: tuple[str, ...] = ()
    measurement: DigestText | None = None

    @property
    def words(self) -> str:
        """The state as it appears in messages."""
        return {
            "verified": "verified against its evidence",
            "contradicted": "contradicts its evidence",
            "unverified": "not verified",
        }[self.state]

    @property
    def predicate(self) -> str:
        """The state as the predicate of a sentence about a record."""
        return f"{'' if self.state == 'contradicted' else 'is '}{self.words}"

    @property
    def sentence(self) -> str:
        """The state with its reasons, as one sentence about a record."""
        reasons = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.predicate}{reasons}"


RUN_AGAIN: Final = "rerun the lock, import the run's bundle again, or restore the file from a backup"
"""The next step if a file of a run is damaged."""


class UnverifiedError(InvalidInputError):
    """A record that could not be compared here although nothing is damaged, for example without a library."""

    code = "unverified"


def refuse_unverified(run: str, status: EvidenceStatus | None) -> None:
    """Raise unless the run agrees with its evidence, or nobody has compared them.

    Args:
        run: The id of the run.
        status: The state of its evidence; None if nobody has compared them.

    Raises:
        IntegrityError: The record contradicts its evidence, or the evidence is missing or damaged.
        UnverifiedError: The record could not be compared for another reason.
    """
    if status is None or status.state == "verified":
        return
    if status.state == "unverified" and not status.damaged:
        raise UnverifiedError(
            f"the record of {run} {status.sentence}",
            where=run,
            next_step="compare it with the version of benchlock that made it, with all its libraries installed",
        )
    raise IntegrityError(
        f"the record of {run} {status.sentence}",
        where=run,
        next_step="run the lock again, or request the run again from its author",
    )
