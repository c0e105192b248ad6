"""Evaluation requests: reading, validation, and defaults."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from msgspec import UNSET, UnsetType

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.size_limits import REQUEST, TooLongError, check_document
from benchlock.registry.artifact_names import Kind, parse_name
from benchlock.registry.manifests.manifest_content import plain
from benchlock.registry.manifests.metric_definitions import (
    COST,
    DEFINITIONS,
    DISTRIBUTED,
    GRADIENT,
    NETWORK,
    OPERATOR,
    TRAINING,
    TRAINING_COST,
    check_metrics,
    expand,
    is_quality,
)
from benchlock.registry.requests.hardware_requirements import (
    CPU,
    KEYS,
    AcceleratorCondition,
    AllowedValues,
    Hardware,
    HostConditions,
    parse_drivers,
    split_name,
)
from benchlock.registry.requests.request_types import (
    AcceleratorRequirement,
    AnyScenario,
    DistributedRequestDocument,
    HardwareRequirement,
    MicroBatch,
    OperatorRequestDocument,
    PairedScenario,
    RequestDocument,
    RequestedLimits,
    Steps,
    TimeToQuality,
    TrainingRequestDocument,
)
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.decoder import convert, inspect_type
from benchlock.registry.text.incomplete_objects import convert_known
from benchlock.registry.text.parsed_text import Document, Place
from benchlock.registry.text.quantities import Amount, parse_bytes, parse_seconds
from benchlock.registry.text.yaml import read_yaml
from benchlock.registry.versions.version_ranges import Constraint

_LEAST_MEMORY = 6 << 20
_LEAST_PROCESSES = 2
_MOST_REPEATS = 100
_DEFAULTS: dict[str, dict[str, int]] = {"accuracy": {"batch": 1, "warmup": 0}, "offline": {"batch": 1}}
EPOCHS = "epochs_to_quality"
"""The metric by which trainings are compared."""
_DURATIONS = ("min_duration", "target_latency")


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources of a run: seconds, bytes of memory, CPUs, processes."""

    time: float
    memory: int
    cpus: int
    processes: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario with all of its settings, defaults included; durations are in seconds."""

    name: str
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seeds:
    """The 32-bit seeds of LoadGen, derived from the seed of the request."""

    qsl: int
    sample_index: int
    schedule: int


AnyRequest = RequestDocument | OperatorRequestDocument | TrainingRequestDocument | DistributedRequestDocument
"""A request of any level."""


@dataclass(frozen=True, slots=True)
class Request:
    """A validated request; ``document`` is the request as written, without defaults.

    ``content`` has the keys of every level. Those of a model's request alone are in ``of_model``.

    ``hardware`` are the admitted platforms, and ``conditions`` are the further requirements on hosts.
    """

    content: AnyRequest
    document: dict[str, Any]
    hardware: Hardware
    conditions: HostConditions
    limits: Limits
    scenario: Scenario
    seeds: Seeds
    metrics: tuple[str, ...]

    @property
    def of_model(self) -> RequestDocument:
        """The request of a model.

        Raises:
            InvalidInputError: The request is of another level.
        """
        if not isinstance(self.content, RequestDocument):
            what = f"{self.content.name} has the level {self.content.level}, and evaluates no model"
            raise InvalidInputError(what, where="level", next_step="choose a request with model and dataset")
        return self.content

    @property
    def name(self) -> str:
        """The name of the request."""
        return self.content.name

    @property
    def prereleases(self) -> frozenset[Kind]:
        """The kinds whose pre-releases may be chosen."""
        return frozenset(() if self.content.prereleases is UNSET else self.content.prereleases)

    @property
    def equivalence(self) -> dict[str, float]:
        """The relative margins within which metrics count as equivalent, by metric."""
        return _margins_of(self.content)

    @property
    def as_of(self) -> datetime | None:
        """The time as of which to resolve the request, or ``None`` for now."""
        return None if self.content.as_of is UNSET else parse_time(self.content.as_of)


def read_request(text: bytes | str, name: str) -> Request:
    """Read a request from YAML 1.2; ``name`` names it in errors.

    Raises:
        InvalidInputError: The request has problems. The error has the first one with key path and line, and all others.
    """
    if len(text) > REQUEST:  # checked before parsing; later, the exact size is checked in bytes
        raise TooLongError(f"{name} has more than {REQUEST} bytes", where=name, next_step="shorten it")
    return _validate(read_yaml(text, name))


def parse_request(document: dict[str, Any], name: str) -> Request:
    """Parse a request that a client sent, or one with ``as_of`` added. Raise as ``read_request``."""
    return _validate(Document(document, name))


def parse_locked_request(document: dict[str, Any], name: str) -> Request:
    """Parse the request of a lock, which may have margins of 1 and more. Raise as ``read_request``."""
    return _validate(Document(document, name), is_locked=True)


def conditions_of(request: Mapping[str, Any]) -> HostConditions:
    """Return the host conditions of a lock's request, ignoring keys that this version does not know.

    Raises:
        InvalidInputError: A known key has an invalid value.
    """
    hardware = _drop_unknown_keys(request.get("hardware", {}), HardwareRequirement)
    if isinstance(hardware, dict) and "accelerator" in hardware:
        hardware["accelerator"] = _drop_unknown_keys(hardware["accelerator"], AcceleratorRequirement)
    document, problems = Document(hardware, "hardware of the lock's request"), Problems()
    requirement: HardwareRequirement = convert(document, HardwareRequirement)
    _check_conditions(requirement, Place(document), problems)
    problems.refuse()
    return _conditions(requirement)


def parse_time(text: str) -> datetime:
    """Parse a time in ISO 8601 with its time zone.

    Raises:
        InvalidInputError: The text has another form.
    """
    try:
        time = datetime.fromisoformat(text)
        time.astimezone(UTC)  # fails for the first or last day of the calendar
    except (ValueError, OverflowError):
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidInputError(f"{text!r} is not a time with a zone", next_step="write it like 2026-11-20T12:00:00Z")
    return time


def derive_seed(seed: int, purpose: str) -> int:
    """Return a 32-bit seed: the first 4 bytes, big-endian, of the SHA-256 of ``benchlock SEED PURPOSE``."""
    return int.from_bytes(hashlib.sha256(f"benchlock {seed} {purpose}".encode()).digest()[:4], "big")


def derive_seeds(seed: int) -> Seeds:
    """Return the seeds of LoadGen that follow from the seed of a request."""
    return Seeds(*(derive_seed(seed, purpose) for purpose in ("qsl", "sample_index", "schedule")))


def derive_case_seeds(seed: int, cases: Iterable[str]) -> dict[str, int]:
    """Return the seed of the inputs of each case of an operator, which does not depend on the other cases."""
    return {case: derive_seed(seed, f"case {case}") for case in cases}


def derive_repeat_seeds(seed: int, repeats: int) -> list[int]:
    """Return the seed of each repeat of a training, which requests with other seeds do not share."""
    return [derive_seed(seed, f"repeat {repeat}") for repeat in range(repeats)]


def _check_time(text: str) -> None:
    if not parse_seconds(text):
        raise InvalidInputError("the limit is 0", next_step="write a larger one")


def _check_memory(text: str) -> None:
    memory = parse_bytes(text)
    if not memory:
        raise InvalidInputError("the limit is 0", next_step="write a larger one")
    if memory < _LEAST_MEMORY:
        what = f"{text} is too little memory: engines require 6MiB to start a container"
        raise InvalidInputError(what, next_step="write more; a framework alone needs some hundred MiB")


def _check_accelerator_name(text: str) -> None:
    if not split_name(text):
        raise InvalidInputError(
            f"the accelerator name {text!r} has no letter or digit", next_step="write one, such as H200"
        )


_Parsers = Mapping[tuple[str, ...], Callable[[str], object]]
_TEXTS: _Parsers = {
    ("name",): parse_name,
    **{(key, "name"): parse_name for key in ("model", "operator", "recipe", "dataset", "image", "framework")},
    **{(key, "version"): Constraint.parse for key in ("model", "operator", "recipe", "dataset", "image", "framework")},
    ("as_of",): parse_time,
    ("limits", "time"): _check_time,
    ("limits", "memory"): _check_memory,
    **{("scenario", key): parse_seconds for key in _DURATIONS},
}
"""The parser of each text in a request, by path."""
_HARDWARE_TEXTS: _Parsers = {
    ("memory",): parse_bytes,
    ("accelerator",): _check_accelerator_name,
    ("accelerator", "name"): _check_accelerator_name,
    ("accelerator", "memory"): parse_bytes,
    ("accelerator", "driver"): parse_drivers,
}
"""The parser of each text below ``hardware``, by path."""


def _validate(document: Document, *, is_locked: bool = False) -> Request:
    problems, content = Problems(), None
    kind = _type_of(document.value)
    with problems.noted():
        content = convert(document, kind)
    with problems.noted():
        partial = convert_known(document.value, inspect_type(kind)) if content is None else content
        _check(partial, Place(document), problems)
        if not is_locked:
            _check_margins(partial, Place(document).at("equivalence"), problems)
    with problems.noted():
        check_document(document.value, REQUEST, document.name)
    problems.refuse()
    assert content is not None
    return Request(
        content=content,
        document=document.value,
        hardware=Hardware(*(_allowed_values(getattr(content.hardware, key)) for key in KEYS)),
        conditions=_conditions(content.hardware),
        limits=_limits(content.limits),
        scenario=_scenario(content.scenario),
        seeds=derive_seeds(content.seed),
        metrics=expand(content.metrics),
    )


def _type_of(value: object) -> type[AnyRequest]:
    """Return the type of a request by its level, or else by the keys and the scenario of a level."""
    if not isinstance(value, dict):
        return RequestDocument
    scenario = value.get("scenario")
    name = scenario.get("name") if isinstance(scenario, dict) else None
    level = value.get("level")
    is_of_other = level in ("operator", "network", "training")
    if level == "distributed" or (not is_of_other and (name in DISTRIBUTED or "distribution" in value)):
        return DistributedRequestDocument
    if level == "training" or (level != "operator" and (name in TRAINING or "recipe" in value)):
        return TrainingRequestDocument
    if "operator" not in value and (level == "network" or name in NETWORK):
        return RequestDocument
    is_of_operator = name in OPERATOR or not value.keys().isdisjoint(("level", "operator"))
    return OperatorRequestDocument if is_of_operator else RequestDocument


def _check(request: AnyRequest, place: Place, problems: Problems) -> None:
    """Record every rule that a request violates, ignoring unknown values."""
    _check_texts(request, place, _TEXTS, problems)
    with problems.noted():
        _check_metrics(request, place.at("metrics"), problems)
    with problems.noted():
        if isinstance(request, OperatorRequestDocument):
            _check_gradient(request, place)
        elif isinstance(request, DistributedRequestDocument):
            _check_threads(request, place)
        else:
            _check_price(request, place)
    with problems.noted():
        if isinstance(request, TrainingRequestDocument):
            _check_reproduction(request, place)
    with problems.noted():
        if isinstance(request, RequestDocument):
            _check_network(request, place)
    with problems.noted():
        _check_equivalence(request, place.at("equivalence"), problems)
    with problems.noted():
        _check_platforms(request.hardware, place.at("hardware"), problems)
    with problems.noted():
        _check_conditions(request.hardware, place.at("hardware"), problems)
    with problems.noted():
        if request.limits.processes < _LEAST_PROCESSES:
            what = "1 process is too few: the harness measures in one process and watches it from another"
            raise place.at("limits", "processes").error(what, "write more, such as 256; threads count as processes")


def _check_texts(part: object, place: Place, parsers: _Parsers, problems: Problems) -> None:
    """Record the texts that their parsers reject; values that are not texts are skipped."""
    for path, parse in parsers.items():
        with problems.noted():
            value = part
            for key in path:
                value = getattr(value, key, UNSET)
            if isinstance(value, str):
                place.at(*path).parsed(parse, value)


def _check_metrics(request: AnyRequest, place: Place, problems: Problems) -> None:
    """Record metrics that are unknown or not part of the scenario. The task of the model is checked at lock time."""
    for index, metric in enumerate(request.metrics):
        with problems.noted():
            _check_metric(metric, None, place.at(index))
            _check_metric(metric, request.scenario.name, place.at(index))
            if isinstance(request, OperatorRequestDocument) and is_quality(metric):
                step = "request operator_latency, wrapper_overhead, error_l2, error_linf or gradient_error"
                raise place.at(index).error(f"the level operator does not give the metric {metric}", step)
            if isinstance(request, TrainingRequestDocument) and is_quality(metric):
                step = f"request {EPOCHS}, time_to_quality or final_quality; the target names {metric}"
                raise place.at(index).error(f"the level training does not give the metric {metric}", step)
            if isinstance(request.scenario, MicroBatch) and is_quality(metric):
                step = "request outputs_equal, outputs_difference, peak_memory or batch_latency"
                raise place.at(index).error(f"the level network does not give the metric {metric}", step)
            if isinstance(request, DistributedRequestDocument) and is_quality(metric):
                step = "request steps_per_second, communication, speedup or loss_difference"
                raise place.at(index).error(f"the level distributed does not give the metric {metric}", step)


def _check_threads(request: DistributedRequestDocument, place: Place) -> None:
    """Check that each thread of each process has a CPU."""
    distribution, cpus = request.distribution, request.limits.cpus
    threads = distribution.processes * distribution.threads
    if threads > cpus:
        what = f"{distribution.processes} processes of {distribution.threads} threads need {threads} CPUs, not {cpus}"
        step = f"set limits.cpus to {threads}, or request fewer processes or threads"
        raise place.at("limits", "cpus").error(what, step)


def _check_gradient(request: OperatorRequestDocument, place: Place) -> None:
    """Check that a request describes the check of gradients if it asks for its metric, and only then."""
    is_asked, is_described = GRADIENT in request.metrics, request.scenario.gradient is not UNSET
    if is_asked and not is_described:
        step = "add gradient: {dtype: float64, step: 1.0e-6, elements: 32} to scenario"
        raise place.at("metrics").error(f"{GRADIENT} needs scenario.gradient", step)
    if is_described and not is_asked and DEFINITIONS.keys() >= set(request.metrics):  # an unknown one may be meant
        what = "no requested metric uses scenario.gradient"
        raise place.at("scenario", "gradient").error(what, f"add {GRADIENT} to metrics, or remove it")


def _check_network(request: RequestDocument, place: Place) -> None:
    """Check that a request has both the level network and its scenario, or neither, and parts that the batch has."""
    scenario, is_of_network = request.scenario, request.level == "network"
    if not isinstance(scenario, MicroBatch):
        if is_of_network:
            step = "write scenario: {name: micro_batch, batch: 256, parts: [1, 4, 16], warmup: 1, repeats: 10}"
            raise place.at("scenario", "name").error("the level network has the scenario micro_batch only", step)
        return
    if not is_of_network:
        raise place.error("the scenario micro_batch is of the level network", "add level: network")
    if request.trace is not UNSET:
        raise place.at("trace").error("a run of the level network has no trace", "remove it")
    repeats = getattr(scenario, "repeats", 0)
    if isinstance(repeats, int) and repeats > _MOST_REPEATS:
        what = f"{repeats} repeats are too many"
        raise place.at("scenario", "repeats").error(what, f"write at most {_MOST_REPEATS}")
    where, parts, batch = place.at("scenario", "parts"), getattr(scenario, "parts", ()), getattr(scenario, "batch", 0)
    if not isinstance(parts, tuple) or not isinstance(batch, int):
        return
    if list(parts) != sorted(set(parts)):
        raise where.error("the numbers of parts are not ascending, or one is repeated", "sort them, each once")
    if parts and batch and parts[-1] > batch:
        what = f"a batch of {scenario.batch} has no {scenario.parts[-1]} parts"
        raise where.error(what, f"write numbers of at most {scenario.batch}")


def _check_metric(name: str, scenario: str | None, place: Place) -> None:
    place.parsed(lambda text: check_metrics(None, scenario, [text]), name)


def _check_reproduction(request: TrainingRequestDocument, place: Place) -> None:
    """Check that a request states no margin but that of epochs. Whether it needs one is checked at lock time."""
    margins = set() if request.equivalence is UNSET else set(request.equivalence)
    if others := sorted(margins.intersection(request.metrics) - {EPOCHS}):
        raise place.at("equivalence", others[0]).error(f"{others[0]} decides nothing in a training", "remove it")


def _check_price(request: RequestDocument | TrainingRequestDocument, place: Place) -> None:
    cost = TRAINING_COST if isinstance(request, TrainingRequestDocument) else COST
    if cost in expand(request.metrics) and request.price is UNSET:
        step = "add price: {amount: 0.10, currency: USD, per: hour, date: 2026-11-20, source: a price list}"
        raise place.at("metrics").error(f"{cost} needs the price of the machine", step)
    if request.price is not UNSET and cost not in expand(request.metrics):
        raise place.at("price").error("no requested metric uses the price", f"add {cost} to metrics, or remove it")
    if request.price is not UNSET and isinstance(request.price.date, str):
        place.at("price", "date").parsed(_check_date, request.price.date)


def _check_date(text: str) -> None:
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(f"{text!r} is not a date", next_step="write it like 2026-11-20") from error


def _margins_of(request: AnyRequest) -> dict[str, float]:
    """Return the margins that a request states; that of a distributed training has none."""
    if isinstance(request, DistributedRequestDocument) or request.equivalence is UNSET:
        return {}
    return request.equivalence


def _check_equivalence(request: AnyRequest, place: Place, problems: Problems) -> None:
    for metric in _margins_of(request):
        with problems.noted():
            metrics = expand(request.metrics) if metric in DEFINITIONS else ()
            if metric not in metrics and DEFINITIONS.keys() >= set(
                metrics
            ):  # an unknown one may have been meant for it
                what = f"{metric} is not one of the requested metrics"
                raise place.at(metric).error(what, "write one of them, or add it to metrics")


def _check_margins(request: AnyRequest, place: Place, problems: Problems) -> None:
    for metric, margin in _margins_of(request).items():
        with problems.noted():
            if margin >= 1:
                raise place.at(metric).error(
                    f"the margin {margin:g} is not a fraction between 0 and 1", "write 0.1 for 10 %"
                )


def _drop_unknown_keys(value: Any, type_: type[HardwareRequirement | AcceleratorRequirement]) -> Any:  # noqa: ANN401 - unchecked until converted
    if not isinstance(value, dict):
        return value
    return {key: part for key, part in value.items() if key in type_.__struct_fields__}


def _check_platforms(hardware: HardwareRequirement, place: Place, problems: Problems) -> None:
    for key in KEYS:
        with problems.noted():
            allowed = _allowed_values(getattr(hardware, key)) or ()
            for index, text in enumerate(allowed):
                if text in allowed[:index]:
                    problems.add(place.at(key, index).error(f"duplicate {text!r}", "remove one of them"))


def _allowed_values(value: str | tuple[str, ...] | UnsetType) -> AllowedValues:
    if isinstance(value, UnsetType):
        return None
    return (value,) if isinstance(value, str) else value


def _check_conditions(hardware: HardwareRequirement, place: Place, problems: Problems) -> None:
    _check_texts(hardware, place, _HARDWARE_TEXTS, problems)
    if hardware.accelerator == AcceleratorRequirement():
        step = "write name, count, memory or driver"
        problems.add(place.at("accelerator").error("the accelerator has no condition", step))
    if hardware.accelerator is not UNSET and _allowed_values(hardware.device) == (CPU,):
        what = "an accelerator is requested, but cpu is the only device"
        step = "add its device to hardware.device, such as cuda12, or remove the accelerator"
        problems.add(place.at("accelerator").error(what, step))


def _conditions(hardware: HardwareRequirement) -> HostConditions:
    return HostConditions(
        cpus=1 if hardware.cpus is UNSET else hardware.cpus,
        memory=None if hardware.memory is UNSET else Amount.parse(hardware.memory),
        accelerator=None if hardware.accelerator is UNSET else _accelerator(hardware.accelerator),
    )


def _accelerator(requirement: str | AcceleratorRequirement) -> AcceleratorCondition:
    if isinstance(requirement, str):
        return AcceleratorCondition(requirement)
    return AcceleratorCondition(
        name=None if requirement.name is UNSET else requirement.name,
        count=1 if requirement.count is UNSET else requirement.count,
        memory=None if requirement.memory is UNSET else Amount.parse(requirement.memory),
        driver=None if requirement.driver is UNSET else parse_drivers(requirement.driver),
    )


def _limits(limits: RequestedLimits) -> Limits:
    return Limits(parse_seconds(limits.time), parse_bytes(limits.memory), limits.cpus, limits.processes)


def _scenario(scenario: AnyScenario | MicroBatch | PairedScenario | TimeToQuality | Steps) -> Scenario:
    settings: dict[str, Any] = plain(scenario)
    del settings["name"]
    for key in _DURATIONS:
        if key in settings:
            settings[key] = parse_seconds(settings[key])
    if isinstance(scenario, TimeToQuality):
        settings = {"repeats": scenario.repeats, "epochs": scenario.max.epochs, "deterministic": scenario.deterministic}
    return Scenario(scenario.name, _DEFAULTS.get(scenario.name, {}) | settings)
