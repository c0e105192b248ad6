"""The digits example in every framework and format: published, locked, run in a container, run again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.api.commands import Commands

pytestmark = [pytest.mark.engine, pytest.mark.image]

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODELS = sorted(path.stem for path in (DIGITS / "models").glob("digits-*.yaml"))
SAMPLES, RIGHT = 359, 358


@pytest.fixture(scope="module")
def published(images: Commands) -> Commands:
    images.done("publish", DIGITS / "dataset.yaml", *(DIGITS / "models" / f"{model}.yaml" for model in MODELS))
    return images


@pytest.fixture(scope="module")
def decisions() -> dict[str, bytes]:
    """The class of every sample, by the model that was run."""
    return {}


@pytest.fixture(scope="module", params=MODELS)
def ran(
    request: pytest.FixtureRequest,
    published: Commands,
    decisions: dict[str, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, Any]]:
    """Each model's lock, and its run."""
    folder = tmp_path_factory.mktemp("locks")
    lock = folder / f"{request.param}.lock"
    published.done("lock", DIGITS / "requests" / f"{request.param}.yaml", "-o", lock)
    run = published.done("run", lock, "--isolation", "container")
    published.done("get", run["run"], "-o", folder / "run")
    (scores,) = load_file(folder / "run" / "predictions.safetensors").values()
    decisions[request.param] = np.argmax(scores.reshape(SAMPLES, -1), axis=1).tobytes()
    return lock, run


def test_a_model_is_as_right_in_a_container_as_its_claim_says(ran: tuple[Path, dict[str, Any]]) -> None:
    _, run = ran
    top1 = next(metric for metric in run["end"]["metrics"] if metric["name"] == "top1")
    assert (run["end"]["outcome"], run["start"]["isolation"]) == ("done", "container")
    assert (top1["n"], round(top1["value"] * top1["n"])) == (SAMPLES, RIGHT)


def test_every_metric_has_a_unit_an_n_and_an_interval(ran: tuple[Path, dict[str, Any]]) -> None:
    _, run = ran
    names = {metric["name"] for metric in run["end"]["metrics"]}
    assert names == {"top1", "top5", "latency_p50", "latency_p90", "latency_p99", "throughput"}
    for metric in run["end"]["metrics"]:
        low, high = metric["ci"]
        assert metric["unit"]
        assert metric["n"] >= SAMPLES
        # Of so few calls it may not be known how they depend on each other.
        assert low is None or low <= metric["value"]
        assert high is None or metric["value"] <= high


def test_a_rerun_is_bit_equal(ran: tuple[Path, dict[str, Any]], published: Commands) -> None:
    lock, run = ran
    verdict = published.done("rerun", lock, "--against", run["run"])
    assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict


@pytest.mark.usefixtures("ran")
def test_frameworks_decide_the_same(decisions: dict[str, bytes]) -> None:
    assert len(set(decisions.values())) == 1
