"""The types of steps and the harness's table of steps say the same."""

import inspect
from typing import Any

import pytest
from msgspec import structs

from evaluator.harness.steps import STEPS
from registry.manifests.steps import ImageStep, OutputStep

DECLARED = {field.name: field.type for step in (ImageStep, OutputStep) for field in structs.fields(step)}


def arguments_of(name: str) -> Any:  # noqa: ANN401 - a Struct type
    """The type of a step's arguments, out of ``Type | UnsetType``."""
    return DECLARED[name].__args__[0]


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_step_takes_the_arguments_that_its_type_declares(name: str) -> None:
    declared = {field.encode_name: field.required for field in structs.fields(arguments_of(name))}
    parameters = list(inspect.signature(STEPS[name]).parameters.values())[1:]
    taken = {parameter.name: parameter.default is inspect.Parameter.empty for parameter in parameters}
    assert taken == declared


def test_only_steps_of_code_are_declared_without_the_harness_doing_them() -> None:
    assert set(DECLARED) - set(STEPS) == {"python"}
