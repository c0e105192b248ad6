"""SQL statements of the resolver's snapshot, each a few index seeks.

They are texts for the driver because a process that makes one lock uses each of them a few times, and SQLAlchemy takes
longer to compile one of these, from a text too, than the database to answer it. ``:name`` is a parameter.

Their parameters: what a row is found by, under the column's name; ``low`` and ``high``, keys of versions, ``high``
excluded; and ``as_of``, the time that is seen. Where a framework and images are sought at once, the interval of the
images is ``image_low`` and ``image_high``.

Few different values among many rows are found by a loose scan: a recursive query seeks from each value to the next
greater one, so that the effort grows with the number of different values. No statement joins tables, whose order a
database would choose: each reads one, and asks of each row what there is in the others by its whole key.
"""
# ruff: noqa: S608 - what is put together are names of our own tables and columns; values are bound

import re
from functools import cache
from typing import Literal

from benchlock.registry.resolution.candidates import Status

_PARAMETER = re.compile(r":(\w+)")
NEED = ("required_kind", "required_name", "range")
PLATFORM = ("os", "arch", "device")
_ROW_BY_ROW = " OFFSET 0"
"""PostgreSQL makes a join of an EXISTS, and reads all that could match, but not of one that ends so."""


def _given(columns: tuple[str, ...], place: str) -> str:
    return " AND ".join(f"{place}.{column} = :{column}" for column in columns)


def _equal(one: str, other: str, columns: tuple[str, ...] = ("kind", "name", "precedence")) -> str:
    return " AND ".join(f"{one}.{column} = {other}.{column}" for column in columns)


def _between(key: str, whose: str = "") -> str:
    return f"{key} >= :{whose}low AND {key} < :{whose}high"


def _of_form(key: str, status: Status | None) -> str:
    """What the key itself says: those of releases, and no others, end with ``~`` (``registry.versions.key``).

    It stands in the statement as it does in the indexes of pre-releases.
    """
    return {"release": f"{key} LIKE '%~'", "pre-release": f"{key} NOT LIKE '%~'"}.get(status or "", "true")


def _exists(rows: str) -> str:
    return f"EXISTS ({rows}{_ROW_BY_ROW})"


def _published(version: str) -> str:
    """A row that belongs to a version which is seen."""
    return _exists(f"SELECT 1 FROM versions AS own WHERE {_equal('own', version)} AND own.published_at <= :as_of")


def _holds(yank: str = "yanks") -> str:
    """A row that yanks its version, and is the last of the version."""
    last = f"SELECT 1 FROM yanks AS later WHERE {_equal('later', yank)} AND later.position > {yank}.position"
    return f"{yank}.at <= :as_of AND {yank}.yanked AND NOT {_exists(f'{last} AND later.at <= :as_of')}"


def _of_status(version: str, status: Status | None) -> str:
    if status is None:
        return "true"
    yank = _exists(f"SELECT 1 FROM yanks WHERE {_equal('yanks', version)} AND {_holds()}")
    return f"{_of_form(f'{version}.precedence', status)} AND {'' if status == 'yanked' else 'NOT '}{yank}"


def _loose(table: str, columns: tuple[str, ...], given: str, start: str = "true") -> str:
    """``found``: the different values of ``columns``, which follow in an index on those that ``given`` fixes.

    ``start`` limits the first of them from below. SQLite seeks by several columns at once only up to and including a
    value, and only if no column stands on the other side: so what is sought is at or above the last values found, with
    the least of characters, ``next``, behind them.
    """
    names = ", ".join(columns)
    last = " || '', ".join(f"found.{column}" for column in columns) + " || :next"

    def least(condition: str) -> str:
        rows = f"FROM {table} WHERE {given} AND {condition} ORDER BY {names} LIMIT 1"
        return "SELECT " + ", ".join(f"(SELECT {column} {rows})" for column in columns)

    following = f"{least(f'({names}) >= ({last})')} FROM found WHERE found.{columns[0]} IS NOT NULL"
    return f"WITH RECURSIVE found({names}) AS ({least(start)} UNION ALL {following})"


def _different(table: str, given: tuple[str, ...], columns: tuple[str, ...]) -> str:
    """The different values of ``columns`` among the rows of published versions with the ``given`` columns."""
    rows = f"SELECT 1 FROM {table} AS one WHERE {_given(given, 'one')} AND {_equal('one', 'found', columns)}"
    published = f"{rows} AND {_published('one')}"
    found = ", ".join(f"found.{column}" for column in columns)
    return f"{_loose(table, columns, _given(given, table))} SELECT {found} FROM found WHERE {_exists(published)}"


def _of_keys(columns: str, table: str, count: int, condition: str = "true") -> str:
    """The rows of ``table`` that belong to the versions of a name with the keys ``key_0``, ``key_1``, …."""
    keys = ", ".join(f":key_{index}" for index in range(count))
    own = f"kind = :kind AND name = :name AND precedence IN ({keys}) AND {condition}"
    return f"SELECT {columns} FROM {table} WHERE {own}"


def _population(status: Status | None, *, with_need: bool, need: str = "") -> tuple[str, str]:
    """The table that is read, and all that follows SELECT: versions of a name, in an interval, and with a need.

    The need is given, or that of a row of the table ``need``. What is rare is read: yanks, then pre-releases, which
    have an index of their own, then those with the need.
    """
    plain = "requirements" if with_need else "versions"
    leading = {"yanked": "yanks", "pre-release": "prereleases"}.get(status or "", plain)
    wanted = _equal("requirements", need, NEED) if need else _given(NEED, "requirements")
    required = f"SELECT 1 FROM requirements WHERE {_equal('requirements', leading)} AND {wanted}"
    conditions = [
        _given(("kind", "name"), leading),
        _between(f"{leading}.precedence"),
        _holds() if status == "yanked" else _of_status(leading, status),
        "versions.published_at <= :as_of" if leading == "versions" else _published(leading),
        *([wanted if leading == "requirements" else _exists(required)] if with_need else []),
    ]
    table = "versions AS prereleases" if leading == "prereleases" else leading
    return leading, f"FROM {table} WHERE {' AND '.join(conditions)}"


def _offered() -> str:
    """Environments with the framework on the platform, of images of certain names."""
    return (
        f"{_given(('framework', *PLATFORM), 'environments')} AND environments.name BETWEEN :first_name AND :last_name"
    )


def _images(place: str, status: Status) -> str:
    """Environments of published images in their interval and of their status."""
    return f"{_between(f'{place}.precedence', 'image_')} AND {_of_status(place, status)} AND {_published(place)}"


def _names(order: Literal["ASC", "DESC"], start: str, following: str) -> str:
    """``most`` names of a kind in their order, from one that ``start`` limits to each that is ``following``."""

    def end(condition: str) -> str:
        return f"SELECT (SELECT name FROM versions WHERE kind = :kind AND {condition} ORDER BY name {order} LIMIT 1)"

    found = f"WITH RECURSIVE found(name) AS ({end(start)} UNION ALL {end(following)} FROM found WHERE name IS NOT NULL)"
    own = "SELECT 1 FROM versions WHERE kind = :kind AND versions.name = found.name AND published_at <= :as_of"
    return f"{found} SELECT name FROM found WHERE {_exists(own)} LIMIT :most"


@cache
def render_statement(statement: str, dialect: str) -> str:
    """A statement as the driver of the database reads it."""
    if dialect == "sqlite":
        return statement.replace(_ROW_BY_ROW, "")
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))


def settings(dialect: str) -> tuple[str, ...]:
    """What is executed before the statements, in their transaction, so that they are seeks there too.

    PostgreSQL would read all of a table that it takes for small, and sort it: it is told to seek, which is right
    whatever it knows of the table.
    """
    knobs = {"jit": "off", **{f"enable_{name}": "off" for name in ("seqscan", "bitmapscan", "sort")}}
    values = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in knobs.items())
    return () if dialect == "sqlite" else (f"SELECT {values}",)


NAMES_BELOW = _names("DESC", "name < :near", "name < found.name")
NAMES_FROM = _names("ASC", "name >= :near", "name > found.name")
"""The names of a kind next to ``near``."""

IMAGES = _different("versions", ("framework",), ("name",))
"""The names of images of which a version provides the framework."""

NEEDS = _different("requirements", ("kind", "name"), NEED)
"""What the versions of a name require."""

PLATFORMS = _different("environments", ("framework",), PLATFORM)
"""The platforms on which some image provides the framework."""


@cache
def select_versions(count: int) -> str:
    """Versions of a name by their keys; ``yanked`` is the reason, where one is."""
    reason = f"(SELECT reason FROM yanks WHERE {_equal('yanks', 'versions')} AND {_holds()})"
    return _of_keys(f"versions.*, {reason} AS yanked", "versions", count, "published_at <= :as_of")


@cache
def select_dependent_rows(table: str, count: int) -> str:
    """The rows of ``requirements`` or ``platforms`` of these versions."""
    return _of_keys("*", table, count)


@cache
def select_ends(status: Status | None, order: Literal["ASC", "DESC"], *, with_need: bool) -> str:
    """Key and text of ``most`` versions of a name, the oldest or the newest."""
    leading, rows = _population(status, with_need=with_need)
    text = f"(SELECT version FROM versions AS own WHERE {_equal('own', leading)})"
    columns = f"{leading}.precedence, {'versions.version' if leading == 'versions' else text} AS version"
    return f"SELECT {columns} {rows} ORDER BY {leading}.precedence {order} LIMIT :most"


@cache
def count(status: Status | None, *, with_need: bool) -> str:
    """How many versions of a name there are, ``most`` at most."""
    _, rows = _population(status, with_need=with_need)
    return f"SELECT count(*) FROM (SELECT 1 {rows} LIMIT :most) AS counted"


@cache
def select_requirements(status: Status | None) -> str:
    """What versions of a name require, each with the key of the newest that does."""
    leading, rows = _population(status, with_need=True, need="found")
    place = f"{leading}.precedence"
    needs = ", ".join(f"found.{column}" for column in NEED)
    newest = f"SELECT {needs}, (SELECT {place} {rows} ORDER BY {place} DESC LIMIT 1) AS newest FROM found"
    found = _loose("requirements", NEED, _given(("kind", "name"), "requirements"))
    # Materialized, since SQLite would otherwise seek the newest twice: for the condition, and for the column.
    there = f"needed AS MATERIALIZED ({newest} WHERE found.{NEED[0]} IS NOT NULL)"
    return f"{found}, {there} SELECT * FROM needed WHERE newest IS NOT NULL"


@cache
def select_provided_version(status: Status, images: Status) -> str:
    """The key of the newest version of the framework that one of the images provides, whether or not it is published.

    Only the form of its ``status`` is looked at.
    """
    place = "environments.framework_precedence"
    return (
        f"SELECT {place} FROM environments WHERE {_offered()} AND {_between(place)} AND {_of_form(place, status)} "
        f"AND {_images('environments', images)} ORDER BY {place} DESC LIMIT 1"
    )


@cache
def select_providers(status: Status, images: Status) -> str:
    """Name, key and text of the newest of each name's images, for each version of the framework that they provide."""
    pair = ("framework_precedence", "name")
    found = _loose(
        "environments", pair, f"{_offered()} AND framework_precedence < :high", "framework_precedence >= :low"
    )
    newest = (
        f"SELECT one.precedence FROM environments AS one WHERE {_given(('framework', *PLATFORM), 'one')} "
        f"AND {_equal('one', 'found', pair)} AND {_images('one', images)} ORDER BY one.precedence DESC LIMIT 1"
    )
    framework = (
        "SELECT 1 FROM versions AS published WHERE published.kind = 'framework' AND published.name = :framework "
        "AND published.precedence = found.framework_precedence AND published.published_at <= :as_of "
        f"AND {_of_status('published', status)}"
    )
    image = "image.kind = 'image' AND image.name = offered.name AND image.precedence = offered.precedence"
    return (
        f"{found}, offered(name, precedence) AS MATERIALIZED "
        f"(SELECT found.name, ({newest}) FROM found WHERE {_exists(framework)}) "
        f"SELECT name, precedence, (SELECT version FROM versions AS image WHERE {image}) AS version "
        "FROM offered WHERE precedence IS NOT NULL"
    )
