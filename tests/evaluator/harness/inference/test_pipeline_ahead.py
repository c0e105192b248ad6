"""Work done ahead: in order, bounded, and truly ahead."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from benchlock.evaluator.harness.inference.pipeline import Prefetcher, count_prefetch_threads
from benchlock.evaluator.harness.performance.pipeline_timing import PipelineUnits

WAIT = 30


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_results_come_in_order_whatever_thread_was_first(threads: int) -> None:
    later = threading.Event()

    def make(number: int) -> int:
        if number == 1:
            later.set()
        if number == 0 and threads > 1:
            assert later.wait(WAIT), "the second is begun while the first is not done"
        return number

    assert list(Prefetcher(make, 9, threads, 4)) == list(range(9))


def test_the_next_is_made_while_the_caller_is_busy() -> None:
    second = threading.Event()

    def make(number: int) -> int:
        if number == 1:
            second.set()
        return number

    found = iter(Prefetcher(make, 3, 2, 2))
    assert next(found) == 0
    assert second.wait(WAIT), "nobody asked for it yet"


def test_the_caller_makes_results_too_while_its_next_one_is_not_ready() -> None:
    together = threading.Barrier(2)

    def make(_number: int) -> threading.Thread:
        together.wait(WAIT)
        return threading.current_thread()

    makers = list(Prefetcher(make, 8, 2, 4))
    assert makers.count(threading.current_thread()) == 4


def test_without_threads_everything_is_made_by_the_caller_when_it_is_asked_for() -> None:
    made: list[tuple[int, threading.Thread]] = []
    found = iter(Prefetcher(lambda number: made.append((number, threading.current_thread())), 3, 0, 4))
    next(found)
    assert made == [(0, threading.current_thread())]


@pytest.mark.parametrize(("threads", "depth", "most"), [(1, 3, 3), (2, 5, 5), (4, 1, 4)])
def test_no_more_is_begun_than_the_depth(threads: int, depth: int, most: int) -> None:
    begun: list[int] = []

    def make(number: int) -> int:
        begun.append(number)
        return number

    ahead = Prefetcher(make, 40, threads, depth)
    for taken, number in enumerate(ahead):
        assert number == taken
        assert len(begun) <= taken + most


def test_an_error_is_raised_in_its_place_and_ends_the_work() -> None:
    begun = []

    def make(number: int) -> int:
        begun.append(number)
        if number == 2:
            raise ValueError("the third")
        return number

    found = iter(Prefetcher(make, 1000, 2, 4))
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(ValueError, match="the third"):
        next(found)
    assert len(begun) <= 6
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_who_stops_early_leaves_no_thread_behind() -> None:
    found = iter(Prefetcher(lambda number: number, 1000, 2, 4))
    next(found)
    found.close()  # type: ignore[attr-defined] # it is a generator
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_seconds_are_told_apart() -> None:
    gate = threading.Event()
    ahead = Prefetcher(lambda _number: gate.wait(WAIT), 2, 2, 2)
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(list, ahead)
        gate.set()
        taken.result(WAIT)
    assert ahead.busy > 0
    assert ahead.waited > 0


@pytest.mark.parametrize(
    ("cpus", "device", "threads"), [(1, "cpu", 0), (1, "cuda12", 0), (2, "cpu", 2), (2, "cuda12", 3)]
)
def test_the_caller_counts_as_a_thread_that_prepares_unless_it_waits_for_an_accelerator(
    cpus: int, device: str, threads: int
) -> None:
    job: Any = SimpleNamespace(threads=cpus, device=device)
    pipeline: Any = SimpleNamespace(runs_code=False)
    assert count_prefetch_threads(pipeline, job) == threads
    pipeline.batch_size = lambda size: size
    stage: Any = SimpleNamespace(pipeline=pipeline, job=job, samples=())
    assert PipelineUnits(stage, 4, overlapped=True).workers == threads
    assert PipelineUnits(stage, 4, overlapped=False).workers == min(threads, cpus), "the caller only waits for them"
    pipeline.runs_code = True
    assert count_prefetch_threads(pipeline, job) == 0
