"""A registry with a few runs."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.evaluator.evidence.run_examination import ExaminedRecords, Examiner
from benchlock.evaluator.records.run_types import Run, RunEnd
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import CataloguedStore
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.resolution.resolver_types import ORDER
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.recorded import NOON
from tests.support.resolution.variants import variant


@pytest.fixture
def registry(database: Engine, tmp_path: Path) -> LocalRegistry:
    catalogue = Catalogue(database, lambda: NOON)
    store = CataloguedStore(tmp_path / "blobs", catalogue.text_of)
    examiner = Examiner(store, tmp_path, catalogue.get_lock)
    return LocalRegistry(tmp_path, store, catalogue, ExaminedRecords(database, examiner), database, examiner)


class Seeds:
    """Makes locks of models on one dataset, and runs of them."""

    def __init__(self, registry: LocalRegistry) -> None:
        self.registry, self.count = registry, 0

    def lock(self, name: str = "digits", **request: Any) -> Lock:  # noqa: ANN401 - keys of a request
        wanted = {"model": {"name": name, "version": "*"}} | request
        made = variant({"model": {"name": name}, "files": IDX, "lock": CURRENT, "request": wanted})
        kinds = ORDER if not list(self.registry.catalogue.locks()) else ("model",)
        made.publish(self.registry.catalogue, self.registry.store, kinds)
        self.registry.catalogue.put_lock(made.lock)
        return made.lock

    def run(self, lock: Lock, *, end: RunEnd | None = None, **options: Any) -> Run:  # noqa: ANN401 - options of make_run
        self.count += 1
        at = NOON + timedelta(minutes=5 * self.count)
        run = make_run(lock, self.registry.store, at=at, **options)
        self.registry.records.start(run.start)
        final = end or run.end
        assert final is not None
        self.registry.records.finish(run.id, final)
        return self.registry.records.get(run.id)


@pytest.fixture
def seeds(registry: LocalRegistry) -> Seeds:
    return Seeds(registry)
