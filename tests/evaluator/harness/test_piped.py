"""How the pipeline phase shares the processors between a model and the threads that prepare its samples."""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.harness.main import _threads
from evaluator.harness.performance.piped import Unit, Whole
from evaluator.harness.reports import Timings


class _Timed(Whole):
    """Work whose steps take CPU time by a clock of its own."""

    def __init__(self, stage: Any, clock: list[int], prepare: int, predict: int) -> None:  # noqa: ANN401 - a stub
        super().__init__(stage, 1, overlapped=True)
        self._clock, self._costs = clock, (prepare, predict)

    def _prepare(self, indices: Sequence[int]) -> Unit:
        self._clock[0] += self._costs[0] * len(indices)
        return Unit([], 0)

    def _answer(self, _unit: Unit) -> list[Any]:
        self._clock[0] += self._costs[1]
        return []


def _count(monkeypatch: pytest.MonkeyPatch, threads: int, prepare: int, predict: int) -> int:
    clock = [0]
    monkeypatch.setattr(time, "process_time_ns", lambda: clock[0])
    pipeline = SimpleNamespace(batch_size=lambda size: size, runs_code=False)
    session = SimpleNamespace(restart=lambda: None)
    job = SimpleNamespace(threads=threads)
    stage = SimpleNamespace(job=job, pipeline=pipeline, session=session, samples=[0], timings=Timings())
    return _Timed(stage, clock, prepare, predict).predicting_threads([[0], [1], [2]])


@pytest.mark.parametrize(
    ("threads", "prepare", "predict", "expected"),
    [(2, 30, 20, 1), (2, 20, 30, 2), (8, 30, 10, 2), (8, 0, 10, 8), (8, 10, 0, 1), (2, 0, 0, 1), (1, 5, 5, 1)],
)
def test_a_model_gets_the_threads_of_its_share_of_the_work(
    monkeypatch: pytest.MonkeyPatch, threads: int, prepare: int, predict: int, expected: int
) -> None:
    assert _count(monkeypatch, threads, prepare, predict) == expected


def test_thread_counts_of_the_pipeline_stand_beside_those_of_the_other_phases() -> None:
    reports: dict[str, Any] = {
        "accuracy": {"threads": {"intra": 2, "spinning": 0}},
        "performance": {"threads": {"intra": 2}},
        "pipeline": {"threads": {"intra": 1, "spinning": 0}},
        "score": {},
    }
    assert _threads(reports) == {"intra": 2, "pipeline.intra": 1, "pipeline.spinning": 0}
    del reports["pipeline"]
    assert _threads(reports) == {"intra": 2}
    assert _threads({}) == {}
