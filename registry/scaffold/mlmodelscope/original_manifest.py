"""Reader of an MLModelScope manifest that records used keys, and the keys shared by inputs and outputs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from benchlock.registry.manifests.field_types import DType
from benchlock.registry.text.collected_problems import ImportNotes, format_original, printable
from benchlock.registry.text.parsed_text import Place
from benchlock.registry.text.yaml import Lines, entry_lines

T = TypeVar("T")

_BOOLEANS_OF_1_1 = {
    **dict.fromkeys(("yes", "Yes", "YES", "y", "Y", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "n", "N", "off", "Off", "OFF"), False),
}
"""The booleans of YAML 1.1 (https://yaml.org/type/bool.html) that are text in YAML 1.2."""


@dataclass(frozen=True, slots=True)
class OriginalMapping:
    """A mapping of the original at its place; reading a key marks it as used."""

    place: Place
    value: dict[str, Any]
    notes: ImportNotes

    def path(self, key: str | int) -> str:
        """Return the path of a key."""
        return self.place.at(key).path

    def spelling(self, key: str) -> str:
        """Return a scalar as written: ``1.10`` where the value is 1.1."""
        return self.place.at(key).spelling or format_original(self.value[key])

    def has_value(self, key: str) -> bool:
        """Return whether the key has a value other than null; null is marked as used."""
        if key in self.value and self.value[key] is None:
            self.use(key)
        return self.value.get(key) is not None

    def use(self, key: str) -> Any:  # noqa: ANN401 - whatever stands there
        """Return the whole value, and mark it as used."""
        self.notes.used.add(self.path(key))
        return self.value.get(key)

    def text(self, key: str) -> str | None:
        """Return a text, or a number or boolean as written."""
        return self._typed(key, "text", lambda value: None if isinstance(value, dict | list) else self._spelled(key))

    def number(self, key: str) -> float | None:
        """Return a number."""
        return self._typed(key, "a number", lambda value: value if _is_number(value) else None)

    def numbers(self, key: str) -> tuple[float, ...] | None:
        """Return a list of numbers; a single number is a list of one."""
        return self._typed(key, "a number or a list of numbers", _numbers)

    def boolean(self, key: str) -> bool | None:
        """Return a boolean; the additional ones of YAML 1.1 are accepted and listed."""
        value = self.value.get(key)
        if isinstance(value, str) and value in _BOOLEANS_OF_1_1:
            meant = _BOOLEANS_OF_1_1[value]
            what = f"{value} is text in YAML 1.2, but {str(meant).lower()} in the older YAML 1.1"
            self.notes.tell(self.path(key), "yaml-1.1", what, f"read as {str(meant).lower()}")
            self.use(key)
            return meant
        return self._typed(key, "true or false", lambda value: value if isinstance(value, bool) else None)

    def mapping(self, key: str) -> "OriginalMapping | None":
        """Return a mapping, whose own keys are marked one by one."""
        value = self._typed(key, "a mapping", lambda value: value if isinstance(value, dict) else None, whole=False)
        return None if value is None else OriginalMapping(self.place.at(key), value, self.notes)

    def elements(self, key: str) -> "list[OriginalMapping]":
        """Return the mappings in a list; a single mapping is a list of one."""
        value = self.value.get(key)
        if isinstance(value, dict):
            return [OriginalMapping(self.place.at(key), value, self.notes)]
        listed = self._typed(
            key, "a mapping or a list of them", lambda value: value if isinstance(value, list) else None, whole=False
        )
        return list(self._mappings(key, listed or []))

    def _mappings(self, key: str, values: list[Any]) -> "Iterator[OriginalMapping]":
        """Yield the mappings in a list, and list other elements."""
        if not values:
            self.use(key)
        for index, value in enumerate(values):
            place = self.place.at(key, index)
            if isinstance(value, dict):
                yield OriginalMapping(place, value, self.notes)
            else:
                self.notes.used.add(place.path)
                self._refuse(place.path, "a mapping", value)

    def _spelled(self, key: str) -> str:
        """Return a scalar as text."""
        value = self.value[key]
        return value if isinstance(value, str) else self.spelling(key)

    def _typed(self, key: str, wanted: str, fitting: Callable[[Any], T | None], *, whole: bool = True) -> T | None:
        """Return a value of the wanted type; list one of another type, and return None."""
        if not self.has_value(key):
            return None
        value = fitting(self.value[key])
        if whole or not value:
            self.use(key)
        if value is None:
            self._refuse(self.path(key), wanted, self.value[key])
        return value

    def _refuse(self, path: str, wanted: str, value: object) -> None:
        """List a value of the wrong type."""
        what = f"expected {wanted}, found {format_original(value)}"
        self.notes.todo_unplaced(
            path, "wrong-type", what, "write the intended value in the native form, or delete this line"
        )


def _is_number(value: object) -> bool:
    """Return whether a value is a number and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(value: object) -> tuple[float, ...] | None:
    """Return a number or a list of numbers as a tuple; None for any other value."""
    values: list[Any] = value if isinstance(value, list) else [value]
    return tuple(values) if values and all(_is_number(number) for number in values) else None


DTYPES: tuple[str, ...] = get_args(DType)

_BY_POSITION = ("torchscript", "torch-export", "safetensors", "state-dict", "keras", "hdf5")
_LAYER = "layer_name"


@dataclass(frozen=True, slots=True)
class Network:
    """The native format of the network; None if it is unknown."""

    format: str | None

    @property
    def by_position(self) -> bool:
        """Whether its tensors are identified by position, so that their names are free."""
        return self.format in _BY_POSITION


def description_comment(port: OriginalMapping) -> Lines:
    """Return the description of an input or output as a comment: it has no key of its own."""
    original = port.text("description")
    return [f"# {printable(original.strip())}"] if original and original.strip() else []


def name_lines(port: OriginalMapping, key: str, position: int, kind: str, network: Network) -> tuple[str | None, Lines]:
    """Return the name of an input or output, and its line or a TODO line.

    Args:
        port: The parameters of the input or output.
        key: The key of the name; ``layer_name`` is the alternative.
        position: The index of the input or output.
        kind: ``input`` or ``output``.
        network: The network, whose tensors may be identified by position.
    """
    key = key if port.has_value(key) or not port.has_value(_LAYER) else _LAYER
    original, notes, path = port.text(key), port.notes, port.path(key)
    if original is None:
        what = f"the original does not name the {kind}"
        ask = "write the tensor's name" if not network.by_position else "write a name; its position matters"
        return None, [notes.todo(path, "no-layer", "name", what, ask)]
    if not original.isdecimal():
        return original, entry_lines("name", original)
    if network.by_position and int(original) == position:
        name = f"{kind}_{position}"
        notes.tell(
            path, "position", f"the {kind} is named by its position, {original}", f"named {name}; positions matter"
        )
        return name, entry_lines("name", name)
    what = f"the original has the position {original} instead of a name"
    ask = f"write the name of the {kind} at that position"
    if network.by_position:
        ask = f"list the {kind} at that position, with a name of your choice"
    return None, [notes.todo(path, "position", "name", what, ask)]


def dtype_lines(port: OriginalMapping) -> tuple[str | None, Lines]:
    """Return the element type, and its line or a TODO line."""
    original = port.text("element_type")
    path, notes = port.path("element_type"), port.notes
    dtype = (original or "").strip().lower()
    if dtype in DTYPES:
        return dtype, entry_lines("dtype", dtype)
    what = (
        f"{format_original(original)} is not a known element type"
        if original
        else "the original does not state the element type"
    )
    return None, [notes.todo(path, "dtype", "dtype", what, f"write one of {', '.join(DTYPES)}")]
