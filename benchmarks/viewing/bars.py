"""Bars, and whether they are met."""

import statistics
from collections.abc import Mapping, Sequence


def bar(title: str, value: float, most: float, *, unit: str = "", detail: str = "") -> str:
    """Return the line of a bar that ``value`` must not exceed."""
    return f"- {met(value <= most)}: {title} (at most {most:g}{unit}; {value:,.1f}{unit}{detail and f', {detail}'})"


def worst_bar(title: str, values: Mapping[str, float], most: float, *, unit: str = "") -> str:
    """Return the line of a bar that no value may exceed, and those that do, the largest first."""
    exceeding = sorted((name for name in values if values[name] > most), key=lambda name: -values[name])
    worst = max(values, key=lambda name: values[name])
    lines = [bar(title, values[worst], most, unit=unit, detail=worst)]
    lines += [f"  - {values[name]:,.1f}{unit}: {name}" for name in exceeding]
    return "\n".join(lines)


def least_bar(title: str, value: float, least: float, *, unit: str = " times") -> str:
    """Return the line of a bar that ``value`` must reach."""
    return f"- {met(value >= least)}: {title} (at least {least:g}{unit}; {value:,.1f}{unit})"


def met(is_met: object) -> str:
    """Return the verdict of a bar."""
    return "met" if is_met else "not met"


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile, between the values around it but never beyond the largest."""
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
