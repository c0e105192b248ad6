"""The metrics of a trace, read back from its blob."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.trace_evidence import read_overheads
from benchlock.evaluator.harness.tracing.trace_levels import EXPERIMENTS
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.evaluation_request import Limits
from tests.support.evaluator.traces import write_trace

LIMITS = Limits(time=300, memory=1 << 31, cpus=1, processes=256)


@dataclass(frozen=True, slots=True)
class TracedLock:
    """The part of a lock that decides about its trace."""

    request: dict[str, Any] = field(default_factory=lambda: {"trace": "model"})
    limits: Limits = LIMITS


def overheads(path: Path, level: str = "model", limits: Limits = LIMITS, **stated: object) -> tuple[str, ...]:
    sizes = {"none": 0, "model": 3, "framework": 9, "system": 3}
    rows = {name: sizes[name] for name in EXPERIMENTS.get(level, ())}
    document = {"level": level, "calls": 200, "rows": rows, "gaps": []} | stated
    metrics = read_overheads(cast(Lock, TracedLock({"trace": level}, limits)), {"trace": path}, document)
    return tuple(metric.name for metric in metrics)


def test_a_trace_gives_the_cost_of_its_level(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", levels=("none", "model"))
    assert overheads(path) == ("trace_overhead_model",)
    assert overheads(path, level="none") == ()
    full = write_trace(tmp_path / "full", levels=("none", "model", "framework", "system"))
    assert overheads(full, level="full") == tuple(
        f"trace_overhead_{level}" for level in ("model", "framework", "system")
    )


def test_a_trace_of_another_level_or_size_is_refused(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", levels=("none", "model"))
    with pytest.raises(InvalidInputError, match="no trace of the level model"):
        read_overheads(cast(Lock, TracedLock()), {"trace": path}, {"level": "full"})
    with pytest.raises(InvalidInputError, match="states calls 41"):
        overheads(path, calls=41)
    with pytest.raises(InvalidInputError, match=r"states rows \{'model': 4\}, but the trace has"):
        overheads(path, rows={"model": 4})
    with pytest.raises(InvalidInputError, match=r"states gaps \['system'\], but the trace has \[\]"):
        overheads(path, gaps=["system"])
    with pytest.raises(InvalidInputError, match="states color red, but the trace has None"):
        overheads(path, color="red")
    with pytest.raises(InvalidInputError, match="it has 1 threads, but the lock has 2 CPUs"):
        overheads(path, limits=replace(LIMITS, cpus=2))
    with pytest.raises(InvalidInputError, match="it has the level model and the experiments none, model"):
        overheads(path, level="framework")
    path.write_bytes(b"no trace")
    with pytest.raises(InvalidInputError, match="not a safetensors file"):
        overheads(path)
