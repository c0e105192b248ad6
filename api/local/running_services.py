"""Registration of the services that serve a registry, and refusal of conflicting ones.

With SQLite there is one service. It locks a file beside the database (flock), and the kernel releases the lock when
the process ends. With PostgreSQL several services on several hosts may run if they share one folder, which has
unfinished uploads and the blobs. Each service holds an advisory lock in the database, whose number names a file in
the folder. If the file of a running service is missing in a folder, that service uses another folder.
"""

import fcntl
import json
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, text

from benchlock.api.local.registry_database import DATABASE_FILE
from benchlock.api.service_log import log
from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.errors import BenchlockError, RefusedError, UnavailableError
from benchlock.registry.database.engine import database_location, translate_errors

KEY: Final = 0x73657276
"""The first number of the advisory locks of services; the second is the service's own."""
_FOLDER: Final = "services"
LOCK_SECONDS: Final = 5.0
"""Interval between two checks that the lock is still held."""
_OLD_SECONDS: Final = 3600.0
_RUNNING: Final = text(
    "SELECT l.objid::bigint, a.application_name, a.backend_start"
    " FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::bigint = :key"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def end_this_process() -> None:
    """Ask the service of this process to shut down."""
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def running_service(home: Path, database: Engine, end: Callable[[], None] = end_this_process) -> Iterator[None]:
    """Register a service of the registry in ``home`` while the context is held.

    Args:
        home: The folder of the registry.
        database: Its database.
        end: Called if a service of another folder has the database after the database was restarted.

    Raises:
        RefusedError: Another service has the registry, on SQLite; or serves it from another folder, on PostgreSQL.
        UnavailableError: The folder or the database cannot be used.
    """
    if database.dialect.name == "sqlite":
        with exclude_services(home):
            yield
        return
    service = _Service(home, database)
    service.register()
    ended = threading.Event()
    watch = threading.Thread(target=service.watch, args=(ended, end), name="service-lock", daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
        service.withdraw()


@contextmanager
def exclude_services(home: Path) -> Iterator[None]:
    """Exclude services from the SQLite database in ``home`` while the context is held.

    Raises:
        RefusedError: A service has the registry.
        UnavailableError: The folder cannot be written.
    """
    path = (home / DATABASE_FILE).resolve().with_name(f"{DATABASE_FILE}.service")
    try:
        file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
    except OSError as error:
        raise _write_error(path, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RefusedError(
                f"another service or `benchlock db` command uses this registry: {_describe_holder(path)}",
                where=str(home),
                next_step="stop it first; several services at once need a database on PostgreSQL (BENCHLOCK_DATABASE)",
            ) from error
        file.truncate(0)
        file.write(json.dumps(_describe_process()).encode())
        yield


def require_same_folder(home: Path, database: Engine) -> None:
    """Require that every running service of a database on a server has the folder ``home``.

    Raises:
        RefusedError: A service serves the registry from another folder.
        UnavailableError: The database cannot be used.
    """
    with translate_errors(database), database.connect() as connection:
        _require_same_folder(connection, home, own=None)


def require_no_service(database: Engine) -> None:
    """Require that no service of a database on a server is running.

    Raises:
        RefusedError: A service is running.
        UnavailableError: The database cannot be used.
    """
    with translate_errors(database), database.connect() as connection:
        for _, name, since in connection.execute(_RUNNING, {"key": KEY}):
            raise RefusedError(
                f"a service uses this registry: {name}, since {since:%Y-%m-%d %H:%M:%S %Z}",
                where=database_location(database),
                next_step="stop every service of this registry first",
            )


class _Service:
    """A service of a database on a server: its advisory lock, and its file in the folder."""

    def __init__(self, home: Path, database: Engine) -> None:
        self._home = home
        self._database = database
        self._number = secrets.randbits(31)
        self._file = home / _FOLDER / f"{self._number:08x}.json"
        self._session: Connection | None = None

    def register(self) -> None:
        """Write the file and take the lock, then require that the other services have the same folder.

        If two services register at once from different folders, both are refused.
        """
        try:
            self._file.parent.mkdir(exist_ok=True)
            with create_file(self._file) as file:
                file.write(json.dumps(_describe_process()).encode())
        except OSError as error:
            raise _write_error(self._file, error) from error
        try:
            self._lock()
            self._sweep()
        except BaseException:
            self.withdraw()
            raise

    def watch(self, ended: threading.Event, end: Callable[[], None]) -> None:
        """Take the lock again if its session ended, as after a restart of the database.

        Call ``end`` if a service of another folder has the database by then.
        """
        while not ended.wait(LOCK_SECONDS):
            try:
                with translate_errors(self._database):
                    assert self._session is not None
                    self._session.execute(text("SELECT 1"))
            except (BenchlockError, AssertionError):
                self._end()
                try:
                    self.register()
                except RefusedError as error:
                    log.error("the service ends", extra={"fields": {"reason": error.what}})
                    end()
                    return
                except BenchlockError as error:
                    log.error("the service is not registered", extra={"fields": {"reason": error.what}})

    def withdraw(self) -> None:
        """Free the lock and remove the file."""
        self._end()
        with suppress(OSError):
            self._file.unlink()

    def _lock(self) -> None:
        with translate_errors(self._database):
            session = self._database.connect().execution_options(isolation_level="AUTOCOMMIT")
            session.detach()  # closed in the end, never returned to the pool with the lock
            self._session = session
            name = "benchlock serve, {host}, process {pid}".format_map(_describe_process())
            session.execute(text("SELECT set_config('application_name', :name, false)"), {"name": name[:63]})
            session.execute(text("SELECT pg_advisory_lock(:key, :number)"), {"key": KEY, "number": self._number})
            _require_same_folder(session, self._home, own=self._number)

    def _sweep(self) -> None:
        """Remove old files of services that were killed."""
        assert self._session is not None
        running = {f"{number:08x}.json" for number, *_ in self._session.execute(_RUNNING, {"key": KEY})}
        for path in self._file.parent.iterdir():
            with suppress(OSError):
                if path.name not in running and time.time() - path.stat().st_mtime > _OLD_SECONDS:
                    path.unlink()

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # the session may have ended already
                # The server ends a session some time after its close, and would hold the lock until then.
                session.execute(text("SELECT pg_advisory_unlock_all()"))
            with suppress(Exception):
                session.close()


def _require_same_folder(connection: Connection, home: Path, own: int | None) -> None:
    for number, name, since in connection.execute(_RUNNING, {"key": KEY}):
        if number != own and not (home / _FOLDER / f"{number:08x}.json").exists():
            raise RefusedError(
                f"the registry is served from another folder: {name}, since {since:%Y-%m-%d %H:%M:%S %Z}",
                where=str(home),
                next_step="use the same folder for all services and commands, on a shared file system",
            )


def _describe_process() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds")}


def _describe_holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_bytes())
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown process"


def _write_error(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{path.name} cannot be written: {error.strerror or error}",
        where=str(path),
        next_step="make the folder writable, or free disk space",
    )
