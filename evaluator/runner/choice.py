"""What a run on this host is: which of the lock's platforms, in a container or as a process."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from msgspec import UNSET

from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.plurals import count_of
from benchlock.evaluator.records.runs import Isolation
from benchlock.evaluator.runner.engine import Engine
from benchlock.registry.hosts import CPU, HostConditions, HostFacts, allotted, unfit
from benchlock.registry.lockfile import Lock, LockedPlatform
from benchlock.registry.manifests import Model
from benchlock.registry.quantities import spell_bytes
from benchlock.registry.requests import conditions_of

_NO_ENGINE = "no container engine answers"
_WITH_ENGINE = "start Docker (DOCKER_HOST names another engine than the system's)"
_WITH_LAYERS = "build the image without --no-layers and lock it"

DRIVEN = frozenset((CPU, "cuda12"))
"""The devices on which the harness's predictors run a model, or say that they cannot."""

_EXPORTED = "torch-export"
"""A format that is code: ``torch.export.load`` evaluates the guards and sizes of a program as Python."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The platform that runs. ``word`` is what to say of the choice, ``None`` where the lock left none.

    ``accelerators`` are those that the run gets, as positions in the host's list.
    """

    platform: LockedPlatform
    word: str | None = None
    accelerators: tuple[int, ...] = ()


def choose_platform(
    lock: Lock, host: HostFacts, original: str | None = None, *, driven: Collection[str] = DRIVEN
) -> Choice:
    """The platform of the lock that runs on ``host``: of those that fit, ``original`` if it is one, else the first.

    An accelerator comes before the CPU, then devices go by name. ``original`` is the platform of the run that this one
    repeats; ``driven`` are the devices on which models can be run.

    Raises:
        UnavailableError: none fits; it says for each why not.
        InvalidInputError: the lock asks of hosts in a form that is not understood.
    """
    conditions = conditions_of(lock.request)
    reasons = {one: _reasons(one, conditions, host, driven) for one in sorted(lock.image.platforms, key=_precedence)}
    fitting = [one for one, why_not in reasons.items() if not why_not]
    if not fitting:
        lines = (f"{one}: {'; '.join(why_not)}" for one, why_not in reasons.items())
        has = f"{host.platform}/{CPU}, {count_of(host.cpus, 'CPU')}, {spell_bytes(host.memory)} of memory"
        raise UnavailableError(
            "\n  ".join(("no platform of the lock fits this host:", *lines)),
            where="image.platforms",
            next_step=f"run on a host that fits, or ask in a request for what this one has: {has}",
        )
    chosen = next((one for one in fitting if str(one) == original), fitting[0])
    return Choice(chosen, _word(chosen, reasons, host, original), allotted(chosen.device, conditions, host))


def _precedence(platform: LockedPlatform) -> tuple[bool, str]:
    return (platform.device == CPU, platform.device)


def _reasons(
    platform: LockedPlatform, conditions: HostConditions, host: HostFacts, driven: Collection[str]
) -> tuple[str, ...]:
    found = unfit((platform.os, platform.arch, platform.device), conditions, host)
    if found or platform.device in driven:
        return found
    return (f"running on the device {platform.device} is not built yet",)


def _word(
    chosen: LockedPlatform, reasons: Mapping[LockedPlatform, tuple[str, ...]], host: HostFacts, original: str | None
) -> str | None:
    """Why this one, as far as the others are of hosts like this one, or the original is another."""
    others = {
        str(one): "; ".join(why_not) or "fits too"
        for one, why_not in reasons.items()
        if one is not chosen and (str(one) == original or (one.os, one.arch) == (host.os, host.arch))
    }
    if not others:
        return None
    return "\n  ".join((f"running on {chosen}; the lock also has", *map(": ".join, others.items())))


def choose_isolation(
    asked: Isolation | None, platform: LockedPlatform, engine: Engine | None
) -> tuple[Isolation, str | None]:
    """What was asked; without that a container if the image has layers and an engine answers, else a process.

    The second is what to say of a choice that was not asked for, None where there is nothing to say.

    Raises:
        UnavailableError: a container was asked for, and cannot be had.
    """
    if platform.finished:
        return _only_container(asked, platform, engine)
    lacking: dict[str, str] = {}
    if platform.layers is UNSET or platform.image_id is UNSET:
        lacking["the image has no layers"] = _WITH_LAYERS
    if engine is None:
        lacking[_NO_ENGINE] = _WITH_ENGINE
    if asked == "process":
        return "process", None
    if not lacking:
        return "container", None
    why_not = ", and ".join(lacking)
    if asked == "container":
        raise UnavailableError(
            f"the lock cannot run in a container: {why_not}",
            where=str(platform),
            next_step=f"{'; '.join(lacking.values())}; or use --isolation process",
        )
    return "process", (
        f"running as a process, since {why_not}: limits of memory, processes and network are not enforced, and its "
        "times are not comparable with a container's"
    )


def _only_container(asked: Isolation | None, platform: LockedPlatform, engine: Engine | None) -> tuple[Isolation, None]:
    """A finished image is known by its layers: nobody knows of which wheels a process would be made."""
    if engine is not None and asked != "process":
        return "container", None
    why_not = _NO_ENGINE if engine is None else "a process cannot be made of it"
    raise UnavailableError(
        f"the lock names a finished image, which runs in a container alone: {why_not}",
        where=f"{platform}: {platform.reference}",
        next_step=f"{_WITH_ENGINE}, and leave out --isolation process",
    )


def check_code(model: Model, isolation: Isolation, *, allow_code: bool) -> None:
    """Code that travels with a model runs in a container, or where it was allowed.

    Raises:
        UnavailableError: it would run as a process.
    """
    if isolation == "container":
        return
    if model.unsafe is True:
        raise UnavailableError(
            "the model's files execute code when they are read (unsafe: true): it runs in a container alone",
            next_step=_WITH_ENGINE,
        )
    carried = _code(model)
    if carried and not allow_code:
        raise UnavailableError(
            f"the model carries code ({carried}), which runs in a container",
            next_step=f"{_WITH_ENGINE}, or allow it as a process with --allow-code if you trust its author",
        )


def carries_code(model: Model) -> bool:
    """Whether code travels with the model, which runs with it."""
    return model.unsafe is True or _code(model) is not None


def is_confined(model: Model, *, allow_code: bool) -> bool:
    """Whether the model runs in a container alone."""
    return model.unsafe is True or (_code(model) is not None and not allow_code)


def _code(model: Model) -> str | None:
    """Where the model's code is called from."""
    return _attached_code(model) or (f"format: {_EXPORTED}" if model.format == _EXPORTED else None)


def is_code_by_format(model: Model) -> bool:
    """Return whether the model is code for its format alone: earlier builds recorded no mark on its figures."""
    return carries_code(model) and model.unsafe is not True and _attached_code(model) is None


def _attached_code(model: Model) -> str | None:
    if model.code is not UNSET:
        return "code"
    for kind, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
        for index, port in enumerate(ports):
            steps = getattr(port, "steps", UNSET)
            for number, step in enumerate(() if steps is UNSET else steps):
                if step.name == "python":
                    return f"{kind}[{index}].steps[{number}].python"
    return None
