"""The Python API on real runs, on a folder and on a server: the first example of docs/how-to/python.md, and more."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import benchlock
from benchlock.registry.text.yaml import read_yaml
from tests.support.api.commands import Commands, copied
from tests.support.api.serving import at, service, share_environments

pytestmark = pytest.mark.image

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="module", params=["folder", "server"])
def location(
    request: pytest.FixtureRequest, built_once: Commands, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where a registry with images of ONNX Runtime and LiteRT and the digits is; no container engine answers."""
    home = tmp_path_factory.mktemp("python")
    folder = copied(built_once, home / "registry", "").registry
    with benchlock.open(folder) as registry:
        models = (DIGITS / "models" / f"{name}.yaml" for name in ("digits-onnx", "digits-litert"))
        registry.publish(DIGITS / "dataset.yaml", *models)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        patched.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patched.setenv("DOCKER_HOST", f"unix://{home}/no-engine.sock")
        if request.param == "folder":
            patched.setenv("BENCHLOCK_REGISTRY", str(folder))
            yield str(folder)
        else:
            with service(folder) as served:
                share_environments(at(served.url, home), folder)
                patched.setenv("BENCHLOCK_REGISTRY", served.url)
                yield served.url


def values_of(source: str, names: dict[str, Any]) -> list[Any]:
    """Execute the lines of an example; the values of those that are expressions, which a notebook shows."""
    values = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Expr):
            values.append(eval(compile(ast.Expression(statement.value), "example", "eval"), names))
        else:
            exec(compile(ast.Module([statement], []), "example", "exec"), names)
    return values


@pytest.fixture(scope="module")
def example(location: str) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """The names and the values of the first example, executed as printed."""
    assert location
    block = re.search(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "how-to" / "python.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert block is not None
    names: dict[str, Any] = {}
    values = values_of(block[1], names)
    yield names, values
    names["registry"].close()


def test_the_example_works_as_printed(example: tuple[dict[str, Any], list[Any]]) -> None:
    names, ((value, (low, high)), verdict, frame) = example
    assert value == pytest.approx(358 / 359)
    assert 0.9 < low < value < high <= 1
    assert verdict == "reproduced"
    assert list(frame["model"]) == ["digits-onnx"] * 2
    assert frame["top1"].tolist() == [value] * 2
    runs = names["registry"].runs(model="digits-onnx")
    assert runs.to_arrow().column("top1").to_pylist() == [row["top1"] for row in runs.to_dicts()] == [value] * 2


def test_a_run_judges_the_claims_of_its_model(example: tuple[dict[str, Any], list[Any]]) -> None:
    names, _ = example
    claims = names["registry"].claims(names["run"])
    assert [(claim.metric, claim.answer) for claim in claims] == [("top1", "holds"), ("top5", "holds")]
    assert claims[0].measured == names["run"].metrics["top1"].value
    assert claims[0].interval == names["run"].metrics["top1"].interval
    assert abs(claims[0].measured - claims[0].value) <= claims[0].tolerance


def timed(name: str) -> dict[str, Any]:
    """The request of an example, but for its quality and most of its time."""
    request: dict[str, Any] = read_yaml((DIGITS / "requests" / f"{name}.yaml").read_text(), name).value
    short = {"name": "single_stream", "min_queries": 64, "min_duration": "100ms", "warmup": 4}
    return request | {"scenario": short, "metrics": ["latency"]}


@pytest.mark.parametrize("location", ["server"], indirect=True)  # test_comparing.py interleaves in a folder
def test_locks_are_compared_interleaved(example: tuple[dict[str, Any], list[Any]]) -> None:
    """Of times alone: a run takes less without its evaluation."""
    registry = example[0]["registry"]
    first, second = (registry.lock(timed(name)) for name in ("digits-onnx", "digits-litert"))
    comparison = registry.compare_locks(first, second.id, rounds=3, margins={"latency_p50": 0.5})
    assert (comparison.comparable, comparison.interleaved, len(comparison.runs)) == (True, True, 9)
    findings = {finding.metric: finding for finding in comparison.findings}
    assert {finding.model for finding in comparison.findings} == {"digits-litert@1.0.0"}
    assert {name: finding.margin for name, finding in findings.items() if finding.margin} == {"latency_p50": 0.5}
    assert registry.compare(*comparison.runs).findings == comparison.findings
