"""All analyses by their names, and what is done where a trace lacks the level of one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.analysis.call_profiles import MissingLevelError, Subject
from benchlock.evaluator.analysis.kernels import KERNEL_ANALYSES
from benchlock.evaluator.analysis.layers import LAYER_ANALYSES
from benchlock.evaluator.analysis.model_tables import (
    tabulate_batches,
    tabulate_counters,
    tabulate_overheads,
    tabulate_start,
)
from benchlock.evaluator.analysis.tables import Table

FIFTEEN: Final = tuple(f"A{number}" for number in range(1, 16))
_NUMBERED: Final = {"A1": tabulate_batches, **LAYER_ANALYSES, **KERNEL_ANALYSES}
ANALYSES: Final[Mapping[str, Callable[[Subject], Table]]] = {
    **{name: _NUMBERED[name] for name in FIFTEEN},
    "overhead": tabulate_overheads,
    "cold-start": tabulate_start,
    "counters": tabulate_counters,
}
"""The analyses by name: A1 to A15 of XSP, the cost of tracing, the timeline of a start, and counters of the host."""
BRIEF: Final = ("A2", "A6", "overhead")
"""What is shown if nothing is chosen."""
RANKED: Final = {"A2": "latency", "A3": "latency", "A4": "output_bytes", "A8": "latency", "A10": "latency"}
"""The column by which the largest rows are chosen."""


def parse_analyses(text: str) -> tuple[str, ...]:
    """Parse names of analyses, separated by commas; ``all`` is every one, and an empty text the default.

    Raises:
        InvalidInputError: A name is unknown.
    """
    if not text:
        return BRIEF
    known = {name.lower(): name for name in ANALYSES}
    names = [name.strip().lower() for name in text.split(",")]
    if names == ["all"]:
        return tuple(ANALYSES)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInputError(
            f"unknown analysis {unknown[0]!r}", where=text, next_step=f"choose among all, {', '.join(ANALYSES)}"
        )
    return tuple(dict.fromkeys(known[name] for name in names))


def analyze(subject: Subject, names: Sequence[str], top: int | None = None) -> tuple[Table, ...]:
    """Perform analyses. Where several are chosen, one that the trace does not allow is an empty table with the reason.

    Args:
        subject: The trace, with what is known beside it.
        names: Names of ``ANALYSES``.
        top: The number of rows to keep where an analysis ranks them; None for all.

    Raises:
        MissingLevelError: The only chosen analysis needs a level that the trace does not have.
    """
    tables = []
    for name in names:
        try:
            table = ANALYSES[name](subject)
        except MissingLevelError as error:
            if len(names) == 1:
                raise
            table = Table(name, "Not possible", (), (), dict(subject.facts), (f"{error.what}; {error.next_step}",))
        tables.append(keep_top(table, top))
    return tuple(tables)


def keep_top(table: Table, top: int | None) -> Table:
    """Keep the rows with the largest values of the column that ranks them, the largest first."""
    if top is None or table.id not in RANKED or len(table.rows) <= top:
        return table
    values = [value if isinstance(value, int | float) else -1 for value in table.column(RANKED[table.id])]
    order = sorted(range(len(values)), key=lambda position: (-values[position], position))[:top]
    note = f"The {top} largest of {len(table.rows)} rows by {RANKED[table.id]}."
    return replace(table, rows=tuple(table.rows[position] for position in order), notes=(note, *table.notes))
