"""The digits example in every framework and format: published, locked, run in a container; some are run again."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.api.commands import Commands

pytestmark = [pytest.mark.engine, pytest.mark.image]

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODELS = sorted(path.stem for path in (DIGITS / "models").glob("digits-*.yaml"))
TIMED = ("digits-litert", "digits-onnx", "digits-savedmodel", "digits-torchscript")
"""One model of each framework, whose request is the example's; the others are not timed."""
UNTIMED = {
    "{name: single_stream, min_queries: 662, min_duration: 1s, warmup: 8}": "{name: accuracy, batch: 1, warmup: 8}",
    "[top1, top5, latency, throughput]": "[top1, top5]",
}
SAMPLES, RIGHT = 359, 358


@dataclass(frozen=True, slots=True)
class Ran:
    """A lock, its run, and the class of every sample."""

    lock: Path
    run: dict[str, Any]
    classes: bytes


@pytest.fixture(scope="module")
def published(images: Commands) -> Commands:
    images.done("publish", DIGITS / "dataset.yaml", *(DIGITS / "models" / f"{model}.yaml" for model in MODELS))
    return images


@pytest.fixture(scope="module")
def ran(published: Commands, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """Lock and run a model, once."""
    folder = tmp_path_factory.mktemp("locks")

    @cache
    def run_model(name: str) -> Ran:
        text = (DIGITS / "requests" / f"{name}.yaml").read_text()
        for old, new in {} if name in TIMED else UNTIMED.items():
            assert old in text
            text = text.replace(old, new)
        request, lock = folder / f"{name}.yaml", folder / f"{name}.lock"
        request.write_text(text)
        published.done("lock", request, "-o", lock)
        run = published.done("run", lock, "--isolation", "container")
        published.done("get", run["run"], "-o", folder / name)
        (scores,) = load_file(folder / name / "predictions.safetensors").values()
        return Ran(lock, run, np.argmax(scores.reshape(SAMPLES, -1), axis=1).tobytes())

    return run_model


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_as_right_in_a_container_as_its_claim_says(ran: Callable[[str], Ran], name: str) -> None:
    run = ran(name).run
    top1 = next(metric for metric in run["end"]["metrics"] if metric["name"] == "top1")
    assert (run["end"]["outcome"], run["start"]["isolation"]) == ("done", "container")
    assert (top1["n"], round(top1["value"] * top1["n"])) == (SAMPLES, RIGHT)


@pytest.mark.parametrize("name", MODELS)
def test_every_metric_has_a_unit_an_n_and_an_interval(ran: Callable[[str], Ran], name: str) -> None:
    metrics = ran(name).run["end"]["metrics"]
    times = {"latency_p50", "latency_p90", "latency_p99", "throughput"} if name in TIMED else set()
    assert {metric["name"] for metric in metrics} == {"top1", "top5"} | times
    for metric in metrics:
        low, high = metric["ci"]
        assert metric["unit"]
        assert metric["n"] >= SAMPLES
        # Of so few calls it may not be known how they depend on each other.
        assert low is None or low <= metric["value"]
        assert high is None or metric["value"] <= high


@pytest.mark.parametrize("name", ["digits-keras", "digits-litert", "digits-torch-export"])
def test_a_rerun_is_bit_equal(ran: Callable[[str], Ran], published: Commands, name: str) -> None:
    """Once a framework; that of ONNX Runtime is run again by many other tests."""
    verdict = published.done("rerun", ran(name).lock, "--against", ran(name).run["run"])
    assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict


def test_frameworks_decide_the_same(ran: Callable[[str], Ran]) -> None:
    assert len({ran(name).classes for name in MODELS}) == 1
