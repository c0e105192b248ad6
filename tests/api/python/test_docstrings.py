"""Docstrings of the public API: complete, because the reference is generated from them."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import benchlock

PUBLIC = [getattr(benchlock, name) for name in benchlock.__all__]
CLASSES = [entry for entry in PUBLIC if inspect.isclass(entry)]
OWN_ERRORS = {"code", "add_note", "with_traceback"}
NEVER_FAILS = {"close", "to_dict", "to_dicts"}


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that benchlock defines in a class or its bases."""
    for base in owner.__mro__:
        if base.__module__.startswith("benchlock."):
            yield from ((name, entry) for name, entry in vars(base).items() if not name.startswith("_"))


FUNCTIONS: dict[str, Callable[..., Any]] = {"open": benchlock.open} | {
    f"{owner.__name__}.{name}": entry
    for owner in CLASSES
    for name, entry in members(owner)
    if inspect.isfunction(entry)
}
PROPERTIES = {
    f"{owner.__name__}.{name}": entry
    for owner in CLASSES
    for name, entry in members(owner)
    if isinstance(entry, property)
}


def sections(doc: str) -> dict[str, str]:
    """The sections of a docstring in Google style; the text before them has the name ``""``."""
    parts = re.split(r"^(Args|Attributes|Returns|Raises):$", doc, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(section: str) -> list[str]:
    """The names that a section explains, each with a text."""
    return re.findall(r"^    (\*{0,2}\w+): \S", section, re.MULTILINE)


def doc_of(entry: object) -> str:
    doc = inspect.getdoc(entry)
    assert doc, f"{entry} has no docstring"
    return doc


def test_the_checks_see_the_api() -> None:
    assert {"open", "Registry.run", "Registry.compare_locks", "Runs.to_pandas", "Table.to_dicts"} <= set(FUNCTIONS)
    assert {"Run.metrics", "Lock.id", "Rerun.verdict", "Comparison.findings"} <= set(PROPERTIES)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_explains_its_parameters_its_result_and_its_errors(name: str) -> None:
    function = FUNCTIONS[name]
    signature, parts = inspect.signature(function), sections(doc_of(function))
    prefixes: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = [
        prefixes.get(entry.kind, "") + entry.name for entry in signature.parameters.values() if entry.name != "self"
    ]
    assert entries(parts.get("Args", "")) == parameters
    if signature.return_annotation is not None:
        assert "Returns" in parts or parts[""].startswith("Return ")
    raised = entries(parts.get("Raises", ""))
    assert raised or name.rpartition(".")[2] in NEVER_FAILS
    assert set(raised) <= set(benchlock.__all__)


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_states_its_value(name: str) -> None:
    first = doc_of(PROPERTIES[name]).splitlines()[0]
    assert len(first) <= 110
    assert not first.startswith("Return")


@pytest.mark.parametrize("owner", [entry for entry in CLASSES if dataclasses.is_dataclass(entry)])
def test_a_record_explains_its_fields(owner: Any) -> None:  # noqa: ANN401 - a dataclass
    fields = [field.name for field in dataclasses.fields(owner) if not field.name.startswith("_")]
    assert entries(sections(doc_of(owner))["Attributes"]) == fields


@pytest.mark.parametrize("owner", CLASSES)
def test_a_class_and_its_creation_are_explained(owner: type) -> None:
    assert doc_of(owner).splitlines()[0].endswith((".", "``", ":"))
    if "__init__" in vars(owner) and not dataclasses.is_dataclass(owner):
        parameters = [name for name in inspect.signature(owner).parameters if name != "self"]
        assert entries(sections(doc_of(vars(owner)["__init__"])).get("Args", "")) == parameters
