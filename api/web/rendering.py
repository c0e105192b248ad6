"""Pages as HTML: the templates, their filters, the assets, and the headers that keep a page to itself."""

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from benchlock.api.local.local_registry import now
from benchlock.api.web.links import link_cell, with_query
from benchlock.api.web.page import Page, Viewer
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.net.urls import is_loopback
from benchlock.artifacts.user_output import escape_line
from benchlock.evaluator.analysis.table_formats import format_cell, name_column
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.charts.labels import THEME
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.queue.queue_texts import describe_line, describe_seconds
from benchlock.evaluator.queue.queue_types import new_job_id
from benchlock.evaluator.records.comparison_types import new_comparison_id

_HERE: Final = Path(__file__).parent
_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_NAME: Final = 16
"""The number of hex digits of an asset's digest in its name."""

_NUMERIC: Final = frozenset(("value", "low", "high", "ratio"))
"""The columns whose cells are aligned as numbers, also where they are written with a unit."""
_FIGURE: Final = re.compile(r"(-?[\d,]+)((?:\.\d+)?(?:%| .+)?)")
"""A number up to its decimal point, and its fraction with its unit and mark."""
_WIDTHS: Final = (2, 4, 6, 8, 10, 14, 26)
"""The widths of fractions with units, in characters, that the style sheet knows."""
_DIGEST: Final = re.compile(r"(?:sha256:)?[0-9a-f]{64}")
_SHORT: Final = {"run": len("run/") + 10, "job": len("job/") + 10, "comparison": 8} | dict.fromkeys(
    ("lock", "samples"), len("sha256:") + 12
)
"""The characters of ids in tables, which the commands accept as prefixes; more where ids would look the same."""

_HEADING: Final = re.compile('<h2 id="([^"]+)">([^<]+)</h2>')
_PATH: Final = re.compile("/[a-z]+")
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
    algorithm, colon, hexdigits = digest.rpartition(":")
    short = f"{algorithm}{colon}{hexdigits[:12]}…"
    return Markup('<details class="digest"><summary><code>{}</code></summary><code>{}</code></details>').format(
        short, digest
    )


def _show_code(text: str) -> Markup:
    """Return a text in which what stands between backticks is code."""
    code = Markup("<code>{}</code>")
    parts = (code.format(part) if place % 2 else escape(part) for place, part in enumerate(text.split("`")))
    return Markup().join(parts)


def _address_commands(text: str, address: str) -> str:
    """Return commands with the address of the service, so that they work in any folder."""
    registry = f"benchlock --registry {shlex.quote(address)} " if address else "benchlock "
    return re.sub(r"^benchlock ", lambda _: registry, text, flags=re.MULTILINE)


def _show_bytes(size: int) -> str:
    return format_cell(Column("size", "B"), size)


def show_columns(
    table: Table, downloads: Mapping[str, str] = MappingProxyType({})
) -> tuple[tuple[bool, Sequence[Markup]], ...]:
    """Return the cells of each column as HTML, and whether the column is one of numbers.

    The first cell of a row is a link to the file of ``downloads`` whose digest is the last cell.
    """
    columns = []
    for place, column in enumerate(table.columns):
        values = [row[place] for row in table.rows]
        is_numeric = column.name in _NUMERIC or any(isinstance(value, (int, float)) for value in values)
        cells = _align([format_cell(column, value) for value in values]) if is_numeric else None
        length = None if is_numeric else _find_length(column, values)
        columns.append((is_numeric, cells or [_show_cell(value, column, length) for value in values]))
    if downloads:
        paths = (downloads.get(str(row[-1])) for row in table.rows)
        columns[0] = (False, [_link_file(cell, path) for cell, path in zip(columns[0][1], paths, strict=True)])
    return tuple(columns)


def _link_file(cell: Markup, path: str | None) -> Markup:
    """Return a cell as a link that downloads a file; as it is without a path.

    The file has the name in the path, otherwise the last part of the cell.
    """
    if path is None:
        return cell
    name = path.partition("?name=")[2] or cell.unescape().rpartition("/")[2]
    return Markup('<a href="{}" download="{}">{}</a>').format(path, name, cell)


def _find_length(column: Column, values: Sequence[Cell]) -> int | None:
    """Return how many characters of the ids of a column tell them apart; None for a column of other texts."""
    if (least := _SHORT.get(column.name)) is None:
        return None
    ids = {str(value) for value in values}
    longest = max(map(len, ids), default=least)
    return next((length for length in range(least, longest) if len({id_[:length] for id_ in ids}) == len(ids)), longest)


def _show_cell(value: Cell, column: Column, length: int | None) -> Markup:
    """Return a cell of a table, as a link where its column names pages, and a digest by its beginning."""
    shown = format_cell(column, value)
    path = link_cell(column.name, value)
    if path is not None:
        return Markup('<a href="{}">{}</a>').format(path, shown[:length])
    return _show_digest(shown) if _DIGEST.fullmatch(shown) else escape(shown)


def _align(texts: Sequence[str]) -> list[Markup]:
    """Give what follows the decimal points one width, so that a column is aligned by them."""
    figures = [_FIGURE.fullmatch(text) for text in texts]
    longest = max((len(figure[2]) for figure in figures if figure), default=0)
    if not longest:
        return [escape(text) for text in texts]
    width = next((width for width in _WIDTHS if width >= longest), _WIDTHS[-1])
    begin, end = Markup(f'<span class="end w{width}">'), Markup("</span>")  # noqa: S704 - a number
    pairs = ((text, "") if figure is None else figure.groups() for text, figure in zip(texts, figures, strict=True))
    return [escape(whole) + begin + escape(rest) + end for whole, rest in pairs]


def _link_path(words: str) -> Markup:
    """Return a sentence whose last words, after a colon, are a link if they are the path of a page of this service."""
    rest, colon, path = words.rpartition(": ")
    if not colon or not _PATH.fullmatch(path):
        return escape(words)
    return Markup('{}: <a href="{}">{}</a>').format(rest, path, path)


def _list_headings(body: str) -> list[tuple[str, Markup]]:
    """Return the id and the text of each section's heading in a part of a page."""
    return [(id_, Markup(heading)) for id_, heading in _HEADING.findall(body)]  # noqa: S704 - it is HTML already


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
        "columns": show_columns,
        "link_path": _link_path,
        "progress": describe_line,
        "seconds": describe_seconds,
        "heading": name_column,
        "headings": _list_headings,
        "draw": _draw,
        "code": _show_code,
        "at": _address_commands,
        "is_local": lambda address: is_loopback(urlsplit(address).hostname or ""),
    }
    environment.globals |= {
        "style": _asset_path("style"),
        "script": _asset_path("page"),
        "new_job": lambda: new_job_id(now()),
        "new_comparison": new_comparison_id,
    }
    return environment


def render_page(page: Page, viewer: Viewer) -> bytes:
    """Return the HTML of a page for its viewer."""
    template = _environment().get_template(f"{page.template}.html.jinja")
    path, _, parameters = viewer.path.partition("?")
    query = parse_qsl(parameters)

    def first_page(cursor: str) -> str:
        """Return the path of the first page of a list; empty on it. Lists go forward only."""
        others = {name: value for name, value in query if name != cursor}
        return with_query(path, **others) if cursor in dict(query) else ""

    context: dict[str, Any] = {
        "page": page,
        "viewer": viewer,
        "section": path.split("/")[1],
        "first_page": first_page,
        "csv_query": lambda name: urlencode([*query, ("csv", name)]),
        "svg_query": lambda name: urlencode([*query, ("svg", name)]),
        **page.context,
    }
    return template.render(context).encode()
