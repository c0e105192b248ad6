"""Requests as flat texts, as forms and addresses have them: written as documents, read back, and changed by fixes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from decimal import Decimal
from typing import Any, Final, get_args

from msgspec.structs import fields as struct_fields

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.requests.request_types import AnyScenario

LIMITS: Final = {"time": "1h", "memory": "4GiB", "cpus": "1", "processes": "256"}
"""The limits of a request that states none."""
SEED: Final = "7"
SCENARIOS: Final[Mapping[str, Any]] = {type_.name: type_ for type_ in get_args(AnyScenario)}
"""The types of scenarios by name."""
_FIELDS: Final = {name: struct_fields(type_) for name, type_ in SCENARIOS.items()}
SETTINGS: Final[Mapping[str, str]] = {
    "min_queries": "1000",
    "min_duration": "5s",
    "warmup": "8",
    "samples_per_query": "8",
    "target_qps": "10",
    "target_latency": "100ms",
    "min_samples": "1000",
    "batch": "1",
    "batches": "1, 2, 4, 8, 16, 32",
    "repeats": "10",
}
"""The settings of all scenarios, with the value of a request that states none."""
_TEXTS: Final = frozenset(("min_duration", "target_latency"))
_PLATFORM: Final = ("os", "arch", "device")
_HOST: Final = ("cpus", "memory")
_ACCELERATOR: Final = ("count", "memory", "driver")
_PRICE: Final = ("amount", "currency", "date", "source")
_NUMBERS: Final = frozenset(("cpus", "count", "amount"))
_PER: Final = "hour"
_FEWEST_DIGITS: Final = 18


LONGEST_FIELD: Final = 1024
"""The maximum number of characters of a field."""


@dataclass(frozen=True, slots=True)
class RequestFields:
    """A request as its user types it; an empty text takes the default.

    Attributes:
        task: Narrows the models that are offered; no part of the request.
        model: ``NAME`` or ``NAME@CONSTRAINT``; so are ``framework``, ``dataset`` and ``image``.
        os: Allowed values, with commas between them; so are ``arch`` and ``device``.
        accelerator: Words of its name; ``accelerator_*``, ``host_*`` and ``price_*`` are the keys below ``hardware``
            and ``price``.
        metrics: Names, with commas between them.
        usual: The metrics that the form itself ticked; see ``forget_usual``.
        equivalence: ``METRIC=MARGIN``, with commas between them.
        prereleases: Kinds, with commas between them.
        isolation: How a worker runs it; no part of the request either.
    """

    task: str = ""
    model: str = ""
    framework: str = ""
    dataset: str = ""
    split: str = ""
    image: str = ""
    os: str = ""
    arch: str = ""
    device: str = ""
    host_cpus: str = ""
    host_memory: str = ""
    accelerator: str = ""
    accelerator_count: str = ""
    accelerator_memory: str = ""
    accelerator_driver: str = ""
    scenario: str = ""
    min_queries: str = ""
    min_duration: str = ""
    warmup: str = ""
    samples_per_query: str = ""
    target_qps: str = ""
    target_latency: str = ""
    min_samples: str = ""
    batch: str = ""
    batches: str = ""
    repeats: str = ""
    metrics: str = ""
    usual: str = ""
    seed: str = ""
    time: str = ""
    memory: str = ""
    cpus: str = ""
    processes: str = ""
    trace: str = ""
    price_amount: str = ""
    price_currency: str = ""
    price_date: str = ""
    price_source: str = ""
    equivalence: str = ""
    prereleases: str = ""
    as_of: str = ""
    name: str = ""
    isolation: str = ""

    def as_parameters(self) -> dict[str, str]:
        """Return the texts that are not empty, by name."""
        return {name: text for name in self.__slots__ if (text := getattr(self, name))}

    @property
    def scenario_name(self) -> str:
        """The name of the scenario, which is ``single_stream`` if none is stated."""
        return self.scenario or "single_stream"


def forget_usual(fields: RequestFields) -> RequestFields:
    """Return the form without metrics that its user left as the form ticked them.

    They are then the usual ones of the next model and scenario, too.
    """
    is_usual = set(split_list(fields.metrics)) == set(split_list(fields.usual))
    return replace(fields, metrics="" if is_usual else fields.metrics, usual="")


def split_target(text: str) -> tuple[str, str]:
    """Return name and constraint of ``NAME@CONSTRAINT``; any version without a constraint."""
    name, _, constraint = text.partition("@")
    return name.strip(), constraint.strip() or "*"


def split_list(text: str) -> list[str]:
    """Return the parts between commas that are not empty."""
    return [part.strip() for part in text.split(",") if part.strip()]


def list_settings(scenario: str) -> tuple[str, ...]:
    """Return the settings of a scenario; none for an unknown one."""
    return tuple(field.name for field in _FIELDS.get(scenario, ()))


def write_document(fields: RequestFields, split: str, metrics: Iterable[str]) -> dict[str, Any]:
    """Return the request of a form as a document, with the defaults written out.

    Args:
        fields: The texts of the form.
        split: The split if the form states none.
        metrics: The metrics if the form states none.
    """
    (model, model_version), (dataset, dataset_version) = split_target(fields.model), split_target(fields.dataset)
    document: dict[str, Any] = {
        "schema": 1,
        "kind": "evaluation",
        "name": fields.name or f"{model}-on-{dataset}".replace("/", "-"),
        "model": {"name": model, "version": model_version},
        "dataset": {"name": dataset, "version": dataset_version, "split": fields.split or split},
    }
    if fields.framework and split_target(fields.framework)[1] != "*":
        document["framework"] = {"version": split_target(fields.framework)[1]}
    if fields.image:
        document["image"] = dict(zip(("name", "version"), split_target(fields.image), strict=True))
    if fields.prereleases:
        document["prereleases"] = split_list(fields.prereleases)
    limits = {key: getattr(fields, key) or default for key, default in LIMITS.items()}
    document |= {
        "hardware": _write_hardware(fields),
        "limits": {key: text if key in ("time", "memory") else _parse_number(text) for key, text in limits.items()},
        "scenario": {"name": fields.scenario_name, **_write_settings(fields)},
        "metrics": split_list(fields.metrics) or list(metrics),
    }
    if fields.trace:
        document["trace"] = fields.trace
    if price := _write_part(fields, "price", _PRICE):
        document["price"] = price | {"per": _PER}
    if fields.equivalence:
        margins = (part.partition("=") for part in split_list(fields.equivalence))
        document["equivalence"] = {metric.strip(): _parse_number(margin.strip()) for metric, _, margin in margins}
    document["seed"] = _parse_number(fields.seed or SEED)
    if fields.as_of:
        document["as_of"] = fields.as_of
    return document


def _write_hardware(fields: RequestFields) -> dict[str, Any]:
    """Return the platforms and the requirements on hosts that the form states."""
    allowed = {key: split_list(getattr(fields, key)) for key in _PLATFORM}
    hardware: dict[str, Any] = {key: one if len(one) > 1 else one[0] for key, one in allowed.items() if one}
    hardware |= _write_part(fields, "host", _HOST)
    accelerator = _write_part(fields, "accelerator", _ACCELERATOR)
    if accelerator:
        accelerator |= {"name": fields.accelerator} if fields.accelerator else {}
    return hardware | ({"accelerator": accelerator or fields.accelerator} if accelerator or fields.accelerator else {})


def _write_part(fields: RequestFields, prefix: str, keys: Iterable[str]) -> dict[str, Any]:
    """Return the values of the fields ``PREFIX_KEY`` that are not empty."""
    texts = {key: getattr(fields, f"{prefix}_{key}") for key in keys}
    return {key: _parse_number(text) if key in _NUMBERS else text for key, text in texts.items() if text}


def _write_settings(fields: RequestFields) -> dict[str, Any]:
    """Return the settings of the scenario; one that the scenario can do without is left out if none is stated."""
    settings: dict[str, Any] = {}
    for field in _FIELDS.get(fields.scenario_name, ()):
        text = getattr(fields, field.name) or (SETTINGS[field.name] if field.required else "")
        if field.name == "batches":
            settings[field.name] = [_parse_number(part) for part in split_list(text)]
        elif text:
            settings[field.name] = text if field.name in _TEXTS else _parse_number(text)
    return settings


def _parse_number(text: str) -> int | float | str:
    """Return the number that a text is; another text as it is, for the checks of requests to name."""
    if text.isascii() and text.isdecimal() and len(text) <= _FEWEST_DIGITS:
        return int(text)
    whole, point, part = text.partition(".")
    is_number = text.isascii() and point and whole.isdecimal() and part.isdecimal() and len(text) <= _FEWEST_DIGITS
    return float(text) if is_number else text


def read_document(document: Mapping[str, Any], framework: str) -> RequestFields:
    """Return the form of a valid request; the form writes an equal request.

    Args:
        document: The request.
        framework: The name of the framework, which a request does not state.
    """
    targets = {kind: document[kind] for kind in ("model", "dataset", "image") if kind in document}
    if "framework" in document:
        targets["framework"] = {"name": framework, **document["framework"]}
    hardware, scenario = document.get("hardware", {}), document.get("scenario", {})
    accelerator = hardware.get("accelerator", {})
    accelerator = {"name": accelerator} if isinstance(accelerator, str) else accelerator
    values = {
        **{kind: f"{target['name']}@{target['version']}" for kind, target in targets.items()},
        "split": document["dataset"]["split"],
        **{key: hardware.get(key) for key in _PLATFORM},
        **{f"host_{key}": hardware.get(key) for key in _HOST},
        "accelerator": accelerator.get("name"),
        **{f"accelerator_{key}": accelerator.get(key) for key in _ACCELERATOR},
        **{("scenario" if key == "name" else key): value for key, value in scenario.items()},
        **{f"price_{key}": document.get("price", {}).get(key) for key in _PRICE},
        "equivalence": [f"{metric}={_spell(margin)}" for metric, margin in document.get("equivalence", {}).items()],
        **document.get("limits", {}),
        **{key: document.get(key) for key in ("name", "metrics", "seed", "trace", "prereleases", "as_of")},
    }
    known = {field.name for field in fields_of(RequestFields)}  # a lock may have keys of a later version
    return RequestFields(**{key: _spell(value) for key, value in values.items() if key in known})


def _spell(value: str | float | Sequence[Any] | None) -> str:
    """Return a value of a request as a form has it."""
    if value is None or isinstance(value, str):
        return value or ""
    return f"{Decimal(str(value)):f}" if isinstance(value, int | float) else ", ".join(map(_spell, value))


def change_fields(fields: RequestFields, changes: Mapping[str, Any], gives: Mapping[str, str]) -> RequestFields:
    """Return the form with the changes of a fix.

    Args:
        fields: The form.
        changes: The new value of each changed field of the request.
        gives: The version of each kind that is then chosen, after its name.
    """
    values: dict[str, str] = {}
    for path, value in changes.items():
        kind, _, key = path.partition(".")
        if path == "hardware":
            values |= {name: value.get(name, "") for name in ("os", "arch", "device")}
        elif path == "prereleases":
            values[path] = ", ".join(value)
        elif key == "version":
            name = split_target(getattr(fields, kind))[0] or gives.get(kind, "").rpartition(" ")[0]
            values[kind] = name if value is None else f"{name}@{value}"
        else:
            values[kind] = "" if value is None else f"{value['name']}@{value['version']}"
    return replace(fields, **values)


def check_framework(fields: RequestFields, model: str, framework: str) -> None:
    """Require that the framework of the form is that of the chosen model.

    Args:
        fields: The form.
        model: The chosen model.
        framework: The name of the chosen framework.

    Raises:
        InvalidInputError: The model requires another framework.
    """
    name = split_target(fields.framework)[0] if fields.framework else ""
    if name and name != framework:
        raise InvalidInputError(
            f"{model} requires framework/{framework}, not framework/{name}",
            where="framework",
            next_step=f"choose framework {framework}, or a model for {name}",
        )
