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


def make_lock(commands: Commands, name: str, folder: Path, memory: str = "500MiB") -> Path:
    """The lock of an example's request with one timed batch, because this test needs no interval."""
    text = (EXAMPLES / "networks" / "requests" / f"memory-{name}.yaml").read_text()
    changed = text.replace("500MiB", memory).replace("parts: [1, 4, 16], warmup: 1, repeats: 6", "{}")
    request, lock = folder / f"{name}.yaml", folder / f"{name}.lock"
    request.write_text(changed.replace("{}", "parts: [1, 16], warmup: 0, repeats: 1"))
    commands.done("lock", request, "-o", lock)
    return lock


def outputs(run: dict[str, Any], place: int) -> str:
    digest: str = run["end"]["blobs"][f"outputs-{place}"]["digest"]
    return digest


def measured(run: dict[str, Any]) -> dict[str, float]:
    return {f"{metric['name']}@{metric.get('case')}": metric["value"] for metric in run["end"]["metrics"]}


@pytest.mark.parametrize("name", FORMATS)
def test_a_batch_that_exceeds_the_memory_passes_in_parts(published: Commands, tmp_path: Path, name: str) -> None:
    """That a rerun, whose memory runs out too, agrees with it, is shown by the tests of workflows."""
    run = published.done("run", make_lock(published, name, tmp_path))
    assert run["end"]["outcome"] == "done", run["end"]
    whole, parted = run["end"]["details"]["network"]["parts"]
    assert (whole["parts"], whole["outcome"], whole["failure"]["class"]) == (1, "failed", "out-of-memory")
    assert (parted["parts"], parted["outcome"], parted["failure"]) == (16, "done", None)
    assert measured(run).keys() == {"peak_memory@16", "batch_latency@16"}


@pytest.mark.parametrize("name", FORMATS)
def test_a_batch_that_fits_the_memory_has_equal_outputs_in_parts(
    published: Commands, tmp_path: Path, name: str
) -> None:
    run = published.done("run", make_lock(published, name, tmp_path, memory="4GiB"))
    values = measured(run)
    assert values["outputs_equal@None"] == 1
    assert values["peak_memory@1"] > values["peak_memory@16"]
    # The file names its lock; the tensors of both parts of one lock are the same bytes.
    assert outputs(run, 0) == outputs(run, 1)
