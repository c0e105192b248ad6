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
    SILENCE_SECONDS,
    ServerResponse,
    Session,
    TransientError,
    pause,
    retry_attempts,
)

_TOLERANCE: Final = timedelta(seconds=2)
"""``Date`` has whole seconds: a smaller difference between the clocks is none that is known."""


class ServerClock:
    """Tells the server's time, so that records of a machine whose own clock is wrong have right times.

    Until an answer said the time, and where the clocks agree, it is the machine's own time.
    """

    def __init__(self, own: Callable[[], datetime] | None = None, elapsed: Callable[[], float] | None = None) -> None:
        self._own = own or _local_time
        self._elapsed = elapsed or _since_boot
        self._base: datetime | None = None
        self._turn = Lock()

    def note(self, date: str | None) -> None:
        """Take over the ``Date`` of an answer that arrived just now; what is no date is ignored."""
        try:
            said = parsedate_to_datetime(date or "")
        except ValueError:
            return
        if said.tzinfo is None:
            return
        base = said - timedelta(seconds=self._elapsed())
        with self._turn:  # whole seconds are never late: of values that agree, the latest is the most exact
            if self._base is None or not -_TOLERANCE < self._base - base < _TOLERANCE:
                self._base = base
            self._base = max(self._base, base)

    @property
    def is_set(self) -> bool:
        """Whether an answer said the time."""
        return self._base is not None

    def __call__(self) -> datetime:
        """Return the time."""
        own, base = self._own(), self._base
        if base is None:
            return own
        there = base + timedelta(seconds=self._elapsed())
        return own if -_TOLERANCE < own - there < _TOLERANCE else there


def _since_boot() -> float:
    """Seconds that no setting of a clock changes, and in which a suspended host's sleep counts."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _local_time() -> datetime:
    return datetime.now(UTC)


Document = TypeVar("Document")

_FAILED: Final = 400
_BUSY: Final = "too-many-requests"
_JSON: Final = {"content-type": "application/json"}
_UNKNOWN_HERE: Final = ("malformed", "method-not-allowed", "unsupported-media")


class Health(msgspec.Struct, frozen=True):
    """What any server of benchlock says of itself to whoever asks."""

    status: str
    version: str
    commit: str = "unknown"
    schema: str = "unknown"


class ApiClient:
    """Documents from and to one server. Errors are those that the registry raised there."""

    def __init__(self, session: Session, version: str, *, has_token: bool) -> None:
        """``version`` is that of this benchlock."""
        self._session = session
        self._version = version
        self._has_token = has_token
        self.clock = ServerClock()
        """Tells the server's time, as its answers say it."""

    @property
    def where(self) -> str:
        """The server's URL."""
        return str(self._session.home)

    def get(self, path: str, answer: type[Document], /, **query: str | int | None) -> Document:
        """The document at ``path``. What the query leaves open is ``None``.

        Raises:
            UnavailableError: the server does not answer, or is of another version.
            InvalidInputError: the URL is that of no server of benchlock.
            BenchlockError: what the server says.
        """
        given = {name: value for name, value in query.items() if value is not None}
        return self._read("GET", f"{path}?{urlencode(given)}" if given else path, None, answer)

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
        """What the server makes of ``body``, which may be sent ``again`` where no answer came. Raises as ``get``.

        ``patience`` is for how many seconds it may be silent meanwhile. A ``body`` of None is none.
        """
        content = None if body is None else msgspec.json.encode(body)
        return self._read(method, path, content, kind, patience, again=again)

    def tell(self, method: str, path: str, body: object, patience: float = SILENCE_SECONDS) -> None:
        """Say ``body`` once; there is nothing to be answered. Raises as ``get``, and takes ``patience`` as ``send``."""
        self._answered(method, path, msgspec.json.encode(body), patience, again=False)

    def health(self) -> Health:
        """What the server says of itself.

        Raises:
            UnavailableError: it does not answer.
            InvalidInputError: it is no server of benchlock.
        """
        answer = self._ask("GET", "health", None, again=False)
        try:
            return msgspec.json.decode(answer.content, type=Health)
        except msgspec.MsgspecError:
            raise self._no_benchlock(answer) from None

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
        answer = self._answered(method, path, body, patience, again=again)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.MsgspecError:
            self._explain(answer)

    def _answered(self, method: str, path: str, body: bytes | None, patience: float, *, again: bool) -> ServerResponse:
        """An answer that is no refusal."""
        answer = self._ask(method, path, body, patience, again=again)
        if answer.status >= _FAILED:
            self._refuse(answer)
        return answer

    def _ask(
        self, method: str, path: str, body: bytes | None, patience: float = SILENCE_SECONDS, *, again: bool
    ) -> ServerResponse:
        def attempt() -> ServerResponse:
            headers, url = None if body is None else _JSON, self._session.url(path)
            answer = self._session.once(method, url, headers=headers, content=body, seconds=patience)
            self.clock.note(answer.headers.get("date"))
            return answer

        try:
            return (retry_attempts if again else _send_once)(attempt)
        except TransientError as error:
            problem = _parse_problem(error.content)
            if problem is None:
                raise
            raise decode_problem(problem) from error

    def _refuse(self, answer: ServerResponse) -> NoReturn:
        """Raise what the server says."""
        problem = (
            _parse_problem(answer.content) if answer.headers.get("content-type", "").startswith(MEDIA_TYPE) else None
        )
        if problem is None:
            self._explain(answer)
        error = decode_problem(problem)
        if problem.code in _UNKNOWN_HERE or problem.detail == NOTHING_SERVED:
            self._refuse_other_version(error)
        if problem.code == "unauthorized" and not self._has_token:
            error.next_step = "set BENCHLOCK_TOKEN: whoever runs the server makes one with `benchlock token create`"
        raise error

    def _explain(self, answer: ServerResponse) -> NoReturn:
        """Raise why an answer can not be understood."""
        self._refuse_other_version(self._no_benchlock(answer))
        raise UnavailableError(
            f"{self.where} answers {answer.status}, and what it says is not understood",
            where=answer.url,
            next_step="look whether something stands in between that changes answers: a proxy, say",
        )

    def _refuse_other_version(self, cause: BenchlockError) -> None:
        """Nothing, where the server is of this version.

        Raises:
            UnavailableError: it is of another one, which explains the ``cause``.
        """
        found = self.health().version
        if found != self._version:
            raise UnavailableError(
                f"{self.where} is benchlock {found}, and this is {self._version}: they do not understand each other "
                f"here ({cause.what})",
                where=self.where,
                next_step=f"use benchlock {found}, or have the server brought to {self._version}",
            )

    def _no_benchlock(self, answer: ServerResponse) -> InvalidInputError:
        return InvalidInputError(
            f"{self.where} is no registry of benchlock: it answers {answer.status} with "
            f"{answer.headers.get('content-type') or 'nothing that says what it is'}",
            where=answer.url,
            next_step=self._address_step(),
        )

    def _address_step(self) -> str:
        """Return how to write the address of the server."""
        base = str(self.where)
        if base.endswith("/v1"):
            return f"leave /v1 out: {base.removesuffix('/v1')}"
        return "name the URL that `benchlock serve` prints, with the prefix under which it is published, if any"


def _send_once(attempt: Callable[[], ServerResponse]) -> ServerResponse:
    """The answer of one attempt; one that the server had no time for was none."""
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
