"""What Alembic runs: the revisions on a connection that it is handed, or on the database that alembic.ini names."""

from pathlib import Path

from alembic import context
from sqlalchemy import Connection

from benchlock.migrations.schema import METADATA
from benchlock.registry.catalogue.database import open_engine, writing


def run(connection: Connection) -> None:
    """Run the command's revisions inside the connection's transaction."""
    context.configure(connection=connection, target_metadata=METADATA, transactional_ddl=True)
    context.run_migrations()


handed = context.config.attributes.get("connection")
if handed is not None:
    run(handed)
else:
    database = Path(context.config.get_main_option("database") or "")
    database.parent.mkdir(parents=True, exist_ok=True)
    engine = open_engine(database)
    with writing(engine) as opened:
        run(opened)
    engine.dispose()
