"""Builds the queue of a registry and the agent of this machine, and reads what the environment says of them."""

import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchlock.api.wiring import Registry, connect_engine, now
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.progress import Progress
from benchlock.evaluator.dispatch.agent import Agent, Workshop
from benchlock.evaluator.dispatch.queue import MachineId, Queue
from benchlock.evaluator.dispatch.sql import SqlQueue
from benchlock.evaluator.dispatch.times import Times
from benchlock.evaluator.runner.engine import Engine
from benchlock.evaluator.runner.execute import Journal, Runner, Turn
from benchlock.registry.lockfile import Lock, load

if TYPE_CHECKING:
    from benchlock.api.client.queue import HttpQueue

LEASE = "BENCHLOCK_LEASE"
"""Seconds that a lease lasts; every agent is told."""
HOST_LOCK = "BENCHLOCK_HOST_LOCK"
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_LOCKS = Path("/run/lock")
_DIGITS = 12


def open_queue(registry: Registry) -> SqlQueue:
    """The queue in the registry's database.

    Raises:
        InvalidInputError: BENCHLOCK_LEASE is no number of seconds.
    """
    return SqlQueue(registry.database, now, _times())


@dataclass(frozen=True, slots=True)
class Permits:
    """What a worker runs beside containers: ``processes``, and ``code`` of models in them."""

    processes: bool = False
    code: bool = False


def build_agent(
    registry: Registry, machine: str, permits: Permits, progress: Progress, say: Callable[[str], None]
) -> Agent:
    """The agent of this machine on an embedded registry; ``machine`` is its name, or empty.

    Raises:
        InvalidInputError: that is no name of a machine.
    """

    def fetch(lock: Digest) -> Lock:
        return load(registry.catalogue.get_lock(lock), lock)

    def build(journal: Journal, turn: Turn, engine: Engine | None) -> Runner:
        keep = registry.catalogue.put_lock
        return Runner(registry.home, registry.store, journal, engine, now, progress, say, keep, turn)

    workshop = Workshop(registry.home, connect_engine, fetch, build, say)
    return _agent(open_queue(registry), machine, workshop, permits)


def is_remote(location: str) -> bool:
    """Whether a registry is on a server."""
    return "://" in location


def reach_queue(location: str) -> "HttpQueue":
    """The queue of the registry on a server.

    Raises:
        InvalidInputError: ``location`` is no URL of a server.
    """
    from benchlock.api.client.opening import reach  # noqa: PLC0415 - a folder needs none of it
    from benchlock.api.client.queue import HttpQueue  # noqa: PLC0415

    return HttpQueue(reach(location).talk)


def reach_agent(location: str, machine: str, permits: Permits, progress: Progress, say: Callable[[str], None]) -> Agent:
    """The agent of this machine for the registry on a server: what it needs and makes goes through a folder here.

    Raises:
        InvalidInputError: ``location`` is no URL of a server, or ``machine`` no name of a machine.
        UnavailableError: the folder cannot be made.
    """
    from benchlock.api.client.opening import reach  # noqa: PLC0415 - as above
    from benchlock.api.client.queue import HttpQueue  # noqa: PLC0415
    from benchlock.artifacts.http.client import connect  # noqa: PLC0415
    from benchlock.artifacts.http.store import HttpStore  # noqa: PLC0415
    from benchlock.artifacts.local import LocalStore  # noqa: PLC0415
    from benchlock.artifacts.mirrored import MirroredStore  # noqa: PLC0415

    line = reach(location)
    cache, queue = line.home(), HttpQueue(line.talk)
    home = line.home("worker")  # whoever runs commands here ends the runs of dead processes in the folder above
    client = connect(line.session, home / "uploads")
    store = MirroredStore(LocalStore(cache / "blobs"), HttpStore(client), progress)

    def build(journal: Journal, turn: Turn, engine: Engine | None) -> Runner:
        return Runner(home, store, journal, engine, line.talk.clock, progress, say, id, turn)

    workshop = Workshop(home, connect_engine, lambda lock: load(queue.lock_text(lock), lock), build, say)
    return _agent(queue, machine, workshop, permits)


def _agent(queue: Queue, machine: str, workshop: Workshop, permits: Permits) -> Agent:
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
    return MachineId(name or _of_host())


def host_lock_path() -> Path:
    """The file that whoever measures on this host locks, whatever the registry: one for all unless the user says."""
    folder = _LOCKS if os.access(_LOCKS, os.W_OK) else Path(tempfile.gettempdir())
    return Path(os.environ.get(HOST_LOCK) or folder / "benchlock.measure")


def _of_host() -> str:
    """The host's id is its secret: its digest is not."""
    known = next((path.read_text(encoding="ascii").strip() for path in _IDS if path.is_file()), "")
    return f"m-{hashlib.sha256(f'benchlock {known or platform.node()}'.encode()).hexdigest()[:_DIGITS]}"


def _times() -> Times:
    text = os.environ.get(LEASE, "")
    if not text:
        return Times()
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) is None or not float(text):
        raise InvalidInputError(
            f"{LEASE} is {text!r}, no number of seconds", where=LEASE, next_step="write 60, or unset it"
        )
    return Times(float(text))
