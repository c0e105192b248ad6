"""Text of the resources that a run used, from the details of its record."""

from collections.abc import Mapping
from typing import Any, Final

_USAGE: Final = {
    "CPU utilization": "{cpu_utilization:.1%} of {cpus} CPUs, {cpu_seconds:.6g} CPU seconds",
    "page faults": "{minor_faults} minor, {major_faults} major",
    "context switches": "{voluntary_switches} voluntary, {involuntary_switches} involuntary",
    "bytes read": "{read_bytes}",
}
_DEVICE: Final = "{joules} J, {used_bytes} in use, utilization {utilization} at the end"


def describe_resources(details: Mapping[str, Any]) -> dict[str, str]:
    """Describe peak memory, the resources of the timed calls, and the energy, as far as the details have them."""
    usage, energy = _find(details, "performance", "resources"), _find(details, "energy")
    accelerators = _find(usage, "accelerators")
    devices = accelerators.get("devices")
    joules = ", ".join(f"{name} {_round(value)} J" for name, value in _find(energy, "joules").items())
    fields = {
        "peak memory": _format(_find(details, "resources", "peak_memory"), "{bytes} ({scope}, {source})"),
        **{name: _format(usage, template) for name, template in _USAGE.items()},
        "accelerators": "" if devices else _format(accelerators, "none"),
        **{
            f"accelerator {number}": _format(device, _DEVICE)
            for number, device in enumerate(devices if isinstance(devices, list | tuple) else ())
        },
        "energy": _format(energy, "{each} in {seconds:.6g} s ({source}, {scope})", each=joules),
    }
    return {name: text for name, text in fields.items() if text}


def _find(table: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        part = table.get(name)
        table = part if isinstance(part, Mapping) else {}
    return table


def _format(table: object, template: str, **others: str) -> str:
    """Return the template with the values of a part of a record; empty without the part."""
    if not isinstance(table, Mapping) or not table:
        return ""
    if "unavailable" in table:
        return f"unavailable: {table['unavailable']}"
    shown = {key: "-" if value is None else value for key, value in table.items()} | others
    shown |= {"joules": _round(table.get("joules"))}
    sizes = {
        key: f"{value / (1 << 20):.1f} MiB" for key, value in shown.items() if "bytes" in key and isinstance(value, int)
    }
    try:
        return template.format_map(shown | sizes)
    except (KeyError, TypeError, ValueError):
        return "unavailable"


def _round(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else "-" if value is None else value
