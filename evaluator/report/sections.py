"""What a report consists of: questions with answers, charts and a table."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchlock.evaluator.analysis.tables import Table
from benchlock.evaluator.charts.svg import Chart


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: a question, paragraphs with the answer first, charts, and the numbers behind them.

    The id of the table is unique in the report.
    """

    question: str
    answer: tuple[str, ...]
    charts: tuple[Chart, ...] = ()
    table: Table | None = None


def list_charts(sections: Iterable[Section]) -> tuple[Chart, ...]:
    """Return the charts of sections of a report."""
    return tuple(chart for section in sections for chart in section.charts)


@dataclass(frozen=True, slots=True)
class Report:
    """A report: its title, what a reader must know before all else, and its sections."""

    title: str
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
