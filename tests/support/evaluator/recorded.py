"""Runs as records have them, with the figures that a test gives them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.evaluator.records.run_types import Isolation, Run, RunEnd, RunStart, new_run_id
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.registry.manifests.metric_definitions import DEFINITIONS

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOST: dict[str, Any] = {
    "cpu_model": "A CPU",
    "cpu_flags": ["avx2", "sse"],
    "cores": 2,
    "memory": 24 << 30,
    "kernel": "Linux 6.1",
    "governor": None,
    "engine": "Engine 27",
    "accelerator": None,
    "driver": None,
}
PLATFORM = {"os": "linux", "arch": "amd64", "device": "cpu", "python": "3.11"}
LOCK = digest_bytes(b"lock")


def metric(name: str, value: float, n: int = 1000) -> Metric:
    """A metric as its definition has it, without an interval."""
    definition = DEFINITIONS[name]
    return Metric(name, value, definition.unit, definition.direction, n, Interval(None, None), definition.version)


METRICS = (metric("top1", 0.751), metric("top5", 0.9), metric("latency_p50", 0.002))
DONE = RunEnd(outcome="done", ended_at=NOON + timedelta(minutes=1), metrics=METRICS)


def recorded(
    end: RunEnd | None = DONE,
    *,
    lock: Digest = LOCK,
    isolation: Isolation = "container",
    platform: dict[str, str] | None = None,
    **host: Any,  # noqa: ANN401 - facts of any type
) -> Run:
    """A run that ended so, on a host with these facts changed."""
    start = RunStart(
        id=new_run_id(NOON),
        lock=lock,
        attempt=1,
        isolation=isolation,
        platform=PLATFORM | (platform or {}),
        host=HOST | host,
        process={"pid": 1},
        started_at=NOON,
        image_id=digest_bytes(b"image"),
    )
    return Run(start, end)
