"""A verified run in a registry, as exports get it, and the same run with hostile text."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from benchlock.api.export.exported_run import ExportedRun, export_run
from benchlock.api.local.local_registry import LocalRegistry, open_registry
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.records.run_types import Run
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

NASTY = '=HYPERLINK("http://evil")|`x`<script>&"\u202e\n---\n@everyone'
"""Text that each of the formats could execute: a formula, cells, markup, HTML, marks of direction, lines, a mention."""


@pytest.fixture
def registry(tmp_path: Path) -> LocalRegistry:
    return open_registry(str(tmp_path / "registry"), print)


@pytest.fixture
def lock(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> Lock:
    made = variant({"lock": CURRENT, "files": IDX})
    release(monkeypatch, made.lock.harness)
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    return made.lock


@pytest.fixture
def run(registry: LocalRegistry, lock: Lock) -> Run:
    """A recorded run, as the registry returns it after comparing it with its evidence."""
    made = make_run(lock, registry.store)
    assert made.end is not None
    registry.records.start(made.start)
    registry.records.finish(made.id, made.end)
    return registry.records.get(made.id)


@pytest.fixture
def exported(run: Run, lock: Lock, registry: LocalRegistry) -> ExportedRun:
    return export_run(run, lock, registry.store, SILENT)


@pytest.fixture
def nasty(exported: ExportedRun) -> ExportedRun:
    """The run with hostile text wherever a lock, a manifest, a host or a log has text."""
    metrics = tuple(replace(metric, notes=(NASTY,)) for metric in exported.metrics)
    return replace(
        exported,
        artifacts={kind: replace(one, name=NASTY, version=NASTY) for kind, one in exported.artifacts.items()},
        split=NASTY,
        cpu_model=NASTY,
        accelerator=NASTY,
        scenario=NASTY,
        metrics=metrics,
    )
