"""Tables of matrices: each cell with its metrics and ranks, or why it is empty; pure functions over records."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from benchlock.artifacts.digest import Digest, DigestText
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.matrices.matrix_types import MatrixRun, SubmittedMatrix
from benchlock.evaluator.queue.queue_texts import job_state
from benchlock.evaluator.records.replayed_runs import drop_replays
from benchlock.evaluator.records.run_comparison import describe_offered, encode_conditions, list_incomparabilities
from benchlock.evaluator.records.run_types import DamagedRun, Run, RunId, RunText
from benchlock.evaluator.records.timing_validity import describe_unusable_times
from benchlock.evaluator.report.leaderboards import SINGLE_RUNS, rank_metrics
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.evaluator.workflows.compare import Arm
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import is_quality

CellVerdict = Literal["best", "tied for best", "worse"]
"""How a cell does by a metric among the comparable ones; tied where its interval overlaps that of another first, or
is unknown."""
MAX_READ: Final = 5_000
"""The maximum number of runs that one table reads: each is compared with its evidence, or with the result of that."""
_RANKS: Final = (
    "Ranks are within a group of comparable cells. Equal ranks: the 95 % intervals overlap, or are unknown. "
    "A rank is 1 + the number of cells whose intervals are better. This counts on the shuffled rounds of the matrix, "
    "which spread the drift of a host over all cells; a comparison of single runs does not know of them, and asks for "
    "interleaved runs."
)
_UNUSABLE: Final = (
    "Cells with unusable times have no ranks by time. To see the cause, show one of their runs; then measure again on "
    "a quieter host, in a copy of the file with another top-level `seed`."
)


class CellMetric(Struct, frozen=True, kw_only=True):
    """A metric of a cell over its runs, and its rank among comparable cells; None if it is not ranked."""

    metric: Metric
    rank: int | None = None
    verdict: CellVerdict | None = None


class CellResult(Struct, frozen=True, kw_only=True):
    """The result of a cell.

    Attributes:
        cell: The name of the cell.
        lock: Its lock; None with a conflict.
        runs: The runs that count.
        group: The number of its group of comparable cells; None without runs, or if they are not comparable.
        metrics: The metrics over these runs.
        missing: Why the other runs have no result, or why the cell is empty; None if all runs count.
        remarks: What limits the use of the values.
        has_unusable_times: Whether the times of some run decide nothing, so that they have no ranks.
    """

    cell: str
    lock: DigestText | None
    runs: tuple[RunText, ...] = ()
    group: int | None = None
    metrics: tuple[CellMetric, ...] = ()
    missing: str | None = None
    remarks: tuple[str, ...] = ()
    has_unusable_times: bool = False


class CellGroup(Struct, frozen=True, kw_only=True):
    """Comparable cells: their number, and why they are not comparable with the first group."""

    group: int
    cells: int
    reasons: tuple[str, ...]


class MatrixTable(Struct, frozen=True, kw_only=True):
    """The table of a matrix; ``unread`` is the number of done runs beyond those that one table reads."""

    id: DigestText = field(name="matrix")
    name: str
    cells: tuple[CellResult, ...]
    groups: tuple[CellGroup, ...]
    unread: int = 0


Runs = Mapping[RunId, Run | DamagedRun]


def make_table(
    matrix: SubmittedMatrix, locks: Mapping[Digest, Lock | None], runs: Runs, unread: Collection[RunId] = ()
) -> MatrixTable:
    """Make the table of a matrix.

    Runs of a cell count together, as those of a lock in a comparison. Cells are ranked among comparable cells alone.

    Args:
        matrix: The matrix with the state of its runs.
        locks: The locks of cells with done runs; None for a damaged one.
        runs: Its runs with the state of their evidence; hidden ones are missing.
        unread: Its done runs that are not in ``runs`` because they are too many.
    """
    by_cell: dict[str, list[MatrixRun]] = {}
    for run in matrix.runs:
        by_cell.setdefault(run.cell, []).append(run)
    arms: dict[str, Arm] = {}
    cells = []
    for name, of_cell in by_cell.items():
        lock = None if of_cell[0].lock is None else locks.get(Digest(of_cell[0].lock))
        cell, arm = _summarize(name, of_cell, lock, runs, unread)
        cells.append(cell)
        if arm is not None:
            arms[name] = arm
    groups = _group_arms(arms)
    placed = {name: group for group in groups for name in group}
    ranked = {name: metrics for group in groups for name, metrics in _rank(group, arms)}
    numbers = {id(group): number for number, group in enumerate(groups, 1)}
    return MatrixTable(
        id=matrix.id,
        name=matrix.name,
        cells=tuple(
            replace(cell, metrics=ranked[cell.cell], group=numbers[id(placed[cell.cell])])
            if cell.cell in placed
            else cell
            for cell in cells
        ),
        groups=tuple(
            CellGroup(group=number, cells=len(group), reasons=_explain_group(groups[0], group, arms))
            for number, group in enumerate(groups, 1)
        ),
        unread=len(unread),
    )


def _summarize(
    name: str, of_cell: Sequence[MatrixRun], lock: Lock | None, runs: Runs, unread: Collection[RunId]
) -> tuple[CellResult, Arm | None]:
    """Return the result of a cell without metrics, and its runs that count together; None if there are none."""
    done = {RunId(run.job.run): runs.get(RunId(run.job.run)) for run in of_cell if run.job is not None and run.job.run}
    usable = [run for run in done.values() if isinstance(run, Run) and _is_usable(run)]
    reasons = [*_list_missing(of_cell, done, unread)]
    if lock is None and usable:
        reasons.append("its lock is damaged or missing; verify the registry")
    distinct, replays = drop_replays(usable)
    unusable = describe_unusable_times(distinct)
    remarks = [*replays, *filter(None, [unusable])]
    cell = CellResult(
        cell=name,
        lock=of_cell[0].lock,
        missing="; ".join(dict.fromkeys(reasons)) or None,
        has_unusable_times=unusable is not None,
    )
    if lock is None or not distinct:
        return replace(cell, remarks=tuple(remarks)), None
    first = distinct[0]
    others = [run for run in distinct[1:] if encode_conditions(lock, run) != encode_conditions(lock, first)]
    differences = {reason for run in others for reason in list_incomparabilities((lock, first), (lock, run))}
    if differences:
        remarks.append(f"its runs are not comparable with each other: {'; '.join(sorted(differences))}")
    ids = tuple(run.id for run in distinct)
    return replace(cell, runs=ids, remarks=tuple(remarks)), None if differences else Arm(lock, distinct)


def _is_usable(run: Run) -> bool:
    is_done = run.end is not None and run.end.outcome == "done"
    return is_done and (run.evidence is None or run.evidence.state == "verified")


def _list_missing(
    of_cell: Sequence[MatrixRun], done: Mapping[RunId, Run | DamagedRun | None], unread: Collection[RunId]
) -> Iterator[str]:
    """Yield why runs of a cell have no result that counts."""
    for run in of_cell:
        if run.job is None:
            yield f"conflict: {run.conflict}"
        elif run.job.run in unread:
            yield "done, but not read"
        elif run.job.state == "done":
            found = None if run.job.run is None else done[RunId(run.job.run)]
            if not isinstance(found, Run):
                yield "hidden or damaged run" if run.job.run is None or found is None else f"damaged: {found.damage}"
            elif not _is_usable(found):
                assert found.evidence is not None
                reason = "; ".join(found.evidence.reasons) or "it was not compared with its evidence"
                yield f"{found.id} is {found.evidence.state}: {reason}"
        else:
            yield _describe_unfinished(run)


def _describe_unfinished(run: MatrixRun) -> str:
    """Describe why a run that has a job has no result yet, or never will."""
    assert run.job is not None
    job = run.job
    if run.blocked is not None:
        return f"blocked: {run.blocked}"
    if job.state in ("failed", "quarantined"):
        return f"{job.state} ({job.failure or 'no class'}): {job.reason or 'see its run'}"
    if job.state in ("queued", "delayed"):
        return f"{job_state(job)}, {format_count(run.ahead or 0, 'run')} of this matrix before it"
    return job_state(job)


def _group_arms(arms: Mapping[str, Arm]) -> list[list[str]]:
    """Return the cells in groups of comparable ones, in the order of their first cells."""
    groups: dict[bytes, list[str]] = {}
    for name, arm in arms.items():
        groups.setdefault(encode_conditions(arm.lock, arm.runs[0]), []).append(name)
    return list(groups.values())


def _explain_group(first: Sequence[str], group: Sequence[str], arms: Mapping[str, Arm]) -> tuple[str, ...]:
    if first is group:
        return ()
    one, other = arms[first[0]], arms[group[0]]
    return list_incomparabilities((one.lock, one.runs[0]), (other.lock, other.runs[0]))


def _rank(group: Sequence[str], arms: Mapping[str, Arm]) -> Iterator[tuple[str, tuple[CellMetric, ...]]]:
    """Yield the metrics of each cell of a group with their ranks in it."""
    metrics = {name: arms[name].metrics() for name in group}
    scenario = str(arms[group[0]].lock.scenario["name"])
    compared: dict[str, dict[str, Metric]] = {}
    for name, of_cell in metrics.items():
        has_times = describe_unusable_times(arms[name].runs) is None
        for metric in of_cell:
            if _is_ranked(metric, scenario) and (has_times or is_quality(metric.name)):
                compared.setdefault(metric.key, {})[name] = metric
    placed = {key: _place(by_cell) for key, by_cell in compared.items()}
    for name, of_cell in metrics.items():
        places = [placed.get(metric.key, {}).get(name, (None, None)) for metric in of_cell]
        yield (
            name,
            tuple(
                CellMetric(metric=metric, rank=rank, verdict=verdict)
                for metric, (rank, verdict) in zip(of_cell, places, strict=True)
            ),
        )


def _is_ranked(metric: Metric, scenario: str) -> bool:
    """Return whether ranks of a metric mean something: it has a direction, and neither code nor request chose it."""
    return metric.direction != "none" and not metric.self_reported and describe_offered(metric.name, scenario) is None


def _place(by_cell: Mapping[str, Metric]) -> dict[str, tuple[int | None, CellVerdict | None]]:
    """Return the rank and the verdict of each cell by one metric; a cell alone has none."""
    if len(by_cell) < 2:  # noqa: PLR2004 - two make a pair
        return {}
    ranks = rank_metrics([*by_cell.values()])
    best: CellVerdict = "best" if ranks.count(1) == 1 else "tied for best"
    return {name: (rank, best if rank == 1 else "worse") for name, rank in zip(by_cell, ranks, strict=True)}


def list_notes(table: MatrixTable) -> Iterator[str]:
    """Yield what a reader must know beside the rows."""
    if table.unread:
        yield (
            f"{format_count(table.unread, 'done run')} not read: a table reads {MAX_READ:,} runs, "
            "those of the first rounds; to see all, write several smaller matrices"
        )
    for group in table.groups[1:]:
        why = "; ".join(group.reasons) or "their conditions differ"
        yield f"group {group.group} ({format_count(group.cells, 'cell')}) is not comparable with group 1: {why}"
    if any(entry.rank is not None for cell in table.cells for entry in cell.metrics):
        yield _RANKS
    if any(len(cell.runs) == 1 for cell in table.cells):
        yield SINGLE_RUNS
    if any(cell.has_unusable_times for cell in table.cells):
        yield _UNUSABLE
    for cell in table.cells:
        yield from (f"{cell.cell}: {remark}" for remark in cell.remarks)
