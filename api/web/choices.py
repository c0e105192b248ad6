"""Choices of forms, and which isolations the machines of a queue can give to a run."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from time import monotonic
from typing import Final, get_args

from msgspec import structs

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.local.run_setup import connect_engine
from benchlock.artifacts.errors import BenchlockError
from benchlock.evaluator.queue.job_matching import JobRequirements, MachineFacts, RequiredPlatform, list_lacks
from benchlock.evaluator.queue.queue_texts import machine_state
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.queue.submission_checks import find_wants
from benchlock.evaluator.records.run_types import Isolation
from benchlock.evaluator.runner.host_platform import this_host
from benchlock.evaluator.worker.worker_agent import facts_of
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.hardware_requirements import CPU

_MACHINES: Final = 100
_HOST_SECONDS: Final = 60
HOST: Final = "the host of this service"
"""The name of the machine that is judged where no machine gets jobs."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A value of a field.

    Attributes:
        value: The value.
        reason: Why it is not possible; empty if it is.
        is_chosen: Whether the form has it.
        path: The form with it, for a name.
        hint: What it means.
    """

    value: str
    reason: str = ""
    is_chosen: bool = False
    path: str = ""
    hint: str = ""


def list_machines(queue: SqlQueue) -> Mapping[str, MachineFacts]:
    """Return the facts of the machines that get jobs now by name; of the service's host if there is none.

    A worker on that host could take the job, so what the host lacks is what its user has to know.
    """
    machines: dict[str, MachineFacts] = {
        machine.id: machine.facts
        for machine in queue.machines(limit=_MACHINES)
        if machine_state(machine) in ("free", "busy")
    }
    return machines or {HOST: _measure_host(int(monotonic() // _HOST_SECONDS))}


@lru_cache(1)
def _measure_host(_period: int) -> MachineFacts:
    """Return what a worker on this host could do; measured once a minute, because forms ask with every letter."""
    engine = connect_engine()
    facts = facts_of(this_host(), None if engine is None else engine.version)
    if engine is not None:
        engine.close()
    return structs.replace(facts, processes=True)


def list_isolations(machines: Mapping[str, MachineFacts], wants: JobRequirements | None, chosen: str) -> list[Choice]:
    """Judge each isolation by the machines.

    Args:
        machines: The facts of the machines by name.
        wants: The requirements of the job without an isolation; None if the job is not known yet.
        chosen: The isolation in the form.
    """
    return [Choice(one, _explain(machines, wants, one), one == chosen) for one in get_args(Isolation)]


def list_lock_isolations(registry: LocalRegistry, queue: SqlQueue, lock: Lock | None, chosen: str) -> list[Choice]:
    """Judge each isolation for the job of a lock, if that can be read; choose none that is not possible."""
    wants = None
    with suppress(BenchlockError):
        wants = None if lock is None else find_wants(lock, registry.store, None, allow_code=False)
    listed = list_isolations(list_machines(queue), wants, chosen)
    return [replace(one, is_chosen=one.is_chosen and not one.reason) for one in listed]


def list_run_options(registry: LocalRegistry, lock: Lock, isolation: Isolation) -> str:
    """Return the options with which ``run`` and ``rerun`` of a lock give the isolation of an earlier run.

    They begin with a space. A container is the default, so it needs none.
    """
    if isolation == "container":
        return ""
    confined = False
    with suppress(BenchlockError):
        confined = find_wants(lock, registry.store, None, allow_code=False).confined
    return " --isolation process" + " --allow-code" * confined


def _explain(machines: Mapping[str, MachineFacts], wants: JobRequirements | None, isolation: Isolation) -> str:
    """Return why no machine can give a job an isolation: what the closest one lacks; empty if one can."""
    if wants is not None and wants.confined and isolation == "process":
        return "the model contains code, which runs only in a container"
    lacks = {name: _list_lacks(name, facts, wants, isolation) for name, facts in machines.items()}
    closest = min(lacks, key=lambda name: len(lacks[name]))
    return f"{closest}: {'; '.join(lacks[closest])}" if lacks[closest] else ""


def _list_lacks(name: str, facts: MachineFacts, wants: JobRequirements | None, isolation: Isolation) -> tuple[str, ...]:
    """List what a machine lacks for a job; for one that is not known yet, what it lacks for every job."""
    if wants is None:
        own = RequiredPlatform(facts.host.os, facts.host.arch, CPU, layered=True, finished=False)
        wants = JobRequirements((own,), {}, cpus=1)
    return list_lacks(replace(wants, isolation=isolation), facts, name)
