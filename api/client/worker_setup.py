"""The job queue on a server, and the worker agent of this machine; nothing here loads SQL code."""

import hashlib
import os
import platform
import re
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchlock.api.client.remote_queue import RemoteQueue
from benchlock.api.client.remote_registry import connect_server
from benchlock.api.local.run_setup import connect_engine, import_runner
from benchlock.api.settings import read_setting
from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.stores.cached_store import CachedStore
from benchlock.artifacts.stores.http_store import HttpStore, make_blob_client
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.queue.lease_times import boot_id
from benchlock.evaluator.queue.queue_types import MachineId, Queue
from benchlock.evaluator.records.run_types import RunJournal
from benchlock.evaluator.runner.container_engine import Engine
from benchlock.evaluator.runner.host_platform import HostTurn
from benchlock.evaluator.worker.worker_agent import Agent, WorkerEnvironment
from benchlock.registry.lock.lockfile import load

if TYPE_CHECKING:
    from benchlock.evaluator.workflows.run import Runner

_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_LOCKS = Path("/run/lock")
_DIGITS = 12
_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class WorkerPermissions:
    """Whether a worker may run processes outside of containers, and code of models in such processes."""

    processes: bool = False
    code: bool = False


def is_remote(location: str) -> bool:
    """Check whether the location of a registry is a server."""
    return "://" in location


def connect_queue(location: str) -> RemoteQueue:
    """Connect to the queue of the registry on a server.

    Raises:
        InvalidInputError: ``location`` is not the URL of a server.
    """
    return RemoteQueue(connect_server(location).client)


def build_remote_agent(
    location: str, machine: str, permits: WorkerPermissions, progress: Progress, say: Callable[[str], None]
) -> Agent:
    """Build the agent of this machine for a registry on a server, with a cache folder on this machine.

    Args:
        location: The URL of the server.
        machine: The machine's name; empty for the host's id.
        permits: What the agent may run without a container.
        progress: Shows transfers and stages.
        say: Prints a message.

    Raises:
        InvalidInputError: ``location`` is not the URL of a server, or ``machine`` is not a valid name.
        UnavailableError: The cache folder cannot be created.
    """
    connection = connect_server(location)
    cache, queue = connection.home(), RemoteQueue(connection.client)
    home = connection.home("worker")  # commands on this machine end the runs of killed processes in the parent folder
    client = make_blob_client(connection.session, home / "uploads")
    store = CachedStore(LocalStore(cache / "blobs"), HttpStore(client), progress)

    def build(journal: RunJournal, turn: HostTurn, engine: Engine | None) -> "Runner":
        return import_runner()(home, store, journal, engine, connection.client.clock, progress, say, id, turn)

    environment = WorkerEnvironment(
        home, connect_engine, lambda lock: load(queue.lock_text(lock), lock), build, say, _boot_of(cache)
    )
    return make_agent(queue, machine, environment, permits)


def _boot_of(cache: Path) -> str:
    """Return the id of this boot and of a cache folder; a new folder in its place has another id."""
    path = cache / "cache-id"
    try:
        if not path.is_file():
            with create_file(path) as file:
                file.write(secrets.token_hex(_ID_BYTES).encode())
        return f"{boot_id()} {path.read_text(encoding='ascii', errors='replace')[: 2 * _ID_BYTES]}"
    except OSError as error:
        raise UnavailableError(
            f"cannot create the id of the cache: {error.strerror}",
            where=str(path),
            next_step="set XDG_CACHE_HOME to a writable folder",
        ) from error


def make_agent(queue: Queue, machine: str, environment: WorkerEnvironment, permits: WorkerPermissions) -> Agent:
    """Make the agent of this machine.

    Args:
        queue: The queue.
        machine: The machine's name; empty for the host's id.
        environment: Where the agent runs jobs.
        permits: What the agent may run without a container.
    """
    return Agent(queue, machine_id(machine), environment, host_lock_path(), permits.processes, permits.code)


def machine_id(name: str) -> MachineId:
    """Return the id of the machine called ``name``; without a name, the id of this host's system.

    Raises:
        InvalidInputError: ``name`` is not valid.
    """
    if name and _MACHINE.fullmatch(name) is None:
        raise InvalidInputError(
            f"invalid machine name {name!r}", where="--machine", next_step="use letters, digits, '.', '_' and '-'"
        )
    if name:
        return MachineId(name)
    host_id = next((path.read_text(encoding="ascii").strip() for path in _IDS if path.is_file()), "")  # a secret
    return MachineId(f"m-{hashlib.sha256(f'benchlock {host_id or platform.node()}'.encode()).hexdigest()[:_DIGITS]}")


def host_lock_path() -> Path:
    """Return the lock file of measurements on this host, by default the same for all registries."""
    folder = _LOCKS if os.access(_LOCKS, os.W_OK) else Path(tempfile.gettempdir())
    value = read_setting("host_lock")
    return folder / "benchlock.measure" if value is None else Path(value.text)
