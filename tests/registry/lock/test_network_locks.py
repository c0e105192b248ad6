"""Locks of the level network: their schema, and models and splits that cannot be computed in parts."""

from dataclasses import replace
from typing import Any

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.lock.lock_feasibility import check_answerable
from benchlock.registry.requests.evaluation_request import Request
from tests.registry.lock.test_split_checks import model
from tests.support.resolution.locks import request, shelf

SCENARIO = "{{name: micro_batch, batch: {batch}, parts: [1, 2], warmup: 0, repeats: 1}}"


def ask(batch: int = 2) -> Request:
    return request(level="network", scenario=SCENARIO.format(batch=batch), metrics="[peak_memory]")


def test_a_model_with_a_dynamic_batch_axis_is_accepted() -> None:
    check_answerable(ask(), shelf().chosen)


@pytest.mark.parametrize(
    "of_input",
    [
        {"shape": (1, 8, 8, 1), "batch_axis": 0},
        {"shape": (8, 8, 8, 1), "batch_axis": 0},
        {"shape": (8, 8, 1), "batch_axis": "none"},
    ],
)
def test_a_model_with_a_fixed_batch_is_refused(of_input: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="does not take batches of any size") as caught:
        check_answerable(ask(), replace(shelf().chosen, model=model(**of_input)))
    assert caught.value.where == "scenario.name"


def test_a_batch_of_more_samples_than_the_split_is_refused() -> None:
    samples = shelf().chosen.dataset.splits["test"].samples
    check_answerable(ask(samples), shelf().chosen)
    with pytest.raises(InvalidInputError, match=f"the split has {samples} samples") as caught:
        check_answerable(ask(samples + 1), shelf().chosen)
    assert caught.value.where == "scenario.batch"


def test_a_lock_has_the_schema_of_levels_and_the_metrics_by_version() -> None:
    lock = shelf().lock(ask())
    assert lock.schema == "1.1"
    assert lock.request["level"] == "network"
    assert lock.metrics == {"peak_memory": 1}
    assert {name: lock.scenario[name] for name in ("name", "batch", "warmup", "repeats")} == {
        "name": "micro_batch",
        "batch": 2,
        "warmup": 0,
        "repeats": 1,
    }
    assert list(lock.scenario["parts"]) == [1, 2]
