"""The page of a matrix: the states of its runs, and one metric of all cells with ranks, or why a cell is empty."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchlock.api.client.matrix_clients import EmbeddedMatrices
from benchlock.api.web.links import compare_path, matrix_path, with_query
from benchlock.api.web.page import Page
from benchlock.api.web.pages.compare_pages import MOST_RUNS
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.matrices.matrix_tables import CellMetric, CellResult, MatrixTable, list_notes
from benchlock.evaluator.matrices.matrix_types import RUNNING_STATES, MatrixStatus
from benchlock.evaluator.statistics.metric_types import Metric

ROWS: Final = 100
_REFRESH: Final = 15
_MOST_NOTES: Final = 20
_DIGITS: Final = 6
"""The maximum number of digits in the number of cells before a page."""
_STATES: Final = (Column("state", None, "The state of runs."), Column("runs", None, "Their number."))


@dataclass(frozen=True, slots=True)
class MatrixQuery:
    """The state of the page in its address: the metric that is shown, and the number of cells before the first row."""

    metric: str = ""
    skip: str = ""


def make_matrix(matrices: EmbeddedMatrices, matrix: str, query: MatrixQuery) -> Page:
    """Make the page of a matrix.

    Args:
        matrices: The matrices of the registry.
        matrix: Its id, or the beginning of it.
        query: What the address asks for.

    Raises:
        UnknownNameError: There is no such matrix.
        InvalidInputError: No cell has the metric, or ``skip`` is not a number.
    """
    status, table = matrices.read(matrix)
    id_ = Digest(status.id)
    keys = _list_metrics(table)
    if query.metric and query.metric not in keys:
        raise InvalidInputError(
            f"no cell has a metric {query.metric}", where="metric", next_step="choose one of the page"
        )
    key = query.metric or next(iter(keys), "")
    skip = _parse_number(query.skip)
    is_live = any(state in RUNNING_STATES for state in status.states)
    more = skip + ROWS < len(table.cells)
    path = matrix_path(id_)
    notes = [*list_notes(table)]
    compared = [max(cell.runs) for cell in table.cells[skip : skip + ROWS] if cell.runs and cell.group == 1][:MOST_RUNS]
    return Page(
        "matrix",
        f"Matrix: {status.name}",
        {
            "status": status,
            "summary": _summarize(status),
            "metrics": keys,
            "metric": key,
            "cancel": f"{path}/cancel" if is_live and matrices.may_cancel(id_) else "",
            "next": with_query(path, metric=query.metric, skip=str(skip + ROWS)) if more else "",
            "compare": compare_path(compared) if len(compared) > 1 else "",
            "notes": notes[:_MOST_NOTES],
            "other_notes": max(0, len(notes) - _MOST_NOTES),
        },
        {
            "states": Table("states", "Runs by state", _STATES, tuple(sorted(status.states.items()))),
            "cells": _tabulate(table.cells[skip : skip + ROWS], key, keys.get(key)),
        },
        f"/v1{path}/table",
        (("/jobs", "Queue"),),
        _REFRESH if is_live else None,
    )


def _summarize(status: MatrixStatus) -> str:
    states = ", ".join(f"{count} {state}" for state, count in sorted(status.states.items()))
    return f"{sum(status.states.values())} runs: {states}. Resolved as of {status.as_of:%Y-%m-%d %H:%M:%S} UTC."


def _list_metrics(table: MatrixTable) -> dict[str, Metric]:
    """Return the metrics by key, with that of one cell: first those by which the most cells differ, then the ranked."""
    found = [entry for cell in table.cells for entry in cell.metrics]
    ranked = Counter(entry.metric.key for entry in found if entry.rank is not None)
    decided = Counter(entry.metric.key for entry in found if entry.verdict in ("best", "worse"))
    first: dict[str, Metric] = {}
    for entry in found:
        first.setdefault(entry.metric.key, entry.metric)
    return dict(sorted(first.items(), key=lambda item: (-decided[item[0]], -ranked[item[0]])))


def _tabulate(cells: Sequence[CellResult], key: str, metric: Metric | None) -> Table:
    unit = None if metric is None else metric.unit
    columns = (
        Column("cell", None, "The values of the axes."),
        Column(key or "value", unit, "The median over the runs that count."),
        Column("low", unit, "Lower end of the 95 % interval."),
        Column("high", unit, "Upper end of the 95 % interval."),
        Column("n", None, "Number of values behind it: runs, or samples of a single run."),
        Column("rank", None, "1 + the number of cells of the group whose intervals are better."),
        Column("verdict", None, "How the cell does among the cells of its group."),
        Column("group", None, "The number of its group of comparable cells."),
        Column("missing", None, "Why runs of the cell have no result."),
        Column("run", None, "The newest of its runs that count."),
        Column("lock", None, "The lock of the cell."),
    )
    return Table("cells", f"Cells by {key}" if key else "Cells", columns, tuple(_list_rows(cells, key)))


def _list_rows(cells: Sequence[CellResult], key: str) -> Iterator[tuple[Cell, ...]]:
    for cell in cells:
        entry = next((entry for entry in cell.metrics if entry.metric.key == key), None)
        yield (cell.cell, *_list_values(entry), cell.group, cell.missing, max(cell.runs, default=None), cell.lock)


def _list_values(entry: CellMetric | None) -> tuple[Cell, ...]:
    if entry is None:
        return (None, None, None, None, None, None)
    metric = entry.metric
    return (metric.value, metric.ci.low, metric.ci.high, metric.n, entry.rank, entry.verdict)


def _parse_number(text: str) -> int:
    if text and not (text.isdecimal() and len(text) <= _DIGITS):
        raise InvalidInputError("not a number of cells", where="skip", next_step="begin with the first page")
    return int(text or 0)
