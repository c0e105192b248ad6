"""The client of the HTTP API: requests, responses, errors and the server's clock."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Final, NoReturn, TypeVar
from urllib.parse import urlencode

import msgspec

from benchlock.api.schemas.problem_details import MEDIA_TYPE, NOTHING_SERVED, Problem, decode_problem
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.net.http_session import (
    ATTEMPTS,
    ServerResponse,
    Session,
    TransientError,
    pause,
    retry_attempts,
)
from benchlock.artifacts.net.network_policy import SILENCE_SECONDS

_TOLERANCE: Final = timedelta(seconds=2)
"""``Date`` has whole seconds, so a smaller difference between the clocks is not significant."""


class ServerClock:
    """The server's time, so that records of a machine with a wrong clock have correct times.

    It is the machine's own time until a response has a ``Date``, and if the clocks agree.
    """

    def __init__(self, own: Callable[[], datetime] | None = None, elapsed: Callable[[], float] | None = None) -> None:
        """Use ``own`` for the machine's time and ``elapsed`` for a monotonic time in seconds."""
        self._own = own or _local_time
        self._elapsed = elapsed or _since_boot
        self._base: datetime | None = None
        self._lock = Lock()

    def note(self, date: str | None) -> None:
        """Update the clock from the ``Date`` of a response that has just arrived; an invalid date is ignored."""
        try:
            server_time = parsedate_to_datetime(date or "")
        except ValueError:
            return
        if server_time.tzinfo is None:
            return
        base = server_time - timedelta(seconds=self._elapsed())
        with self._lock:  # ``Date`` is rounded down: of consistent values, the latest is the most accurate
            if self._base is None or not -_TOLERANCE < self._base - base < _TOLERANCE:
                self._base = base
            self._base = max(self._base, base)

    @property
    def is_set(self) -> bool:
        """Return whether a response has set the clock."""
        return self._base is not None

    def __call__(self) -> datetime:
        """Return the time."""
        own, base = self._own(), self._base
        if base is None:
            return own
        there = base + timedelta(seconds=self._elapsed())
        return own if -_TOLERANCE < own - there < _TOLERANCE else there


def _since_boot() -> float:
    """Return seconds since boot, which include suspended time and do not depend on the clock's settings."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _local_time() -> datetime:
    return datetime.now(UTC)


Document = TypeVar("Document")

_FIRST_ERROR_STATUS: Final = 400
_BUSY: Final = "too-many-requests"
_JSON: Final = {"content-type": "application/json"}
_UNKNOWN_HERE: Final = ("malformed", "method-not-allowed", "unsupported-media")


class Health(msgspec.Struct, frozen=True):
    """The status and build of a server, which it returns without authentication."""

    status: str
    version: str
    commit: str = "unknown"
    schema: str = "unknown"


class ApiClient:
    """A client of one server. It raises the errors that the registry raised on the server."""

    def __init__(self, session: Session, version: str, *, has_token: bool) -> None:
        """Send requests over ``session``; ``version`` is the client's own."""
        self._session = session
        self._version = version
        self._has_token = has_token
        self.clock = ServerClock()
        """The server's time, from the ``Date`` of its responses."""

    @property
    def where(self) -> str:
        """Return the server's URL."""
        return self._session.name

    def close(self) -> None:
        """Close all connections to the server."""
        self._session.close()

    def get(self, path: str, answer: type[Document], /, **query: str | int | None) -> Document:
        """Fetch the document at ``path``; query parameters that are None are left out.

        Raises:
            UnavailableError: The server does not answer, or has another version.
            InvalidInputError: The URL is not a benchlock server.
            BenchlockError: The error of the server's response.
        """
        parameters = {name: value for name, value in query.items() if value is not None}
        return self._read("GET", f"{path}?{urlencode(parameters)}" if parameters else path, None, answer)

    def send(
        self,
        method: str,
        path: str,
        body: object,
        kind: type[Document],
        *,
        again: bool = True,
        patience: float = SILENCE_SECONDS,
    ) -> Document:
        """Send ``body`` and decode the response.

        Args:
            method: The HTTP method.
            path: The path below the API's root.
            body: The value to send as JSON; None for no body.
            kind: The type of the response.
            again: Whether the request may be repeated if no response arrived.
            patience: Seconds of silence until the request fails.

        Raises:
            BenchlockError: As ``get``.
        """
        content = None if body is None else msgspec.json.encode(body)
        return self._read(method, path, content, kind, patience, again=again)

    def send_once(self, method: str, path: str, body: object, patience: float = SILENCE_SECONDS) -> None:
        """Send ``body`` once and ignore the content of the response.

        Args:
            method: The HTTP method.
            path: The path below the API's root.
            body: The value to send as JSON.
            patience: Seconds of silence until the request fails.

        Raises:
            BenchlockError: As ``get``.
        """
        self._request(method, path, msgspec.json.encode(body), patience, again=False)

    def health(self) -> Health:
        """Fetch the server's health.

        Raises:
            UnavailableError: The server does not answer.
            InvalidInputError: It is not a benchlock server.
        """
        answer = self._exchange("GET", "health", None, again=False)
        try:
            return msgspec.json.decode(answer.content, type=Health)
        except msgspec.MsgspecError:
            raise self._not_benchlock_error(answer) from None

    def _read(
        self,
        method: str,
        path: str,
        body: bytes | None,
        kind: type[Document],
        patience: float = SILENCE_SECONDS,
        *,
        again: bool = True,
    ) -> Document:
        answer = self._request(method, path, body, patience, again=again)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.MsgspecError:
            self._raise_undecodable(answer)

    def _request(self, method: str, path: str, body: bytes | None, patience: float, *, again: bool) -> ServerResponse:
        """Return the response; raise the error of an unsuccessful one."""
        answer = self._exchange(method, path, body, patience, again=again)
        if answer.status >= _FIRST_ERROR_STATUS:
            self._raise_problem(answer)
        return answer

    def _exchange(
        self, method: str, path: str, body: bytes | None, patience: float = SILENCE_SECONDS, *, again: bool
    ) -> ServerResponse:
        def attempt() -> ServerResponse:
            headers, url = None if body is None else _JSON, self._session.url(path)
            answer = self._session.ask_once(method, url, headers=headers, content=body, seconds=patience)
            self.clock.note(answer.headers.get("date"))
            return answer

        try:
            return (retry_attempts if again else _send_once)(attempt)
        except TransientError as error:
            problem = _parse_problem(error.content)
            if problem is None:
                raise
            raise decode_problem(problem) from error

    def _raise_problem(self, answer: ServerResponse) -> NoReturn:
        """Raise the error that the response describes."""
        problem = (
            _parse_problem(answer.content) if answer.headers.get("content-type", "").startswith(MEDIA_TYPE) else None
        )
        if problem is None:
            self._raise_undecodable(answer)
        error = decode_problem(problem)
        if problem.code in _UNKNOWN_HERE or problem.detail == NOTHING_SERVED:
            self._refuse_other_version(error)
        if problem.code == "unauthorized" and not self._has_token:
            error.next_step = (
                "set BENCHLOCK_TOKEN; the operator of the server creates a token with `benchlock token create`"
            )
        raise error

    def _raise_undecodable(self, answer: ServerResponse) -> NoReturn:
        """Raise an error that explains why a response cannot be decoded."""
        self._refuse_other_version(self._not_benchlock_error(answer))
        raise UnavailableError(
            f"{self.where} answers {answer.status} with an unknown body",
            where=answer.url,
            next_step="check whether a proxy changes the responses",
        )

    def _refuse_other_version(self, cause: BenchlockError) -> None:
        """Raise if the server has another version than this client.

        Raises:
            UnavailableError: It has another version, which explains the ``cause``.
        """
        other = self.health().version
        if other != self._version:
            raise UnavailableError(
                f"{self.where} is benchlock {other}, which is not compatible with version {self._version} "
                f"here ({cause.what})",
                where=self.where,
                next_step=f"use benchlock {other}, or upgrade the server to {self._version}",
            )

    def _not_benchlock_error(self, answer: ServerResponse) -> InvalidInputError:
        return InvalidInputError(
            f"{self.where} is not a benchlock registry: it answers {answer.status} with "
            f"{answer.headers.get('content-type') or 'no content type'}",
            where=answer.url,
            next_step=self._address_step(),
        )

    def _address_step(self) -> str:
        """Return how to write the address of the server."""
        base = str(self.where)
        if base.endswith("/v1"):
            return f"remove /v1: {base.removesuffix('/v1')}"
        return "use the URL that `benchlock serve` prints, with its public prefix, if any"


def _send_once(attempt: Callable[[], ServerResponse]) -> ServerResponse:
    """Send one request; repeat it only if the server rejected it for lack of capacity."""
    for number in range(ATTEMPTS - 1):
        try:
            return attempt()
        except TransientError as error:
            problem = _parse_problem(error.content)
            if problem is None or problem.code != _BUSY:
                raise
            pause(number)
    return attempt()


def _parse_problem(content: bytes) -> Problem | None:
    try:
        return msgspec.json.decode(content, type=Problem)
    except msgspec.MsgspecError:
        return None
