"""Tables as text for readers, and as CSV, JSON and Markdown; foreign text is escaped for each."""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from benchlock.artifacts.user_output import escape_json, escape_line
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.statistics.metric_types import format_duration

_FORMULA: Final = ("=", "+", "-", "@")
"""The first characters of cells that a spreadsheet executes."""
_SPECIAL: Final = re.compile(r"([\\`*_\[\]{}<>()#!|~&])")
_SCALES: Final = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 0.0))
_SCALED: Final = ("flop/s", "B/s", "B")
_SHOWN: Final = (None, "s", "fraction", *_SCALED)
"""Units that cells show, so that headings need not."""
_EXPONENT, _MILLION = 1e4, 1e6
"""Numbers between these are written as whole ones rather than with an exponent."""
_TINY: Final = 1e-13
"""Seconds below which a difference is the rounding of sums."""
_FACT_UNITS: Final = {"_flop_s": "flop/s", "_B_s": "B/s", "_s": "s", "_B": "B"}
"""The units of facts by the end of their names."""


def format_cell(column: Column, value: Cell) -> str:
    """Format a cell for readers, with a unit that suits its size."""
    if value is None or isinstance(value, str):
        return "-" if value is None else escape_line(value)
    if 0 <= value < column.least:
        return f"< {format_cell(replace(column, least=0.0), column.least)}"
    if column.unit == "s":
        return f"-{format_duration(-value)}" if value < -_TINY else format_duration(max(value, 0.0))
    if column.unit == "fraction":
        return f"{value:.1%}"
    if column.unit in _SCALED:
        prefix, factor = next(scale for scale in _SCALES if abs(value) >= scale[1])
        return f"{value / (factor or 1):.4g} {prefix}{column.unit}"
    is_long = isinstance(value, int) or _EXPONENT <= abs(value) < _MILLION
    return f"{value:,.0f}" if is_long else f"{value:.4g}"


def format_fact(name: str, value: Cell) -> str:
    """Format a fact with its name, whose end is its unit."""
    end, unit = next(((end, unit) for end, unit in _FACT_UNITS.items() if name.endswith(end)), ("", None))
    unit = "fraction" if "share" in name or name == "explained" else unit
    return f"{name.removesuffix(end).replace('_', ' ')}: {format_cell(Column(name, unit), value)}"


def name_column(column: Column) -> str:
    """Return the heading of a column for readers; its unit is there if cells do not show it."""
    name = column.name.replace("_", " ")
    return name if column.unit in _SHOWN else f"{name} ({column.unit})"


def format_csv(table: Table) -> str:
    """Format a table as CSV with plain numbers in base units; an unknown cell is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([f"{column.name} ({column.unit})" if column.unit else column.name for column in table.columns])
    writer.writerows([_defuse(cell) for cell in row] for row in table.rows)
    return text.getvalue()


def _defuse(cell: Cell) -> Cell:
    """Return a number as it is, and a text so that no spreadsheet executes it as a formula."""
    if not isinstance(cell, str):
        return cell
    line = escape_line(cell)
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line


def table_document(table: Table) -> dict[str, Any]:
    """Return a table as a JSON document, with the meaning of its columns, its facts and its notes."""
    return {
        "id": table.id,
        "title": table.title,
        "columns": [{"name": c.name, "unit": c.unit, "meaning": c.meaning} for c in table.columns],
        "rows": [list(row) for row in table.rows],
        "facts": dict(table.facts),
        "notes": list(table.notes),
    }


def format_json(table: Table) -> str:
    """Format a table as a JSON document."""
    return escape_json(json.dumps(table_document(table), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def format_markdown(table: Table) -> str:
    """Format a table as Markdown, with its facts and notes."""
    rows = [list(map(format_cell, table.columns, row)) for row in table.rows]
    lines = [list(map(name_column, table.columns)), ["---"] * len(table.columns), *rows]
    cells = [[cell if cell == "---" else _escape(cell) for cell in line] for line in lines]
    facts = [format_fact(*fact) for fact in table.facts.items() if fact[1] is not None]
    ends = [f"* {_escape(text)}" for text in (*facts, *(f"note: {note}" for note in table.notes))]
    rows_text = "\n".join(f"| {' | '.join(line)} |" for line in cells)
    return "\n".join((f"# {_escape(table.title)}", "", rows_text, "", *ends)).rstrip() + "\n"


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", escape_line(text))


FORMATS: Final[Mapping[str, Callable[[Table], str]]] = {"csv": format_csv, "json": format_json, "md": format_markdown}
"""The formats of tables by the suffix of their files."""
