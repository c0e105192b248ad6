"""The ``report`` command: the page that it writes, and what it refuses."""

import json
from pathlib import Path

import pytest

from benchlock.api.cli.main import run as run_command
from benchlock.api.local.local_registry import LocalRegistry, open_registry
from benchlock.evaluator.records.run_types import Run
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant


@pytest.fixture
def registry(tmp_path: Path) -> LocalRegistry:
    return open_registry(str(tmp_path / "registry"), print)


@pytest.fixture
def run(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> Run:
    made = variant({"lock": CURRENT, "files": IDX})
    release(monkeypatch, made.lock.harness)
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    return record(registry, made.lock)


def record(registry: LocalRegistry, lock: Lock) -> Run:
    made = make_run(lock, registry.store)
    assert made.end is not None
    registry.records.start(made.start)
    registry.records.finish(made.id, made.end)
    return made


def report(tmp_path: Path, *words: str) -> int:
    return run_command(
        ["--registry", str(tmp_path / "registry"), "--json", "report", *words, "-o", str(tmp_path / "out")]
    )


def test_the_command_prints_the_path_of_the_page(tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(tmp_path, run.id[:12], run.id, "--price", "0.10USD/h@2026-11-01") == 0
    output = capsys.readouterr().out
    answer = json.loads(output[output.index("{") :])
    assert answer["runs"] == [run.id]
    page = Path(answer["page"])
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert (page.parent / "figures" / "cost.png").is_file()


def test_a_run_with_damaged_evidence_is_refused(
    tmp_path: Path, registry: LocalRegistry, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.end is not None
    path = registry.store.path(run.end.blobs["samples"].digest)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert report(tmp_path, run.id) == 4
    assert "evidence" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_an_invalid_price_is_refused_before_anything_is_read(tmp_path: Path, run: Run) -> None:
    assert report(tmp_path, run.id, "--price", "0.10") == 2
