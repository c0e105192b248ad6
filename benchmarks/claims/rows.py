"""Rows of the page, and its Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Row:
    """A claim of a paper, with what benchlock measured."""

    claim: str
    measured: str
    answer: Literal["yes", "partly", "no", "not measured"]
    reason: str
    locks: str = "-"


def format_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    for cells in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(cells)} |"


def format_rows(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the table of claims."""
    heads = ("claim", "measured here", "regenerated", "why", "locks")
    yield from format_table(heads, ((row.claim, row.measured, row.answer, row.reason, row.locks) for row in rows))


def format_seconds(seconds: float) -> str:
    """Format a duration with three digits."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def format_interval(low: float | None, high: float | None, factor: float = 1.0) -> str:
    """Format the ends of a 95 % interval."""
    return f"[{', '.join('-' if end is None else f'{end * factor:.3g}' for end in (low, high))}]"
