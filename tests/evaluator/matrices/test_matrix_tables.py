"""Tables of matrices: values over runs, ranks among comparable cells alone, ties, and why a cell is empty."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.evaluator.matrices import matrix_tables
from benchlock.evaluator.matrices.matrix_tables import CellResult, MatrixTable, list_notes, make_table
from benchlock.evaluator.matrices.matrix_types import MatrixRun, SubmittedMatrix
from benchlock.evaluator.queue.queue_types import Job, new_job_id
from benchlock.evaluator.records.evidence_status import EvidenceStatus
from benchlock.evaluator.records.run_comparison import encode_conditions, list_incomparabilities
from benchlock.evaluator.records.run_types import DamagedRun, Run, RunId
from benchlock.evaluator.records.timing_validity import KEY, calls_document
from benchlock.evaluator.statistics.metric_types import Calls, Interval
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.recorded import DONE, NOON, metric, recorded
from tests.support.resolution.locks import request, shelf

SHORT = shelf().lock(request())
LONG = shelf().lock(request(scenario="{name: single_stream, min_queries: 999, min_duration: 1s, warmup: 8}"))
TIGHT = shelf().lock(request(limits="{time: 10m, memory: 1GiB, cpus: 1, processes: 256}"))
OTHER = shelf(version="1.0.1").lock(request())
SECOND = shelf(version="1.0.2").lock(request())


def job(state: str, lock: Lock, **more: Any) -> Job:  # noqa: ANN401 - fields of a job
    fields: dict[str, Any] = dict.fromkeys(("phase", "machine", "run", "failure", "reason", "due")) | {
        "id": new_job_id(NOON),
        "lock": lock.id,
        "state": state,
        **dict.fromkeys(("lost", "engine", "crash"), 0),
        "cancel_asked": False,
        "submitted_at": NOON,
    }
    return Job(**(fields | more))


@dataclass
class Filled:
    """A matrix with the runs that a test adds."""

    runs: list[MatrixRun] = field(default_factory=list)
    records: dict[RunId, Run | DamagedRun] = field(default_factory=dict)
    locks: dict[Digest, Lock | None] = field(default_factory=dict)

    def add(self, cell: str, lock: Lock, run: Run | None = None, **more: Any) -> None:  # noqa: ANN401 - of a run
        self.locks[lock.id] = lock
        repeat = 1 + sum(one.cell == cell for one in self.runs)
        found = more.pop("job", None) or job("done", lock, run=None if run is None else run.id)
        self.runs.append(MatrixRun(cell=cell, repeat=repeat, lock=lock.id, job=found, **more))
        if run is not None:
            self.records[run.id] = run

    def table(self, unread: Collection[RunId] = ()) -> MatrixTable:
        matrix = SubmittedMatrix(
            id=digest_bytes(b"matrix"), name="m", as_of=NOON, submitted_at=NOON, states={}, runs=tuple(self.runs)
        )
        return make_table(matrix, self.locks, self.records, unread)

    def cell(self, name: str) -> CellResult:
        return next(cell for cell in self.table().cells if cell.cell == name)


@pytest.fixture
def filled() -> Filled:
    return Filled()


def measured(lock: Lock, low: float, high: float, name: str = "latency_p50", **host: Any) -> Run:  # noqa: ANN401 - facts
    """A run whose metric has this interval."""
    value = replace(metric(name, (low + high) / 2), ci=Interval(low, high))
    return recorded(replace(DONE, metrics=(value,)), lock=lock.id, **host)


def ranks(table: MatrixTable, name: str = "latency_p50") -> dict[str, tuple[int | None, str | None]]:
    return {
        cell.cell: (entry.rank, entry.verdict)
        for cell in table.cells
        for entry in cell.metrics
        if entry.metric.name == name
    }


def test_overlapping_intervals_tie_and_the_others_are_worse(filled: Filled) -> None:
    for cell, lock, low, high in (("a", SHORT, 1, 2), ("b", OTHER, 1.5, 2.5), ("c", SECOND, 3, 4)):
        filled.add(cell, lock, measured(lock, low, high))
    assert ranks(filled.table()) == {"a": (1, "tied for best"), "b": (1, "tied for best"), "c": (3, "worse")}


def test_higher_is_better_for_quality(filled: Filled) -> None:
    filled.add("a", SHORT, measured(SHORT, 0.7, 0.8, "top1"))
    filled.add("b", OTHER, measured(OTHER, 0.9, 0.95, "top1"))
    assert ranks(filled.table(), "top1") == {"a": (2, "worse"), "b": (1, "best")}


def test_cells_that_are_not_comparable_are_not_ranked_together_and_the_reasons_are_said(filled: Filled) -> None:
    filled.add("a", SHORT, measured(SHORT, 1, 2))
    filled.add("b", LONG, measured(LONG, 3, 4))
    filled.add("c", OTHER, measured(OTHER, 3, 4))
    filled.add("d", SECOND, measured(SECOND, 5, 6, cores=64))
    filled.add("e", TIGHT, measured(TIGHT, 5, 6))
    table = filled.table()
    assert [cell.group for cell in table.cells] == [1, 2, 1, 3, 4]
    assert ranks(table) == {"a": (1, "best"), "c": (2, "worse"), **dict.fromkeys("bde", (None, None))}
    assert [group.reasons for group in table.groups] == [
        (),
        ("the scenario differs",),
        ("the host's cores differs: 2, 64",),
        ("the limits differ",),
    ]
    assert any("group 2 (1 cell) is not comparable with group 1: the scenario differs" in n for n in list_notes(table))


def test_runs_of_a_cell_count_together_as_in_a_comparison(filled: Filled) -> None:
    for value in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        filled.add("a", SHORT, measured(SHORT, value, value))
    (entry,) = filled.cell("a").metrics
    assert (entry.metric.n, entry.metric.ci) == (6, Interval(1.0, 6.0))
    assert entry.metric.value == pytest.approx(3.5, rel=0.02)
    assert entry.rank is None, "a cell alone has no rank"


def test_few_runs_have_no_interval_and_win_nothing(filled: Filled) -> None:
    for value in (1.0, 1.1):
        filled.add("a", SHORT, measured(SHORT, value, value))
        filled.add("b", OTHER, measured(OTHER, value + 9, value + 9))
    assert ranks(filled.table()) == {"a": (1, "tied for best"), "b": (1, "tied for best")}


def test_runs_of_a_cell_on_different_hosts_are_not_pooled(filled: Filled) -> None:
    filled.add("a", SHORT, measured(SHORT, 1, 2))
    filled.add("a", SHORT, measured(SHORT, 1, 2, cores=64))
    cell = filled.cell("a")
    assert (cell.metrics, cell.group) == ((), None)
    assert cell.remarks == ("its runs are not comparable with each other: the host's cores differs: 2, 64",)


def test_copies_of_a_run_count_once(filled: Filled) -> None:
    for _ in range(2):
        run = measured(SHORT, 1, 2)
        assert run.end is not None
        samples = {"samples": Descriptor(digest_bytes(b"samples"), 7)}
        filled.add("a", SHORT, replace(run, end=replace(run.end, blobs=samples)))
    cell = filled.cell("a")
    assert len(cell.runs) == 1
    assert "so they count once" in cell.remarks[0]


def test_a_self_reported_metric_is_shown_and_not_ranked(filled: Filled) -> None:
    for cell, lock in (("a", SHORT), ("b", OTHER)):
        run = measured(lock, 1 if cell == "a" else 5, 6)
        assert run.end is not None
        forged = tuple(replace(one, self_reported=True) for one in run.end.metrics)
        filled.add(cell, lock, replace(run, end=replace(run.end, metrics=forged)))
    assert ranks(filled.table()) == dict.fromkeys("ab", (None, None))


def test_flagged_times_are_not_ranked_and_quality_is(filled: Filled) -> None:
    for cell, lock, busy in (("a", SHORT, 0), ("b", OTHER, 0), ("c", SECOND, 6)):
        run = measured(lock, 1, 2)
        assert run.end is not None
        quality = replace(metric("top1", 0.5), ci=Interval(0.4, 0.6))
        details = {KEY: calls_document(Calls(100, busy, "thread"))}
        end = replace(run.end, metrics=(*run.end.metrics, quality), details=details)
        filled.add(cell, lock, replace(run, end=end))
    table = filled.table()
    assert ranks(table) == {**dict.fromkeys("ab", (1, "tied for best")), "c": (None, None)}
    assert ranks(table, "top1") == dict.fromkeys("abc", (1, "tied for best"))
    assert ["flagged" in "".join(cell.remarks) for cell in table.cells] == [False, False, True]


@pytest.mark.parametrize(
    ("state", "more", "why"),
    [
        ("queued", {"ahead": 3}, "queued, 3 runs of this matrix before it"),
        ("queued", {"ahead": 0, "blocked": "0 of 1 fit; requires 64 CPUs"}, "blocked: 0 of 1 fit; requires 64 CPUs"),
        ("leased", {}, "taken by worker m1, measuring"),
        ("failed", {}, "failed (out-of-memory): it was killed"),
        ("quarantined", {}, "quarantined (out-of-memory): it was killed"),
        ("cancelled", {}, "cancelled"),
    ],
)
def test_an_empty_cell_says_why(filled: Filled, state: str, more: dict[str, Any], why: str) -> None:
    facts = {"machine": "m1", "phase": "measuring"} if state == "leased" else {}
    if state in ("failed", "quarantined"):
        facts = {"failure": "out-of-memory", "reason": "it was killed"}
    filled.add("a", SHORT, job=job(state, SHORT, **facts), **more)
    cell = filled.cell("a")
    assert (cell.missing, cell.metrics, cell.runs) == (why, (), ())


def test_a_cell_with_a_conflict_has_its_explanation(filled: Filled) -> None:
    filled.runs.append(MatrixRun(cell="a", repeat=1, conflict="no version of model/digits satisfies ^9"))
    assert filled.cell("a").missing == "conflict: no version of model/digits satisfies ^9"


def test_a_cell_says_why_some_of_its_runs_are_missing(filled: Filled) -> None:
    filled.add("a", SHORT, measured(SHORT, 1, 2))
    filled.add("a", SHORT, job=job("cancelled", SHORT))
    cell = filled.cell("a")
    assert (len(cell.runs), cell.missing) == (1, "cancelled")


def test_runs_that_nobody_may_use_do_not_count(filled: Filled) -> None:
    hidden, damaged, forged = (measured(SHORT, 1, 2) for _ in range(3))
    filled.add("hidden", SHORT, hidden)
    filled.add("damaged", SHORT, damaged)
    filled.add("forged", SHORT, replace(forged, evidence=EvidenceStatus("contradicted", ("top1 differs",))))
    del filled.records[hidden.id]
    filled.records[damaged.id] = DamagedRun(damaged.id, "it differs from what was recorded")
    table = filled.table()
    assert [cell.metrics for cell in table.cells] == [(), (), ()]
    missing = [cell.missing or "" for cell in table.cells]
    assert missing[0] == "hidden or damaged run"
    assert missing[1] == "damaged: it differs from what was recorded"
    assert "is contradicted: top1 differs" in missing[2]


def test_runs_beyond_those_that_a_table_reads_are_counted_and_named(filled: Filled) -> None:
    for _ in range(2):
        filled.add("a", SHORT, measured(SHORT, 1, 2))
    unread = filled.runs[1].job
    assert unread is not None
    assert unread.run is not None
    del filled.records[RunId(unread.run)]
    table = filled.table({RunId(unread.run)})
    assert (table.unread, table.cells[0].missing, len(table.cells[0].runs)) == (1, "done, but not read", 1)
    assert any(note.startswith("1 done run not read") for note in list_notes(table))


def test_a_damaged_lock_is_named(filled: Filled) -> None:
    filled.add("a", SHORT, measured(SHORT, 1, 2))
    filled.locks[SHORT.id] = None
    assert filled.cell("a").missing == "its lock is damaged or missing; verify the registry"


def test_equal_conditions_are_comparable() -> None:
    """The groups of a table rest on it; the pairs are every kind of difference that the tests above know."""
    locks = (SHORT, LONG, TIGHT, OTHER, SECOND)
    pairs = [(lock, measured(lock, 1, 2, cores=cores)) for lock in locks for cores in (2, 64)]
    for a in pairs:
        for b in pairs:
            is_equal = encode_conditions(*a) == encode_conditions(*b)
            assert is_equal == (not list_incomparabilities(a, b)), (a[0].id, b[0].id)


def test_many_cells_are_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the largest matrix takes about a second because each cell is encoded once, with its runs."""
    encoded = []

    def encode(lock: Lock, run: Run) -> bytes:
        encoded.append(run.id)
        return encode_conditions(lock, run)

    monkeypatch.setattr(matrix_tables, "encode_conditions", encode)
    filled = Filled()
    for number in range(300):
        lock = replace(OTHER, id=digest_bytes(f"lock {number}".encode()))
        filled.add(f"model=m{number}", lock, measured(lock, 1 + number, 2 + number))
    table = filled.table()
    assert len(encoded) <= 2 * 300
    assert [entry.rank for cell in table.cells[:4] for entry in cell.metrics] == [1, 1, 2, 3]
