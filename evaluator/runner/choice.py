"""What a run on this host is: which of the lock's platforms, in a container or as a process."""

from msgspec import UNSET

from artifacts.errors import UnavailableError
from evaluator.records.runs import Isolation
from evaluator.runner.engine import Engine
from evaluator.runner.host import Host
from registry.lockfile import Lock, LockedPlatform
from registry.manifests import Model
from registry.quantities import parse_bytes


def choose_platform(lock: Lock, host: Host) -> LockedPlatform:
    """The first of the lock's platforms that this host offers.

    Raises:
        UnavailableError: none, or the host has less than the request asks of hardware.
    """
    platforms = lock.image.platforms
    fitting = [one for one in platforms if (one.os, one.arch) == (host.os, host.arch) and one.device in host.devices]
    if not fitting:
        offered = ", ".join(f"{host.os}/{host.arch}/{device}" for device in host.devices)
        raise UnavailableError(
            f"no platform of the lock fits this host: the lock has {', '.join(map(str, platforms))}; here is {offered}",
            where="image.platforms",
            next_step="run on such a host, or lock a request whose hardware is this one's",
        )
    _check_hardware(lock, host)
    return fitting[0]


def choose_isolation(
    asked: Isolation | None, platform: LockedPlatform, engine: Engine | None
) -> tuple[Isolation, str | None]:
    """What was asked; without that a container if the image has layers and an engine answers, else a process.

    The second is what to say of a choice that was not asked for, None where there is nothing to say.

    Raises:
        UnavailableError: a container was asked for, and cannot be had.
    """
    why_not = None
    if platform.layers is UNSET or platform.image_id is UNSET:
        why_not = "the image has no layers"
    elif engine is None:
        why_not = "no container engine answers"
    if asked == "process":
        return "process", None
    if why_not is None:
        return "container", None
    if asked == "container":
        raise UnavailableError(
            f"the lock cannot run in a container: {why_not}",
            where=str(platform),
            next_step="start an engine (DOCKER_HOST names another than the system's), or use --isolation process",
        )
    return "process", (
        f"running as a process, since {why_not}: limits of memory, processes and network are not enforced, and its "
        "times are not comparable with a container's"
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
            next_step="start a container engine",
        )
    carried = _code(model)
    if carried and not allow_code:
        raise UnavailableError(
            f"the model carries code ({carried}), which runs in a container",
            next_step="start a container engine, or allow it as a process with --allow-code if you trust its author",
        )


def _code(model: Model) -> str | None:
    """Where the model's code is called from."""
    if model.code is not UNSET:
        return "code"
    for kind, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
        for index, port in enumerate(ports):
            steps = getattr(port, "steps", UNSET)
            for number, step in enumerate(() if steps is UNSET else steps):
                if step.name == "python":
                    return f"{kind}[{index}].steps[{number}].python"
    return None


def _check_hardware(lock: Lock, host: Host) -> None:
    asked = lock.request.get("hardware", {})
    memory = parse_bytes(asked["memory"]) if "memory" in asked else 0
    wanting = []
    if asked.get("cpus", 0) > len(host.cpus):
        wanting.append(f"{asked['cpus']} CPUs, here are {len(host.cpus)}")
    if memory > host.memory:
        wanting.append(f"{asked['memory']} of memory, here are {host.memory} bytes")
    if "accelerator" in asked and (host.accelerator is None or asked["accelerator"] not in host.accelerator.name):
        wanting.append(f"the accelerator {asked['accelerator']}, here is {host.accelerator or 'none'}")
    if wanting:
        raise UnavailableError(
            f"the request asks for {'; '.join(wanting)}", where="request.hardware", next_step="run on such a host"
        )
