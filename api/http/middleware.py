"""ASGI middleware: request ids, the access log, metrics, timeouts, and connections of requests."""

import asyncio
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Callable
from contextlib import closing
from contextvars import ContextVar
from typing import Any, Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from benchlock.api.http.request_limits import RELEASE_SLOTS
from benchlock.api.http.responses import send_error
from benchlock.api.http.service_settings import MAX_HEADER_BYTES
from benchlock.api.http.service_state import SHUTDOWN_ERROR, UNROUTED, Service
from benchlock.api.http.slow_client_flow_control import (
    METHODS_WITH_BODY,
    ClientLeftError,
    SlowReaderError,
    TimedSend,
    announced_length,
    drop_body,
    receive_with_timeout,
)
from benchlock.api.service_log import FAILURE_REASON, REQUEST_ID, log
from benchlock.artifacts.errors import BenchlockError, BusyError, InvalidInputError
from benchlock.registry.auth.audit_log import DenialLog
from benchlock.registry.auth.permissions import ANONYMOUS, Actor, Outcome, act_as, get_actor
from benchlock.registry.auth.token_format import mask_tokens

_DESCRIPTORS: Final = "/dev/fd"

Address = tuple[str, str]

CONNECTION_ADDRESSES: Final = ContextVar[tuple[Address, Address] | None]("ENDS", default=None)
"""The addresses of the server and the client, or of the proxy between them, of the current request's connection."""


def track_connection(app: ASGIApp) -> ASGIApp:
    """Wrap ``app`` so that ``close_connection`` works while it handles a request."""

    async def track(scope: Scope, receive: Receive, send: Send) -> None:
        CONNECTION_ADDRESSES.set((_socket_address(scope.get("server")), _socket_address(scope.get("client"))))
        await app(scope, receive, send)

    return track


def close_connection() -> bool:
    """Shut down the connection of the current request, which frees its unsent data; return whether it was found.

    To the server this looks as if the client had closed the connection.
    """
    ends = CONNECTION_ADDRESSES.get()
    if ends is None:
        return False
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - the names are enough
        connection = _duplicate_socket(int(name))
        if connection is None:
            continue
        with closing(connection):
            try:
                if (_socket_address(connection.getsockname()), _socket_address(connection.getpeername())) == ends:
                    connection.shutdown(socket.SHUT_RDWR)
                    return True
            except OSError:  # a listening or closed socket
                continue
    return False


def _duplicate_socket(descriptor: int) -> socket.socket | None:
    """Return a duplicate of a socket's descriptor, None if it is not a socket or was closed meanwhile."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        other = os.dup(descriptor)
    except OSError:
        return None
    try:
        return socket.socket(fileno=other)
    except OSError:
        os.close(other)
        return None


def _socket_address(address: Any) -> Address:  # noqa: ANN401 - an address of ASGI or of a socket
    host, port = address[:2] if isinstance(address, tuple) and len(address) > 1 else ("", "")
    return str(host), str(port)


_REQUEST_LINE: Final = len("  HTTP/1.1\r\n\r\n")
_HEADER_LINE: Final = len(": \r\n")


class HeadersTooLargeError(InvalidInputError):
    """A request line and headers that are larger than the limit."""

    code = "head-too-large"


def header_size(scope: HTTPScope) -> int:
    """Return the bytes of the request line and the headers in HTTP/1.1, with single spaces."""
    target = len(scope["raw_path"]) + (len(scope["query_string"]) + 1 if scope["query_string"] else 0)
    headers = sum(len(name) + len(value) + _HEADER_LINE for name, value in scope["headers"])
    return len(scope["method"]) + target + _REQUEST_LINE + headers


_PREFIXED: Final = re.compile(r"^(/v1/(job|run|token)s/)\2/(?=[0-9a-z]{26}(?:/|$))")
"""A path with the whole identifier of a job, run or token: clients generated from the OpenAPI document send its slash
as ``%2F``, which the server has decoded by then."""
HEADER: Final = b"x-request-id"
_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_ID_BYTES: Final = 12
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_CHANGING_METHODS: Final = METHODS_WITH_BODY | {"DELETE"}
_DENIED_STATUSES: Final = frozenset((401, 403))
_FIRST_ERROR_STATUS: Final = 400
_CLIENT_LEFT: Final = 499
"""The status in log and metrics of a response whose client disconnected before its end."""
_QUIET_ROUTES: Final = frozenset(("/v1/health", "/v1/ready", "/v1/metrics"))
"""Routes that machines request every few seconds: successful responses are counted, but not logged."""


class RequestMiddleware:
    """Middleware that assigns a request id, enforces timeouts, measures and logs each request.

    A client's own request id is used if it is a plain word.
    """

    def __init__(self, app: ASGIApp, service: Service, refusals: DenialLog) -> None:
        """Wrap ``app``, and record denied requests in ``refusals``."""
        self._app = app
        self._work = service.work
        self._metrics = service.metrics
        self._grace = service.grace
        self._settings = service.settings
        self._memory = service.whole_answers
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; websockets are closed."""
        if scope["type"] == ScopeType.WEBSOCKET:
            await send({"type": "websocket.close", "code": 1008, "reason": "not served"})
            return
        began, request_id = time.perf_counter(), _request_id(scope)
        scope["path"] = _PREFIXED.sub(r"\1", scope["path"])
        REQUEST_ID.set(request_id)
        FAILURE_REASON.set("")
        RELEASE_SLOTS.set(None)
        act_as(Actor(ANONYMOUS.id, ANONYMOUS.scopes, request_id))
        if scope["method"] in METHODS_WITH_BODY:
            receive = receive_with_timeout(receive, self._settings, announced_length(scope))
        headers = ((HEADER, request_id.encode()), (b"x-content-type-options", b"nosniff"))
        response = TimedSend(send, self._settings, self._memory, headers)
        timed_send = drop_body(response) if scope["method"] == "HEAD" else response
        self._metrics.in_flight.inc()
        try:
            if header_size(scope) > MAX_HEADER_BYTES:
                await send_error(
                    timed_send,
                    HeadersTooLargeError(f"the headers of the request have more than {MAX_HEADER_BYTES} bytes"),
                )
            else:
                await self._run_app(scope, receive, timed_send, lambda: response.status is not None)
        except ClientLeftError:
            response.status = _CLIENT_LEFT
            raise
        finally:
            status = response.status or 500
            self._metrics.in_flight.dec()
            leave = RELEASE_SLOTS.get()
            if leave is not None:
                leave()
            is_repeated = status in _DENIED_STATUSES and not self._is_first(scope)
            self._log_response(scope, status, time.perf_counter() - began, is_repeated=is_repeated)
        if status >= _FIRST_ERROR_STATUS and not self._grace.is_over and not is_repeated:
            await self._record_failure(scope, status)

    def _is_first(self, scope: HTTPScope) -> bool:
        """Check whether no equal denial was logged recently; repeated ones are counted (``registry.auth``)."""
        action, target = f"{scope['method']} {scope.get('path_template') or UNROUTED}", scope["path"]
        client = scope.get("client")
        source = "" if client is None else client[0]
        return self._refusals.repeats.is_first(get_actor(), action, target, FAILURE_REASON.get(), source=source)

    async def _run_app(self, scope: HTTPScope, receive: Receive, send: Send, began: Callable[[], bool]) -> None:
        """Run the application; log a response that was cut after it ``began``, and close its connection."""
        cut: BenchlockError | None = None
        try:
            with self._grace.cut_at_end():
                await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._grace.is_over:
                raise
            if began():
                FAILURE_REASON.set("cut: the service stopped")
                close_connection()
            else:
                await send_error(send, SHUTDOWN_ERROR)
        except Exception as error:
            cause = error.__cause__ or error  # Litestar wraps an error after the start of a response
            if isinstance(cause, BusyError) and not began():
                await send_error(send, cause)
                return
            FAILURE_REASON.set(f"cut: {cause}")
            close_connection()
            if not isinstance(cause, SlowReaderError | ClientLeftError):
                log.error("a response was cut off", exc_info=cause)
                raise
            self._metrics.count_broken(cause.reason)
            # Raised anew, outside of this block: its traceback and context would keep the response body in a cycle.
            cut = type(cause)(cause.what, next_step=cause.next_step)
            del cause
        if cut is not None:
            raise cut

    async def _record_failure(self, scope: HTTPScope, status: int) -> None:
        """Record denied requests and failed changes in the audit log."""
        route, method = scope.get("path_template"), scope["method"]
        if not route or not (status in _DENIED_STATUSES or method in _CHANGING_METHODS):
            return
        outcome: Outcome = "refused" if status in _DENIED_STATUSES else "failed"
        action, target = f"{method} {route}", scope["path"]
        try:
            await self._work.do(self._refusals.note, get_actor(), action, target, outcome, FAILURE_REASON.get())
        except BenchlockError as error:  # the response has been sent already
            log.error("cannot write a refusal to the audit log: %s", error.what)

    def _log_response(self, scope: HTTPScope, status: int, seconds: float, *, is_repeated: bool) -> None:
        route = scope.get("path_template") or UNROUTED
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.count_response(method, route, status, seconds)
        if is_repeated or (route in _QUIET_ROUTES and status < _FIRST_ERROR_STATUS):
            return
        client, reason = scope.get("client"), FAILURE_REASON.get()
        fields = {
            "method": method,
            "path": scope["path"],
            "route": route,
            "status": status,
            "seconds": round(seconds, 6),
            "caller": get_actor().id,
            "client": None if client is None else client[0],
        } | ({"reason": reason} if reason else {})
        log.info("answered", extra={"fields": fields})


def _request_id(scope: HTTPScope) -> str:
    for name, value in scope["headers"]:
        if name == HEADER and _ID.fullmatch(value) and mask_tokens(value.decode()) == value.decode():
            return value.decode()
    return secrets.token_hex(_ID_BYTES)
