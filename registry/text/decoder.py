"""Decoding of parsed text into msgspec types, with the path, spelling and next step of every error.

If msgspec rejects a value, this module walks the value along the type again to explain every error: keys inside
mappings, members of tagged unions, and the nearest known name.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import msgspec
from msgspec import inspect

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.registry.artifact_names import find_close
from benchlock.registry.text.collected_problems import MAX_PROBLEMS, Problems
from benchlock.registry.text.parsed_text import Document, Place

_SHOWN = 60
_UNITS = {"time": "s", "min_duration": "s", "memory": "GiB"}
"""The usual unit of each key that has one."""
UNKNOWN_MEMBER = msgspec.defstruct("UnknownMember", ())
"""The class of the properties that all structures of a tagged union share."""
_NUMBERS = (inspect.IntType, inspect.FloatType)
_FRACTION = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?) ?/ ?([0-9]{1,9}(?:\.[0-9]{1,9})?)", re.ASCII)


@cache
def inspect_type(target: Any) -> inspect.Type:  # noqa: ANN401 - a union is not a type for the type checker
    """Return the description of a type, made once: making it takes longer than checking most documents."""
    return inspect.type_info(target)


def convert(document: Document, target: Any, place: Place | None = None) -> Any:  # noqa: ANN401 - a union is not a type for the type checker
    """Convert a document strictly: no number from text, no text from a number.

    Args:
        document: The document.
        target: The type.
        place: The place of the document in a larger one, for errors; None if it is whole.

    Raises:
        InvalidInputError: The first value that does not fit, in the order of the type's keys; all others are its
            ``problems``.
    """
    prepare_decoder(target)
    try:
        return msgspec.convert(document.value, target)
    except msgspec.ValidationError as error:
        errors = Problems()
        problems = _problems(place or Place(document), document.value, inspect_type(target))
        for problem in islice(problems, MAX_PROBLEMS):
            errors.add(problem)
        errors.refuse()
        raise InvalidInputError(str(error), where=document.name) from error


def is_valid(value: Any, kind: inspect.Type) -> bool:  # noqa: ANN401
    """Return whether ``convert`` accepts a value of this type."""
    return next(_problems(Place(Document(value, "")), value, kind), None) is None


def suggest_nearest(word: str, known: Iterable[str]) -> str:
    """Return the next step after an unknown word: the nearest known word, or all known words."""
    choices = sorted(known)
    longer = [choice for choice in choices if choice.endswith(f"-{word}")]
    if len(longer) > 1:
        return f"did you mean one of {', '.join(longer)}?"
    close = find_close(word, choices)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(choices)}"


def _strip_metadata(kind: inspect.Type) -> inspect.Type:
    return _strip_metadata(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _problems(place: Place, value: Any, kind: inspect.Type) -> Iterator[InvalidInputError]:  # noqa: ANN401
    """Yield every reason why ``value`` does not fit ``kind``."""
    kind = _strip_metadata(kind)
    if isinstance(kind, inspect.UnionType):
        yield from _union_problems(place, value, kind)
    elif not _fits(value, kind):
        yield _make_type_error(place, value, [kind])
    elif isinstance(kind, inspect.StructType):
        yield from _struct_problems(place, value, find_member(value, [kind]) if kind.tag_field in value else kind)
    elif isinstance(kind, inspect.LiteralType):
        if value not in kind.values:
            yield _make_choice_error(place, value, kind)
    elif _is_too_long(value, kind):  # its elements are not checked
        yield from _limit_problems(place, value, kind)
    else:
        for below, inner, of in _list_elements(place, value, kind):
            yield from _problems(below, inner, of)
        yield from _limit_problems(place, value, kind)


def _list_elements(place: Place, value: Any, kind: inspect.Type) -> list[tuple[Place, Any, inspect.Type]]:  # noqa: ANN401
    """Return the elements of a collection, each with its place and expected type."""
    if isinstance(kind, inspect.DictType):
        return [(place.at(key), inner, kind.value_type) for key, inner in value.items()]
    if isinstance(kind, inspect.VarTupleType):
        return [(place.at(index), inner, kind.item_type) for index, inner in enumerate(value)]
    if isinstance(kind, inspect.TupleType):
        return [(place.at(i), inner, of) for i, (inner, of) in enumerate(zip(value, kind.item_types, strict=False))]
    return []


def _struct_problems(place: Place, value: dict[str, Any], kind: inspect.StructType) -> Iterator[InvalidInputError]:
    fields = {field.encode_name: field for field in kind.fields}
    known = {*fields, kind.tag_field} if kind.tag_field else set(fields)
    suggested = set[str]()
    for key in value:
        if key not in known:
            yield place.at(key).error(f"unknown key {key!r}", suggest_nearest(key, known) if known else None)
            suggested.update(find_close(key, known))
    for name, field in fields.items():
        if name in value:
            yield from _problems(place.at(name), value[name], field.type)
        elif field.required and name not in suggested:  # a misspelt key is not also missing
            yield place.at(name).error(f"the key {name!r} is missing", f"write {_describe_type(field.type)}")


def _union_problems(place: Place, value: Any, kind: inspect.UnionType) -> Iterator[InvalidInputError]:  # noqa: ANN401
    members = [_strip_metadata(member) for member in kind.types]
    structs = [member for member in members if isinstance(member, inspect.StructType)]
    if isinstance(value, dict) and len(structs) > 1:
        yield from _struct_problems(place, value, find_member(value, structs))
        return
    fitting = [member for member in members if _fits(value, member)]
    if not fitting:
        yield _make_type_error(place, value, members)
        return
    problems = [list(_problems(place, value, member)) for member in fitting]
    if all(problems):
        yield from problems[0]


def find_member(value: dict[str, Any], structs: list[inspect.StructType]) -> inspect.StructType:
    """Find the structure of a tagged union that a mapping is meant to be.

    Returns:
        The structure with the tag of the mapping. Without a valid tag, ``UNKNOWN_MEMBER`` with the properties that all
        structures share: the values of the tag, the keys that all require, and the types of keys that are the same in
        all structures that have the key.
    """
    field = structs[0].tag_field
    assert field is not None
    for struct in structs:
        if value.get(field) == struct.tag:
            return struct
    tag = inspect.Field(field, field, inspect.LiteralType(tuple(struct.tag for struct in structs)), required=True)
    keys: dict[str, list[inspect.Field]] = {}
    for struct in structs:
        for member_field in struct.fields:
            keys.setdefault(member_field.encode_name, []).append(member_field)
    fields = (_common_field(same, len(structs)) for same in keys.values())
    return inspect.StructType(UNKNOWN_MEMBER, (tag, *fields), forbid_unknown_fields=True)


def _common_field(fields: list[inspect.Field], members: int) -> inspect.Field:
    """Return the shared properties of the fields of one name; ``members`` is the size of the union."""
    first = fields[0]
    kind = (
        first.type
        if all(_strip_metadata(other.type) == _strip_metadata(first.type) for other in fields)
        else inspect.AnyType()
    )
    required = len(fields) == members and all(other.required for other in fields)
    return inspect.Field(first.name, first.encode_name, kind, required)


@dataclass(frozen=True, slots=True)
class _Form:
    """The name of a kind of JSON value, and its Python types."""

    name: str
    types: tuple[type, ...]


_FORMS: dict[type[inspect.Type], _Form] = {
    inspect.StrType: _Form("text", (str,)),
    inspect.IntType: _Form("a whole number", (int,)),
    inspect.FloatType: _Form("a number", (int, float)),
    inspect.BoolType: _Form("true or false", (bool,)),
    inspect.NoneType: _Form("null", (type(None),)),
    inspect.StructType: _Form("a mapping", (dict,)),
    inspect.DictType: _Form("a mapping", (dict,)),
    inspect.VarTupleType: _Form("a list", (list,)),
    inspect.TupleType: _Form("a list", (list,)),
}


def _fits(value: Any, kind: inspect.Type) -> bool:  # noqa: ANN401
    """Return whether ``value`` has the outer form of ``kind``; booleans are not numbers."""
    if isinstance(kind, inspect.LiteralType):
        return type(value) in {type(choice) for choice in kind.values}
    if isinstance(kind, inspect.AnyType):
        return True
    form = _FORMS[type(kind)]
    return isinstance(value, form.types) and not (isinstance(value, bool) and isinstance(kind, _NUMBERS))


def _make_type_error(place: Place, value: Any, kinds: list[inspect.Type]) -> InvalidInputError:  # noqa: ANN401
    expected = " or ".join(dict.fromkeys(_name_type(kind) for kind in kinds))
    if isinstance(value, int | float) and any(isinstance(kind, inspect.StrType) for kind in kinds):
        written = place.spelling or _show(value)
        return place.error(f"expected {expected}, found {_name_form(value)}: {written}", _as_text(place.path, written))
    actual = f"{_name_form(value)}: {_show(value)}" if isinstance(value, str | int | float) else _name_form(value)
    step = f"write {'one of them' if expected.startswith('one of') else expected}"
    if isinstance(value, str) and inspect.FloatType in map(type, kinds) and (quotient := _divide(value)) is not None:
        step = f"write {quotient!r} ({value.strip()})"
    return place.error(f"expected {expected}, found {actual}", step)


def _divide(text: str) -> float | None:
    """Return the value of a fraction such as ``1/255``; None if the text is none."""
    numbers = _FRACTION.fullmatch(text.strip())
    return float(numbers[1]) / float(numbers[2]) if numbers and float(numbers[2]) else None


def _as_text(path: str, written: str) -> str:
    """Return how to write a number as text: in quotes, or in the form that the key requires."""
    key = path.rpartition(".")[2]
    if path == "version":
        return 'write MAJOR.MINOR.PATCH, such as "1.2.0"'
    unit = _UNITS.get(key)
    return f'quote it: "{written}"' if unit is None else f'write it with its unit, such as "{written}{unit}"'


def _name_type(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.LiteralType):
        return "one of " + ", ".join(map(str, kind.values)) if len(kind.values) > 1 else repr(kind.values[0])
    return _FORMS[type(kind)].name


def describe_key(struct: type[msgspec.Struct], name: str) -> str:
    """Describe the valid values of a key of a structure."""
    kind = inspect_type(struct)
    assert isinstance(kind, inspect.StructType)
    return next(_describe_type(field.type) for field in kind.fields if field.encode_name == name)


def _describe_type(kind: inspect.Type) -> str:
    """Describe the valid values of a type, so that a user can write a missing one."""
    about = _description(kind)
    kind = _strip_metadata(kind)
    if isinstance(kind, inspect.UnionType):
        structs = [member for member in map(_strip_metadata, kind.types) if isinstance(member, inspect.StructType)]
        if structs and structs[0].tag_field:
            words = (
                f"a mapping whose {structs[0].tag_field} is one of {', '.join(str(member.tag) for member in structs)}"
            )
        else:
            words = " or ".join(dict.fromkeys(_describe_type(member) for member in kind.types))
    elif isinstance(kind, inspect.VarTupleType):
        words = f"a list, each element {_describe_type(kind.item_type)}"
    elif isinstance(kind, inspect.DictType):
        words = f"a mapping from names, each to {_describe_type(kind.value_type)}"
    elif isinstance(kind, inspect.StructType):
        words = _describe_keys(kind)
    elif isinstance(kind, _NUMBERS):
        limits = [f"{words} {limit}" for limit, _, words in _limits(kind) if limit is not None]
        words = f"{_name_type(kind)} {' and '.join(limits)}".rstrip()
    else:
        words = "a value" if isinstance(kind, inspect.AnyType) else _name_type(kind)
    return f"{words}: {about}" if about else words


def _describe_keys(kind: inspect.StructType) -> str:
    required = [field.encode_name for field in kind.fields if field.required]
    if required:
        return f"a mapping with {', '.join(required)}"
    return f"a mapping with one of {', '.join(field.encode_name for field in kind.fields)}"


def _description(kind: inspect.Type) -> str | None:
    described: str | None = None
    while isinstance(kind, inspect.Metadata):
        described = described or (kind.extra_json_schema or {}).get("description")
        kind = kind.type
    return described


def _name_form(value: Any) -> str:  # noqa: ANN401
    """Return the name of the form of a value."""
    if isinstance(value, bool):
        return "true or false"
    forms = (form.name for form in _FORMS.values() if isinstance(value, form.types))
    return next(forms, "something else")


def _make_choice_error(place: Place, value: Any, kind: inspect.LiteralType) -> InvalidInputError:  # noqa: ANN401
    if len(kind.values) == 1:
        return place.error(f"expected {kind.values[0]!r}, found {_show(value)}", f"write {kind.values[0]!r}")
    choices = [str(choice) for choice in kind.values]
    return place.error(f"{_show(value)} is not one of {', '.join(choices)}", suggest_nearest(str(value), choices))


def _is_too_long(value: Any, kind: inspect.Type) -> bool:  # noqa: ANN401
    return (
        isinstance(kind, inspect.VarTupleType | inspect.DictType | inspect.StrType)
        and kind.max_length is not None
        and len(value) > kind.max_length
    )


def _limit_problems(place: Place, value: Any, kind: inspect.Type) -> Iterator[InvalidInputError]:  # noqa: ANN401
    """Yield the problems of a number out of range, an empty value, and a wrong length."""
    if isinstance(kind, inspect.TupleType) and len(value) != len(kind.item_types):
        yield place.error(f"expected {len(kind.item_types)} values, found {len(value)}")
    if isinstance(kind, inspect.VarTupleType | inspect.DictType | inspect.StrType):
        if kind.min_length and not value:
            yield place.error("it must not be empty")
        if _is_too_long(value, kind):
            yield place.error(f"{len(value)} elements; the limit is {kind.max_length}", "remove some")
    if not isinstance(kind, _NUMBERS):
        return
    for limit, is_within, words in _limits(kind):
        if limit is not None and not is_within(value, limit):
            yield place.error(f"expected {words} {limit}, found {_show(value)}")


def _limits(kind: inspect.IntType | inspect.FloatType) -> tuple[tuple[float | None, Callable[..., bool], str], ...]:
    return (
        (kind.ge, operator.ge, "at least"),
        (kind.gt, operator.gt, "more than"),
        (kind.le, operator.le, "at most"),
        (kind.lt, operator.lt, "less than"),
    )


def _show(value: Any) -> str:  # noqa: ANN401
    text = repr(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
