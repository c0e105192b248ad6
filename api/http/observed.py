"""Around the whole application: an id for each request, a line in the log, the figures, bounded patience."""

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from benchlock.api.http.answers import send_error
from benchlock.api.http.connections import close_connection
from benchlock.api.http.grace import ENDED
from benchlock.api.http.header_size import HeadersTooLargeError, header_size
from benchlock.api.http.logs import REQUEST_ID, TOLD, log
from benchlock.api.http.patience import (
    WITH_BODY,
    ClientLeftError,
    PatientSend,
    SlowReaderError,
    announced,
    patiently_received,
    without_body,
)
from benchlock.api.http.places import LEAVE
from benchlock.api.http.service import Service
from benchlock.api.http.settings import MAX_HEADER_BYTES
from benchlock.api.http.tally import UNROUTED
from benchlock.artifacts.errors import BenchlockError, BusyError
from benchlock.registry.access.actors import ANONYMOUS, Actor, act_as, acting
from benchlock.registry.access.log import Outcome
from benchlock.registry.access.refusals import Refusals
from benchlock.registry.access.secret import masked

HEADER: Final = b"x-request-id"
_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_ID_BYTES: Final = 12
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_CHANGING: Final = WITH_BODY | {"DELETE"}
_REFUSED: Final = frozenset((401, 403))
_ERRORS: Final = 400
_LEFT: Final = 499
"""The status of an answer whose client left, in the log and in the figures: nobody has seen it."""
_QUIET: Final = frozenset(("/v1/health", "/v1/ready", "/v1/metrics"))
"""Asked every few seconds by machines: their answers are counted, and logged only where they are no success."""


class Observed:
    """An application that is watched. What the client calls its request is taken over, where it is a plain word."""

    def __init__(self, app: ASGIApp, service: Service, refusals: Refusals) -> None:
        self._app = app
        self._work = service.work
        self._tally = service.tally
        self._grace = service.grace
        self._settings = service.settings
        self._memory = service.whole_answers
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.WEBSOCKET:
            await send({"type": "websocket.close", "code": 1008, "reason": "not served"})
            return
        await self._observe(scope, receive, send)

    async def _observe(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        began, status, started = time.perf_counter(), 500, False
        given = _id(scope)
        REQUEST_ID.set(given)
        TOLD.set("")
        LEAVE.set(None)
        act_as(Actor(ANONYMOUS.id, ANONYMOUS.scopes, given))

        async def answer(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                message["headers"] = [
                    *message["headers"],
                    (HEADER, given.encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
            await send(message)

        if scope["method"] in WITH_BODY:
            receive = patiently_received(receive, self._settings, announced(scope))
        patient: Send = PatientSend(answer, self._settings, self._memory)
        if scope["method"] == "HEAD":
            patient = without_body(patient)
        self._tally.under_way.inc()
        try:
            if header_size(scope) > MAX_HEADER_BYTES:
                await send_error(
                    patient, HeadersTooLargeError(f"the headers of the request have more than {MAX_HEADER_BYTES} bytes")
                )
            else:
                await self._answer(scope, receive, patient, lambda: started)
        except ClientLeftError:
            status = _LEFT
            raise
        finally:
            self._tally.under_way.dec()
            leave = LEAVE.get()
            if leave is not None:
                leave()
            is_repeated = status in _REFUSED and not self._is_first(scope)
            self._tell(scope, status, time.perf_counter() - began, is_repeated=is_repeated)
        if not self._grace.is_over and not is_repeated:
            await self._write_down(scope, status)

    def _is_first(self, scope: HTTPScope) -> bool:
        """Whether no refusal like this one was logged lately; those after it are counted (``registry.access``)."""
        action, target = f"{scope['method']} {scope.get('path_template') or UNROUTED}", scope["path"]
        client = scope.get("client")
        source = "" if client is None else client[0]
        return self._refusals.repeats.is_first(acting(), action, target, TOLD.get(), source=source)

    async def _answer(self, scope: HTTPScope, receive: Receive, send: Send, began: Callable[[], bool]) -> None:
        """What cuts an answer that ``began`` stands in the log: nobody makes another one of it."""
        cut: BenchlockError | None = None
        try:
            with self._grace.over_this():
                await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._grace.is_over:
                raise
            if began():
                TOLD.set("cut: the service ended")
                close_connection()
            else:
                await send_error(send, ENDED)
        except Exception as error:
            cause = error.__cause__ or error  # Litestar says that the answer had begun, from what happened
            if isinstance(cause, BusyError) and not began():
                await send_error(send, cause)
                return
            TOLD.set(f"cut: {cause}")
            close_connection()
            if not isinstance(cause, SlowReaderError | ClientLeftError):
                log.error("an answer was cut", exc_info=cause)
                raise
            self._tally.broken(cause.reason)
            # Raised anew, outside of this block: its traceback and context would keep what was being sent in a cycle.
            cut = type(cause)(cause.what, next_step=cause.next_step)
            del cause
        if cut is not None:
            raise cut

    async def _write_down(self, scope: HTTPScope, status: int) -> None:
        """What was refused, and what was to change something and failed, for those who ask who did what."""
        route, method = scope.get("path_template"), scope["method"]
        if not route or not (status in _REFUSED or (status >= _ERRORS and method in _CHANGING)):
            return
        outcome: Outcome = "refused" if status in _REFUSED else "failed"
        action, target = f"{method} {route}", scope["path"]
        try:
            await self._work.do(self._refusals.note, acting(), action, target, outcome, TOLD.get())
        except BenchlockError as error:  # the answer is given already
            log.error("a refusal is not written down: %s", error.what)

    def _tell(self, scope: HTTPScope, status: int, seconds: float, *, is_repeated: bool) -> None:
        route = scope.get("path_template") or UNROUTED
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._tally.answered(method, route, status, seconds)
        if is_repeated or (route in _QUIET and status < _ERRORS):
            return
        client, told = scope.get("client"), TOLD.get()
        fields = {
            "method": method,
            "path": scope["path"],
            "route": route,
            "status": status,
            "seconds": round(seconds, 6),
            "caller": acting().id,
            "client": None if client is None else client[0],
        } | ({"told": told} if told else {})
        log.info("answered", extra={"fields": fields})


def _id(scope: HTTPScope) -> str:
    for name, value in scope["headers"]:
        if name == HEADER and _ID.fullmatch(value) and masked(value.decode()) == value.decode():
            return value.decode()
    return secrets.token_hex(_ID_BYTES)
