"""The page of the Python API, generated from the docstrings of the names in ``benchlock.__all__``.

The docstrings are in Google style: a summary, paragraphs, and the sections ``Args:``, ``Attributes:``, ``Returns:`` and
``Raises:``, whose entries are ``name: text``.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature, cleandoc
from typing import Any, Final, get_type_hints

import benchlock

_SECTION: Final = re.compile(r"^(Args|Attributes|Returns|Raises):\n", re.MULTILINE)
_ENTRY: Final = re.compile(r"^    (?=\S)", re.MULTILINE)
_MODULE: Final = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")
"""The modules in front of the name of a type."""
_OPTIONAL: Final = re.compile(r"Optional\[(Literal\[[^]]*\])\]")
WIDTH: Final = 100


def describe_python() -> str:
    """Return the page of all public classes, functions and errors."""
    public = {name: getattr(benchlock, name) for name in benchlock.__all__}
    errors = {name: one for name, one in public.items() if isinstance(one, type) and issubclass(one, BaseException)}
    classes = {name: one for name, one in public.items() if isinstance(one, type) and name not in errors}
    functions = {name: one for name, one in public.items() if not isinstance(one, type)}
    first = {"Registry": classes.pop("Registry")}  # the class with which users begin
    lines = [
        "# Python API", "",
        "Reference, generated from the docstrings of the names in `benchlock.__all__`, which are the public API.",
        "[Use Python](../how-to/python.md) shows them in use.",
    ]  # fmt: skip
    for name, function in functions.items():
        lines += ["", f"## {name}", *describe_function(f"benchlock.{name}", function)]
    for name, one in (first | classes).items():
        lines += ["", f"## {name}", *_describe_class(name, one)]
    lines += ["", "## Errors"]
    for name in sorted(errors, key=lambda name: len(errors[name].__mro__)):
        lines += ["", f"### {name}", "", f"A subclass of `{errors[name].__mro__[1].__name__}`."]
        lines += _describe_class(name, errors[name])
    return "\n".join(lines) + "\n"


def find_members(one: type) -> dict[str, Any]:
    """Return the public methods and properties that a class itself defines."""
    return {
        name: member
        for name, member in vars(one).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    }


def _describe_class(name: str, one: type) -> Iterator[str]:
    text, sections = _split(cleandoc(one.__doc__ or ""))
    yield from ("", text)
    if issubclass(one, BaseException):  # its attributes have no types
        yield from ("", *_list(sections.get("Attributes", "")))
    else:
        rows = list(_attribute_rows(one, sections.get("Attributes", "")))
        yield from ("", "| attribute | type | meaning |", "|---|---|---|", *rows) if rows else ()
    for key, member in find_members(one).items():
        if not isinstance(member, property):
            yield from ("", f"### {name}.{key}", *describe_function(f"{name}.{key}", member))


def _attribute_rows(one: type, section: str) -> Iterator[str]:
    """Yield the rows of a table: the documented attributes of a dataclass, then the properties."""
    types = get_type_hints(one) if dataclasses.is_dataclass(one) else {}
    for name, text in _entries(section):
        yield _row(name, _type_name(types[name]), text)
    for name, member in find_members(one).items():
        if isinstance(member, property):
            assert member.fget is not None
            kind = inspect.signature(member.fget, eval_str=True).return_annotation
            yield _row(name, _type_name(kind), _split(cleandoc(member.__doc__ or ""))[0])


def _row(name: str, kind: str, text: str) -> str:
    escaped = kind.replace("|", "\\|")
    return f"| `{name}` | `{escaped}` | {' '.join(text.split())} |"


def describe_function(name: str, function: Callable[..., object]) -> Iterator[str]:
    """Yield the lines on a function: its signature, its text, and a list for each section of its docstring."""
    text, sections = _split(cleandoc(function.__doc__ or ""))
    yield from ("", "```python", _signature_text(name, inspect.signature(function, eval_str=True)), "```", "", text)
    for title, content in sections.items():
        if title == "Returns":
            yield from ("", f"**Returns:** {' '.join(content.split())}")
        else:
            yield from ("", "**Arguments:**" if title == "Args" else f"**{title}:**", "", *_list(content))


def _split(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring before its sections, and its sections by title."""
    text, *parts = _SECTION.split(docstring.replace("``", "`"))
    return text.strip(), dict(zip(parts[::2], parts[1::2], strict=True))


def _list(section: str) -> Iterator[str]:
    return (f"* `{name}`: {text}" for name, text in _entries(section))


def _entries(section: str) -> list[tuple[str, str]]:
    """Return the names in a section with their texts."""
    entries = [" ".join(entry.split()) for entry in _ENTRY.split(section) if entry.strip()]
    return [(name, text) for name, _, text in (entry.partition(": ") for entry in entries)]


def _type_name(annotation: object) -> str:
    return _shorten(inspect.formatannotation(annotation))


def _shorten(annotation: str) -> str:
    """Return an annotation without modules, and with ``| None`` as in the source."""
    return _OPTIONAL.sub(r"\1 | None", _MODULE.sub("", annotation))


def _signature_text(name: str, signature: Signature) -> str:
    """Return a signature without ``self`` and modules, with a line for each parameter if it is long."""
    shown: list[str] = []
    keywords = False  # whether the parameters must be given by name from here on
    for one in signature.parameters.values():
        if one.kind is Parameter.KEYWORD_ONLY and not keywords:
            shown.append("*")
        keywords = keywords or one.kind in {Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL}
        if one.name != "self":
            shown.append(_shorten(str(one)))
    result = f" -> {_type_name(signature.return_annotation)}"
    line = f"{name}({', '.join(shown)}){result}"
    return line if len(line) <= WIDTH else "\n".join([f"{name}(", *(f"    {one}," for one in shown), f"){result}"])
