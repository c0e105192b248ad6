"""Matrices of every registry: a folder of this machine, and the same behind a real server."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.client.matrix_clients import EmbeddedMatrices, Matrices, RemoteMatrices
from benchlock.api.client.remote_registry import connect_server
from benchlock.api.local.local_registry import LocalRegistry, open_registry
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.evaluator.queue.queue_types import MachineId
from benchlock.registry.requests.matrix_request import Matrix, parse_matrix
from tests.support.api.serving import service
from tests.support.evaluator.evidence import IDX, make_run
from tests.support.evaluator.matrices import matrix_of
from tests.support.evaluator.queues import BOOT, facts
from tests.support.evaluator.recorded import NOON
from tests.support.resolution.variants import variant

MATRIX = matrix_of(repeat=1)


@dataclass(frozen=True)
class Desk:
    """The matrices as a client sees them, and the registry where they are."""

    matrices: Matrices
    opened: LocalRegistry


@pytest.fixture(scope="module", params=["embedded", "server"])
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("registry") / "registry"
    opened = open_registry(str(folder), print)
    for version in ("1.0.0", "1.1.0"):
        variant({"model": {"version": version}, "files": IDX}).publish(opened.catalogue, opened.store)
    if request.param == "embedded":
        yield Desk(EmbeddedMatrices(EmbeddedRegistry(opened)), opened)
        return
    with service(folder) as served:
        yield Desk(RemoteMatrices(connect_server(served.url).client), opened)


def test_a_matrix_is_submitted_once_read_and_cancelled(desk: Desk) -> None:
    matrix = matrix_of(seed=11)
    status = desk.matrices.submit(matrix)
    assert (status.id, status.name, status.states) == (matrix.id, "digits-grid", {"blocked": 6})
    assert desk.matrices.submit(matrix) == status == desk.matrices.status(matrix.id)
    table = desk.matrices.table(matrix.id)
    assert [cell.cell for cell in table.cells] == [cell.name for cell in matrix.cells]
    assert all((cell.missing or "").startswith("blocked: no machine can take it") for cell in table.cells)
    assert desk.matrices.cancel(matrix.id).states == {"cancelled": 6}
    assert {cell.missing for cell in desk.matrices.table(matrix.id).cells} == {"cancelled"}


def test_the_table_has_the_metrics_of_done_runs(desk: Desk) -> None:
    matrix = MATRIX
    desk.matrices.submit(matrix)
    queue = open_queue(desk.opened)
    queue.enrol(MachineId("m1"), BOOT, facts())
    for _ in matrix.cells:
        lease = queue.lease(MachineId("m1"), BOOT)
        assert lease is not None
        run = make_run(desk.opened.read_lock(lease.lock), desk.opened.store, at=NOON)
        assert run.end is not None
        assert queue.begin(lease.fence, run.start) is not None
        queue.commit(lease.fence, run.id, run.end)
    queue.depart(MachineId("m1"))
    assert desk.matrices.status(matrix.id).states == {"done": 3}
    table = desk.matrices.table(matrix.id)
    assert [(len(cell.runs), cell.missing) for cell in table.cells] == [(1, None)] * 3
    assert all({"top1", "latency_p50"} <= {entry.metric.name for entry in cell.metrics} for cell in table.cells)
    assert [cell.group for cell in table.cells] == [1, 2, 2], "the scenarios differ"
    assert [group.reasons for group in table.groups] == [(), ("the scenario differs",)]


def test_an_unknown_matrix_is_named(desk: Desk) -> None:
    unknown = digest_bytes(b"unknown")
    for call in (desk.matrices.status, desk.matrices.table, desk.matrices.cancel):
        with pytest.raises(UnknownNameError, match=unknown):
            call(unknown)


def test_an_invalid_matrix_is_refused_with_its_problems(desk: Desk) -> None:
    broken = Matrix(MATRIX.content, {**MATRIX.document, "repeat": 0}, MATRIX.cells)
    is_remote = isinstance(desk.matrices, RemoteMatrices)
    submit = desk.matrices.submit if is_remote else lambda matrix: parse_matrix(matrix.document, "matrix")
    with pytest.raises(InvalidInputError, match="expected at least 1, found 0"):
        submit(broken)  # a folder gets matrices that were parsed
