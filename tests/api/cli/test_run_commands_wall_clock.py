"""``run`` accounts for the wall clock that its user saw, as text and as JSON."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from benchlock.api.cli import run_commands
from benchlock.api.cli.output import VERBOSE, settings
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.runner.wall_clock import WallClock, process_start
from tests.api.cli.test_run_tables import LOCK
from tests.api.cli.test_run_tables import run as recorded_run


def _invoke(monkeypatch: pytest.MonkeyPatch, *, as_json: bool) -> str:
    class Runner:
        def __init__(self, *_words: object) -> None:
            pass

        def run(self, _lock: object, *, clock: WallClock, **_options: object) -> Run:
            with clock.part("predict"):
                time.sleep(0.05)
            clock.move("predict", "predict.start", 0.01)
            return recorded_run()

    monkeypatch.setattr(run_commands, "LockRunner", Runner)
    monkeypatch.setattr(run_commands, "read_lock", lambda *_words: LOCK)
    monkeypatch.setattr(run_commands, "judge_claims", lambda *_words: ())
    monkeypatch.setattr(run_commands, "find_warnings", lambda *_words: ())
    invocation: Any = SimpleNamespace(as_json=as_json, opened=None, progress=None)
    result = CliRunner().invoke(run_commands.run, ["x.lock"], obj=invocation, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_parts_add_up_to_what_passed_since_the_process_started(monkeypatch: pytest.MonkeyPatch) -> None:
    age = time.perf_counter() - process_start()
    wall = json.loads(_invoke(monkeypatch, as_json=True))["wall"]
    assert set(wall["parts"]) == {"startup", "registry", "predict", "predict.start", "claims", "other"}
    assert wall["seconds"] == pytest.approx(sum(wall["parts"].values()))
    assert wall["seconds"] >= wall["parts"]["startup"] + 0.05
    assert wall["parts"]["startup"] >= 0.9 * age


def test_a_person_gets_the_sum_and_with_verbose_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _invoke(monkeypatch, as_json=False).splitlines()[-1].startswith("wall clock: ")
    monkeypatch.setattr(settings, "verbosity", VERBOSE)
    lines = _invoke(monkeypatch, as_json=False).splitlines()
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("wall clock: ")) :]
    assert [line.split("  ")[1].strip() for line in table[1:]] == [
        "startup",
        "registry",
        "predict",
        "predict: start",
        "claims",
        "other",
    ]
