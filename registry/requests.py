"""Requests: the question that a user asks, as written and as understood."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET, UnsetType

from artifacts.errors import InvalidInputError
from artifacts.limits import REQUEST, TooLongError, check_document
from registry.asking import (
    Asked,
    AskedAccelerator,
    AskedHardware,
    AskedLimits,
    AskedScenario,
    Asking,
)
from registry.constraints import Constraint
from registry.conversion import convert
from registry.hardware import KEYS, Hardware, Wanted
from registry.hosts import CPU, AcceleratorCondition, HostConditions, parse_drivers, words
from registry.manifests.identity import plain
from registry.metrics import check_metrics, expand
from registry.names import Kind, parse_name
from registry.quantities import Amount, parse_bytes, parse_seconds
from registry.yaml import Document, Place, read

_LEAST_MEMORY = 6 << 20
_LEAST_PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use: seconds, bytes, CPUs, processes."""

    time: float
    memory: int
    cpus: int
    processes: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """Every setting of the scenario, those left out too; durations in seconds."""

    name: str
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seeds:
    """32 bits each, derived from the one seed of the request."""

    qsl: int
    sample_index: int
    schedule: int


@dataclass(frozen=True, slots=True)
class Request:
    """A request as understood; ``document`` is it as written: strings untouched, absent keys absent.

    ``hardware`` are the platforms that it admits, ``conditions`` what it asks of hosts beside.
    """

    asked: Asking
    document: dict[str, Any]
    hardware: Hardware
    conditions: HostConditions
    limits: Limits
    scenario: Scenario
    seeds: Seeds
    metrics: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.asked.name

    @property
    def prereleases(self) -> frozenset[Kind]:
        return frozenset(() if self.asked.prereleases is UNSET else self.asked.prereleases)

    @property
    def equivalence(self) -> dict[str, float]:
        return {} if self.asked.equivalence is UNSET else self.asked.equivalence

    @property
    def as_of(self) -> datetime | None:
        return None if self.asked.as_of is UNSET else parse_time(self.asked.as_of)


def read_request(text: bytes | str, name: str) -> Request:
    """The request in ``text``, YAML 1.2; ``name`` is what errors call it.

    Raises:
        InvalidInputError: at the first fault, with the path of the key and the line.
    """
    if len(text) > REQUEST:  # before it is parsed; what is close to the limit is counted in bytes below
        raise TooLongError(f"{name} has more than {REQUEST} bytes", where=name, next_step="shorten it")
    return _understood(read(text, name))


def parse_request(document: dict[str, Any], name: str) -> Request:
    """The request that a lock carries, or one to which ``as_of`` was added. Raises as ``read_request``."""
    return _understood(Document(document, name))


def conditions_of(request: Mapping[str, Any]) -> HostConditions:
    """What the request of a lock asks of hosts. Keys that this version does not know are not looked at.

    Raises:
        InvalidInputError: a key that it knows is of another form than in a request.
    """
    hardware = _known(request.get("hardware", {}), AskedHardware)
    if isinstance(hardware, dict) and "accelerator" in hardware:
        hardware["accelerator"] = _known(hardware["accelerator"], AskedAccelerator)
    document = Document(hardware, "hardware of the lock's request")
    return _conditions(convert(document, AskedHardware), Place(document))


def parse_time(text: str) -> datetime:
    """The time that ``text`` says, in ISO 8601 with its zone.

    Raises:
        InvalidInputError: it says none.
    """
    try:
        time = datetime.fromisoformat(text)
        time.astimezone(UTC)  # a day at an end of the calendar may have none
    except (ValueError, OverflowError):
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidInputError(f"{text!r} is no time with a zone", next_step="write it like 2026-11-20T12:00:00Z")
    return time


def derive_seed(seed: int, purpose: str) -> int:
    """32 bits: the first four bytes, big-endian, of the SHA-256 of ``benchlock SEED PURPOSE``."""
    return int.from_bytes(hashlib.sha256(f"benchlock {seed} {purpose}".encode()).digest()[:4], "big")


def _understood(document: Document) -> Request:
    asked: Asking = convert(document, Asking)
    place = Place(document)
    _check_names(asked, place)
    _check_metrics(asked, place)
    if asked.as_of is not UNSET:
        place.at("as_of").parsed(parse_time, asked.as_of)
    check_document(document.value, REQUEST, document.name)
    return Request(
        asked=asked,
        document=document.value,
        hardware=_platforms(asked.hardware, place.at("hardware")),
        conditions=_conditions(asked.hardware, place.at("hardware")),
        limits=_limits(asked.limits, place.at("limits")),
        scenario=_scenario(asked.scenario, place.at("scenario")),
        seeds=Seeds(*(derive_seed(asked.seed, purpose) for purpose in ("qsl", "sample_index", "schedule"))),
        metrics=expand(asked.metrics),
    )


def _check_names(asked: Asking, place: Place) -> None:
    place.at("name").parsed(parse_name, asked.name)
    for key in ("model", "dataset", "image"):
        artifact: Asked | UnsetType = getattr(asked, key)
        if artifact is not UNSET:
            place.at(key, "name").parsed(parse_name, artifact.name)
            place.at(key, "version").parsed(Constraint.parse, artifact.version)
    if asked.framework is not UNSET:
        place.at("framework", "version").parsed(Constraint.parse, asked.framework.version)


def _check_metrics(asked: Asking, place: Place) -> None:
    """Each is known and of this scenario; whether the model's task gives it is seen when the model is."""
    for index, metric in enumerate(asked.metrics):
        place.at("metrics", index).parsed(lambda name: check_metrics(None, asked.scenario.name, [name]), metric)
    for metric in () if asked.equivalence is UNSET else asked.equivalence:
        if metric not in expand(asked.metrics):
            what = f"{metric} is none of the metrics that are asked for"
            raise place.at("equivalence", metric).error(what, "name one of them, or add it to metrics")


def _known(value: Any, wanted: type[AskedHardware | AskedAccelerator]) -> Any:  # noqa: ANN401 - unchecked until converted
    if not isinstance(value, dict):
        return value
    return {key: part for key, part in value.items() if key in wanted.__struct_fields__}


def _platforms(asked: AskedHardware, place: Place) -> Hardware:
    return Hardware(*(_wanted(getattr(asked, key), place.at(key)) for key in KEYS))


def _wanted(asked: str | tuple[str, ...] | UnsetType, place: Place) -> Wanted:
    if isinstance(asked, UnsetType):
        return None
    wanted = (asked,) if isinstance(asked, str) else asked
    for index, text in enumerate(wanted):
        if text in wanted[:index]:
            raise place.at(index).error(f"{text!r} stands twice", "leave one of them out")
    return wanted


def _conditions(asked: AskedHardware, place: Place) -> HostConditions:
    accelerator = None
    if asked.accelerator is not UNSET:
        accelerator = _accelerator(asked.accelerator, place.at("accelerator"))
        if _wanted(asked.device, place.at("device")) == (CPU,):
            what = "an accelerator is asked for, and the only device that will do is cpu"
            raise place.at("accelerator").error(
                what, "name its device in hardware.device, such as cuda12, or leave the accelerator out"
            )
    return HostConditions(
        cpus=1 if asked.cpus is UNSET else asked.cpus,
        memory=None if asked.memory is UNSET else place.at("memory").parsed(Amount.parse, asked.memory),
        accelerator=accelerator,
    )


def _accelerator(asked: str | AskedAccelerator, place: Place) -> AcceleratorCondition:
    if isinstance(asked, str):
        return AcceleratorCondition(_accelerator_name(asked, place))
    if asked == AskedAccelerator():
        raise place.error("nothing is asked of the accelerator", "write name, count, memory or driver")
    return AcceleratorCondition(
        name=None if asked.name is UNSET else _accelerator_name(asked.name, place.at("name")),
        count=1 if asked.count is UNSET else asked.count,
        memory=None if asked.memory is UNSET else place.at("memory").parsed(Amount.parse, asked.memory),
        driver=None if asked.driver is UNSET else place.at("driver").parsed(parse_drivers, asked.driver),
    )


def _accelerator_name(text: str, place: Place) -> str:
    if not words(text):
        raise place.error(f"{text!r} has no word of a name", "write one, such as H200")
    return text


def _limits(asked: AskedLimits, place: Place) -> Limits:
    time = place.at("time").parsed(parse_seconds, asked.time)
    memory = place.at("memory").parsed(parse_bytes, asked.memory)
    for key, amount in (("time", time), ("memory", memory)):
        if not amount:
            raise place.at(key).error("nothing can run within 0", "write more")
    if memory < _LEAST_MEMORY:
        what = f"nothing can run within {asked.memory}: engines start no container with less than 6MiB"
        raise place.at("memory").error(what, "write more; a framework alone takes some hundred MiB")
    if asked.processes < _LEAST_PROCESSES:
        what = "nothing can run as 1 process: what measures is a process beside the one that watches it"
        raise place.at("processes").error(what, "write more, such as 256; threads count as processes")
    return Limits(time, memory, asked.cpus, asked.processes)


_DEFAULTS: dict[str, dict[str, int]] = {"accuracy": {"batch": 1, "warmup": 0}, "offline": {"batch": 1}}
_DURATIONS = ("min_duration", "target_latency")


def _scenario(asked: AskedScenario, place: Place) -> Scenario:
    written: dict[str, Any] = plain(asked)
    del written["name"]
    for key in _DURATIONS:
        if key in written:
            written[key] = place.at(key).parsed(parse_seconds, written[key])
    return Scenario(asked.name, _DEFAULTS.get(asked.name, {}) | written)
