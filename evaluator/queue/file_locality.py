"""Preference for the jobs whose files a machine has.

A machine that requests work gets a job of the owner whose turn it is (``fair_shares.py``). Among that owner's first
job that the machine can run and the next ones with the same requirements, ``WINDOW`` in all, the job comes first of
whose model and dataset the machine has the most bytes; of equal ones, the first in line. So a machine that has nothing
takes the first, however large. The rest of the order stays:

* Shares between owners, quotas, and priorities among these jobs. The jobs of matrices and of interleaved comparisons
  are not sorted: if the runs of a model were where its files are, a difference of machines would look like its own.
* A job is overtaken only by jobs that were submitted at most ``MAX_SECONDS`` later, by as many as there are. Whatever
  is submitted after that does not delay it.

What a machine has follows from the database: the models and datasets of those of its last ``LOOK_BACK`` leases whose
runs began with its current cache. A cache that lost files costs a fetch; no result depends on it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, bindparam, text

WINDOW: Final = 16
"""The number of jobs of an owner with the same requirements among which a machine chooses."""
MAX_SECONDS: Final = 600.0
"""The maximum number of seconds after a job within which a job was submitted that may overtake it."""
LOOK_BACK: Final = 64
"""The number of a machine's last leases from which follows which files it has."""
_MAX_SIZES: Final = 10_000
"""The maximum number of sizes of artifacts in memory."""


class Part(NamedTuple):
    """A model or a dataset of a lock."""

    kind: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A queued job with what decides whether it may overtake another one.

    ``held`` are its model and its dataset, as far as the machine has them. It ``keeps_place`` if it is of
    a matrix or of an interleaved comparison.
    """

    seq: int
    since: float
    priority: int
    keeps_place: bool
    held: tuple[Part, ...]


class ArtifactSizes:
    """The bytes of models and datasets; a published version never changes, so each is read once."""

    def __init__(self) -> None:
        """Start without any."""
        self._sizes: dict[Part, int] = {}

    def load(self, connection: Connection, parts: Collection[Part]) -> Mapping[Part, int]:
        """Return the bytes of each part; 0 for one that the catalogue does not have."""
        if len(self._sizes) > _MAX_SIZES:
            self._sizes = {}
        sizes = {part: self._sizes.get(part) for part in parts}
        for part in [part for part, size in sizes.items() if size is None]:
            sizes[part] = connection.execute(_SIZE, part._asdict()).scalar_one()
        self._sizes |= {part: size for part, size in sizes.items() if size}  # what has none may be published later
        return {part: size or 0 for part, size in sizes.items()}


_SIZE: Final = text("""
SELECT coalesce(sum(files.size), 0) FROM versions JOIN files
    ON files.kind = versions.kind AND files.name = versions.name AND files.precedence = versions.precedence
WHERE versions.kind = :kind AND versions.name = :name AND versions.version = :version
""")
_PARTS: Final = "locks.model, locks.model_version, locks.dataset, locks.dataset_version"
_HELD: Final = f"""
WITH held AS MATERIALIZED (
    SELECT {_PARTS} FROM (
        SELECT leases.job, leases.boot, leases.run FROM leases WHERE leases.machine = :machine
        ORDER BY leases.fence DESC LIMIT {LOOK_BACK}
    ) AS recent JOIN jobs ON jobs.id = recent.job JOIN locks ON locks.id = jobs.lock
    WHERE recent.boot = :boot AND recent.run IS NOT NULL
)
"""  # noqa: S608 - constants of this module
_HAS: Final = """
EXISTS (
    SELECT 1 FROM held WHERE held.{kind} = locks.{kind} AND held.{kind}_version = locks.{kind}_version
) AS has_{kind}
"""
FRONT: Final = text(f"""
{_HELD} SELECT front.seq, front.since, front.priority, {_PARTS}, front.comparison IS NOT NULL
    OR EXISTS (SELECT 1 FROM matrix_cells WHERE matrix_cells.job = front.id) AS keeps_place,
    {_HAS.format(kind="model")}, {_HAS.format(kind="dataset")}
FROM (
    SELECT jobs.seq, jobs.id, jobs.lock, jobs.since, jobs.priority, jobs.comparison FROM jobs
    WHERE jobs.state = 'queued' AND jobs.owner = :owner
        AND jobs.class = (SELECT first.class FROM jobs AS first WHERE first.seq = :first)
        AND NOT EXISTS (SELECT 1 FROM avoided WHERE avoided.job = jobs.id AND avoided.machine = :machine)
    ORDER BY jobs.since, jobs.seq LIMIT {WINDOW}
) AS front JOIN locks ON locks.id = front.lock ORDER BY front.since, front.seq
""")  # noqa: S608 - constants of this module
"""Select the first jobs of an owner and a class for a machine, with what it has of their files; they have one index."""

_MISSING: Final = text(f"""
{_HELD} SELECT {_PARTS}, {_HAS.format(kind="model")}, {_HAS.format(kind="dataset")} FROM locks WHERE locks.id = :lock
""")  # noqa: S608 - constants of this module
_OVERTAKING: Final = text(f"""
SELECT count(*) FROM jobs JOIN leases ON leases.fence = jobs.fence JOIN machines ON machines.id = leases.machine
WHERE jobs.state = 'leased' AND jobs.owner = :owner AND jobs.priority = :priority AND jobs.comparison IS NULL
    AND jobs.class = (SELECT own.class FROM jobs AS own WHERE own.seq = :seq)
    AND NOT EXISTS (
        SELECT 1 FROM matrix_cells JOIN jobs AS one ON one.id = matrix_cells.job WHERE one.seq IN (jobs.seq, :seq)
    )
    AND (jobs.since > :since OR jobs.since = :since AND jobs.seq > :seq) AND jobs.since <= :since + {MAX_SECONDS}
    AND machines.id IN :machines AND machines.owner IS NOT NULL
""").bindparams(bindparam("machines", expanding=True))  # noqa: S608 - constants of this module


def sort_by_held(
    connection: Connection, machine: str, boot: str, owner: str, first: int, sizes: ArtifactSizes
) -> list[int]:
    """List the first jobs of an owner, sorted by the bytes of them that a machine has as far as they may overtake.

    Args:
        connection: The connection.
        machine: The machine that requests work.
        boot: The id of its boot and its cache.
        owner: The owner whose turn it is.
        first: The number of the owner's first job that the machine can run, whose class the others have.
        sizes: The sizes of models and datasets.
    """
    values = {"machine": machine, "boot": boot, "owner": owner, "first": first}
    waiting = [_waiting_of(row) for row in connection.execute(FRONT, values)]
    if not waiting:
        return []
    free = find_free(waiting)
    size_of = sizes.load(connection, {part for job in free for part in job.held})
    free = sorted(free, key=lambda job: -sum(size_of[part] for part in job.held))
    return [job.seq for job in (*free, *waiting[len(free) :])]


def find_free(waiting: Sequence[WaitingJob]) -> list[WaitingJob]:
    """Return the jobs at the front of a line that may be taken in any order.

    Args:
        waiting: The first jobs of an owner and a class in their order.
    """
    first, *others = waiting
    free = [first]
    for job in others:
        is_late = job.since - first.since > MAX_SECONDS
        if first.keeps_place or job.keeps_place or job.priority != first.priority or is_late:
            break
        free.append(job)
    return free


def load_missing(connection: Connection, lock: str, machine: str, boot: str, sizes: ArtifactSizes) -> int:
    """Load the bytes of the model and the dataset of a lock that a machine would have to fetch, as far as is known.

    Args:
        connection: The connection.
        lock: The id of the lock.
        machine: The machine.
        boot: The id of its boot and its cache.
        sizes: The sizes of models and datasets.
    """
    row = connection.execute(_MISSING, {"machine": machine, "boot": boot, "lock": lock}).one()
    return sum(sizes.load(connection, _parts_of(row, are_held=False)).values())


def count_overtaking(connection: Connection, place: Mapping[str, object]) -> int:
    """Count the running jobs of the same owner and class that may have overtaken a job for their files.

    Args:
        connection: The connection.
        place: The ``owner``, the ``priority``, ``since`` and ``seq`` of a job that was never leased, and the
            ``machines`` that can run it.
    """
    return int(connection.execute(_OVERTAKING, place).scalar_one())


def _parts_of(row: Row[Any], *, are_held: bool) -> tuple[Part, ...]:
    parts = (
        (Part("model", row.model, row.model_version), row.has_model),
        (Part("dataset", row.dataset, row.dataset_version), row.has_dataset),
    )
    return tuple(part for part, is_held in parts if is_held == are_held)


def _waiting_of(row: Row[Any]) -> WaitingJob:
    return WaitingJob(row.seq, row.since, row.priority, bool(row.keeps_place), _parts_of(row, are_held=True))
