"""Validation rules of operators that types cannot express."""

import math
import re

from msgspec import UNSET

from benchlock.registry.artifact_names import LONGEST_TAG, TAG
from benchlock.registry.manifests.field_types import MAX_ELEMENTS
from benchlock.registry.manifests.file_checks import check_file_reference
from benchlock.registry.manifests.manifest_types import Case, Code, Operator, files_of
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.parsed_text import Place

_LAYOUTS = {"Conv": ("NCHW", "OIHW"), "MaxPool": ("NCHW",), "AveragePool": ("NCHW",)}
"""The layouts of the first inputs of operators on pictures, which ONNX fixes."""


def check_operator(operator: Operator, place: Place, problems: Problems) -> None:
    """Check the inputs, the reference and the cases of an operator."""
    names = [port.name for port in operator.inputs]
    for index, name in enumerate(names):
        with problems.noted():
            if name in names[:index]:
                raise place.at("inputs", index, "name").error(
                    f"duplicate input {name!r}", "give each input its own name"
                )
    with problems.noted():
        _check_layouts(operator, place.at("inputs"))
    with problems.noted():
        if isinstance(operator.reference, Code):
            check_file_reference(files_of(operator), operator.reference.file, place.at("reference", "file"))
    cases = [case.name for case in operator.cases]
    for index, case in enumerate(operator.cases):
        here = place.at("cases", index)
        with problems.noted():
            if len(case.name) > LONGEST_TAG or not re.fullmatch(TAG, case.name):
                step = f"write at most {LONGEST_TAG} lower-case letters and digits, joined by single . _ or -"
                raise here.at("name").error(f"invalid case name {case.name[:LONGEST_TAG]!r}", step)
            if case.name in cases[:index]:
                raise here.at("name").error(f"duplicate case {case.name!r}", "give each case its own name")
        with problems.noted():
            _check_shapes(case, names, here.at("shapes"))


def _check_layouts(operator: Operator, place: Place) -> None:
    """Check that a layout is that of the operator's definition."""
    expected = _LAYOUTS.get(operator.op.type, ())
    for index, port in enumerate(operator.inputs):
        layout = expected[index] if index < len(expected) else UNSET
        if port.layout is not layout and port.layout != layout:
            has = "no layout" if layout is UNSET else f"the layout {layout}"
            what = f"input {index} of {operator.op.type} has {has}"
            raise place.at(index, "layout").error(what, "remove it" if layout is UNSET else f"write layout: {layout}")


def _check_shapes(case: Case, names: list[str], place: Place) -> None:
    """Check that a case has a shape of a feasible size for each input."""
    for name in names:
        if name not in case.shapes:
            raise place.error(f"the shape of input {name!r} is missing", "write a shape for each input")
    for name, shape in case.shapes.items():
        if name not in names:
            raise place.at(name).error(f"the operator has no input {name!r}", f"known here: {', '.join(names)}")
        if math.prod(shape) > MAX_ELEMENTS:
            what = f"the tensor has {math.prod(shape)} elements; the maximum is {MAX_ELEMENTS}"
            raise place.at(name).error(what, "publish a smaller case")
