"""The operators of ``examples/operators`` in each framework: published, locked, run in a container, and run again."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.commands import Commands

pytestmark = [pytest.mark.engine, pytest.mark.image]

OPERATORS = Path(__file__).parents[2] / "examples" / "operators"
CASES = {"conv-onnxruntime": 5, "gemm-pytorch": 4, "conv-tensorflow": 5}
MEASURED = {"operator_latency", "wrapper_overhead", "wrapper_overhead_share", "error_l2", "error_linf"}


@pytest.fixture(scope="module")
def published(images: Commands) -> Commands:
    images.done("publish", *OPERATORS.glob("deepbench-*.yaml"))
    return images


def locked(commands: Commands, name: str, folder: Path) -> Path:
    """The lock of an example's request with few blocks, because this test needs no narrow interval."""
    text = (OPERATORS / "requests" / f"{name}.yaml").read_text()
    request, lock = folder / f"{name}.yaml", folder / f"{name}.lock"
    request.write_text(text.replace("blocks: 200", "blocks: 4").replace("elements: 16", "elements: 2"))
    commands.done("lock", request, "-o", lock)
    return lock


@pytest.fixture(scope="module")
def ran(published: Commands, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    """Lock and run an example's request, once."""
    folder = tmp_path_factory.mktemp("operators")

    @cache
    def run(name: str) -> tuple[Path, dict[str, Any]]:
        lock = locked(published, name, folder)
        return lock, published.done("run", lock)

    return run


@pytest.mark.parametrize("name", CASES)
def test_each_case_is_within_the_tolerance_in_each_framework(
    ran: Callable[[str], tuple[Path, dict[str, Any]]], name: str
) -> None:
    """The examples have each operator in each framework; ``test_formats`` has PyTorch's Conv and TensorFlow's Gemm."""
    _, run = ran(name)
    assert run["end"]["outcome"] == "done", run["end"]
    metrics = run["end"]["metrics"]
    cases = {metric["case"] for metric in metrics}
    assert len(cases) == CASES[name]
    expected = MEASURED if name.endswith("onnxruntime") else MEASURED | {"gradient_error"}
    assert {(metric["name"], metric["case"]) for metric in metrics} == {(n, case) for n in expected for case in cases}
    gradients = [metric["value"] for metric in metrics if metric["name"] == "gradient_error"]
    assert all(error <= 1e-6 for error in gradients)
    if name.endswith("onnxruntime"):
        facts = run["end"]["details"]["operator"]["cases"].values()
        assert {fact["reason"] for fact in facts} == {"ONNX Runtime computes no gradients"}


def test_a_rerun_is_bit_equal_and_a_process_computes_the_same(
    published: Commands, ran: Callable[[str], tuple[Path, dict[str, Any]]]
) -> None:
    lock, first = ran("conv-onnxruntime")
    process = ("--isolation", "process", "--allow-code")
    verdict = published.done("rerun", lock, "--against", first["run"], *process)
    assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict
    assert {metric["self_reported"] for metric in first["end"]["metrics"]} == {True}  # the reference is code


def test_code_of_the_reference_runs_in_a_container_alone_unless_it_is_allowed(
    published: Commands, tmp_path: Path
) -> None:
    lock = locked(published, "conv-onnxruntime", tmp_path)
    error = published.error(5, "run", lock, "--isolation", "process")
    assert "the operator contains code (reference)" in str(error)
