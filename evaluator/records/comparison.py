"""Whether two runs may be held against each other: equal conditions, or the reasons why not."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchlock.evaluator.records.runs import Run
from benchlock.registry.lockfile import Lock

_SAME_HOST = ("cpu_model", "cpu_flags", "cores", "memory", "kernel", "governor", "accelerator", "driver")
_SAME_PLATFORM = ("os", "arch", "device")
_SEVERAL = ("limits", "definitions of metrics")
_NEVER_RUN = "has no result"


def host_differences(a: Run, b: Run) -> tuple[str, ...]:
    """Why times of the two runs say nothing about each other: other hosts, platforms or isolation."""
    return tuple(_host_differences(a, b))


def question_differences(a: Lock, b: Lock) -> tuple[str, ...]:
    """Why no run of the one lock could be compared with one of the other: they ask different questions."""
    return tuple(_question_differences(a, b))


def comparable(a: tuple[Lock, Run], b: tuple[Lock, Run]) -> tuple[str, ...]:
    """The reasons why figures of the two runs must not be compared; none if they may be.

    Models, frameworks and images may differ: that is what is compared. The question must not: dataset, split,
    scenario, limits, trace, definitions of metrics, harness; nor where and how it ran.
    """
    (lock_a, run_a), (lock_b, run_b) = a, b
    return (*_question_differences(lock_a, lock_b), *_results(run_a, run_b), *host_differences(run_a, run_b))


def describe_offered(metric: str, *scenarios: str) -> str | None:
    """Return why a throughput is no property of a model; None where it is one."""
    is_throughput = metric in ("throughput", "pipeline_throughput")
    return f"{metric} of `server` is the rate of arrival" if is_throughput and "server" in scenarios else None


def _results(*runs: Run) -> Iterator[str]:
    for run in runs:
        if run.end is None or run.end.outcome != "done":
            yield f"{run.id} {_NEVER_RUN}"


def _question_differences(a: Lock, b: Lock) -> Iterator[str]:
    parts: Mapping[str, tuple[Any, Any]] = {
        "dataset": ((a.dataset.digest, a.dataset.split), (b.dataset.digest, b.dataset.split)),
        "scenario": (a.scenario, b.scenario),
        "limits": (a.limits, b.limits),
        "definitions of metrics": (_shared(a, b), _shared(b, a)),
        "trace": (a.request.get("trace", "none"), b.request.get("trace", "none")),
        "harness": (a.harness.digest, b.harness.digest),
    }
    for name, (left, right) in parts.items():
        if left != right:
            yield f"the {name} {'differ' if name in _SEVERAL else 'differs'}"


def _shared(a: Lock, b: Lock) -> dict[str, int]:
    return {name: version for name, version in a.metrics.items() if name in b.metrics}


def _host_differences(a: Run, b: Run) -> Iterator[str]:
    if a.start.isolation != b.start.isolation:
        yield f"the isolation differs: {a.start.isolation}, {b.start.isolation}"
    for facts, left, right in (
        (_SAME_PLATFORM, a.start.platform, b.start.platform),
        (_SAME_HOST, a.start.host, b.start.host),
    ):
        for fact in facts:
            if left.get(fact) != right.get(fact):
                yield _difference(fact, left.get(fact), right.get(fact))


def _difference(fact: str, left: object, right: object) -> str:
    name = f"the host's {fact.replace('_', ' ')}"
    if isinstance(left, list) and isinstance(right, list):
        only = sorted(set(left) ^ set(right))
        return f"{name} differ in {', '.join(map(str, only[:8]))}{' and more' if len(only) > 8 else ''}"  # noqa: PLR2004 - a line's worth
    return f"{name} differs: {left}, {right}"
