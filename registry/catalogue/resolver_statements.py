"""SQL statements of the resolver's snapshot, each a few index seeks.

The statements are text for the driver. A process that creates one lock uses each statement a few times, and SQLAlchemy
needs longer to compile one of them than the database to answer it. ``:name`` is a parameter.

The parameters are the columns that identify a row, under their own names; ``low`` and ``high``, keys of versions, where
``high`` is excluded; and ``as_of``, the time of the snapshot. In statements about a framework and its images, the
interval of the images is ``image_low`` to ``image_high``.

A loose scan finds few different values among many rows: a recursive query seeks from each value to the next greater
one, so its cost grows with the number of different values. No statement joins tables, because the database would choose
the join order. Each statement reads one table and looks up rows of the others by their whole key.
"""
# ruff: noqa: S608 - the statements contain names of our own tables and columns only; values are bound

import re
from functools import cache
from typing import Literal

from benchlock.registry.resolution.resolver_types import Status

_PARAMETER = re.compile(r":(\w+)")
NEED = ("required_kind", "required_name", "range")
PLATFORM = ("os", "arch", "device")
_ROW_BY_ROW = " OFFSET 0"
"""PostgreSQL turns an EXISTS into a join and reads all possible matches, unless the subquery ends like this."""


def _match_parameters(columns: tuple[str, ...], place: str) -> str:
    return " AND ".join(f"{place}.{column} = :{column}" for column in columns)


def _match_columns(left: str, right: str, columns: tuple[str, ...] = ("kind", "name", "precedence")) -> str:
    return " AND ".join(f"{left}.{column} = {right}.{column}" for column in columns)


def _between(key: str, whose: str = "") -> str:
    return f"{key} >= :{whose}low AND {key} < :{whose}high"


def _has_form(key: str, status: Status | None) -> str:
    """Return the condition on the form of a key: only the keys of releases end with ``~`` (``semantic_version.key``).

    The condition is written exactly as in the indexes of pre-releases, so that the database uses them.
    """
    return {"release": f"{key} LIKE '%~'", "pre-release": f"{key} NOT LIKE '%~'"}.get(status or "", "true")


def _exists(rows: str) -> str:
    return f"EXISTS ({rows}{_ROW_BY_ROW})"


def _is_published(version: str) -> str:
    """Return the condition that a row belongs to a version published at ``as_of``."""
    return _exists(
        f"SELECT 1 FROM versions AS own WHERE {_match_columns('own', version)} AND own.published_at <= :as_of"
    )


def _is_current_yank(yank: str = "yanks") -> str:
    """Return the condition that a row yanks its version and is the last yank row of the version at ``as_of``."""
    last = f"SELECT 1 FROM yanks AS later WHERE {_match_columns('later', yank)} AND later.position > {yank}.position"
    return f"{yank}.at <= :as_of AND {yank}.yanked AND NOT {_exists(f'{last} AND later.at <= :as_of')}"


def _has_status(version: str, status: Status | None) -> str:
    if status is None:
        return "true"
    yank = _exists(f"SELECT 1 FROM yanks WHERE {_match_columns('yanks', version)} AND {_is_current_yank()}")
    return f"{_has_form(f'{version}.precedence', status)} AND {'' if status == 'yanked' else 'NOT '}{yank}"


def _loose_scan(table: str, columns: tuple[str, ...], fixed_condition: str, start: str = "true") -> str:
    """Return a loose scan: the table ``found`` of the different values of ``columns``.

    SQLite seeks by several columns at once only with ``>=`` or ``<=``, and only if the other side has no columns. The
    scan therefore seeks at or above the last values with ``next``, the smallest character, appended.

    Args:
        table: The table to scan.
        columns: The columns whose values are wanted. An index has them directly after the columns of
            ``fixed_condition``.
        fixed_condition: The condition that fixes the leading columns of the index.
        start: The lower limit of the first value.
    """
    names = ", ".join(columns)
    last = " || '', ".join(f"found.{column}" for column in columns) + " || :next"

    def least(condition: str) -> str:
        rows = f"FROM {table} WHERE {fixed_condition} AND {condition} ORDER BY {names} LIMIT 1"
        return "SELECT " + ", ".join(f"(SELECT {column} {rows})" for column in columns)

    following = f"{least(f'({names}) >= ({last})')} FROM found WHERE found.{columns[0]} IS NOT NULL"
    return f"WITH RECURSIVE found({names}) AS ({least(start)} UNION ALL {following})"


def _select_distinct(table: str, fixed_columns: tuple[str, ...], columns: tuple[str, ...]) -> str:
    """Return the different values of ``columns`` among rows of published versions with fixed other columns."""
    match = f"{_match_parameters(fixed_columns, 'one')} AND {_match_columns('one', 'found', columns)}"
    published = f"SELECT 1 FROM {table} AS one WHERE {match} AND {_is_published('one')}"
    values = ", ".join(f"found.{column}" for column in columns)
    scan = _loose_scan(table, columns, _match_parameters(fixed_columns, table))
    return f"{scan} SELECT {values} FROM found WHERE {_exists(published)}"


def _select_by_keys(columns: str, table: str, count: int, condition: str = "true") -> str:
    """Return the rows of ``table`` for the versions of a name with the keys ``key_0``, ``key_1``, …."""
    keys = ", ".join(f":key_{index}" for index in range(count))
    own = f"kind = :kind AND name = :name AND precedence IN ({keys}) AND {condition}"
    return f"SELECT {columns} FROM {table} WHERE {own}"


def _population(status: Status | None, *, with_need: bool, need: str = "") -> tuple[str, str]:
    """Return the table to read, and the rest of the statement after SELECT, for versions of a name in an interval.

    The statement reads the rarest rows: yanks, then pre-releases, which have an index of their own, then requirements.

    Args:
        status: The wanted status; ``None`` for any.
        with_need: Whether the versions must have a requirement.
        need: The table whose row is this requirement; empty if the requirement is given by parameters.
    """
    plain = "requirements" if with_need else "versions"
    leading = {"yanked": "yanks", "pre-release": "prereleases"}.get(status or "", plain)
    need_condition = _match_columns("requirements", need, NEED) if need else _match_parameters(NEED, "requirements")
    required = f"SELECT 1 FROM requirements WHERE {_match_columns('requirements', leading)} AND {need_condition}"
    conditions = [
        _match_parameters(("kind", "name"), leading),
        _between(f"{leading}.precedence"),
        _is_current_yank() if status == "yanked" else _has_status(leading, status),
        "versions.published_at <= :as_of" if leading == "versions" else _is_published(leading),
        *([need_condition if leading == "requirements" else _exists(required)] if with_need else []),
    ]
    table = "versions AS prereleases" if leading == "prereleases" else leading
    return leading, f"FROM {table} WHERE {' AND '.join(conditions)}"


def _offers_framework() -> str:
    """Return the condition on environments: the framework, the platform, and the range of image names."""
    match = _match_parameters(("framework", *PLATFORM), "environments")
    return f"{match} AND environments.name BETWEEN :first_name AND :last_name"


def _belongs_to_images(place: str, status: Status) -> str:
    """Return the condition that an environment belongs to a published image in the interval with the status."""
    return f"{_between(f'{place}.precedence', 'image_')} AND {_has_status(place, status)} AND {_is_published(place)}"


def _names(order: Literal["ASC", "DESC"], start: str, following: str) -> str:
    """Return the next ``most`` names of a kind in the given order.

    Args:
        order: The order of the names.
        start: The condition on the first name.
        following: The condition on each next name, relative to ``found.name``.
    """

    def end(condition: str) -> str:
        return f"SELECT (SELECT name FROM versions WHERE kind = :kind AND {condition} ORDER BY name {order} LIMIT 1)"

    scan = f"WITH RECURSIVE found(name) AS ({end(start)} UNION ALL {end(following)} FROM found WHERE name IS NOT NULL)"
    own = "SELECT 1 FROM versions WHERE kind = :kind AND versions.name = found.name AND published_at <= :as_of"
    return f"{scan} SELECT name FROM found WHERE {_exists(own)} LIMIT :most"


@cache
def render_statement(statement: str, dialect: str) -> str:
    """Return a statement in the syntax of the database's driver."""
    if dialect == "sqlite":
        return statement.replace(_ROW_BY_ROW, "")
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))


def settings(dialect: str) -> tuple[str, ...]:
    """Return the statements to execute first in the transaction, so that the planner uses index seeks.

    PostgreSQL would scan and sort a table that it takes for small. Its settings switch scans and sorts off.
    """
    knobs = {"jit": "off", **{f"enable_{name}": "off" for name in ("seqscan", "bitmapscan", "sort")}}
    values = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in knobs.items())
    return () if dialect == "sqlite" else (f"SELECT {values}",)


NAMES_BELOW = _names("DESC", "name < :near", "name < found.name")
NAMES_FROM = _names("ASC", "name >= :near", "name > found.name")
"""Names of a kind next to ``near``."""

IMAGES = _select_distinct("versions", ("framework",), ("name",))
"""Names of images with a version that provides the framework."""

NEEDS = _select_distinct("requirements", ("kind", "name"), NEED)
"""Requirements of the versions of a name."""

PLATFORMS = _select_distinct("environments", ("framework",), PLATFORM)
"""Platforms on which an image provides the framework."""


@cache
def select_versions(count: int) -> str:
    """Select versions of a name by their keys; ``yanked`` is the reason of a yanked version."""
    reason = f"(SELECT reason FROM yanks WHERE {_match_columns('yanks', 'versions')} AND {_is_current_yank()})"
    return _select_by_keys(f"versions.*, {reason} AS yanked", "versions", count, "published_at <= :as_of")


@cache
def select_dependent_rows(table: str, count: int) -> str:
    """Select the rows of ``requirements`` or ``platforms`` of versions by their keys."""
    return _select_by_keys("*", table, count)


@cache
def select_ends(status: Status | None, order: Literal["ASC", "DESC"], *, with_need: bool) -> str:
    """Select key and text of the ``most`` oldest or newest versions of a name."""
    leading, rows = _population(status, with_need=with_need)
    text = f"(SELECT version FROM versions AS own WHERE {_match_columns('own', leading)})"
    columns = f"{leading}.precedence, {'versions.version' if leading == 'versions' else text} AS version"
    return f"SELECT {columns} {rows} ORDER BY {leading}.precedence {order} LIMIT :most"


@cache
def count(status: Status | None, *, with_need: bool) -> str:
    """Count the versions of a name, up to ``most``."""
    _, rows = _population(status, with_need=with_need)
    return f"SELECT count(*) FROM (SELECT 1 {rows} LIMIT :most) AS counted"


@cache
def select_requirements(status: Status | None) -> str:
    """Select the requirements of versions of a name, each with the key of the newest version that has it."""
    leading, rows = _population(status, with_need=True, need="found")
    place = f"{leading}.precedence"
    needs = ", ".join(f"found.{column}" for column in NEED)
    newest = f"SELECT {needs}, (SELECT {place} {rows} ORDER BY {place} DESC LIMIT 1) AS newest FROM found"
    scan = _loose_scan("requirements", NEED, _match_parameters(("kind", "name"), "requirements"))
    # Materialized, because SQLite would otherwise seek the newest version twice: for the condition and the column.
    needs_table = f"needed AS MATERIALIZED ({newest} WHERE found.{NEED[0]} IS NOT NULL)"
    return f"{scan}, {needs_table} SELECT * FROM needed WHERE newest IS NOT NULL"


@cache
def select_provided_version(status: Status, images: Status) -> str:
    """Select the key of the newest version of the framework that one of the images provides.

    The version need not be published. Of ``status``, only the form of the key is checked.
    """
    place = "environments.framework_precedence"
    return (
        f"SELECT {place} FROM environments WHERE {_offers_framework()} AND {_between(place)} "
        f"AND {_has_form(place, status)} AND {_belongs_to_images('environments', images)} "
        f"ORDER BY {place} DESC LIMIT 1"
    )


@cache
def select_providers(status: Status, images: Status) -> str:
    """Select the newest image of each name for each provided version of the framework: name, key and text."""
    pair = ("framework_precedence", "name")
    scan = _loose_scan(
        "environments", pair, f"{_offers_framework()} AND framework_precedence < :high", "framework_precedence >= :low"
    )
    newest = (
        f"SELECT one.precedence FROM environments AS one WHERE {_match_parameters(('framework', *PLATFORM), 'one')} "
        f"AND {_match_columns('one', 'found', pair)} AND {_belongs_to_images('one', images)} "
        "ORDER BY one.precedence DESC LIMIT 1"
    )
    framework = (
        "SELECT 1 FROM versions AS published WHERE published.kind = 'framework' AND published.name = :framework "
        "AND published.precedence = found.framework_precedence AND published.published_at <= :as_of "
        f"AND {_has_status('published', status)}"
    )
    image = "image.kind = 'image' AND image.name = offered.name AND image.precedence = offered.precedence"
    return (
        f"{scan}, offered(name, precedence) AS MATERIALIZED "
        f"(SELECT found.name, ({newest}) FROM found WHERE {_exists(framework)}) "
        f"SELECT name, precedence, (SELECT version FROM versions AS image WHERE {image}) AS version "
        "FROM offered WHERE precedence IS NOT NULL"
    )
