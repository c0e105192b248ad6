"""Builds the queue of a registry and the agent of this machine, and reads what the environment says of them."""

import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from api.wiring import Registry, connect_engine, now
from artifacts.digest import Digest
from artifacts.errors import InvalidInputError
from artifacts.progress import Progress
from evaluator.dispatch.agent import Agent, Workshop
from evaluator.dispatch.queue import MachineId
from evaluator.dispatch.sql import SqlQueue
from evaluator.dispatch.times import Times
from evaluator.runner.engine import Engine
from evaluator.runner.execute import Journal, Runner, Turn
from registry.lockfile import Lock, load

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


def build_agent(registry: Registry, machine: str, progress: Progress, say: Callable[[str], None]) -> Agent:
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
    return Agent(open_queue(registry), machine_id(machine), workshop, host_lock_path())


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
