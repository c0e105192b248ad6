"""Errors as problem details (RFC 9457), and errors rebuilt from problem details."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.api.error_codes import FAULTS, Fault, fault_of
from benchlock.artifacts.errors import (
    BenchlockError,
    IntegrityError,
    InvalidInputError,
    RefusedError,
    UnavailableError,
    UnknownNameError,
)

MEDIA_TYPE: Final = "application/problem+json"
TYPE: Final = "urn:benchlock:problem:"
NOTHING_SERVED: Final = "nothing is served under this path"
"""The detail of the response for an unknown path. Clients of all versions compare it, so it must not change."""
_STAND_IN: Final = "ToldError"
_REASONS: Final = (UnknownNameError, InvalidInputError, RefusedError, IntegrityError, UnavailableError)


class Detail(Struct, frozen=True, kw_only=True):
    """One of several errors that were found together."""

    code: Annotated[str, Meta(examples=["invalid-input"])]
    detail: str
    where: str | None = None
    next: str | None = None


class Problem(Struct, frozen=True, kw_only=True):
    """An error. ``type`` tells which reaction is suitable, ``code`` is the exact error."""

    type: Annotated[str, Meta(examples=[f"{TYPE}unknown-name"])]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    code: Annotated[str, Meta(examples=["unknown-name"])]
    where: str | None = None
    next: str | None = None
    problems: tuple[Detail, ...] | UnsetType = UNSET
    conflict: dict[str, Any] | UnsetType = UNSET
    blobs: tuple[str, ...] | UnsetType = UNSET
    request_id: str | None = None


def encode_problem(error: BenchlockError, request_id: str | None = None, fault: Fault | None = None) -> Problem:
    """Encode an error; ``fault`` overrides that of the error's class."""
    fault = fault or fault_of(error)
    return Problem(
        type=f"{TYPE}{fault.reason}",
        title=fault.title,
        status=fault.status,
        detail=error.what,
        code=error.code,
        where=error.where,
        next=error.next_step,
        problems=tuple(map(_detail, error.problems)) or UNSET,
        conflict=getattr(error, "conflict", UNSET),
        blobs=getattr(error, "blobs", UNSET),
        request_id=request_id,
    )


def decode_problem(problem: Problem) -> BenchlockError:
    """Rebuild an error: of the same class if this version has it, else of the class of its reason."""
    error = _new(problem.code, problem.type.removeprefix(TYPE), problem.detail, (problem.where, problem.next))
    if problem.problems is not UNSET:
        error.problems = tuple(
            _new(detail.code, "", detail.detail, (detail.where, detail.next)) for detail in problem.problems
        )
    for name in ("conflict", "blobs"):
        if (value := getattr(problem, name)) is not UNSET:
            setattr(error, name, value)
    return error


def _detail(error: BenchlockError) -> Detail:
    return Detail(code=error.code, detail=error.what, where=error.where, next=error.next_step)


def _new(code: str, reason: str, what: str, rest: tuple[str | None, str | None]) -> BenchlockError:
    """Create an error of the class with the code ``code``, bypassing that class's own ``__init__``."""
    kind = next((candidate for candidate in _classes(BenchlockError) if candidate.code == code), None) or _stand_in(
        code, reason
    )
    error = kind.__new__(kind)
    where, next_step = rest
    BenchlockError.__init__(error, what, where=where, next_step=next_step)
    return error


def _classes(kind: type[BenchlockError]) -> Iterator[type[BenchlockError]]:
    """Iterate over the class and its subclasses breadth first, so that base classes come first."""
    waiting = [kind]
    for subclass in waiting:
        if subclass.__name__ != _STAND_IN:
            yield subclass
            waiting += subclass.__subclasses__()


@lru_cache(maxsize=256)
def _stand_in(code: str, reason: str) -> type[BenchlockError]:
    """Create a class for an unknown error code, derived from the class of its reason."""
    fault = FAULTS.get(reason, FAULTS["error"])
    alike = (candidate for candidate in reversed(_REASONS) if FAULTS[candidate.code].exit_code == fault.exit_code)
    base = next((candidate for candidate in _REASONS if candidate.code == reason), None) or next(
        alike, InvalidInputError
    )
    return type(_STAND_IN, (type(_STAND_IN, (base,), {"code": fault.reason}),), {"code": code})
