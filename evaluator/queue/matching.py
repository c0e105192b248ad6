"""Which machines may take a job, and what the others lack."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import msgspec
from msgspec import UNSET

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical, prepare_decoder
from benchlock.evaluator.records.run_model import Isolation
from benchlock.evaluator.runner.host_platform import SUPPORTED_DEVICES
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.hardware_requirements import HostConditions, HostFacts, explain_unfit_platform
from benchlock.registry.requests.request import conditions_of


@prepare_decoder
@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What a machine is: what conditions are held against, and what else must not change under a measurement.

    ``processes``: it runs jobs that no container confines too; ``code``: those too in which code of the model runs.
    """

    host: HostFacts
    engine: str | None
    cpu_model: str
    kernel: str
    governor: str | None
    processes: bool = False
    code: bool = False

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """The facts of a document.

        Raises:
            InvalidInputError: it is none.
        """
        try:
            return msgspec.convert(document, cls)
        except msgspec.ValidationError as error:
            raise InvalidInputError(f"these are no facts of a machine: {error}") from error

    @property
    def digest(self) -> Digest:
        return digest_bytes(encode_canonical(self.document()))

    def changes(self, now: "MachineFacts") -> tuple[str, ...]:
        """What is other ``now``, in words."""
        before, after = _flat(self.document()), _flat(now.document())
        return tuple(f"{key} was {before[key]}, is {after[key]}" for key in before if before[key] != after[key])


@dataclass(frozen=True, slots=True)
class WantedPlatform:
    """A platform of a lock. ``layered``: a container can be made of it; ``finished``: nothing else can."""

    os: str
    arch: str
    device: str
    layered: bool
    finished: bool


@prepare_decoder
@dataclass(frozen=True, slots=True)
class Wants:
    """What a job asks of a machine: equal ones are one class.

    ``hardware`` is that of the lock's request; ``confined``: nothing but a container will do; ``code``: as a process it
    would run code of the model, which was allowed.
    """

    platforms: tuple[WantedPlatform, ...]
    hardware: Mapping[str, Any]
    cpus: int
    isolation: Isolation | None = None
    confined: bool = False
    code: bool = False

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        return msgspec.convert(document, cls)

    @property
    def digest(self) -> Digest:
        return digest_bytes(encode_canonical(self.document()))

    @property
    def conditions(self) -> HostConditions:
        return conditions_of({"hardware": self.hardware})


def wants_of(lock: Lock, isolation: Isolation | None, *, confined: bool, code: bool = False) -> Wants:
    """What a run of ``lock`` asks of a machine.

    Raises:
        InvalidInputError: the lock asks of hosts in a form that is not understood.
    """
    platforms = sorted(
        {
            WantedPlatform(
                one.os, one.arch, one.device, one.layers is not UNSET and one.image_id is not UNSET, one.finished
            )
            for one in lock.image.platforms
        },
        key=lambda one: (one.os, one.arch, one.device, one.layered, one.finished),
    )
    made = Wants(tuple(platforms), lock.request.get("hardware", {}), lock.limits.cpus, isolation, confined, code)
    _ = made.conditions
    return made


def list_lacks(wants: Wants, facts: MachineFacts) -> tuple[str, ...]:
    """What the machine lacks, for the platform for which it lacks least; empty if it may take the job."""
    conditions = wants.conditions
    found = {one: _lacks_for(one, wants, conditions, facts) for one in wants.platforms}
    platform, least = min(found.items(), key=lambda pair: len(pair[1]))
    if not least or len(found) == 1:
        return least
    return tuple(f"{platform.os}/{platform.arch}/{platform.device}: {reason}" for reason in least)


def _lacks_for(
    platform: WantedPlatform, wants: Wants, conditions: HostConditions, facts: MachineFacts
) -> tuple[str, ...]:
    found = explain_unfit_platform((platform.os, platform.arch, platform.device), conditions, facts.host)
    if found and (platform.os, platform.arch) != (facts.host.os, facts.host.arch):
        return (f"needs {platform.os}/{platform.arch}, {found[0]}",)
    return (*found, *_more(platform, wants, facts))


def _more(platform: WantedPlatform, wants: Wants, facts: MachineFacts) -> tuple[str, ...]:
    lacking = []
    if platform.device not in SUPPORTED_DEVICES:
        lacking.append(f"running on the device {platform.device} is not built yet")
    if wants.cpus > facts.host.cpus:
        lacking.append(f"asks for {wants.cpus} CPUs (limits.cpus), this host has {facts.host.cpus}")
    forbidden = _forbids(wants, facts)
    if wants.confined or wants.isolation == "container" or platform.finished:
        lacking += _contains(platform, facts, "")
    elif wants.isolation == "process":
        lacking += [] if forbidden is None else [forbidden]
    elif forbidden is not None:
        lacking += _contains(platform, facts, f", and {forbidden}")
    if platform.finished and wants.isolation == "process":
        lacking.append("asks for a process, and the image is a finished one, which runs in a container alone")
    return tuple(lacking)


def _forbids(wants: Wants, facts: MachineFacts) -> str | None:
    """Why the machine runs no process of such a job, where it does not."""
    if not facts.processes:
        return "its worker runs containers alone (worker --processes)"
    if wants.code and not facts.code:
        return "its worker runs no model's code as a process (worker --allow-code)"
    return None


def _contains(platform: WantedPlatform, facts: MachineFacts, why: str) -> list[str]:
    """What is missing for a container."""
    lacking = []
    if facts.engine is None:
        lacking.append(f"needs a container engine, none answers there{why}")
    if not platform.layered and not platform.finished:
        lacking.append(f"needs a container, and the image has no layers{why}")
    return lacking


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    host = document["host"]
    return {**host, **{key: value for key, value in document.items() if key != "host"}}
