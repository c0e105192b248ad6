"""The job queue of a registry in a folder, and the worker agent of this machine for it."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchlock.api.client.worker_setup import WorkerPermissions, make_agent
from benchlock.api.local.local_registry import LocalRegistry, now
from benchlock.api.local.run_setup import connect_engine, import_runner
from benchlock.api.settings import read_setting
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.queue.lease_times import Times
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_types import RunJournal
from benchlock.evaluator.runner.container_engine import Engine
from benchlock.evaluator.runner.host_platform import HostTurn
from benchlock.evaluator.worker.worker_agent import Agent, WorkerEnvironment

if TYPE_CHECKING:
    from benchlock.evaluator.workflows.run import Runner


def open_queue(registry: LocalRegistry) -> SqlQueue:
    """Open the queue in the registry's database.

    Raises:
        InvalidInputError: The setting ``lease`` is not a number of seconds.
    """
    return SqlQueue(registry.database, now, _read_lease_times())


def build_agent(
    registry: LocalRegistry, machine: str, permits: WorkerPermissions, progress: Progress, say: Callable[[str], None]
) -> Agent:
    """Build the agent of this machine for an embedded registry.

    Args:
        registry: The registry.
        machine: The machine's name; empty for the host's id.
        permits: What the agent may run without a container.
        progress: Shows transfers and stages.
        say: Prints a message.

    Raises:
        InvalidInputError: ``machine`` is not a valid name.
    """

    def build(journal: RunJournal, turn: HostTurn, engine: Engine | None) -> "Runner":
        keep = registry.catalogue.put_lock
        return import_runner()(registry.home, registry.store, journal, engine, now, progress, say, keep, turn)

    environment = WorkerEnvironment(registry.home, connect_engine, registry.read_lock, build, say)
    return make_agent(open_queue(registry), machine, environment, permits)


def _read_lease_times() -> Times:
    """Return the durations for the setting ``lease``; each lease tells its agent the duration."""
    value = read_setting("lease")
    if value is None:
        return Times()
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", value.text) is None or not float(value.text):
        raise InvalidInputError(
            f"{value.origin} is {value.text!r}, not a number of seconds",
            where=value.origin,
            next_step="write 60, or unset it",
        )
    return Times(float(value.text))
