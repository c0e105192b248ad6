"""Submitted matrices: their locks, their jobs in order, what a second submission adds, and the state of each run."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

from benchlock.artifacts.digest import Digest, from_hex
from benchlock.artifacts.errors import RefusedError, UnknownNameError
from benchlock.evaluator.matrices import sql_matrices
from benchlock.evaluator.matrices.matrix_types import MatrixRun, SubmittedMatrix
from benchlock.evaluator.queue import submission_checks
from benchlock.evaluator.queue.queue_schema import jobs
from benchlock.evaluator.queue.submission_checks import find_wants
from benchlock.evaluator.records.run_types import Isolation
from benchlock.registry.auth.audit_log import AuditLog
from benchlock.registry.auth.permissions import Actor, ForbiddenError, Scopes, use_actor
from benchlock.registry.database.engine import read_transaction
from benchlock.registry.database.registry_schema import locks
from benchlock.registry.lock.lockfile import load
from tests.support.evaluator.matrices import MatrixBench, matrix_of, runs_by_cell
from tests.support.resolution.variants import variant

pytestmark = pytest.mark.databases
RUN = Scopes.parse(["run"])
MINE, OTHER = Actor("token/mine", RUN), Actor("token/other", RUN)
IMPOSSIBLE = {"name": "digits", "version": "^9"}


@pytest.fixture
def bench(database: Engine, tmp_path: Path) -> MatrixBench:
    return MatrixBench(database, tmp_path)


def count_locks(bench: MatrixBench) -> int:
    with read_transaction(bench.database) as connection:
        return connection.execute(select(func.count()).select_from(locks)).scalar_one()


def with_model(label: str, value: dict[str, str]) -> dict[str, Any]:
    """The axes of the matrix with one more model."""
    axes = matrix_of().document["axes"]
    return {**axes, "model": axes["model"] | {label: value}}


def jobs_of(matrix: SubmittedMatrix) -> list[str]:
    return [run.job.id for run in matrix.runs if run.job is not None]


def test_every_cell_has_its_lock_and_every_repeat_its_job(bench: MatrixBench) -> None:
    matrix = matrix_of()
    found = bench.submit(matrix)
    assert list(runs_by_cell(found)) == [(cell.name, at) for cell in matrix.cells for at in (1, 2)]
    assert found.states == {"blocked": 6}
    by_cell = {run.cell: run.lock for run in found.runs}
    assert len(set(by_cell.values())) == count_locks(bench) == 3
    for cell in matrix.cells:
        lock_id = by_cell[cell.name]
        assert lock_id is not None
        lock = load(bench.catalogue.get_lock(lock_id), lock_id)
        assert lock.request == cell.request.document
        assert lock.subject.version == {"old": "1.0.0", "new": "1.1.0"}[cell.labels["model"]]


def test_machines_get_the_jobs_round_by_round_in_the_order_of_the_seed(bench: MatrixBench) -> None:
    matrix = matrix_of(repeat=4)
    found = bench.submit(matrix)
    cell_of = {run.lock: run.cell for run in found.runs}
    bench.enrol()
    order = [cell_of[bench.finish_next()] for _ in range(12)]
    assert order == [name for _, name in matrix.rounds()]
    assert bench.matrices.read(matrix.id).states == {"done": 12}


def test_the_same_matrix_again_changes_nothing(bench: MatrixBench) -> None:
    matrix = matrix_of()
    before = bench.submit(matrix)
    bench.publish("1.0.9")
    assert bench.submit(matrix) == before
    assert count_locks(bench) == 3


def fail_at_second(call: Any) -> Any:  # noqa: ANN401 - a method
    """The same function, whose second call fails."""
    calls = iter((call,))

    def wrapped(*arguments: Any) -> None:  # noqa: ANN401 - of the method
        next_call = next(calls, None)
        if next_call is None:
            raise ConnectionError
        next_call(*arguments)

    return wrapped


def version_of(bench: MatrixBench, found: SubmittedMatrix, cell: str) -> str:
    """The version of the model that a cell is locked to."""
    id_ = next(run.lock for run in found.runs if run.cell == cell)
    assert id_ is not None
    return load(bench.catalogue.get_lock(id_), id_).subject.version


def test_an_interrupted_submission_is_completed_on_the_same_versions(
    bench: MatrixBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = matrix_of(axes=with_model("range", {"name": "digits", "version": "^1"}))
    with monkeypatch.context() as patch:
        patch.setattr(sql_matrices, "RUNS_AT_ONCE", 4)
        patch.setattr(bench.queue, "insert_all", fail_at_second(bench.queue.insert_all))
        with pytest.raises(ConnectionError):
            bench.submit(matrix)
    assert bench.matrices.read(matrix.id).states == {"blocked": 4, "not submitted": 6}
    bench.tick()
    bench.publish("1.2.0")
    some = bench.submit(matrix)
    assert some.states == {"blocked": 10}
    versions = {cell.name: version_of(bench, some, cell.name) for cell in matrix.cells}
    assert {version for name, version in versions.items() if "model=range" in name} == {"1.1.0"}
    assert bench.submit(matrix) == some


def test_a_cell_that_does_not_resolve_is_a_conflict_and_the_others_run(bench: MatrixBench) -> None:
    axes = with_model("future", IMPOSSIBLE) | {"framework": {"any": {"version": ">=1"}, "none": {"version": "^7"}}}
    found = bench.submit(matrix_of(axes=axes, repeat=1))
    assert found.states == {"blocked": 3, "conflict": 7}
    by_cell = {run.cell: run for run in found.runs}
    conflict = by_cell["model=future,framework=any,scenario=short"]
    assert (conflict.lock, conflict.job) == (None, None)
    assert conflict.conflict is not None
    assert "digits" in conflict.conflict
    assert "^9" in conflict.conflict
    assert by_cell["model=new,framework=any,scenario=short"].lock is not None


def test_a_blob_that_is_missing_is_a_conflict_of_its_cells(bench: MatrixBench) -> None:
    lock = bench.submit(matrix_of(exclude=[{"scenario": "long"}])).runs[0].lock
    assert lock is not None
    files = load(bench.catalogue.get_lock(lock), lock).subject.files
    bench.store.delete(from_hex(next(file.sha256 for file in files if file.path == "model.onnx")))
    found = bench.submit(matrix_of())
    assert found.states == {"conflict": 6}
    assert "not in the registry's store" in (found.runs[0].conflict or "")


def test_cells_with_equal_locks_stay_apart(bench: MatrixBench) -> None:
    found = bench.submit(matrix_of(axes=with_model("same", {"name": "digits", "version": "~1.1"}), repeat=1))
    by_cell = {run.cell: run for run in found.runs}
    same, new = by_cell["model=same,scenario=long"], by_cell["model=new,scenario=long"]
    assert same.lock == new.lock
    assert same.job is not None
    assert new.job is not None
    assert same.job.id != new.job.id


def test_a_matrix_belongs_to_the_token_that_submitted_it(bench: MatrixBench) -> None:
    matrix = matrix_of()
    with use_actor(MINE):
        bench.submit(matrix)
    with use_actor(OTHER):
        with pytest.raises(ForbiddenError):
            bench.submit(matrix)
        with pytest.raises(ForbiddenError):
            bench.matrices.cancel(matrix.id)
    assert bench.matrices.read(matrix.id).states == {"blocked": 6}


def test_a_token_has_so_many_queued_jobs_and_no_more(bench: MatrixBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission_checks, "MAX_WAITING", 5)
    with use_actor(MINE), pytest.raises(RefusedError, match="queued jobs"):
        bench.submit(matrix_of())
    with pytest.raises(UnknownNameError):
        bench.matrices.read(matrix_of().id)


def test_cancelling_a_matrix_cancels_what_waits_and_keeps_what_is_done(bench: MatrixBench) -> None:
    bench.enrol()
    matrix = matrix_of()
    bench.submit(matrix)
    other = bench.submit(matrix_of(seed=99))
    bench.finish_next()
    bench.matrices.cancel(matrix.id)
    assert bench.matrices.read(matrix.id).states == {"done": 1, "cancelled": 5}
    assert bench.matrices.read(other.id).states == {"queued": 6}
    assert bench.submit(matrix).states == {"done": 1, "cancelled": 5}
    actions = [entry.action for entry in AuditLog(bench.database).list(limit=50)]
    assert actions.count("job.cancel") == 1


def test_an_unknown_matrix_is_named(bench: MatrixBench) -> None:
    for call in (bench.matrices.read, bench.matrices.cancel):
        with pytest.raises(UnknownNameError, match="no matrix"):
            call(matrix_of().id)


def test_waiting_runs_have_a_place_and_blocked_ones_say_what_machines_lack(bench: MatrixBench) -> None:
    bench.enrol()
    large = {"os": "linux", "arch": "amd64", "device": "cpu", "cpus": 64}
    request = {key: value for key, value in matrix_of().document["request"].items() if key != "hardware"}
    axes = matrix_of().document["axes"] | {"hardware": {"any": {}, "large": large}}
    found = bench.submit(matrix_of(axes=axes, request=request, repeat=1))
    assert found.states == {"queued": 3, "blocked": 3}
    assert sorted(run.ahead or 0 for run in found.runs if run.blocked is None) == [0, 1, 2]
    assert all("requires 64 CPUs" in (run.blocked or "requires 64 CPUs") for run in found.runs)
    assert {run.blocked is not None for run in found.runs if "hardware=large" in run.cell} == {True}


def test_the_isolation_and_the_permission_of_code_are_those_of_every_job(bench: MatrixBench) -> None:
    step = {"python": {"file": "code.py", "function": "f"}}
    model = {"version": "1.2.0", "inputs.0.steps.2": step, "files.2": {"path": "code.py", "role": "code"}}
    variant({"model": model, "files": {"model/code.py": "def f(x): return x"}}).publish(bench.catalogue, bench.store)

    def submit(**changes: Any) -> dict[str, MatrixRun]:  # noqa: ANN401 - keys of a matrix
        axes = with_model("code", {"name": "digits", "version": "~1.2"})
        return {run.cell: run for run in bench.submit(matrix_of(axes=axes, repeat=1, **changes)).runs}

    def read_wants(runs: dict[str, MatrixRun]) -> dict[str, tuple[str, bool]]:
        ids = {run.job.id: cell for cell, run in runs.items() if run.job is not None}
        query = select(jobs.c.id, jobs.c["class"], jobs.c.allow_code).where(jobs.c.id.in_(ids))
        with read_transaction(bench.database) as connection:
            return {ids[row.id]: (row[1], row.allow_code) for row in connection.execute(query)}

    def expect(
        runs: dict[str, MatrixRun], isolation: Isolation | None, *, allow_code: bool
    ) -> dict[str, tuple[str, bool]]:
        stored = {
            cell: bench.catalogue.get_lock(Digest(run.lock)) for cell, run in runs.items() if run.lock is not None
        }
        wants = {
            cell: find_wants(load(text, cell), bench.store, isolation, allow_code=allow_code)
            for cell, text in stored.items()
        }
        return {cell: (one.digest, allow_code) for cell, one in wants.items()}

    asked: tuple[tuple[Isolation | None, bool], ...] = (
        (None, False), ("container", False), ("process", True), (None, True)
    )  # fmt: skip
    for isolation, allow_code in asked:
        stated = {"isolation": isolation, "allow_code": allow_code or None}
        runs = submit(**{key: value for key, value in stated.items() if value is not None})
        assert len(read_wants(runs)) == 5
        assert read_wants(runs) == expect(runs, isolation, allow_code=allow_code)
    confined = submit(isolation="process")
    refused = {cell: run.conflict for cell, run in confined.items() if run.conflict is not None}
    assert [*refused] == ["model=code,scenario=long", "model=code,scenario=short"]
    assert all("contains code" in str(conflict) for conflict in refused.values())
    assert read_wants(confined) == expect(confined, "process", allow_code=False)
