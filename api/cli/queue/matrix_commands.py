"""Commands for matrices of evaluations: submit, status, table and cancel."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.cli.queue.job_commands import wait_until
from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.client.matrix_clients import EmbeddedMatrices, Matrices, RemoteMatrices
from benchlock.api.client.remote_registry import connect_server
from benchlock.api.client.user_files import read_text
from benchlock.api.client.worker_setup import is_remote
from benchlock.api.error_codes import EXIT_REFUSED
from benchlock.evaluator.matrices.matrix_tables import CellMetric, CellResult, list_notes
from benchlock.evaluator.matrices.matrix_types import RUNNING_STATES, MatrixStatus
from benchlock.evaluator.records.run_texts import format_interval, format_metric
from benchlock.registry.database.ids_and_timestamps import SHORTEST_PREFIX
from benchlock.registry.requests.matrix_request import Matrix, read_matrix

_ID: Final = re.compile(rf"(?:sha256:)?([0-9a-f]{{{SHORTEST_PREFIX},64}})")
FILE = click.argument("path", metavar="FILE", type=click.Path(path_type=Path), help="Matrix file.")
MATRIX = click.argument("matrix", metavar="MATRIX", help="Matrix file, or the id of a matrix or its first digits.")
_COLUMNS: Final = ("cell", "metric", "value", "95 % interval", "n", "group", "rank", "verdict", "missing")


@click.group("matrix")
def matrix_group() -> None:
    """Submit matrices of evaluations, and read their tables.

    Example: benchlock matrix submit digits-matrix.yaml
    """


@matrix_group.command()
@FILE
@click.pass_obj
def submit(invocation: Invocation, path: Path) -> None:
    """Lock every cell of a matrix and queue its runs.

    The same file again adds only what is missing.

    Example: benchlock matrix submit digits-matrix.yaml
    """
    matrix = _read_file(path)
    with invocation.progress.task("locking and queueing"):
        status_ = _open(invocation).submit(matrix)
    _print_status(invocation, status_)
    _warn(status_, str(path))


@matrix_group.command()
@MATRIX
@click.option("--wait", is_flag=True, help="Wait until no run is waiting or running; exit code 1 unless all are done.")
@click.pass_obj
def status(invocation: Invocation, matrix: str, *, wait: bool) -> None:
    """Count the runs of a matrix by state.

    Example: benchlock matrix status digits-matrix.yaml
    """
    matrices, id_ = _open(invocation), _find_id(matrix)
    current = matrices.status(id_)
    _warn(current, matrix)
    if not wait:
        _print_status(invocation, current)
        return
    ended = wait_until(lambda: matrices.status(id_), lambda found: not {*found.states} & {*RUNNING_STATES})
    _print_status(invocation, ended)
    if {*ended.states} != {"done"}:
        raise click.exceptions.Exit(EXIT_REFUSED)


@matrix_group.command()
@MATRIX
@click.pass_obj
def table(invocation: Invocation, matrix: str) -> None:
    """Show metrics and ranks of each cell, or why it is empty.

    Cells are ranked only among comparable cells.

    Example: benchlock matrix table digits-matrix.yaml --format csv
    """
    result = _open(invocation).table(_find_id(matrix))
    if invocation.as_json:
        output.print_json(result)
        return
    output.print_table(_COLUMNS, [row for cell in result.cells for row in _make_rows(cell)])
    for note in list_notes(result):
        say(f"note: {note}")


@matrix_group.command()
@MATRIX
@click.pass_obj
def cancel(invocation: Invocation, matrix: str) -> None:
    """Cancel the jobs of a matrix that have not ended.

    Example: benchlock matrix cancel digits-matrix.yaml
    """
    _print_status(invocation, _open(invocation).cancel(_find_id(matrix)))


def _make_rows(cell: CellResult) -> Iterator[list[str]]:
    """Yield a row for each metric of a cell, or the only row of an empty one."""
    entries: tuple[CellMetric | None, ...] = cell.metrics or (None,)
    for entry in entries:
        metric = None if entry is None else entry.metric
        values = (
            ["-"] * 4 if metric is None else [metric.key, format_metric(metric), format_interval(metric), str(metric.n)]
        )
        rank = None if entry is None else entry.rank
        verdict = None if entry is None else entry.verdict
        group = "-" if cell.group is None else str(cell.group)
        yield [cell.cell, *values, group, "-" if rank is None else str(rank), verdict or "-", cell.missing or ""]


def _warn(status: MatrixStatus, matrix: str) -> None:
    """Say why runs do not go on, and what explains it."""
    if "conflict" in status.states:
        say(f"warning: cells without a lock; benchlock matrix table {matrix} has the explanations")
    if "blocked" in status.states:
        say(f"warning: no machine can take the blocked runs; benchlock matrix table {matrix} lists what they lack")


def _print_status(invocation: Invocation, status: MatrixStatus) -> None:
    if invocation.as_json:
        output.print_json(status)
        return
    states = ", ".join(f"{count} {state}" for state, count in sorted(status.states.items()))
    output.print_fields({"matrix": status.id, "name": status.name, "runs": states})


def _find_id(text: str) -> str:
    """Return the id of a matrix or the beginning of it; a matrix may be given as its file."""
    match = _ID.fullmatch(text)
    return _read_file(Path(text)).id if match is None or Path(text).exists() else f"sha256:{match[1]}"


def _read_file(path: Path) -> Matrix:
    return read_matrix(read_text(path, next_step="give a matrix file"), str(path))


def _open(invocation: Invocation) -> Matrices:
    """Open the matrices of the command's registry."""
    if is_remote(invocation.registry):
        return RemoteMatrices(connect_server(invocation.registry).client)
    return EmbeddedMatrices(EmbeddedRegistry(invocation.folder))
