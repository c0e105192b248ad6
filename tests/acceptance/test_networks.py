"""The networks of ``examples/networks`` in each framework: a batch that exceeds the memory passes in parts."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.api.commands import Commands

pytestmark = [pytest.mark.engine, pytest.mark.image]

EXAMPLES = Path(__file__).parents[2] / "examples"
FORMATS = ("onnx", "torchscript", "savedmodel")


@pytest.fixture(scope="module")
def published(images: Commands) -> Commands:
    images.call("publish", EXAMPLES / "digits" / "dataset.yaml")  # another module may have published it
    images.done("publish", *(EXAMPLES / "networks" / "models").glob("*.yaml"))
    return images


def make_lock(commands: Commands, name: str, folder: Path, **replaced: str) -> Path:
    """The lock of an example's request with one timed batch, because this test needs no interval."""
    text = (EXAMPLES / "networks" / "requests" / f"memory-{name}.yaml").read_text()
    for old, new in ({"warmup: 1, repeats: 6": "warmup: 0, repeats: 1"} | replaced).items():
        assert old in text
        text = text.replace(old, new)
    request, lock = folder / f"{name}.yaml", folder / f"{name}.lock"
    request.write_text(text)
    commands.done("lock", request, "-o", lock)
    return lock


def outputs(run: dict[str, Any], place: int) -> str:
    digest: str = run["end"]["blobs"][f"outputs-{place}"]["digest"]
    return digest


def metrics(run: dict[str, Any]) -> dict[str, float]:
    return {f"{metric['name']}@{metric.get('case')}": metric["value"] for metric in run["end"]["metrics"]}


@pytest.mark.parametrize("name", FORMATS)
def test_a_batch_that_exceeds_the_memory_passes_in_parts(published: Commands, tmp_path: Path, name: str) -> None:
    lock = make_lock(published, name, tmp_path, **{"parts: [1, 4, 16]": "parts: [1, 8, 16]"})
    run = published.done("run", lock)
    assert run["end"]["outcome"] == "done", run["end"]
    whole, *parted = run["end"]["details"]["network"]["parts"]
    assert (whole["parts"], whole["outcome"], whole["failure"]["class"]) == (1, "failed", "out-of-memory")
    assert [(part["parts"], part["outcome"], part["failure"]) for part in parted] == [
        (8, "done", None),
        (16, "done", None),
    ]
    values = metrics(run)
    assert {f"{name}@{parts}" for name in ("peak_memory", "batch_latency") for parts in (8, 16)} <= values.keys()
    assert outputs(run, 1) == outputs(run, 2)
    if name == "onnx":  # whose runs are the fastest
        verdict = published.done("rerun", lock, "--against", run["run"])
        assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict
        assert "at once: out-of-memory in both runs" in verdict["reasons"]


def test_a_batch_that_fits_the_memory_has_equal_outputs_in_parts(published: Commands, tmp_path: Path) -> None:
    replaced = {"500MiB": "4GiB", "parts: [1, 4, 16]": "parts: [1, 16]"}
    run = published.done("run", make_lock(published, "onnx", tmp_path, **replaced))
    values = metrics(run)
    assert values["outputs_equal@None"] == 1
    assert values["peak_memory@1"] > values["peak_memory@16"]
    # The file names its lock; the tensors of both parts of one lock are the same bytes.
    assert outputs(run, 0) == outputs(run, 1)
