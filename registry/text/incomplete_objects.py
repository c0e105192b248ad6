"""Objects for mappings with missing, unknown or invalid keys; reading an unknown value raises an error.

A rule runs on such an object as on a complete one. It ends where it reads a value that is unknown, so whatever it
reports depends only on values that are present and valid.
"""

from typing import Any

import msgspec
from msgspec import UNSET, inspect

from benchlock.registry.text.collected_problems import UnknownValueError
from benchlock.registry.text.decoder import UNKNOWN_MEMBER, find_member, is_valid


class PartialObject:
    """A stand-in for a structure of which some values are unknown; ``isinstance`` accepts it as that structure."""

    __slots__ = ("_kind", "_values")

    def __init__(self, kind: type[msgspec.Struct] | None, values: dict[str, Any]) -> None:
        """Set the known values.

        Args:
            kind: The structure that this object stands in for; ``None`` if that is unknown too.
            values: The known values, by attribute.
        """
        self._kind = kind
        self._values = values

    @property
    def __class__(self) -> type:
        """The structure that this object stands in for."""
        if self._kind is None:
            raise UnknownValueError("type")
        return self._kind

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("the class of a stand-in does not change")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any value of a structure
        """Return a known value.

        Raises:
            UnknownValueError: The value is unknown.
        """
        if name in self._values:
            return self._values[name]
        if self._kind is None or name in self._kind.__struct_fields__:
            raise UnknownValueError(name)
        return getattr(self._kind, name)


_UNKNOWN = PartialObject(None, {})


def convert_known(value: Any, kind: inspect.Type, whole: tuple[type[msgspec.Struct], ...] = ()) -> Any:  # noqa: ANN401
    """Convert a value as far as it is valid.

    Args:
        value: A JSON value.
        kind: The type to convert to.
        whole: Structures that are unknown as a whole if any of their values is.

    Returns:
        The converted value, with a ``PartialObject`` in place of each invalid mapping.

    Raises:
        UnknownValueError: Nothing is known about the value.
    """
    kind = _resolve(value, kind)
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        return _convert_struct(value, kind, whole)
    if isinstance(kind, inspect.VarTupleType) and isinstance(value, list) and _is_length_valid(value, kind):
        return tuple(_convert_element(element, kind.item_type, whole) for element in value)
    if isinstance(kind, inspect.DictType) and isinstance(value, dict) and _is_length_valid(value, kind):
        return {key: _convert_element(element, kind.value_type, whole) for key, element in value.items()}
    if not is_valid(value, kind):
        raise UnknownValueError("value")
    return tuple(value) if isinstance(kind, inspect.TupleType) else value


def _convert_element(value: Any, kind: inspect.Type, whole: tuple[type[msgspec.Struct], ...]) -> Any:  # noqa: ANN401
    """Convert an element of a collection; only an unknown mapping has a placeholder, other values raise."""
    try:
        return convert_known(value, kind, whole)
    except UnknownValueError:
        if not _is_mapping(kind):
            raise
        return _UNKNOWN


def _convert_struct(value: dict[str, Any], kind: inspect.StructType, whole: tuple[type[msgspec.Struct], ...]) -> Any:  # noqa: ANN401
    if is_valid(value, kind):
        try:
            return msgspec.convert(value, kind.cls)
        except msgspec.ValidationError:
            return _UNKNOWN
    if issubclass(kind.cls, whole):
        return _UNKNOWN
    is_member_known = kind.cls is not UNKNOWN_MEMBER
    known = {field.encode_name for field in kind.fields} | ({kind.tag_field} if kind.tag_field else set())
    # an unknown key may be a misspelling of any absent key
    is_complete = is_member_known and known.issuperset(value)
    values: dict[str, Any] = {}
    for field in kind.fields:
        if field.encode_name in value:
            try:
                values[field.name] = convert_known(value[field.encode_name], field.type, whole)
            except UnknownValueError:
                continue
        elif is_complete and not field.required:
            values[field.name] = UNSET
    return PartialObject(kind.cls if is_member_known else None, values)


def _is_mapping(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return _is_mapping(kind.type)
    if isinstance(kind, inspect.UnionType):
        return all(map(_is_mapping, kind.types))
    return isinstance(kind, inspect.StructType)


def _is_length_valid(value: list[Any] | dict[str, Any], kind: inspect.VarTupleType | inspect.DictType) -> bool:
    return len(value) >= (kind.min_length or 0) and (kind.max_length is None or len(value) <= kind.max_length)


def _resolve(value: Any, kind: inspect.Type) -> inspect.Type:  # noqa: ANN401
    """Return the type without metadata; for a union, the one member that the value is meant to be."""
    if isinstance(kind, inspect.Metadata):
        return _resolve(value, kind.type)
    if not isinstance(kind, inspect.UnionType):
        return kind
    members = [_resolve(value, member) for member in kind.types]
    structs = [member for member in members if isinstance(member, inspect.StructType)]
    if isinstance(value, dict) and len(structs) > 1:
        structs = [find_member(value, structs)]
    if isinstance(value, dict) and len(structs) == 1:
        return structs[0]
    lists = [member for member in members if isinstance(member, inspect.VarTupleType)]
    if isinstance(value, list) and len(lists) == 1:
        return lists[0]
    return kind
