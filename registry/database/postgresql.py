"""PostgreSQL 14 or newer: addresses, connections, errors, and sessions that hold the blob store lock.

There is one writer at a time, as with SQLite: it takes an advisory lock first of all, and commits it away. Isolation
levels would let several write and make one of them do it again when they met; but what is done in ``writing`` is a
block of a caller's code, which nobody can repeat, and each is a few statements long. The lock comes before the first
view of the data, and each statement then has a view of its own, so that a writer sees all that was written before it.

That session can end while its writer goes on. So the transaction that names blobs checks that the session still stands,
and itself shares the lock until it is committed.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError

from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.registry.database.record_values import as_json
from benchlock.registry.database.triggers import WRITER

DRIVER: Final = "postgresql+psycopg"
SCHEMES: Final = ("postgresql", "postgres", DRIVER)
LOCK_TIMEOUT_MS = 30_000
IDLE_TIMEOUT_MS = 60_000
"""How long a writer may say nothing before the server ends it: one that is stopped must not stop the others."""

_SECRET = ("password", "sslpassword")
_USUAL: Final = {
    "application_name": "benchlock",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_KEPT, _BEYOND = 8, 24
_WRITING = (
    f"SELECT set_config('idle_in_transaction_session_timeout', '{IDLE_TIMEOUT_MS}', true), "
    f"pg_advisory_xact_lock({WRITER})"
)
READING: Final = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""How a transaction reads: everything as it was at its first statement."""


def parse_address(text: str) -> URL:
    """The address ``postgresql://USER@HOST:PORT/DATABASE?OPTIONS`` that ``text`` spells; its password is in no message.

    Raises:
        InvalidInputError: it is no such address, names no database, or has a password among its options.
    """
    url = None
    with suppress(ArgumentError, ValueError):
        url = make_url(text)
    if url is None or url.drivername not in SCHEMES or not url.database or set(_SECRET) & set(url.query):
        raise InvalidInputError(
            "that is no address of a PostgreSQL database",
            next_step="write postgresql://USER@HOST:PORT/DATABASE; a password goes before the @, or into ~/.pgpass",
        )
    return url.set(drivername=DRIVER)


def format_address(url: URL) -> str:
    """The address as text, without its password."""
    plain = URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query)
    return plain.render_as_string()


def open_address(url: URL) -> Engine:
    """The database at ``url``; nothing is asked of the server yet.

    Raises:
        UnavailableError: the driver is not installed.
    """
    # A lock that is waited for is that of a writer: readers take none.
    options = " ".join(filter(None, (f"-c lock_timeout={LOCK_TIMEOUT_MS}", _text(url.query.get("options")))))
    usual: dict[str, Any] = {name: value for name, value in _USUAL.items() if name not in url.query}
    try:
        engine = create_engine(
            url,
            connect_args=usual | {"options": options},
            json_serializer=as_json,
            pool_pre_ping=True,  # what the server ended in the meantime is no error of whoever comes next
            pool_size=_KEPT,
            max_overflow=_BEYOND,
            use_native_hstore=False,
        )
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the driver of PostgreSQL is not installed: {error.name}", next_step="pip install 'psycopg[binary]'"
        ) from error
    event.listen(engine, "begin", _begin)
    return engine


def explained(error: BaseException | None) -> tuple[str, str]:
    """What PostgreSQL means, and the next step."""
    lines = str(error).strip().splitlines() or ["no reason was given"]
    state: str | None = getattr(error, "sqlstate", None)
    reason = "; ".join(line.strip() for line in lines) if state is None else lines[0]
    steps = _BY_TEXT if state is None else _BY_STATE
    found = (step for sign, step in steps.items() if (sign in reason if state is None else state.startswith(sign)))
    return reason, next(found, "check that the server runs, and that the address is right")


def is_damage(error: BaseException | None) -> bool:
    """Return whether PostgreSQL says that a page is damaged: what its code takes for impossible is of class XX."""
    state: str | None = getattr(error, "sqlstate", None)
    return state is not None and state.startswith("XX")


_USER = "give the right user and password: in the address, in PGPASSWORD or in ~/.pgpass"
_MISSING = "make the database on the server: createdb NAME"
_CROWDED = "let the server have more connections (max_connections), or end some"
_BY_TEXT: Final = {  # a connection that was not made has no state
    "password": _USER,
    "authentication": _USER,
    "pg_hba": _USER,
    "does not exist": _MISSING,
    "too many": _CROWDED,
    "connection slots": _CROWDED,
}
_BY_STATE: Final = {
    "28": _USER,
    "3D": _MISSING,
    "42501": "let the user make and use tables in the database: ALTER DATABASE NAME OWNER TO USER",
    "53100": "free disk space on the server and do it again: nothing that was stored is lost",
    "53300": _CROWDED,
    "54000": "shorten its names and paths: an index holds some 2,700 bytes of a row",
    "55P03": "another writer did not end in time: do it again",
    "25P03": "this writer was too slow, and the server ended it: do it again, nothing was written",
    "25006": "name the server that takes writes, not a standby of it",
}


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("writes", False):
        connection.exec_driver_sql(_WRITING)


def _text(value: str | tuple[str, ...] | None) -> str:
    return value if isinstance(value, str) else " ".join(value or ())


STORE_KEY: Final = 0x626C6F6273746F72
"""Of the advisory lock of the store; the writers of the database have another one."""
# CASE evaluates the lock first: then no collection runs from here to the commit, and the session stood all the time.
_STANDS: Final = text("""
SELECT CASE WHEN pg_try_advisory_xact_lock_shared(:key) THEN EXISTS (
  SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)
  WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted AND objsubid = 1
  AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((classid::bigint << 32) | objid::bigint) = :key
  AND pid = :pid AND backend_start = :started
) ELSE false END
""")
_IDENTITY: Final = text("SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()")


@dataclass(frozen=True, slots=True)
class Protection:
    """A session that holds the store lock for writers: its database, its process on the server and its start."""

    database: URL
    pid: int
    started: datetime


_required: ContextVar[tuple[Protection, ...]] = ContextVar("_required", default=())


def identify_session(session: Connection) -> Protection:
    """Return the identity of a session, which no later session has."""
    row = session.execute(_IDENTITY).one()
    return Protection(session.engine.url, row.pid, row.backend_start)


@contextmanager
def hold_protection(protection: Protection) -> Iterator[None]:
    """Require ``protection`` of every transaction that writes in this thread or task while the context is held."""
    before = _required.get()
    token = _required.set(before if protection in before else (*before, protection))
    try:
        yield
    finally:
        _required.reset(token)


def require_protection(connection: Connection) -> None:
    """Require that the caller's blobs are still protected, and keep collections out until the commit.

    Args:
        connection: A connection in a transaction that writes.

    Raises:
        UnavailableError: A session has ended since: blobs that were stored under it may have been collected.
    """
    for protection in _required.get():
        if protection.database != connection.engine.url:
            continue
        values = {"key": STORE_KEY, "pid": protection.pid, "started": protection.started}
        if not connection.execute(_STANDS, values).scalar():
            raise UnavailableError(
                "the lock that protects stored blobs from garbage collection was lost: its database session ended",
                next_step="do it again: nothing was recorded, and blobs that are still stored are not sent again",
            )
