"""Gates on runs that are made up: a baseline, and a candidate that is slower, worse or noisier."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.workflows.gate import GateResult, run_gate
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.recorded import DONE, metric, recorded
from tests.support.resolution.variants import variant

Once = Callable[[Lock, Mapping[str, Any]], Run]


def lock(name: str, **request: Any) -> Lock:  # noqa: ANN401 - keys of a request
    asked = {"model": {"name": name, "version": "*"}} | request
    return variant({"model": {"name": name}, "request": asked}).lock


A, B = lock("baseline"), lock("candidate")
MARGINS = {"latency_p50": 0.05, "top1": 0.01}
NOISE = (0.998, 1.001, 1.002, 0.999, 1.003, 0.997)


def bench(slowness: float = 1.0, top1: float = 0.75, noise: tuple[float, ...] = NOISE, **host: Any) -> Once:  # noqa: ANN401 - facts of a host
    """Runs of a baseline with a latency of 1 ms and a top1 of 0.75, and of a candidate that is slower by a factor."""

    def once(run_lock: Lock, part_of: Mapping[str, Any]) -> Run:
        is_candidate = part_of["arm"] == 1
        seconds = 0.001 * (slowness * noise[part_of["round"] - 1] if is_candidate else 1.0)
        metrics = (metric("top1", top1 if is_candidate else 0.75), metric("latency_p50", seconds))
        end = structs.replace(DONE, metrics=metrics, details={"part_of": dict(part_of)})
        return recorded(end, lock=run_lock.id, **(host if is_candidate else {}))

    return once


def gate(once: Once, margins: Mapping[str, float] = MARGINS, rounds: int | None = 6) -> GateResult:
    return run_gate((A, B), once, rounds, margins)
