"""Pages as HTML: the templates, their filters, the assets, and the headers that keep a page to itself."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from benchlock.api.local.local_registry import now
from benchlock.api.web.links import link_cell
from benchlock.api.web.page import Page, Viewer
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.user_output import escape_line
from benchlock.evaluator.analysis.table_formats import format_cell, name_column
from benchlock.evaluator.analysis.tables import Cell, Column
from benchlock.evaluator.charts.labels import THEME
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.queue.queue_texts import describe_line, describe_seconds
from benchlock.evaluator.queue.queue_types import new_job_id

_HERE: Final = Path(__file__).parent
_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_NAME: Final = 16
"""The number of hex digits of an asset's digest in its name."""

_NUMERIC: Final = frozenset(("value", "low", "high", "ratio"))
"""The columns whose cells are aligned as numbers, also where they are written with a unit."""
_SHORT: Final = {"run": len("run/") + 10, "job": len("job/") + 10, "lock": len("sha256:") + 12}
"""The characters of ids in tables, which the commands accept as prefixes."""

PAGE_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
        "require-trusted-types-for 'script'; trusted-types benchlock"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "cache-control": "private, no-cache",
}
"""Nothing inline, nothing from another host, and no frame around a page."""


@cache
def load_assets() -> Mapping[str, tuple[bytes, str]]:
    """Return the content and the media type of each asset by its name, which contains a digest of its content."""
    style = (_HERE / "assets" / "style.css").read_bytes() + THEME.read_bytes()
    files = {"style.css": style, "page.js": (_HERE / "assets" / "page.js").read_bytes()}
    return {_name_asset(name, content): (content, _TYPES[Path(name).suffix]) for name, content in files.items()}


def _name_asset(name: str, content: bytes) -> str:
    stem, _, suffix = name.rpartition(".")
    return f"{stem}-{digest_bytes(content).removeprefix('sha256:')[:_NAME]}.{suffix}"


def _asset_path(start: str) -> str:
    return next(f"/assets/{name}" for name in load_assets() if name.startswith(f"{start}-"))


def _show_time(time: datetime) -> Markup:
    """Return a time in UTC, to the minute, as an element with the exact time."""
    return Markup('<time datetime="{}">{}</time>').format(time.isoformat(), f"{time:%Y-%m-%d %H:%M} UTC")


def _show_digest(digest: str) -> Markup:
    """Return the beginning of a digest, which opens to all of it."""
    algorithm, _, hexdigits = digest.partition(":")
    short = f"{algorithm}:{hexdigits[:12]}…"
    return Markup('<details class="digest"><summary><code>{}</code></summary><code>{}</code></details>').format(
        short, digest
    )


def _show_bytes(size: int) -> str:
    return format_cell(Column("size", "B"), size)


def _show_cell(value: Cell, column: Column) -> Markup:
    """Return a cell of a table, as a link where its column names pages."""
    shown = format_cell(column, value)
    path = link_cell(column.name, value)
    if path is not None:
        shown = shown[: _SHORT.get(column.name)]
    return escape(shown) if path is None else Markup('<a href="{}">{}</a>').format(path, shown)


def _draw(chart: Chart) -> Markup:
    return Markup(chart.svg())  # noqa: S704 - charts escape the names in them


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FileSystemLoader(_HERE / "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "time": _show_time,
        "digest": _show_digest,
        "bytes": _show_bytes,
        "line": escape_line,
        "progress": lambda line: escape_line(describe_line(line)),
        "seconds": describe_seconds,
        "cell": _show_cell,
        "heading": name_column,
        "draw": _draw,
    }
    environment.globals |= {
        "numeric": _NUMERIC,
        "style": _asset_path("style"),
        "script": _asset_path("page"),
        "new_job": lambda: new_job_id(now()),
    }
    return environment


def render_page(page: Page, viewer: Viewer) -> bytes:
    """Return the HTML of a page for its viewer."""
    template = _environment().get_template(f"{page.template}.html.jinja")
    query = parse_qsl(urlsplit(viewer.path).query)
    context: dict[str, Any] = {
        "page": page,
        "viewer": viewer,
        "csv_query": lambda name: urlencode([*query, ("csv", name)]),
        **page.context,
    }
    return template.render(context).encode()
