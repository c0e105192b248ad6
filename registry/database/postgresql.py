"""PostgreSQL 14 or newer: addresses, connections, errors, and sessions that hold the blob store lock.

There is one writer at a time, as with SQLite. A write transaction first takes an advisory lock, which the commit
releases. Isolation levels would admit several writers and make one of them retry after a conflict, but the body of
``write_transaction`` is the caller's block, which cannot be repeated. It is only a few statements long. The lock
precedes the first view of the data, and each statement has its own view, so a writer sees everything written before it.

The session that holds the store lock can end while its writer continues. A transaction that references blobs therefore
checks that the session still exists, and shares the store lock itself until the commit.
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
from benchlock.registry.database.ids_and_timestamps import as_json
from benchlock.registry.database.triggers import WRITER

DRIVER: Final = "postgresql+psycopg"
SCHEMES: Final = ("postgresql", "postgres", DRIVER)
LOCK_TIMEOUT_MS = 30_000
IDLE_TIMEOUT_MS = 60_000
"""Idle time after which the server ends a writer, so that a stopped process does not block the others."""

_SECRET = ("password", "sslpassword")
_DEFAULT_OPTIONS: Final = {
    "application_name": "benchlock",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_POOL_SIZE, _MAX_OVERFLOW = 8, 24
_WRITING = (
    f"SELECT set_config('idle_in_transaction_session_timeout', '{IDLE_TIMEOUT_MS}', true), "
    f"pg_advisory_xact_lock({WRITER})"
)
READING: Final = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""Options of a read transaction, which sees the state at its first statement."""


def parse_address(text: str) -> URL:
    """Parse the address ``postgresql://USER@HOST:PORT/DATABASE?OPTIONS``. Errors never contain its password.

    Raises:
        InvalidInputError: The address is invalid, has no database, or has a password among its options.
    """
    url = None
    with suppress(ArgumentError, ValueError):
        url = make_url(text)
    if url is None or url.drivername not in SCHEMES or not url.database or set(_SECRET) & set(url.query):
        raise InvalidInputError(
            "invalid PostgreSQL URL",
            next_step="write postgresql://USER@HOST:PORT/DATABASE; write a password before the @ or in ~/.pgpass",
        )
    return url.set(drivername=DRIVER)


def format_address(url: URL) -> str:
    """Return the address as text, without its password."""
    plain = URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query)
    return plain.render_as_string()


def open_address(url: URL) -> Engine:
    """Create the engine for the database at ``url``, without connecting to the server.

    Raises:
        UnavailableError: The driver is not installed.
    """
    # Only writers wait for locks: readers take none.
    options = " ".join(filter(None, (f"-c lock_timeout={LOCK_TIMEOUT_MS}", _text(url.query.get("options")))))
    defaults: dict[str, Any] = {name: value for name, value in _DEFAULT_OPTIONS.items() if name not in url.query}
    try:
        engine = create_engine(
            url,
            connect_args=defaults | {"options": options},
            json_serializer=as_json,
            pool_pre_ping=True,  # a connection that the server closed must not fail its next user
            pool_size=_POOL_SIZE,
            max_overflow=_MAX_OVERFLOW,
            use_native_hstore=False,
        )
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the PostgreSQL driver is not installed: {error.name}", next_step="pip install 'psycopg[binary]'"
        ) from error
    event.listen(engine, "begin", _begin)
    return engine


def explain_error(error: BaseException | None) -> tuple[str, str]:
    """Return the reason of a PostgreSQL error, and the next step."""
    lines = str(error).strip().splitlines() or ["unknown reason"]
    state: str | None = getattr(error, "sqlstate", None)
    reason = "; ".join(line.strip() for line in lines) if state is None else lines[0]
    steps = _BY_TEXT if state is None else _BY_STATE
    matching_steps = (
        step for sign, step in steps.items() if (sign in reason if state is None else state.startswith(sign))
    )
    return reason, next(matching_steps, "check that the server is running and that the URL is correct")


def is_damage(error: BaseException | None) -> bool:
    """Return whether PostgreSQL reports damage: errors of class XX are internal errors of the server."""
    state: str | None = getattr(error, "sqlstate", None)
    return state is not None and state.startswith("XX")


_USER = "correct user and password, in the URL, in PGPASSWORD or in ~/.pgpass"
_MISSING = "create the database on the server: createdb NAME"
_CROWDED = "increase max_connections of the server, or close connections"
_BY_TEXT: Final = {  # a failed connection has no SQLSTATE
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
    "42501": "permit the user to create tables in the database: ALTER DATABASE NAME OWNER TO USER",
    "53100": "free disk space on the server and try again: no stored data is lost",
    "53300": _CROWDED,
    "54000": "shorten names and paths: an index entry has at most about 2,700 bytes",
    "55P03": "another writer did not finish in time: try again",
    "25P03": "this transaction was too slow and was aborted by the server: try again, nothing was written",
    "25006": "use the primary server, not a standby",
}


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("writes", False):
        connection.exec_driver_sql(_WRITING)


def _text(value: str | tuple[str, ...] | None) -> str:
    return value if isinstance(value, str) else " ".join(value or ())


STORE_KEY: Final = 0x626C6F6273746F72
"""Key of the advisory lock of the store; database writers use another key."""
# CASE evaluates the lock first: no collection runs from here to the commit, so an existing session proves protection.
_IS_PROTECTED: Final = text("""
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
    """A session that holds the store lock for writers: its database, its server process and its start time."""

    database: URL
    pid: int
    started: datetime


_required_protections: ContextVar[tuple[Protection, ...]] = ContextVar("_required_protections", default=())


def identify_session(session: Connection) -> Protection:
    """Return the identity of a session, which no later session shares."""
    row = session.execute(_IDENTITY).one()
    return Protection(session.engine.url, row.pid, row.backend_start)


@contextmanager
def hold_protection(protection: Protection) -> Iterator[None]:
    """Require ``protection`` in every write transaction of this thread or task while the context is open."""
    before = _required_protections.get()
    token = _required_protections.set(before if protection in before else (*before, protection))
    try:
        yield
    finally:
        _required_protections.reset(token)


def require_protection(connection: Connection) -> None:
    """Require that the caller's blobs are still protected, and exclude garbage collection until the commit.

    Args:
        connection: A connection in a write transaction.

    Raises:
        UnavailableError: A session of the store lock has ended, so that blobs may have been collected.
    """
    for protection in _required_protections.get():
        if protection.database != connection.engine.url:
            continue
        values = {"key": STORE_KEY, "pid": protection.pid, "started": protection.started}
        if not connection.execute(_IS_PROTECTED, values).scalar():
            raise UnavailableError(
                "the lock that protects stored blobs from garbage collection was lost: its database session ended",
                next_step="try again: nothing was recorded, and stored blobs are not sent again",
            )
