"""The only way a schema is ever made."""

from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

from artifacts.errors import UnavailableError
from registry.catalogue.database import reading, writing

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0012"
"""The newest revision: a test compares it with the revisions themselves."""


def upgrade(engine: Engine) -> None:
    """Bring the database to ``HEAD``, in one transaction; cheap where it is there already.

    Two processes may do it at once: the second waits and then finds nothing to do.

    Raises:
        UnavailableError: the database cannot be used, or a newer benchlock wrote it.
    """
    with reading(engine) as connection:
        if revision(connection) == HEAD:
            return
    with writing(engine) as connection:
        if revision(connection) != HEAD:
            _run_revisions(connection)


def revision(connection: Connection) -> str | None:
    """The revision that the database is at; none where it is empty."""
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def configure(connection: Connection) -> "Config":
    """Alembic's settings for its commands on ``connection``, without a file."""
    from alembic.config import Config  # noqa: PLC0415 - alembic takes half a second to import, and is rarely needed

    config = Config(stdout=StringIO(), attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    return config


def _run_revisions(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.util import CommandError  # noqa: PLC0415

    try:
        command.upgrade(configure(connection), "head")
    except CommandError as error:
        raise UnavailableError(
            f"the database is at revision {revision(connection)}, which this benchlock does not know",
            next_step="use the benchlock that wrote it, or a newer one",
        ) from error
