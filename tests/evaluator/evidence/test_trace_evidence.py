"""The metrics of a trace, read back from its blob."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.trace_evidence import read_overheads
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.traces import write_trace


@dataclass(frozen=True, slots=True)
class TracedLock:
    """The part of a lock that decides about its trace."""

    request: dict[str, Any] = field(default_factory=lambda: {"trace": "model"})


def overheads(path: Path, level: str = "model", **stated: object) -> tuple[str, ...]:
    document = {"level": level, "calls": 200} | stated
    metrics = read_overheads(cast(Lock, TracedLock({"trace": level})), {"trace": path}, document)
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
    with pytest.raises(InvalidInputError, match="states 41 calls"):
        overheads(path, calls=41)
    with pytest.raises(InvalidInputError, match="it has the level model and the experiments none, model"):
        overheads(path, level="framework")
    path.write_bytes(b"no trace")
    with pytest.raises(InvalidInputError, match="not a safetensors file"):
        overheads(path)
