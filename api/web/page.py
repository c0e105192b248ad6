"""What a page consists of, and who looks at it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchlock.evaluator.analysis.tables import Table
from benchlock.evaluator.charts.svg import Chart


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at a page.

    Attributes:
        name: The id of the caller; None before signing in.
        may: The scopes of the caller.
        csrf_token: What forms must send back; empty where nobody signs in.
        is_open: Whether the service accepts everybody, so that nobody signs in.
        path: The path and the query of the page, to return to it.
        address: The address of the service, as its commands need it.
    """

    name: str | None = None
    may: frozenset[str] = frozenset()
    csrf_token: str = ""
    is_open: bool = False
    path: str = "/"
    address: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        template: The file name of its template, without the suffix.
        title: Its heading.
        context: What its template shows.
        tables: Its tables by the name under which the page offers them as CSV.
        json_path: The path at the API of the same content as JSON, or of the records behind it; None without one.
        breadcrumbs: The paths and the names of the pages above it.
        refresh: Seconds until a browser without JavaScript loads it again; None for a page that does not change.
        charts: Its charts, each of which the page offers as an SVG file under its name.
        caption: What a chart says below it as a file of its own, line by line.
        has_secret: Whether it shows a secret, so that no cache may store it.
        facts: What a document that is a ``PageDocument`` says beside the tables, as JSON values.
    """

    template: str
    title: str
    context: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    json_path: str | None = None
    breadcrumbs: tuple[tuple[str, str], ...] = ()
    refresh: int | None = None
    charts: tuple[Chart, ...] = ()
    caption: tuple[str, ...] = ()
    has_secret: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
