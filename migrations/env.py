"""The Alembic environment: runs revisions on a given connection, or on the database of alembic.ini."""

from pathlib import Path

from alembic import context
from sqlalchemy import Connection

from benchlock.migrations.schema_check import METADATA
from benchlock.registry.database.engine import open_engine, write_transaction


def run(connection: Connection) -> None:
    """Run the revisions of the command in the transaction of the connection."""
    context.configure(connection=connection, target_metadata=METADATA, transactional_ddl=True)
    context.run_migrations()


shared_connection = context.config.attributes.get("connection")
if shared_connection is not None:
    run(shared_connection)
else:
    database = Path(context.config.get_main_option("database") or "")
    database.parent.mkdir(parents=True, exist_ok=True)
    engine = open_engine(database)
    with write_transaction(engine) as opened:
        run(opened)
    engine.dispose()
