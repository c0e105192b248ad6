"""Schema migrations by Alembic: the only code that creates or changes the database schema."""

from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchlock.artifacts.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from alembic.config import Config
    from sqlalchemy import Connection, Engine

HEAD = "0025"
"""The newest revision; a test compares it with the revision files."""
_READS = ("SELECT", "PRAGMA")


def upgrade(engine: "Engine") -> bool:
    """Upgrade the database to ``HEAD`` in one transaction; cheap if it is up to date.

    Two processes may do so at once: the second one waits and then has nothing to do.

    Returns:
        Whether this call changed the schema.

    Raises:
        UnavailableError: The database cannot be used, or a newer benchlock wrote it.
    """
    from benchlock.registry.database.engine import read_revision, read_transaction, write_transaction  # noqa: PLC0415 - HEAD alone needs no SQL

    with read_transaction(engine) as connection:
        if read_revision(connection) == HEAD:
            return False
    with write_transaction(engine) as connection:
        if read_revision(connection) == HEAD:
            return False
        upgrade_within(connection)
        return True


def prepare(engine: "Engine") -> bool:
    """Create the schema of an empty database; require ``HEAD`` of any other.

    Every later write transaction of ``engine`` compares the revision again.

    Returns:
        Whether this call created the schema.

    Raises:
        SchemaRevisionError: The schema has another revision; nothing was changed.
        UnavailableError: The database cannot be used.
    """
    from benchlock.registry.database.engine import (  # noqa: PLC0415 - as above
        database_location,
        expect_revision,
        read_revision,
        read_transaction,
        require_revision,
    )

    with read_transaction(engine) as connection:
        revision = read_revision(connection)
    if revision is not None:
        require_revision(revision, HEAD, database_location(engine))
    is_created = revision is None and upgrade(engine)
    expect_revision(engine, HEAD)
    return is_created


def list_revisions() -> tuple[str, ...]:
    """List the revisions of this build, oldest first."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - alembic takes half a second to import

    scripts = ScriptDirectory.from_config(_settings())
    return tuple(script.revision for script in reversed(list(scripts.walk_revisions())))


def upgrade_within(connection: "Connection") -> None:
    """Upgrade the database to ``HEAD`` in the transaction of ``connection``.

    Raises:
        UnavailableError: A newer benchlock wrote the database.
    """
    from alembic import command  # noqa: PLC0415 - as above

    _run(connection, lambda config: command.upgrade(config, "head"))


def downgrade_within(connection: "Connection", target: str) -> None:
    """Downgrade the database to the revision ``target`` in the transaction of ``connection``.

    Raises:
        UnavailableError: This build does not know the revision of the database, or ``target``.
    """
    from alembic import command  # noqa: PLC0415 - as above

    _run(connection, lambda config: command.downgrade(config, target))


@contextmanager
def record_statements(connection: "Connection") -> "Iterator[list[str]]":
    """Record the SQL statements that change data or schema, with the number of rows of a bulk statement."""
    from sqlalchemy import event  # noqa: PLC0415 - as above

    statements: list[str] = []

    def record(*arguments: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own signature
        _, _, statement, parameters, _, executemany = arguments
        if statement.lstrip().startswith(_READS):
            return
        rows = f"  -- {len(parameters)} rows" if executemany else ""
        statements.append(f"{statement.strip()};{rows}")

    event.listen(connection, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        event.remove(connection, "before_cursor_execute", record)


def configure(connection: "Connection") -> "Config":
    """Make the settings of Alembic for its commands on ``connection``, without a file."""
    config = _settings()
    config.attributes["connection"] = connection
    return config


def _settings() -> "Config":
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config(stdout=StringIO())
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    return config


def _run(connection: "Connection", act: "Callable[[Config], None]") -> None:
    from alembic.util import CommandError  # noqa: PLC0415 - as above

    from benchlock.registry.database.engine import read_revision  # noqa: PLC0415 - as above

    try:
        act(configure(connection))
    except CommandError as error:
        raise UnavailableError(
            f"the database is at revision {read_revision(connection)}, which this benchlock does not know",
            next_step="use the benchlock that wrote it, or a newer one",
        ) from error
