"""Complete values whose keys are missing or wrong, in many ways, to tell what is wrong with the rest of them.

A rule that the value breaks in every completion is broken whatever its author meant to write in the incomplete places.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import inspect

_COMPLETIONS: Final = 60
_STRIDE: Final = 7
_NUMBERS: Final = (1, 2, 3, 8, 16, 0, 0.5)
_TEXTS: Final = ("placeholder", "other", "*", "1.0.0")
_LENGTHS: Final = 4
_DEEPEST: Final = 12


class _NoneFitsError(Exception):
    """No value that is known here fits a type."""


@dataclass(slots=True)
class Completion:
    """One completion of a value; ``holes`` are the paths whose values are made up.

    Attributes:
        number: Which one of all completions this is: it decides what is written into each hole.
    """

    number: int
    holes: set[str] = field(default_factory=set)
    _choices: int = 0

    def fill(self, value: Any, kind: inspect.Type, path: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return ``value`` where it is of ``kind``, else with other values in place of those that are not."""
        kind = _plain(kind)
        if isinstance(kind, inspect.UnionType):
            return self._fill_union(value, kind, path)
        if isinstance(kind, inspect.StructType) and isinstance(value, dict):
            return self._fill_struct(value, kind, path)
        if isinstance(kind, inspect.DictType) and isinstance(value, dict):
            return {key: self.fill(inner, kind.value_type, f"{path}.{key}") for key, inner in value.items()}
        if isinstance(kind, inspect.VarTupleType) and isinstance(value, list) and (value or not kind.min_length):
            return [self.fill(inner, kind.item_type, f"{path}[{index}]") for index, inner in enumerate(value)]
        return value if _fits(value, kind) else self._make(kind, path)

    def _fill_union(self, value: Any, kind: inspect.UnionType, path: str) -> Any:  # noqa: ANN401
        members = [_plain(member) for member in kind.types]
        structs = [member for member in members if isinstance(member, inspect.StructType)]
        if isinstance(value, dict) and structs:
            tagged = [one for one in structs if one.tag_field and value.get(one.tag_field) == one.tag]
            return self._fill_struct(value, tagged[0] if tagged else self._choose(structs), path)
        for member in members:
            if isinstance(member, inspect.VarTupleType | inspect.DictType) and isinstance(value, list | dict):
                return self.fill(value, member, path)
            if _fits(value, member):
                return value
        return self._make(kind, path)

    def _fill_struct(self, value: dict[str, Any], kind: inspect.StructType, path: str) -> dict[str, Any]:
        filled: dict[str, Any] = {}
        if kind.tag_field is not None:
            filled[kind.tag_field] = kind.tag
            if value.get(kind.tag_field) != kind.tag:
                self.holes.add(f"{path}.{kind.tag_field}".lstrip("."))
        for one in kind.fields:
            here = f"{path}.{one.encode_name}".lstrip(".")
            if one.encode_name in value:
                filled[one.encode_name] = self.fill(value[one.encode_name], one.type, here)
            elif one.required:
                filled[one.encode_name] = self._make(one.type, here)
        self.holes.update(f"{path}.{key}".lstrip(".") for key in value if key not in filled)
        return filled

    def _make(self, kind: inspect.Type, path: str) -> Any:  # noqa: ANN401
        self.holes.add(path)
        return self._value(kind, 0)

    def _value(self, kind: inspect.Type, depth: int) -> Any:  # noqa: ANN401
        """Return a value of ``kind``, another one in each completion as far as there are others."""
        kind = _plain(kind)
        if depth > _DEEPEST:
            raise _NoneFitsError
        if isinstance(kind, inspect.UnionType):
            return self._value(self._choose(kind.types), depth + 1)
        if isinstance(kind, inspect.StructType):
            return self._struct(kind, depth)
        if isinstance(kind, inspect.VarTupleType):
            length = self._choose(range(kind.min_length or 0, _LENGTHS))
            return [self._value(kind.item_type, depth + 1) for _ in range(length)]
        if isinstance(kind, inspect.TupleType):
            return [self._value(item, depth + 1) for item in kind.item_types]
        if isinstance(kind, inspect.DictType):
            return {self._value(kind.key_type, depth + 1): self._value(kind.value_type, depth + 1)}
        return self._choose(list(self._scalars(kind)))

    def _struct(self, kind: inspect.StructType, depth: int) -> dict[str, Any]:
        made = {one.encode_name: self._value(one.type, depth + 1) for one in kind.fields if one.required}
        if not made and kind.fields:  # one of its keys, as in a step
            one = self._choose(kind.fields)
            made[one.encode_name] = self._value(one.type, depth + 1)
        return made if kind.tag_field is None else {kind.tag_field: kind.tag, **made}

    def _scalars(self, kind: inspect.Type) -> Iterator[Any]:
        if isinstance(kind, inspect.LiteralType):
            yield from kind.values
        elif isinstance(kind, inspect.NoneType):
            yield None
        elif isinstance(kind, inspect.BoolType | inspect.AnyType):
            yield from (True, False)
        else:
            yield from (one for one in (*_NUMBERS, *_TEXTS) if _fits(one, kind))

    def _choose(self, options: Sequence[Any]) -> Any:  # noqa: ANN401
        if not options:
            raise _NoneFitsError
        self._choices += 1
        return options[(self.number + _STRIDE * self._choices) % len(options)]


def complete(value: Any, wanted: inspect.Type) -> Iterator[tuple[Any, set[str]]]:  # noqa: ANN401
    """Yield completions of ``value`` to the type ``wanted``, each with the paths that are made up."""
    for number in range(_COMPLETIONS):
        completion = Completion(number)
        try:
            yield completion.fill(value, wanted, ""), completion.holes
        except _NoneFitsError:
            continue


def _plain(kind: inspect.Type) -> inspect.Type:
    return _plain(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _fits(value: Any, kind: inspect.Type) -> bool:  # noqa: ANN401
    """Whether a scalar, or a collection that is not completed inside, is of ``kind``."""
    if isinstance(kind, inspect.LiteralType):
        return any(type(value) is type(one) and value == one for one in kind.values)
    if isinstance(kind, inspect.AnyType):
        return True
    if isinstance(kind, inspect.StrType):
        return isinstance(value, str) and len(value) >= (kind.min_length or 0)
    if isinstance(kind, inspect.BoolType | inspect.NoneType):
        return isinstance(value, bool if isinstance(kind, inspect.BoolType) else type(None))
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        types = (int,) if isinstance(kind, inspect.IntType) else (int, float)
        return isinstance(value, types) and not isinstance(value, bool) and _is_within(value, kind)
    return isinstance(kind, inspect.TupleType) and isinstance(value, list) and len(value) == len(kind.item_types)


def _is_within(value: float, kind: inspect.IntType | inspect.FloatType) -> bool:
    return (
        (kind.ge is None or value >= kind.ge)
        and (kind.gt is None or value > kind.gt)
        and (kind.le is None or value <= kind.le)
        and (kind.lt is None or value < kind.lt)
    )
