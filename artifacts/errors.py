"""The base classes of all errors: what went wrong, where, and the next step.

A class is a reason that a caller can act on. The door that shows an error (a command line, a server) maps the five
reasons below to its own codes; rooms above add subclasses that carry data.
"""

from typing import ClassVar


class BenchlockError(Exception):
    """An error whose message is meant for a person: ``what`` happened, ``where`` (path or index), the ``next_step``.

    ``problems`` are all the errors that were found in the same look, this one included; empty where it is the only one.
    """

    code: ClassVar[str] = "error"

    def __init__(self, what: str, *, where: str | None = None, next_step: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next_step = next_step
        self.problems: tuple[BenchlockError, ...] = ()

    def __str__(self) -> str:
        """One line a part: what, where, next."""
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.next_step:
            lines.append(f"  next: {self.next_step}")
        return "\n".join(lines)


class InvalidInputError(BenchlockError):
    """What was handed in cannot be accepted: malformed, unknown, out of range."""

    code = "invalid-input"


class UnknownNameError(InvalidInputError):
    """A name that nothing answers to."""

    code = "unknown-name"


class RefusedError(BenchlockError):
    """Asked and answered: the answer is no."""

    code = "refused"


class IntegrityError(BenchlockError):
    """Bytes are not what their digest says."""

    code = "integrity"


class UnavailableError(BenchlockError):
    """Something outside is missing or failed: engine, interpreter, network, disk."""

    code = "unavailable"


class BusyError(UnavailableError):
    """Too many requests at once; the same request may succeed later."""

    code = "busy"
