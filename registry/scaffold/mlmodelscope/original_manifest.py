"""Reader of an MLModelScope manifest that records used keys, and the keys shared by inputs and outputs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from benchlock.registry.manifests.field_types import DType
from benchlock.registry.text.problems import ImportNotes, format_original, printable
from benchlock.registry.text.yaml import Lines, Place, entry_lines

T = TypeVar("T")

_BOOLEANS_OF_1_1 = {
    **dict.fromkeys(("yes", "Yes", "YES", "y", "Y", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "n", "N", "off", "Off", "OFF"), False),
}
"""The booleans of YAML 1.1 (https://yaml.org/type/bool.html) that are text in YAML 1.2."""


@dataclass(frozen=True, slots=True)
class OriginalMapping:
    """A mapping of the original at its place."""

    place: Place
    value: dict[str, Any]
    notes: ImportNotes

    def path(self, key: str | int) -> str:
        return self.place.at(key).path

    def spelling(self, key: str) -> str:
        """How a scalar was written: ``1.10`` where the value is 1.1."""
        return self.place.at(key).spelling or format_original(self.value[key])

    def says(self, key: str) -> bool:
        """Whether the key is there with a value other than null; null says nothing, and is accounted for."""
        if key in self.value and self.value[key] is None:
            self.use(key)
        return self.value.get(key) is not None

    def use(self, key: str) -> Any:  # noqa: ANN401 - whatever stands there
        """The value, whole: it is accounted for."""
        self.notes.used.add(self.path(key))
        return self.value.get(key)

    def text(self, key: str) -> str | None:
        """A text, or a number or boolean as it was written."""
        return self._typed(key, "text", lambda value: None if isinstance(value, dict | list) else self._spelled(key))

    def number(self, key: str) -> float | None:
        return self._typed(key, "a number", lambda value: value if _is_number(value) else None)

    def numbers(self, key: str) -> tuple[float, ...] | None:
        """A list of numbers, or one number as a list of one."""
        return self._typed(key, "a number or a list of numbers", _numbers)

    def boolean(self, key: str) -> bool | None:
        """A boolean; what is one in YAML 1.1 alone is read as such, and listed."""
        value = self.value.get(key)
        if isinstance(value, str) and value in _BOOLEANS_OF_1_1:
            meant = _BOOLEANS_OF_1_1[value]
            what = f"{value} is text in YAML 1.2, and {str(meant).lower()} in the YAML 1.1 of its time"
            self.notes.tell(self.path(key), "yaml-1.1", what, f"read as {str(meant).lower()}")
            self.use(key)
            return meant
        return self._typed(key, "true or false", lambda value: value if isinstance(value, bool) else None)

    def mapping(self, key: str) -> "OriginalMapping | None":
        """A mapping, whose own keys are accounted for one by one."""
        value = self._typed(key, "a mapping", lambda value: value if isinstance(value, dict) else None, whole=False)
        return None if value is None else OriginalMapping(self.place.at(key), value, self.notes)

    def elements(self, key: str) -> "list[OriginalMapping]":
        """The mappings in a list; one mapping alone is a list of one."""
        value = self.value.get(key)
        if isinstance(value, dict):
            return [OriginalMapping(self.place.at(key), value, self.notes)]
        listed = self._typed(
            key, "a mapping or a list of them", lambda value: value if isinstance(value, list) else None, whole=False
        )
        return list(self._mappings(key, listed or []))

    def _mappings(self, key: str, values: list[Any]) -> "Iterator[OriginalMapping]":
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
        value = self.value[key]
        return value if isinstance(value, str) else self.spelling(key)

    def _typed(self, key: str, wanted: str, fitting: Callable[[Any], T | None], *, whole: bool = True) -> T | None:
        if not self.says(key):
            return None
        value = fitting(self.value[key])
        if whole or not value:
            self.use(key)
        if value is None:
            self._refuse(self.path(key), wanted, self.value[key])
        return value

    def _refuse(self, path: str, wanted: str, value: object) -> None:
        what = f"expected {wanted}, found {format_original(value)}"
        self.notes.todo_unplaced(path, "wrong-type", what, "say in the native form what was meant, or delete this line")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(value: object) -> tuple[float, ...] | None:
    listed: list[Any] = value if isinstance(value, list) else [value]
    return tuple(listed) if listed and all(_is_number(one) for one in listed) else None


DTYPES: tuple[str, ...] = get_args(DType)

_BY_POSITION = ("torchscript", "torch-export", "safetensors", "state-dict", "keras", "hdf5")
_LAYER = "layer_name"


@dataclass(frozen=True, slots=True)
class Network:
    """What is known of the network: its native format, None if unknown."""

    format: str | None

    @property
    def by_position(self) -> bool:
        """Whether its tensors are told apart by their position, so that their names are free."""
        return self.format in _BY_POSITION


def description_comment(port: OriginalMapping) -> Lines:
    """The description of an input or output, which has no key of its own, as a comment."""
    written = port.text("description")
    return [f"# {printable(written.strip())}"] if written and written.strip() else []


def name_lines(port: OriginalMapping, key: str, position: int, kind: str, network: Network) -> tuple[str | None, Lines]:
    """The name of an input or output, from ``key`` or from ``layer_name``, and what is written of it."""
    key = key if port.says(key) or not port.says(_LAYER) else _LAYER
    written, notes, path = port.text(key), port.notes, port.path(key)
    if written is None:
        what = f"the original does not name the {kind}"
        ask = "write the tensor's name" if not network.by_position else "write a name: its position counts"
        return None, [notes.todo(path, "no-layer", "name", what, ask)]
    if not written.isdecimal():
        return written, entry_lines("name", written)
    if network.by_position and int(written) == position:
        name = f"{kind}_{position}"
        notes.tell(
            path, "position", f"the {kind} is named by its position, {written}", f"named {name}: positions count"
        )
        return name, entry_lines("name", name)
    what = f"the original gives the position {written} in place of a name"
    ask = f"write the name of the {kind} at that position"
    if network.by_position:
        ask = f"list the {kind} at that position, by a name of yours"
    return None, [notes.todo(path, "position", "name", what, ask)]


def dtype_lines(port: OriginalMapping) -> tuple[str | None, Lines]:
    """The element type, and what is written of it."""
    written = port.text("element_type")
    path, notes = port.path("element_type"), port.notes
    dtype = (written or "").strip().lower()
    if dtype in DTYPES:
        return dtype, entry_lines("dtype", dtype)
    what = (
        f"{format_original(written)} is no type of elements here"
        if written
        else "the original does not say the element type"
    )
    return None, [notes.todo(path, "dtype", "dtype", what, f"write one of {', '.join(DTYPES)}")]
