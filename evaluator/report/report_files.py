"""The folder of a report: its page, its figures as SVG and PNG, and its tables as CSV, JSON and Markdown.

The page is one HTML file: no script, nothing from another host, light and dark, and all foreign text escaped.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.analysis.call_profiles import Subject
from benchlock.evaluator.analysis.table_formats import FORMATS, format_cell, name_column
from benchlock.evaluator.charts.labels import THEME
from benchlock.evaluator.charts.png import render_png
from benchlock.evaluator.report.prices import Price
from benchlock.evaluator.report.run_sections import (
    describe_costs,
    describe_gaps,
    describe_origin,
    describe_runs,
    name_subjects,
)
from benchlock.evaluator.report.sections import Report
from benchlock.evaluator.report.systems import System
from benchlock.evaluator.report.trace_sections import describe_trace

PAGE: Final = "report.html"
_TEMPLATE: Final = Path(__file__).with_name("page.html.jinja")
_STYLES: Final = (Path(__file__).with_name("page.css"), THEME)


def make_report(
    systems: Sequence[System],
    warnings: Sequence[str],
    subjects: Sequence[tuple[str, Subject]] = (),
    prices: Sequence[Price] = (),
    *,
    has_overview: bool = True,
) -> Report:
    """Make a report of verified runs.

    Args:
        systems: The systems of the runs.
        warnings: What a reader must know before all else.
        subjects: The traces, each with the name of its system.
        prices: The prices of the machines.
        has_overview: Whether it begins with the comparison of the systems, which reads the samples once more.
    """
    costs = describe_costs(systems, prices)
    sections = [*describe_runs(systems, has_overview=has_overview), *([] if costs is None else [costs])]
    for number, (name, subject) in enumerate(subjects, 1):
        sections += describe_trace(name, number, subject)
    title = f"Benchmark of {name_subjects(systems)}"
    limits = (f"{system.name}: {note}" for system in systems for note in system.notes())
    gaps = describe_gaps(systems, is_traced=bool(subjects))
    sections += [*([] if gaps is None else [gaps]), describe_origin(systems)]
    return Report(title, (*warnings, *limits), tuple(sections))


def render_page(report: Report) -> str:
    """Return the page of a report, with its charts inside it."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["heading"] = name_column
    environment.filters["cell"] = lambda value, column: format_cell(column, value)
    charts = [chart for section in report.sections for chart in section.charts]
    stylesheet = "".join(path.read_text(encoding="utf-8") for path in _STYLES)
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        report=report,
        # Charts escape their own text, and the style sheets are files of this project.
        drawings={chart.name: Markup(chart.svg()) for chart in charts},  # noqa: S704 - as above
        stylesheet=Markup(stylesheet),  # noqa: S704 - as above
        suffixes=tuple(FORMATS),
    )


def list_files(report: Report) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and the contents of the files of a report, the page last."""
    for section in report.sections:
        for chart in section.charts:
            yield f"figures/{chart.name}.svg", chart.svg().encode()
            yield f"figures/{chart.name}.png", render_png(chart)
        if section.table is not None:
            for suffix, write in FORMATS.items():
                yield f"tables/{section.table.id}.{suffix}", write(section.table).encode()
    yield PAGE, render_page(report).encode()


def write_report(report: Report, folder: Path) -> Path:
    """Write a report to a folder and return the path of its page. Files with the same names are replaced.

    Raises:
        InvalidInputError: The path is that of a file.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"not a folder: {folder}", where=str(folder), next_step="name a folder with -o")
    for name, content in list_files(report):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with create_file(path) as file:
            file.write(content)
    return folder / PAGE
