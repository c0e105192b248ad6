"""Requests to the API server of Kubernetes, with bounded answers. The only module that imports the official client.

The library finds the server, its CA and the credentials. Documents are read by this project's own types.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
import urllib3
from kubernetes import client, config
from kubernetes.config import incluster_config

from benchlock.artifacts.errors import InvalidInputError, RefusedError, UnavailableError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.evaluator.launchers.node_worker import describe_error

_TIMEOUTS: Final = (5.0, 20.0)
"""Seconds to connect, and between two parts of an answer."""
PAGE: Final = 250
"""Objects of a page: a node has 50 KiB at most as long as it is not stuffed with annotations."""
MAX_PAGES: Final = 100
MAX_BYTES: Final = 64 << 20
"""Bytes of an answer."""
_MAX_TEXT: Final = 500
_TRIES: Final = 4
_MAX_PAUSE: Final = 10.0
_PATIENCE: Final = 300.0
"""Seconds for which a request is refused before the launcher ends, if the server may have just started."""
_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 200, 401, 403, 404
_CONFLICT, _GONE, _TOO_MANY, _SERVER = 409, 410, 429, 500
_EXISTS: Final = "AlreadyExists"
_OF_QUOTA: Final = "exceeded quota"
_KINDS: Final = {"nodes": "/api/v1/nodes", "pods": "/api/v1/{}pods", "jobs": "/apis/batch/v1/{}jobs"}

T = TypeVar("T", bound=msgspec.Struct)


class _ListMeta(msgspec.Struct, frozen=True):
    next: str = msgspec.field(name="continue", default="")


@prepare_decoder
class _Page(msgspec.Struct, frozen=True):
    """A page of objects, each still in JSON."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


@prepare_decoder
class _Status(msgspec.Struct, frozen=True):
    """Why the API server refuses a request."""

    message: str = ""
    reason: str = ""


class KubernetesApi:
    """The API server, in the name of one user.

    A server that has just started refuses requests until it has read roles and accounts. So a request that it once
    permitted, and every one after it was away, is sent again as to a busy server, until ``_PATIENCE`` is over.

    Args:
        connection: The client of the library.
        namespace: The namespace of the launcher's objects.
        pause: Waits for seconds.
        clock: Returns seconds that never go back.
    """

    def __init__(
        self,
        connection: client.ApiClient,
        namespace: str,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is sent yet."""
        self.namespace = namespace
        self.connection = connection
        self._pause = pause
        self._clock = clock
        self._permitted: set[tuple[str, str]] = set()
        self._was_away = False
        self._refused: dict[tuple[str, str], float] = {}

    def list_all(self, kind: str, item: type[T], *, everywhere: bool = False, **query: str) -> list[T]:
        """List all objects of a kind.

        Args:
            kind: ``nodes``, ``pods`` or ``jobs``.
            item: The type of an object.
            everywhere: Whether those of all namespaces.
            query: The parameters of the request, such as ``labelSelector``.

        Raises:
            RefusedError: The API server refuses the credentials, or the permission is missing.
            UnavailableError: It does not answer, or its answer is too large.
        """
        path = self._path(kind, everywhere=everywhere)
        try:
            return [
                msgspec.json.decode(one, type=item) for page in self._pages(path, query) for one in page.items or ()
            ]
        except msgspec.DecodeError as error:
            raise UnavailableError(f"the API server sent an invalid document: {error}", where=path) from error

    def create(self, kind: str, document: Mapping[str, Any]) -> bool:
        """Create an object; return False if there is one of its name.

        Raises:
            InvalidInputError: The API server rejects the document.
            RefusedError: As ``list_all``.
            UnavailableError: As ``list_all``, or a quota is used up or changes at the same time.
        """
        path = self._path(kind)
        status, body = self._send("POST", path, document, accepted=(_CONFLICT,))
        answer = _read_status(body)
        if status == _CONFLICT and answer.reason != _EXISTS:
            raise UnavailableError(f"Kubernetes cannot create it now: {answer.message[:_MAX_TEXT]}", where=path)
        return status != _CONFLICT

    def delete(self, kind: str, name: str, uid: str) -> None:
        """Delete an object and its pods, unless it is gone or replaced.

        Raises:
            RefusedError: As ``list_all``.
            UnavailableError: As ``list_all``.
        """
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        path = f"{self._path(kind)}/{quote(name, safe='')}"
        self._send("DELETE", path, options, accepted=(_NOT_FOUND, _CONFLICT))

    def _path(self, kind: str, *, everywhere: bool = False) -> str:
        return _KINDS[kind].format("" if everywhere else f"namespaces/{quote(self.namespace, safe='')}/")

    def _pages(self, path: str, query: Mapping[str, str]) -> Iterator[_Page]:
        following = ""
        for _ in range(MAX_PAGES):
            more = {"continue": following} if following else {}
            status, body = self._send("GET", path, None, {**query, "limit": str(PAGE), **more}, accepted=(_GONE,))
            if status == _GONE:
                raise UnavailableError("the list of the API server changed while it was read", where=path)
            page = msgspec.json.decode(body, type=_Page)
            yield page
            following = page.metadata.next
            if not following:
                return
        raise UnavailableError(f"the list of the API server has more than {MAX_PAGES * PAGE} objects", where=path)

    def _send(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None,
        query: Mapping[str, str] | None = None,
        accepted: tuple[int, ...] = (),
    ) -> tuple[int, bytes]:
        """Send a request until it has an answer; a server that is busy or away is asked again, a few times."""
        problem = ""
        permission = (method, path.rpartition("/")[0] if method == "DELETE" else path)
        for attempt in range(_TRIES):
            try:
                status, headers, body = self._send_once(method, path, document, query or {})
            except (urllib3.exceptions.HTTPError, client.ApiException, OSError) as error:
                problem, pause, self._was_away = f"does not answer: {describe_error(error)}", 0.0, True
            else:
                if status < _OK + 100 or status in accepted:
                    self._permitted.add(permission)
                    self._refused.pop(permission, None)
                    self._was_away = False
                    return status, body
                refusal = _read_status(body)
                may_pass = status in (_UNAUTHORIZED, _FORBIDDEN) and self._may_pass(refusal, permission)
                if status != _TOO_MANY and status < _SERVER and not may_pass:
                    raise _refusal(status, refusal, path)
                self._was_away |= status >= _SERVER
                says = "still refuses the request" if may_pass else "is busy or fails"
                problem = f"{says}: status {status}: {refusal.message}"
                pause = _read_seconds(headers.get("Retry-After", ""))
            if attempt < _TRIES - 1:
                self._pause(max(pause, 0.2 * 2**attempt * random.uniform(1, 2)))  # noqa: S311 - no secret
        raise UnavailableError(
            f"the API server of Kubernetes {problem}"[:_MAX_TEXT],
            where=path,
            next_step="check the cluster with `kubectl cluster-info`, and the permissions with those of "
            "deploy/kubernetes/controller; the launcher keeps trying",
        )

    def _may_pass(self, refusal: _Status, permission: tuple[str, str]) -> bool:
        """Return whether a refusal may be that of a server that has just started."""
        if _OF_QUOTA in refusal.message or not (permission in self._permitted or self._was_away):
            return False
        now = self._clock()
        return now - self._refused.setdefault(permission, now) < _PATIENCE

    def _send_once(
        self, method: str, path: str, document: Mapping[str, Any] | None, query: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        serialized = self.connection.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=document,
            auth_settings=["BearerToken"],
        )
        answer = self.connection.call_api(*serialized, _request_timeout=_TIMEOUTS)
        body = b""
        try:
            body = answer.response.read(MAX_BYTES + 1, decode_content=True)
        finally:
            if len(body) > MAX_BYTES:
                answer.response.close()  # with the bytes that were not read
            answer.response.release_conn()
        if len(body) > MAX_BYTES:
            raise UnavailableError(f"the API server sent more than {MAX_BYTES} bytes", where=path)
        return answer.status, answer.headers, body


def connect(context: str, namespace: str) -> KubernetesApi:
    """Connect as the service account of this pod, or by the kubeconfig of this user.

    Args:
        context: The context of the kubeconfig; empty for this pod, or else the current context.
        namespace: The namespace of workers; empty for that of this pod or of the context.

    Raises:
        InvalidInputError: There is neither a service account nor a valid kubeconfig with the context.
    """
    configuration = client.Configuration()
    try:
        default_namespace = _configure(configuration, context)
    except Exception as error:  # of parsers, too
        raise InvalidInputError(
            f"cannot find a Kubernetes cluster: {describe_error(error)}",
            where=f"context {context!r} of the kubeconfig" if context else "kubeconfig",
            next_step="run it in a pod with a service account, or set KUBECONFIG; `kubectl config get-contexts` "
            "lists the contexts",
        ) from error
    configuration.retries = False  # and no redirects
    return KubernetesApi(client.ApiClient(configuration), namespace or default_namespace or "default")


def _configure(configuration: client.Configuration, context: str) -> str:
    """Fill in the server and the credentials; return the namespace that goes with them."""
    if not context:
        try:
            config.load_incluster_config(configuration)
        except config.ConfigException:
            pass
        else:
            file = Path(incluster_config.SERVICE_TOKEN_FILENAME).with_name("namespace")
            return file.read_text(encoding="utf-8").strip()
    files = os.environ.get("KUBECONFIG")  # the library reads it when it is imported
    config.load_kube_config(files, context or None, configuration, persist_config=False)
    contexts, current = config.list_kube_config_contexts(files)
    chosen = next((one for one in contexts if one["name"] == context), current)
    return str(chosen["context"].get("namespace", ""))


def _refusal(status: int, answer: _Status, path: str) -> Exception:
    """Return the error for a refused request, which would be refused again."""
    message = " ".join(answer.message.split())[:_MAX_TEXT] or f"status {status}"
    if status == _UNAUTHORIZED:
        return RefusedError(
            f"Kubernetes does not accept the credentials: {message}",
            where=path,
            next_step="use the kubeconfig or the service account of a user of this cluster",
        )
    if status == _FORBIDDEN and _OF_QUOTA in message:
        return UnavailableError(f"a quota of Kubernetes is used up: {message}", where=path)
    if status in (_FORBIDDEN, _NOT_FOUND):
        return RefusedError(
            f"Kubernetes refuses the request: {message}",
            where=path,
            next_step="create the namespace"
            if status == _NOT_FOUND
            else "grant what deploy/kubernetes/controller grants to its service account",
        )
    return InvalidInputError(f"Kubernetes rejects the request: {message}", where=path)


def _read_status(body: bytes) -> _Status:
    try:
        return msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        return _Status()


def _read_seconds(text: str) -> float:
    return min(float(text), _MAX_PAUSE) if text.isdecimal() else 0.0
