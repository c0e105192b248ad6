"""The job queue of a registry, the worker agent of this machine and their environment variables."""

import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchlock.api.local.local_registry import LocalRegistry, connect_engine, now
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.display import Progress
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.queue.agent import Agent, WorkerEnvironment
from benchlock.evaluator.queue.lease_clock import Times
from benchlock.evaluator.queue.queue_model import MachineId, Queue
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.runner.engine import Engine
from benchlock.evaluator.workflows.run import HostTurn, Journal, Runner
from benchlock.registry.lock.lockfile import Lock, load

if TYPE_CHECKING:
    from benchlock.api.client.remote_queue import RemoteQueue

LEASE = "BENCHLOCK_LEASE"
"""Seconds that a lease lasts; every agent is told."""
HOST_LOCK = "BENCHLOCK_HOST_LOCK"
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_LOCKS = Path("/run/lock")
_DIGITS = 12


def open_queue(registry: LocalRegistry) -> SqlQueue:
    """The queue in the registry's database.

    Raises:
        InvalidInputError: BENCHLOCK_LEASE is no number of seconds.
    """
    return SqlQueue(registry.database, now, _read_lease_times())


@dataclass(frozen=True, slots=True)
class WorkerPermissions:
    """What a worker runs beside containers: ``processes``, and ``code`` of models in them."""

    processes: bool = False
    code: bool = False


def build_agent(
    registry: LocalRegistry, machine: str, permits: WorkerPermissions, progress: Progress, say: Callable[[str], None]
) -> Agent:
    """The agent of this machine on an embedded registry; ``machine`` is its name, or empty.

    Raises:
        InvalidInputError: that is no name of a machine.
    """

    def fetch(lock: Digest) -> Lock:
        return load(registry.catalogue.get_lock(lock), lock)

    def build(journal: Journal, turn: HostTurn, engine: Engine | None) -> Runner:
        keep = registry.catalogue.put_lock
        return Runner(registry.home, registry.store, journal, engine, now, progress, say, keep, turn)

    workshop = WorkerEnvironment(registry.home, connect_engine, fetch, build, say)
    return _make_agent(open_queue(registry), machine, workshop, permits)


def is_remote(location: str) -> bool:
    """Whether a registry is on a server."""
    return "://" in location


def connect_queue(location: str) -> "RemoteQueue":
    """The queue of the registry on a server.

    Raises:
        InvalidInputError: ``location`` is no URL of a server.
    """
    from benchlock.api.client.remote_queue import RemoteQueue  # noqa: PLC0415
    from benchlock.api.client.remote_registry import connect_server  # noqa: PLC0415 - a folder needs none of it

    return RemoteQueue(connect_server(location).talk)


def build_remote_agent(
    location: str, machine: str, permits: WorkerPermissions, progress: Progress, say: Callable[[str], None]
) -> Agent:
    """The agent of this machine for the registry on a server: what it needs and makes goes through a folder here.

    Raises:
        InvalidInputError: ``location`` is no URL of a server, or ``machine`` no name of a machine.
        UnavailableError: the folder cannot be made.
    """
    from benchlock.api.client.remote_queue import RemoteQueue  # noqa: PLC0415
    from benchlock.api.client.remote_registry import connect_server  # noqa: PLC0415 - as above
    from benchlock.artifacts.stores.cached_store import CachedStore  # noqa: PLC0415
    from benchlock.artifacts.stores.http_store import (  # noqa: PLC0415
        HttpStore,
        make_blob_client,
    )
    from benchlock.artifacts.stores.local_store import LocalStore  # noqa: PLC0415

    line = connect_server(location)
    cache, queue = line.home(), RemoteQueue(line.talk)
    home = line.home("worker")  # whoever runs commands here ends the runs of dead processes in the folder above
    client = make_blob_client(line.session, home / "uploads")
    store = CachedStore(LocalStore(cache / "blobs"), HttpStore(client), progress)

    def build(journal: Journal, turn: HostTurn, engine: Engine | None) -> Runner:
        return Runner(home, store, journal, engine, line.talk.clock, progress, say, id, turn)

    workshop = WorkerEnvironment(home, connect_engine, lambda lock: load(queue.lock_text(lock), lock), build, say)
    return _make_agent(queue, machine, workshop, permits)


def _make_agent(queue: Queue, machine: str, workshop: WorkerEnvironment, permits: WorkerPermissions) -> Agent:
    return Agent(queue, machine_id(machine), workshop, host_lock_path(), permits.processes, permits.code)


def machine_id(name: str) -> MachineId:
    """The machine of that name; without one, this host by the id that its system gave it.

    Raises:
        InvalidInputError: that is no name.
    """
    if name and _MACHINE.fullmatch(name) is None:
        raise InvalidInputError(
            f"{name!r} is no name of a machine", where="--machine", next_step="use letters, digits, '.', '_' and '-'"
        )
    return MachineId(name or _host_machine_id())


def host_lock_path() -> Path:
    """The file that whoever measures on this host locks, whatever the registry: one for all unless the user says."""
    folder = _LOCKS if os.access(_LOCKS, os.W_OK) else Path(tempfile.gettempdir())
    return Path(os.environ.get(HOST_LOCK) or folder / "benchlock.measure")


def _host_machine_id() -> str:
    """The host's id is its secret: its digest is not."""
    known = next((path.read_text(encoding="ascii").strip() for path in _IDS if path.is_file()), "")
    return f"m-{hashlib.sha256(f'benchlock {known or platform.node()}'.encode()).hexdigest()[:_DIGITS]}"


def _read_lease_times() -> Times:
    text = os.environ.get(LEASE, "")
    if not text:
        return Times()
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) is None or not float(text):
        raise InvalidInputError(
            f"{LEASE} is {text!r}, no number of seconds", where=LEASE, next_step="write 60, or unset it"
        )
    return Times(float(text))
