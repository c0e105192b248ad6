"""What the OpenAPI document says of answers: one form of problems for every status, and examples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example

from benchlock.api.faults import FAULTS, INTERNAL
from benchlock.api.wire.problems import MEDIA_TYPE, TYPE, Problem

Responses = Mapping[int, ResponseSpec]


@dataclass
class DocumentedResponse(ResponseSpec):
    """A response of the OpenAPI document with its headers: their names, each with what it says."""

    headers: Mapping[str, str] = field(default_factory=dict)


def example(value: Any) -> Example:  # noqa: ANN401 - a JSON value
    """Return ``value`` as an example, encoded: Litestar would drop its nulls."""
    return Example(value=msgspec.Raw(msgspec.json.encode(value)))


_ANYWHERE: Final = ("malformed", "too-many-requests", "unavailable")
_WITH_TOKEN: Final = ("unauthorized", "forbidden")
_WITH_BODY: Final = ("too-slow", "too-large", "unsupported-media", "invalid-input")


def answers(
    *reasons: str, public: bool = False, body: bool = False, success: Mapping[int, ResponseSpec] | None = None
) -> dict[int, ResponseSpec]:
    """The answers of a route: ``success``, and a problem for each of the ``reasons`` and for those of any route.

    ``public`` routes need no token; ``body``: the request has one.
    """
    told = (*reasons, *_ANYWHERE, *(() if public else _WITH_TOKEN), *(_WITH_BODY if body else ()))
    by_status: dict[int, list[str]] = {}
    for reason in dict.fromkeys(told):
        by_status.setdefault(FAULTS[reason].status, []).append(reason)
    return {**(success or {}), **{status: _problem(status, some) for status, some in sorted(by_status.items())}}


def content(
    kind: Any,  # noqa: ANN401 - any type that Litestar can describe
    description: str,
    value: Any = None,  # noqa: ANN401 - a JSON value
    media_type: str = "application/json",
) -> ResponseSpec:
    """A body of ``kind``, with ``value`` for an example."""
    examples = None if value is None else [example(value)]
    return ResponseSpec(
        data_container=kind,
        description=description,
        examples=examples,
        media_type=media_type,
        generate_examples=False,
    )


def nothing(description: str, headers: Mapping[str, str] | None = None) -> ResponseSpec:
    """An answer without a body; ``headers`` are described by their names."""
    return DocumentedResponse(
        data_container=None, description=description, generate_examples=False, headers=headers or {}
    )


def _problem(status: int, reasons: list[str]) -> ResponseSpec:
    first = FAULTS.get(reasons[0], INTERNAL)
    value = {
        "type": f"{TYPE}{first.reason}",
        "title": first.title,
        "status": status,
        "detail": "what happened",
        "code": first.reason,
        "where": "where it did",
        "next": "what to do about it",
        "request_id": "0f6e0c5cf41a4b86b5d1a4f2",
    }
    described = "; ".join(FAULTS[reason].title for reason in reasons)
    return content(Problem, described, value, MEDIA_TYPE)
