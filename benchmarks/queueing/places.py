"""The databases that are measured: a file, and a server that waits for the disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from benchlock.migrations import upgrade
from benchlock.registry.database import engine
from benchlock.registry.database.engine import open_engine

DURABLE = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on"}


@dataclass(frozen=True)
class Place:
    """Where a database is: the path of a file, or the address of a server."""

    text: str

    def open(self) -> Engine:
        return engine.open_server(self.text) if "://" in self.text else open_engine(Path(self.text))


def places(folder: Path, only: str) -> Iterator[tuple[str, Place]]:
    """The name and place of each, with an empty schema, there as long as it is measured."""
    if only in ("", "sqlite"):
        place = Place(str(folder / "registry.sqlite"))
        upgrade(place.open())
        yield "SQLite", place
    if only in ("", "postgresql"):
        from tests.support.servers import postgresql  # noqa: PLC0415 - SQLite is measured without it

        vars(postgresql)["_SETTINGS"].update(DURABLE)
        with postgresql.serving() as server, server.database() as address:
            yield "PostgreSQL", Place(address)
