"""What every phase that is timed begins with: the model, its samples, the calls that do not count."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from .. import predictors
from ..calling import Session
from ..datasets import Samples, open_samples
from ..failures import failing
from ..job import Job
from ..pipeline import Pipeline
from ..predictors import Place, Predictor
from ..reports import Timings

# LoadGen needs an estimate of a call, and counts its first query: something was called before, whatever is asked.
_FEWEST_WARMUP_CALLS = 3
# The estimate: the fastest of so many, since a slow one would let LoadGen run out of queries.
_MOST_ESTIMATES = 50
_SECONDS_OF_ESTIMATES = 0.02
_SPREAD = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """``phase`` is what progress and reports call it."""

    phase: str
    job: Job
    predictor: Predictor
    session: Session
    pipeline: Pipeline
    samples: Samples
    timings: Timings

    def report(self) -> dict[str, Any]:
        """What every phase says of how it ran."""
        return {
            "threads": dict(self.predictor.threads),
            "device": self.predictor.device,
            "timings": self.timings.seconds,
        }


def open_stage(phase: str, job: Job, folder: Path, *, shared: bool = False) -> Stage:
    """``shared``: other threads will prepare samples while the model predicts.

    Raises:
        Failure: ``load`` or ``out-of-memory``.
    """
    timings = Timings()
    with timings.of("load"):
        predictor = predictors.load(job.model, folder / "model", Place(job.threads, job.device, shared))
        session, pipeline = Session(predictor, job.model), Pipeline(job.model, folder / "model")
    return Stage(phase, job, predictor, session, pipeline, open_samples(job.dataset, folder / "dataset"), timings)


def warm_up(stage: Stage, ask: Callable[[], object]) -> list[int]:
    """Nanoseconds of each call, which are no samples."""
    with stage.timings.of("warmup"), failing("predict", "warm-up"):
        found = [timed(ask) for _ in range(max(stage.job.scenario.warmup, _FEWEST_WARMUP_CALLS))]
    stage.session.restart()
    return found


def spread(stage: Stage) -> list[int]:
    """Some samples from all over the split: what is true of one need not be true of those of another size."""
    last = len(stage.samples) - 1
    return sorted({round(place * last / (_SPREAD - 1)) for place in range(_SPREAD)})


def estimate(stage: Stage, asks: Sequence[Callable[[], object]]) -> float:
    """Seconds that the fastest of ``asks`` takes at its fastest."""
    found: list[int] = []
    several = cycle(asks)
    with stage.timings.of("estimate"), failing("predict", "warm-up"):
        end = time.perf_counter() + _SECONDS_OF_ESTIMATES
        while len(found) < len(asks) or (len(found) < _MOST_ESTIMATES and time.perf_counter() < end):
            found.append(timed(next(several)))
    stage.session.restart()
    return max(1, min(found)) / 1e9


def timed(ask: Callable[[], object]) -> int:
    """Nanoseconds of one call."""
    start = time.perf_counter_ns()
    answer = ask()
    stop = time.perf_counter_ns()
    del answer
    return stop - start
