"""What a report consists of: questions with answers, charts and a table."""

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


@dataclass(frozen=True, slots=True)
class Report:
    """A report: its title, what a reader must know before all else, and its sections."""

    title: str
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
