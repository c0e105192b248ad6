"""An original, read by its keys: what is asked for is accounted for, what has another type is listed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from benchlock.registry.importing.findings import Notes, shown
from benchlock.registry.yaml import Place

T = TypeVar("T")

_BOOLEANS_OF_1_1 = {
    **dict.fromkeys(("yes", "Yes", "YES", "y", "Y", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "n", "N", "off", "Off", "OFF"), False),
}
"""The booleans of YAML 1.1 (https://yaml.org/type/bool.html) that are text in YAML 1.2."""


@dataclass(frozen=True, slots=True)
class Original:
    """A mapping of the original at its place."""

    place: Place
    value: dict[str, Any]
    notes: Notes

    def path(self, key: str | int) -> str:
        return self.place.at(key).path

    def spelling(self, key: str) -> str:
        """How a scalar was written: ``1.10`` where the value is 1.1."""
        return self.place.at(key).spelling or shown(self.value[key])

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

    def mapping(self, key: str) -> "Original | None":
        """A mapping, whose own keys are accounted for one by one."""
        value = self._typed(key, "a mapping", lambda value: value if isinstance(value, dict) else None, whole=False)
        return None if value is None else Original(self.place.at(key), value, self.notes)

    def elements(self, key: str) -> "list[Original]":
        """The mappings in a list; one mapping alone is a list of one."""
        value = self.value.get(key)
        if isinstance(value, dict):
            return [Original(self.place.at(key), value, self.notes)]
        listed = self._typed(
            key, "a mapping or a list of them", lambda value: value if isinstance(value, list) else None, whole=False
        )
        return list(self._mappings(key, listed or []))

    def _mappings(self, key: str, values: list[Any]) -> "Iterator[Original]":
        if not values:
            self.use(key)
        for index, value in enumerate(values):
            place = self.place.at(key, index)
            if isinstance(value, dict):
                yield Original(place, value, self.notes)
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
        what = f"expected {wanted}, found {shown(value)}"
        self.notes.todo_unplaced(path, "wrong-type", what, "say in the native form what was meant, or delete this line")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(value: object) -> tuple[float, ...] | None:
    listed: list[Any] = value if isinstance(value, list) else [value]
    return tuple(listed) if listed and all(_is_number(one) for one in listed) else None
