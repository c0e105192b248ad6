"""Problems found in one look, so that an author is told of all of them at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError

MOST_PROBLEMS: Final = 1000
"""Problems that are kept of one look; what is wrong so often is told often enough."""


class EchoError(InvalidInputError):
    """What the rules of manifests say of the same place too, where a manifest was held to them."""


class UnknownValueError(Exception):
    """A rule reads a value of a manifest that is missing or wrong."""


class Problems:
    """Errors that were met and kept, in the order in which they were found; the same one again is kept once."""

    def __init__(self) -> None:
        self.found: list[BenchlockError] = []
        self._known: set[tuple[str, str | None]] = set()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """What is refused inside is kept, and the caller goes on behind it; so it does where a value is unknown."""
        try:
            yield
        except UnknownValueError:
            pass
        except BenchlockError as error:
            self.add(error)

    def add(self, error: BenchlockError) -> None:
        """Keep an error, and those that were found with it."""
        for one in error.problems or (error,):
            if (one.what, one.where) not in self._known and len(self.found) < MOST_PROBLEMS:
                self.found.append(one)
                self._known.add((one.what, one.where))

    def tell_of(self, where: str | None) -> bool:
        """Whether one of them is of the same place, whatever line it is told with."""
        place = _place(where)
        return bool(place) and any(_place(one.where) == place for one in self.found)

    def refuse(self) -> None:
        """Nothing, where nothing was found.

        Raises:
            BenchlockError: the first that was found, of integrity before others; all of them are its ``problems``.
        """
        if self.found:
            raise leading(self.found)


def _place(where: str | None) -> str:
    path, bracket, _ = (where or "").partition(" (")
    return path if bracket else ""


def leading(found: list[BenchlockError]) -> BenchlockError:
    """The error to answer with: wrong bytes before everything else, else the first; it carries all of them."""
    first = min(found, key=lambda error: not isinstance(error, IntegrityError))
    first.problems = tuple(found) if len(found) > 1 else ()
    return first
