"""The examples of the documentation are what they say they are."""

import re
from pathlib import Path

import pytest

from benchlock.registry.lock.lock_feasibility import find_unsupported
from benchlock.registry.manifests.metric_definitions import GROUPS
from benchlock.registry.manifests.steps import AudioStep, ImageStep, OutputStep, TextStep
from benchlock.registry.requests.evaluation_request import read_request
from benchlock.registry.requests.matrix_request import read_matrix
from tests.support.registry.authored import read_authored

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "reference"
TEXT = (DOCS / "formats.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(schema: 1\n.*?)```", TEXT, re.DOTALL)  # others are parts of manifests


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: re.findall(r"kind: (\w+)", example)[0])
def test_an_example_is_read_and_can_be_locked(example: str) -> None:
    if "kind: matrix" in example:
        assert read_matrix(example, "formats.md").cells
        return
    read = read_request if "kind: evaluation" in example else read_authored
    assert find_unsupported(read(example, "formats.md")) == ()


def test_there_is_an_example_of_each() -> None:
    kinds = [re.findall(r"^kind: (\w+)", example, re.MULTILINE)[0] for example in EXAMPLES]
    assert sorted(kinds) == [
        *("dataset", "evaluation", "evaluation", "evaluation", "evaluation"),
        *("framework", "image", "matrix", "model", "operator", "recipe"),
    ]


def test_every_step_is_documented() -> None:
    named = {field for kind in (ImageStep, AudioStep, TextStep, OutputStep) for field in kind.__struct_fields__}
    steps = (DOCS / "steps.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", steps, re.MULTILINE)) >= named
    assert all(f"`{group}` stands for" in TEXT for group in GROUPS)
