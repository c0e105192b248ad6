"""The runs of a registry, read only with the state of their evidence."""

from sqlalchemy import Engine

from artifacts.digest import Digest
from evaluator.evidence.examination import Examiner
from evaluator.records.records import Records
from evaluator.records.runs import Outcome, Run, RunId


class ExaminedRecords(Records):
    """Records whose runs carry the state of their evidence; figures that are not verified are withheld."""

    def __init__(self, engine: Engine, examiner: Examiner) -> None:
        super().__init__(engine)
        self._examiner = examiner

    def get(self, run: RunId) -> Run:
        return self._examiner.examine(super().get(run))

    def list(
        self,
        *,
        lock: Digest | None = None,
        outcome: Outcome | None = None,
        before: RunId | None = None,
        limit: int = 100,
    ) -> tuple[Run, ...]:
        return self._examiner.examine_list(super().list(lock=lock, outcome=outcome, before=before, limit=limit))
