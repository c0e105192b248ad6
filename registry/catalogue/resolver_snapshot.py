"""The resolver's snapshot of the catalogue, inside one read transaction."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row

from benchlock.artifacts.digest import Digest
from benchlock.registry.artifact_names import Kind
from benchlock.registry.catalogue import resolver_statements
from benchlock.registry.database.ids_and_timestamps import format_time
from benchlock.registry.resolution.resolver_types import (
    COUNTED,
    Candidate,
    Environments,
    Extent,
    Need,
    Platform,
    Population,
)
from benchlock.registry.versions.semantic_version import Version, key, parse_version
from benchlock.registry.versions.version_ranges import Interval, Range

Values = dict[str, Any]

_ALWAYS = datetime.max.replace(tzinfo=UTC)
_AT_ONCE = 500
"""Keys in one statement: every database has a limit of a few thousand parameters."""
_LEAST = "\x01"
"""The smallest character that a text may contain: appending it gives the next greater text."""
_EVERY_NAME = {"first_name": "", "last_name": "~"}
"""Bounds of the range that contains every valid name."""


class CatalogueSnapshot:
    """The published versions and yanks at a time, or at the start of the transaction if no time is given.

    Implements ``registry.resolution.candidates.Snapshot``.
    """

    def __init__(self, connection: Connection, as_of: datetime | None) -> None:
        """Configure the transaction of ``connection`` for the statements of the snapshot."""
        self._connection = connection
        self._dialect = connection.dialect.name
        for setting in resolver_statements.settings(self._dialect):
            connection.exec_driver_sql(setting)
        self._always = {"as_of": format_time(as_of or _ALWAYS), "next": _LEAST}

    def names(self, kind: Kind, near: str, limit: int) -> Sequence[str]:
        """Return the names of a kind next to ``near``: at most ``limit`` on each side, sorted."""
        values = {"kind": kind, "near": near, "most": limit}
        statements = (resolver_statements.NAMES_BELOW, resolver_statements.NAMES_FROM)
        return sorted(row.name for statement in statements for row in self._rows(statement, values))

    def needs(self, model: str) -> Sequence[Need]:
        """Return the different requirements of the versions of a model, sorted."""
        return sorted(tuple(row) for row in self._rows(resolver_statements.NEEDS, {"kind": "model", "name": model}))

    def needed(self, population: Population) -> Sequence[tuple[Need, str]]:
        """Return the different requirements of these versions, each with the key of the newest version that has it."""
        rows = self._rows(resolver_statements.select_requirements(population.status), _population_values(population))
        return sorted(((kind, name, text), newest) for kind, name, text, newest in map(tuple, rows))

    def newest(self, population: Population, limit: int) -> Sequence[Version]:
        """Return at most ``limit`` versions, newest first."""
        statement = resolver_statements.select_ends(population.status, "DESC", with_need=population.need is not None)
        return _parse_versions(self._rows(statement, _population_values(population) | {"most": limit}))

    def oldest(self, population: Population, limit: int) -> Sequence[Version]:
        """Return at most ``limit`` versions, oldest first."""
        statement = resolver_statements.select_ends(population.status, "ASC", with_need=population.need is not None)
        return _parse_versions(self._rows(statement, _population_values(population) | {"most": limit}))

    def extent(self, population: Population) -> Extent | None:
        """Return the number of versions with the oldest and the newest, or ``None`` if there are none."""
        newest = self.newest(population, 1)
        if not newest:
            return None
        statement = resolver_statements.count(population.status, with_need=population.need is not None)
        ((count,),) = self._rows(statement, _population_values(population) | {"most": COUNTED})
        return Extent(count, *self.oldest(population, 1), *newest)

    def candidates(self, kind: Kind, name: str, versions: tuple[Version, ...]) -> Sequence[Candidate]:
        """Return the published ones of these versions as candidates, in the order of ``versions``."""
        keys, by_key = [key(version) for version in versions], dict[str, Candidate]()
        for start in range(0, len(keys), _AT_ONCE):
            batch = keys[start : start + _AT_ONCE]
            values = {
                "kind": kind,
                "name": name,
                **{f"key_{index}": version_key for index, version_key in enumerate(batch)},
            }
            requirements = self._read_parts("requirements", values, len(batch)) if kind == "model" else {}
            platforms = self._read_parts("platforms", values, len(batch)) if kind == "image" else {}
            for row in self._rows(resolver_statements.select_versions(len(batch)), values):
                precedence = row.precedence
                by_key[precedence] = _candidate(row, requirements.get(precedence, ()), platforms.get(precedence, ()))
        return [by_key[version_key] for version_key in keys if version_key in by_key]

    def platforms(self, framework: str) -> Sequence[Platform]:
        """Return the platforms on which an image provides the framework, sorted."""
        return sorted(tuple(row) for row in self._rows(resolver_statements.PLATFORMS, {"framework": framework}))

    def images(self, framework: str) -> Sequence[str]:
        """Return the names of the images that provide the framework, sorted."""
        return sorted(row.name for row in self._rows(resolver_statements.IMAGES, {"framework": framework}))

    def provided(self, environments: Environments) -> Version | None:
        """Return the newest published version of the framework that one of the images provides.

        The search alternates between the versions that images provide and the published versions, in descending order,
        until both agree.
        """
        offers = resolver_statements.select_provided_version(environments.status, environments.image_status)
        newest = resolver_statements.select_ends(environments.status, "DESC", with_need=False)
        framework = {"kind": "framework", "name": environments.framework, "most": 1}
        for interval in self._find_possible(environments).intervals:
            values, high = _environment_values(environments) | _interval_values(interval), interval.high_key
            while rows := self._rows(offers, values | {"high": high}):
                ((place,),) = rows
                newest_rows = self._rows(newest, values | framework | {"high": place + _LEAST})
                if not newest_rows:
                    break
                if newest_rows[0].precedence == place:
                    return parse_version(newest_rows[0].version)
                high = newest_rows[0].precedence + _LEAST
        return None

    def providers(self, environments: Environments) -> Sequence[tuple[str, Version]]:
        """Return the name and newest version of each image that provides the framework, by name."""
        rows = self._rows(
            resolver_statements.select_providers(environments.status, environments.image_status),
            _environment_values(environments),
        )
        newest = {row.name: row.version for row in sorted(rows, key=lambda row: (row.name, row.precedence))}
        return [(name, parse_version(version)) for name, version in newest.items()]

    def _find_possible(self, environments: Environments) -> Range:
        """Return the wanted versions of the framework; for a pinned image, only the version that it provides."""
        versions = Range.between(environments.interval.low, environments.interval.high)
        pinned = Range.between(environments.images.low, environments.images.high).single()
        if environments.image is None or pinned is None:
            return versions
        images = self.candidates("image", environments.image, (pinned,))
        return versions & Range.union(Range.exactly(image.provides[1]) for image in images if image.provides)

    def _read_parts(self, table: str, values: Values, count: int) -> Mapping[str, Sequence[Row[Any]]]:
        rows: defaultdict[str, list[Row[Any]]] = defaultdict(list)
        for row in self._rows(resolver_statements.select_dependent_rows(table, count), values):
            rows[row.precedence].append(row)
        return rows

    def _rows(self, statement: str, values: Values) -> Sequence[Row[Any]]:
        text = resolver_statements.render_statement(statement, self._dialect)
        return self._connection.exec_driver_sql(text, self._always | values).all()


def _population_values(population: Population) -> Values:
    need = () if population.need is None else zip(resolver_statements.NEED, population.need, strict=True)
    return {"kind": population.kind, "name": population.name, **dict(need), **_interval_values(population.interval)}


def _environment_values(environments: Environments) -> Values:
    platform = dict(zip(resolver_statements.PLATFORM, environments.platform, strict=True))
    names = _EVERY_NAME if environments.image is None else dict.fromkeys(_EVERY_NAME, environments.image)
    images = {f"image_{end}": place for end, place in _interval_values(environments.images).items()}
    return {
        "framework": environments.framework,
        **platform,
        **names,
        **_interval_values(environments.interval),
        **images,
    }


def _interval_values(interval: Interval) -> Values:
    return {"low": interval.low_key, "high": interval.high_key}


def _parse_versions(rows: Iterable[Row[Any]]) -> list[Version]:
    return [parse_version(row.version) for row in rows]


def _candidate(row: Row[Any], requirements: Iterable[Row[Any]], platforms: Iterable[Row[Any]]) -> Candidate:
    return Candidate(
        kind=row.kind,
        name=row.name,
        version=parse_version(row.version),
        digest=Digest(row.digest),
        yanked=row.yanked,
        requires=tuple(sorted((need.required_kind, need.required_name, need.range) for need in requirements)),
        provides=(row.framework, parse_version(row.framework_version)) if row.framework else None,
        platforms=tuple(
            sorted(
                (platform.os, platform.arch, platform.device, platform.python, bool(platform.layered))
                for platform in platforms
            )
        ),
    )
