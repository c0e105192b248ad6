"""What was published before there were environments is found as what is published since."""

from datetime import UTC, datetime

import pytest
from alembic import command
from sqlalchemy import Engine, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError

from benchlock.migrations import HEAD, configure, upgrade
from benchlock.migrations.schema_check import METADATA
from benchlock.registry.catalogue.resolver_snapshot import CatalogueSnapshot
from benchlock.registry.database.engine import read_revision, read_transaction, write_transaction
from benchlock.registry.database.registry_schema import environments
from benchlock.registry.database.triggers import find_missing_triggers, list_guards
from benchlock.registry.resolution.resolver_types import Environments, Population
from benchlock.registry.versions.version_ranges import Range
from tests.support.registry.publishing import rows_of
from tests.support.resolution.universe import candidates

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
(EVERY,) = Range.ALL.intervals
ROWS = candidates(
    {
        "model/m": {"1.0.0": {"requires": {"framework/f": "^1"}}},
        "dataset/d": {"1.0.0": {}},
        "framework/f": {"1.10.0": {}, "1.9.0": {}},
        "image/i": {
            "1.0.0": {"provides": "f 1.10.0", "platforms": ["linux/amd64/cpu", "linux/arm64/cpu"]},
            "1.1.0-rc.1": {"provides": "f 1.9.0+cpu", "platforms": ["linux/amd64/cpu"]},
        },
    }
)


@pytest.fixture
def first(empty: Engine) -> Engine:
    """A database of the first revision, in which ``ROWS`` are published."""
    with write_transaction(empty) as connection:
        command.upgrade(configure(connection), "0001")
        assert "environments" not in inspect(connection).get_table_names()
        for table, rows in rows_of(ROWS, NOON):
            if table is not environments and rows:
                connection.execute(insert(table), rows)
    return empty


def test_environments_are_made_of_what_is_published(first: Engine) -> None:
    upgrade(first)
    with read_transaction(first) as connection:
        made = sorted(tuple(row) for row in connection.execute(select(environments)))
        assert read_revision(connection) == HEAD
    expected = [tuple(row.values()) for table, rows in rows_of(ROWS, NOON) if table is environments for row in rows]
    assert made == sorted(expected)
    assert [(row[2], row[4], row[-1]) for row in made] == [
        ("0011.0010.0010~", "amd64", "0011.00210.0010~"),
        ("0011.0010.0010~", "arm64", "0011.00210.0010~"),
        ("0011.0011.0010-1rc!00011", "amd64", "0011.0019.0010~"),
    ]


def test_the_resolver_finds_what_was_published_before(first: Engine) -> None:
    upgrade(first)
    with read_transaction(first) as connection:
        snapshot = CatalogueSnapshot(connection, None)
        wanted = Environments("f", EVERY, "release", ("linux", "amd64", "cpu"), None, EVERY, "release")
        assert str(snapshot.provided(wanted)) == "1.10.0"
        assert snapshot.needs("m") == [("framework", "f", "^1")]
        prereleases = snapshot.newest(Population("image", "i", EVERY, "pre-release"), 1)
        assert list(map(str, prereleases)) == ["1.1.0-rc.1"]


def test_what_was_made_is_guarded(first: Engine) -> None:
    upgrade(first)
    with write_transaction(first) as connection:
        assert find_missing_triggers(connection, list_guards(METADATA)) == ()
        for statement in ("UPDATE environments SET framework = 'g'", "DELETE FROM environments"):
            with pytest.raises(IntegrityError, match="environments is append-only"), connection.begin_nested():
                connection.execute(text(statement))
        more = dict(connection.execute(select(environments)).mappings().first() or {}, device="cuda")
        with pytest.raises(IntegrityError, match="environments is append-only"), connection.begin_nested():
            connection.execute(insert(environments), more)


def test_down_and_up_again_makes_the_same(first: Engine) -> None:
    upgrade(first)
    with write_transaction(first) as connection:
        before = connection.execute(select(environments)).all()
        command.downgrade(configure(connection), "0001")
        names = {
            index["name"] for table in ("versions", "requirements") for index in inspect(connection).get_indexes(table)
        }
        assert names == {"ix_versions_digest", "ix_versions_framework_name"}
        assert "environments" not in inspect(connection).get_table_names()
    upgrade(first)
    with read_transaction(first) as connection:
        assert connection.execute(select(environments)).all() == before
