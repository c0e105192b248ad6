"""The phase ``reference``: code of an author, and ONNX's own evaluator, in float64."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.operator_job import OperatorJob, parse_operator_job
from benchlock.evaluator.harness.core.scenarios import JobError
from benchlock.evaluator.harness.operators import draw, reference_phase

CODE = """
def matmul(inputs, arguments):
    assert arguments == {"alpha": 2}
    return arguments["alpha"] * inputs["A"] @ inputs["B"]

def narrow(inputs, arguments):
    return matmul(inputs, arguments).astype("float32")

def leave(inputs, arguments):
    raise SystemExit(3)

def fail(inputs, arguments):
    return inputs["C"]
"""


def document(function: str | None = "matmul", **replaced: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    case = {"name": "one", "shapes": {"A": [4, 3], "B": [3, 2]}, "arguments": {"alpha": 2}, "reduction": 3}
    return {
        "schema": 1,
        "operator": {
            "op": {"type": "Gemm", "opset": 21},
            "dtype": "float32",
            "inputs": [{"name": "A"}, {"name": "B"}],
            "reference": "onnx" if function is None else {"file": "reference.py", "function": function},
            "fill": {"kind": "normal", "generator": "pcg64"},
            "tolerance": {"l2": 1, "linf": 1},
            "cases": [case],
        },
        "predictor": "onnxruntime",
        "scenario": {"name": "paired", "blocks": 2, "calls": "auto", "order": "abba", "warmup": 1},
        "metrics": ["error_l2"],
        "threads": 1,
        "device": "cpu",
        "seeds": {"one": 7},
        "lock_fingerprint": "of the lock",
    } | replaced


def compute(folder: Path, job: OperatorJob) -> dict[str, Any]:
    (folder / "operator").mkdir()
    (folder / "operator" / "reference.py").write_text(CODE)
    reference_phase.run(job, folder, folder)
    return dict(load_file(folder / "reference.safetensors"))


@pytest.mark.parametrize("function", ["matmul", None], ids=["code", "onnx"])
def test_a_reference_is_of_the_rounded_inputs_in_float64(tmp_path: Path, function: str | None) -> None:
    job = parse_operator_job(document(function))
    (case,) = job.operator.cases
    inputs = {name: values.astype(np.float64) for name, values in draw(job.operator, case).items()}
    (result,) = compute(tmp_path, job).values()
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, 2 * inputs["A"] @ inputs["B"], rtol=1e-14)


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        ("narrow", "golden", "the reference of case one returned float32, expected an array in float64"),
        ("leave", "golden", "the reference of case one exited with 3"),
        ("fail", "golden", "the reference of case one: KeyError: 'C'"),
        ("absent", "load", "reference.py has no function 'absent'"),
    ],
)
def test_code_that_fails_is_a_failure_of_the_run(tmp_path: Path, function: str, kind: str, words: str) -> None:
    with pytest.raises(Failure) as caught:
        compute(tmp_path, parse_operator_job(document(function)))
    assert (caught.value.kind, words in caught.value.message) == (kind, True), caught.value.message


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"metrics": ["top1"]}, r"metrics\[0\]: 'top1' is not supported"),
        ({"seeds": {}}, "seeds.one: absent"),
        ({"predictor": "../evil"}, "predictor: unknown predictor"),
        ({"scenario": {"name": "paired", "order": "baab"}}, "only paired in the order abba"),
        ({"threads": 0}, "threads: 0 is less than 1"),
    ],
)
def test_a_malformed_job_is_refused(replaced: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError, match=words):
        parse_operator_job(document(**replaced))
