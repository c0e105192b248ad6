"""The base classes of all errors: what went wrong, where, and the next step.

A class is a reason that a caller can act on. The command line and the HTTP service map the six reasons below to their
own codes; higher packages add subclasses that carry data.
"""

from typing import ClassVar


class BenchlockError(Exception):
    """An error with a message for users, and the base class of all errors of benchlock.

    Attributes:
        code: The kind of the error.
        what: What happened.
        where: The path, index or name that the error is about; None if there is none.
        next_step: What to do; None if nothing is known.
        problems: All errors that the same check found, this one included; empty if it is the only one.
    """

    code: ClassVar[str] = "error"

    def __init__(self, what: str, *, where: str | None = None, next_step: str | None = None) -> None:
        """Set the parts of the message.

        Args:
            what: What happened.
            where: The path, index or name that the error is about.
            next_step: What to do.
        """
        super().__init__(what)
        self.what = what
        self.where = where
        self.next_step = next_step
        self.problems: tuple[BenchlockError, ...] = ()

    def __str__(self) -> str:
        """Return one line for each part: what, where, next."""
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.next_step:
            lines.append(f"  next: {self.next_step}")
        return "\n".join(lines)


class InvalidInputError(BenchlockError):
    """The input cannot be accepted: malformed, unknown or out of range."""

    code = "invalid-input"


class UnknownNameError(InvalidInputError):
    """A name that does not exist."""

    code = "unknown-name"


class RefusedError(BenchlockError):
    """The answer to a valid question is no."""

    code = "refused"


class IntegrityError(BenchlockError):
    """Bytes do not match their digest."""

    code = "integrity"


class UnavailableError(BenchlockError):
    """An external resource is missing or failed: engine, interpreter, network, disk."""

    code = "unavailable"


class SchemaRevisionError(UnavailableError):
    """A database schema with another revision than this build needs."""

    code = "schema-revision"


class BusyError(UnavailableError):
    """Too many requests at once; the same request may succeed later."""

    code = "busy"
