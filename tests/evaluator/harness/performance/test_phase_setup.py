"""Prepared samples, put together as calls take them before the clock starts, so that nothing is copied meanwhile."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.core.phase_reports import Timings
from benchlock.evaluator.harness.datasets import open_samples
from benchlock.evaluator.harness.inference.model_session import Session
from benchlock.evaluator.harness.inference.pipeline import Pipeline
from benchlock.evaluator.harness.performance.phase_setup import PreparedSamples, Stage
from tests.evaluator.harness.conftest import write_job
from tests.evaluator.harness.predictors.linear import Linear

LOADED = 10
BATCHES = pytest.mark.parametrize("fixed", [False, True])


@pytest.fixture
def stage(job: dict[str, Any], fixed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A model that takes batches of four, or of any size."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    if fixed:
        job["model"]["inputs"][0] |= {"shape": [4, 1, 8, 12], "batch_axis": 0}
    write_job(tmp_path, job)
    parsed = parse_job(job)
    predictor = Linear(tmp_path / "model" / "weights.npz")
    pipeline, samples = Pipeline(parsed.model, tmp_path / "model"), open_samples(parsed.dataset, tmp_path / "dataset")
    return Stage("performance", parsed, predictor, Session(predictor, parsed.model), pipeline, samples, Timings())


def stacked(stage: Stage, indices: list[int]) -> NDArray[Any]:
    """What a call takes of these samples."""
    calls = [stage.pipeline.prepare(stage.samples, index).calls[0] for index in indices]
    return stage.pipeline.stack(calls)["picture"]


def loaded(stage: Stage, per_unit: int) -> PreparedSamples:
    found = PreparedSamples(stage, per_unit)
    found.load(range(LOADED))
    return found


@BATCHES
def test_a_batch_of_neighbours_is_a_piece_of_the_loaded_memory(stage: Stage) -> None:
    found = loaded(stage, 4)
    units = [found.gather(range(start, start + 4)) for start in (0, 4, 2)]
    for start, unit in zip((0, 4, 2), units, strict=True):
        np.testing.assert_array_equal(unit["picture"], stacked(stage, list(range(start, start + 4))))
    assert np.shares_memory(units[0]["picture"], units[2]["picture"])  # no copies: they overlap


@BATCHES
def test_the_rest_of_a_split_and_samples_that_are_no_neighbours_are_put_together(stage: Stage, fixed: bool) -> None:
    found = loaded(stage, 4)
    for indices in ([8, 9], [8, 9, 0, 1], [9]):
        unit = found.gather(indices)
        assert len(unit["picture"]) == (4 if fixed else len(indices))
        np.testing.assert_array_equal(unit["picture"], stacked(stage, indices))
        assert len(found.predictions(len(indices), found.ask(unit))) == len(indices)


@BATCHES
def test_a_query_of_more_samples_than_a_batch_is_several_calls(stage: Stage, fixed: bool) -> None:
    found = loaded(stage, 7)
    unit = found.gather(range(1, 8))
    calls = unit if fixed else [unit]
    expected = [[1, 2, 3, 4], [5, 6, 7]] if fixed else [list(range(1, 8))]
    for call, indices in zip(calls, expected, strict=True):
        np.testing.assert_array_equal(call["picture"], stacked(stage, indices))
    assert len(found.predictions(7, found.ask(unit))) == 7


@BATCHES
def test_one_sample_fills_a_fixed_batch_before_it_is_asked_for(stage: Stage) -> None:
    found = loaded(stage, 1)
    first, again = found.gather([3]), found.gather([3])
    np.testing.assert_array_equal(first["picture"], stacked(stage, [3]))
    assert np.shares_memory(first["picture"], again["picture"])
