"""Progress is reported beside the run: each task at once, its steps together, and again after a failure."""

import threading
import time
from collections.abc import Sequence

import pytest

from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.queue.queue_types import ProgressLine
from benchlock.evaluator.worker import progress_reports
from benchlock.evaluator.worker.progress_reports import ProgressReports


class Receiver:
    """Takes reports as a queue does, but is away for the first ones."""

    def __init__(self, failures: int) -> None:
        self.failures, self.lines = failures, dict[int, ProgressLine]()
        self.reached = threading.Event()

    def __call__(self, lines: Sequence[ProgressLine]) -> None:
        if self.failures:
            self.failures -= 1
            raise UnavailableError("the queue does not respond")
        for line in lines:
            self.lines.setdefault(line.number, line)
        if (last := lines[-1]).done == last.total and last.task == "accuracy":
            self.reached.set()


def test_no_task_and_no_last_step_is_lost_while_the_queue_is_away() -> None:
    receiver = Receiver(failures=1)
    with ProgressReports(SILENT, receiver) as reports:
        with reports.task("golden", 3) as advance:
            for _ in range(3):
                advance(1)
        with reports.task("a" * 200, None) as advance:
            advance(7)
        with reports.task("accuracy", 1000) as advance:
            for _ in range(1000):
                advance(1)
        assert receiver.reached.wait(60)
    lines = [receiver.lines[number] for number in sorted(receiver.lines)]
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) < 20  # steps that follow at once share a line
    last = {line.task: (line.done, line.total) for line in lines}
    (cut,) = (task for task in last if task.startswith("aaa"))
    assert len(cut) <= 64
    assert last == {"golden": (3, 3), cut: (7, None), "accuracy": (1000, 1000)}


def test_reports_are_rare_while_the_clock_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_reports, "STEP_SECONDS", 0.0)
    monkeypatch.setattr(progress_reports, "MEASURING_SECONDS", 3600.0)
    sent = threading.Semaphore(0)
    with (
        ProgressReports(SILENT, lambda _: sent.release(), lambda: "measuring") as reports,
        reports.task("performance", 100) as advance,
    ):
        assert sent.acquire(timeout=60)
        for _ in range(100):
            advance(1)
            time.sleep(0.002)  # long enough for a report if none had to wait
    assert not sent.acquire(blocking=False)
