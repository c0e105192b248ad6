"""The runs of a registry, read only with the state of their evidence."""

from collections.abc import Iterable

from sqlalchemy import Engine

from benchlock.evaluator.evidence.examination import Examiner
from benchlock.evaluator.records.records import Records
from benchlock.evaluator.records.runs import Run, RunId


class ExaminedRecords(Records):
    """Records whose runs carry the state of their evidence; figures that are not verified are withheld."""

    def __init__(self, engine: Engine, examiner: Examiner) -> None:
        super().__init__(engine)
        self._examiner = examiner

    def get(self, run: RunId) -> Run:
        return self._examiner.examine(super().get(run))

    def recall(self, run: RunId) -> Run | None:
        return self._examiner.recall(super().get(run))

    def _examine(self, runs: Iterable[Run]) -> Iterable[Run]:
        return self._examiner.examine_each(runs)
