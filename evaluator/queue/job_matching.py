"""The machines that may take a job, and what the other machines lack."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import msgspec
from msgspec import UNSET

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical, prepare_decoder
from benchlock.evaluator.records.run_types import Isolation
from benchlock.evaluator.runner.host_platform import SUPPORTED_DEVICES
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.evaluation_request import conditions_of
from benchlock.registry.requests.hardware_requirements import HostConditions, HostFacts, explain_unfit_platform


@prepare_decoder
class MachineFacts(msgspec.Struct, frozen=True):
    """The facts of a machine: those that jobs may require, and those that must not change during a measurement.

    Attributes:
        host: The facts that the hardware conditions of a lock refer to.
        engine: The version of the container engine; None if there is none.
        cpu_model: The model of the CPU.
        kernel: The release of the kernel.
        governor: The frequency governor; None if there is none.
        processes: Whether the worker also runs jobs as processes, without a container.
        code: Whether it also runs models with their own code as processes.
    """

    host: HostFacts
    engine: str | None
    cpu_model: str
    kernel: str
    governor: str | None
    processes: bool = False
    code: bool = False

    def document(self) -> dict[str, Any]:
        """Return the facts as a JSON document."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Parse the facts from a document.

        Raises:
            InvalidInputError: The document has another form.
        """
        try:
            return msgspec.convert(document, cls)
        except msgspec.ValidationError as error:
            raise InvalidInputError(f"invalid machine facts: {error}") from error

    @property
    def digest(self) -> Digest:
        """The digest of the canonical document."""
        return digest_bytes(encode_canonical(self.document()))

    def changes(self, now: "MachineFacts") -> tuple[str, ...]:
        """Describe each fact that differs in ``now``."""
        before, after = _flatten(self.document()), _flatten(now.document())
        return tuple(f"{key} was {before[key]}, is {after[key]}" for key in before if before[key] != after[key])


@dataclass(frozen=True, slots=True)
class RequiredPlatform:
    """A platform of a lock.

    Attributes:
        os: The operating system.
        arch: The CPU architecture.
        device: The device, such as ``cpu``.
        layered: Whether a container can be made of it.
        finished: Whether it is a finished image, which runs in a container alone.
    """

    os: str
    arch: str
    device: str
    layered: bool
    finished: bool


@prepare_decoder
@dataclass(frozen=True, slots=True)
class JobRequirements:
    """The requirements of a job on a machine; jobs with equal requirements form a class.

    Attributes:
        platforms: The platforms of the lock.
        hardware: The hardware part of the lock's request.
        cpus: The number of CPUs that the lock's limits allow.
        isolation: The isolation that the job must have; None if the worker may choose.
        confined: Whether the job must run in a container.
        code: Whether the job, as a process, would run code of the model; this was allowed.
        machine: The only machine that may run the job; None for any that fits.
    """

    platforms: tuple[RequiredPlatform, ...]
    hardware: Mapping[str, Any]
    cpus: int
    isolation: Isolation | None = None
    confined: bool = False
    code: bool = False
    machine: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the requirements as a JSON document."""
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Parse the requirements from a stored document."""
        return msgspec.convert(document, cls)

    @property
    def digest(self) -> Digest:
        """The digest of the canonical document, which is the id of the class."""
        return digest_bytes(encode_canonical(self.document()))

    @property
    def conditions(self) -> HostConditions:
        """The hardware conditions of the lock's request."""
        return conditions_of({"hardware": self.hardware})


def find_job_requirements(
    lock: Lock, isolation: Isolation | None, *, confined: bool, code: bool = False
) -> JobRequirements:
    """Return the requirements of a run of ``lock`` on a machine.

    Raises:
        InvalidInputError: The form of the lock's hardware conditions is unknown.
    """
    platforms = sorted(
        {
            RequiredPlatform(
                platform.os,
                platform.arch,
                platform.device,
                platform.layers is not UNSET and platform.image_id is not UNSET,
                platform.finished,
            )
            for platform in lock.image.platforms
        },
        key=lambda platform: (platform.os, platform.arch, platform.device, platform.layered, platform.finished),
    )
    wants = JobRequirements(
        tuple(platforms), lock.request.get("hardware", {}), lock.limits.cpus, isolation, confined, code
    )
    _ = wants.conditions
    return wants


def list_lacks(wants: JobRequirements, facts: MachineFacts, machine: str = "") -> tuple[str, ...]:
    """List what a machine lacks, for the platform for which it lacks least; empty if it may take the job.

    Args:
        wants: The requirements of the job.
        facts: The facts of the machine.
        machine: Its name.
    """
    if wants.machine not in (None, machine):
        return (f"only {wants.machine} may run the job", *list_lacks(replace(wants, machine=None), facts))
    conditions = wants.conditions
    by_platform = {wanted: _lacks_for(wanted, wants, conditions, facts) for wanted in wants.platforms}
    platform, least = min(by_platform.items(), key=lambda pair: len(pair[1]))
    if not least or len(by_platform) == 1:
        return least
    return tuple(f"{platform.os}/{platform.arch}/{platform.device}: {reason}" for reason in least)


def _lacks_for(
    platform: RequiredPlatform, wants: JobRequirements, conditions: HostConditions, facts: MachineFacts
) -> tuple[str, ...]:
    reasons = explain_unfit_platform((platform.os, platform.arch, platform.device), conditions, facts.host)
    if reasons and (platform.os, platform.arch) != (facts.host.os, facts.host.arch):
        return (f"requires {platform.os}/{platform.arch}; {reasons[0]}",)
    return (*reasons, *_list_run_obstacles(platform, wants, facts))


def _list_run_obstacles(platform: RequiredPlatform, wants: JobRequirements, facts: MachineFacts) -> tuple[str, ...]:
    lacking = []
    if platform.device not in SUPPORTED_DEVICES:
        lacking.append(f"the device {platform.device} is not supported yet")
    if wants.cpus > facts.host.cpus:
        lacking.append(f"requires {wants.cpus} CPUs (limits.cpus); this host has {facts.host.cpus}")
    forbidden = _explain_no_process(wants, facts)
    if wants.confined or wants.isolation == "container" or platform.finished:
        lacking += _list_container_obstacles(platform, facts, "")
    elif wants.isolation == "process":
        lacking += [] if forbidden is None else [forbidden]
    elif forbidden is not None:
        lacking += _list_container_obstacles(platform, facts, f", and {forbidden}")
    if platform.finished and wants.isolation == "process":
        lacking.append("the job requires a process, but a finished image runs only in a container")
    return tuple(lacking)


def _explain_no_process(wants: JobRequirements, facts: MachineFacts) -> str | None:
    """Return why the machine runs no process of such a job; None if it does."""
    if not facts.processes:
        return "its worker may not run processes"
    if wants.code and not facts.code:
        return "its worker may not run model code as a process"
    return None


def _list_container_obstacles(platform: RequiredPlatform, facts: MachineFacts, suffix: str) -> list[str]:
    """List what is missing for a container."""
    lacking = []
    if facts.engine is None:
        lacking.append(f"requires a container engine; none responds on this host{suffix}")
    if not platform.layered and not platform.finished:
        lacking.append(f"requires a container, but the image has no layers{suffix}")
    return lacking


def is_isolation_possible(wants: JobRequirements, *, engine: bool, processes: bool, code: bool) -> bool:
    """Return whether a worker can isolate a job as required, whatever the machine.

    Args:
        wants: The requirements of the job.
        engine: Whether the worker may have a container engine.
        processes: Whether it runs jobs as processes.
        code: Whether it also runs models with their own code as processes.
    """
    in_container = engine and wants.isolation != "process"
    as_process = processes and not wants.confined and wants.isolation != "container" and (code or not wants.code)
    return any(
        (in_container and (platform.layered or platform.finished)) or (as_process and not platform.finished)
        for platform in wants.platforms
    )


def _flatten(document: Mapping[str, Any]) -> dict[str, Any]:
    host = document["host"]
    return {**host, **{key: value for key, value in document.items() if key != "host"}}
