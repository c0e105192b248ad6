"""Tables of analyses on standard output: for people with units, for programs with plain numbers."""

from collections.abc import Sequence
from itertools import chain

from benchlock.api.cli import output
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.analysis.table_formats import format_cell, format_csv, format_fact, name_column
from benchlock.evaluator.analysis.tables import Cell, Table

_LONGEST_NAME = 48
_HIDDEN = "lock"
"""A fact that is too long for people."""


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables in the requested format. Facts and notes that an earlier table has are not repeated.

    Raises:
        InvalidInputError: CSV is requested for several tables.
    """
    if output.settings.format == "csv":
        if len(tables) > 1:
            raise InvalidInputError(
                "CSV holds one table", where="--format csv", next_step="choose one analysis, such as --analysis A2"
            )
        output.print_text(format_csv(tables[0]))
        return
    facts: dict[str, Cell] = {_HIDDEN: None}
    for number, table in enumerate(tables):
        mark = "## " if output.settings.format == "md" else ""
        output.echo_lines(f"{mark}{table.id}: {table.title}\n")
        if table.columns:
            rows = [
                [_shorten(format_cell(*pair)) for pair in zip(table.columns, row, strict=True)] for row in table.rows
            ]
            output.print_table(list(map(name_column, table.columns)), rows)
        news = {name: value for name, value in table.facts.items() if name != _HIDDEN and facts.get(name) != value}
        facts |= news
        if news:
            output.echo()
            output.echo_wrapped("; ".join(format_fact(*fact) for fact in news.items()))
        shown = set(chain.from_iterable(earlier.notes for earlier in tables[:number]))
        for note in table.notes:
            if note not in shown:
                output.echo_wrapped(f"note: {output.append_commands(note)}")
        if number < len(tables) - 1:
            output.echo()


def _shorten(text: str) -> str:
    """Keep the end of a name that lists the nodes of a graph which were fused."""
    last = text.rpartition(";")[2] or text
    return last if len(last) <= _LONGEST_NAME else f"…{last[-_LONGEST_NAME:]}"
