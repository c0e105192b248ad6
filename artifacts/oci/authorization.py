"""Who asks: the ``Authorization`` of requests to a registry, as it challenges for it.

``Basic`` (RFC 7617), and ``Bearer`` as registries use it: a token from the realm that the challenge names, for the
scope that it names, which is asked for with the user's name and password where there are some.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.readable import readable
from benchlock.artifacts.transfer.network import TransientError, network
from benchlock.artifacts.urls import check_url, shown_url

if TYPE_CHECKING:
    from benchlock.artifacts.transfer.network import Client

_SCHEME = re.compile(r"(?:^|,\s*)(Bearer|Basic)\s+", re.IGNORECASE)
_PARAMETER = re.compile(r'([A-Za-z_]+)="([^"]*)"')
_LONGEST_TOKEN = 1 << 20  # bytes of the answer that holds it
_OK, _SERVER_ERROR = 200, 500
LOG_IN = "log in with `docker login` as somebody who may, or ask who runs the registry"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name and password for one registry; the password may be a token of its own making."""

    username: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The value of an ``Authorization`` header."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


@readable
class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


def authorize(
    client: "Client", challenge: str, credentials: Credentials | None, where: str, *, loopback_http: bool
) -> str:
    """The ``Authorization`` that answers the ``WWW-Authenticate`` of ``where``.

    Raises:
        InvalidInputError: the realm is one that nobody should send a password to.
        UnavailableError: there are no credentials, they are refused, or the challenge is of another kind.
    """
    challenges = _parse(challenge)
    if "bearer" in challenges:
        return f"Bearer {_token(client, challenges['bearer'], credentials, where, loopback_http=loopback_http)}"
    if "basic" in challenges and credentials is not None:
        return credentials.basic
    reason = "it wants a user name and password" if "basic" in challenges else "it does not say how to ask"
    raise _denied(where, reason)


def _denied(where: str, reason: str) -> UnavailableError:
    """The error of a registry that does not let this user do what was asked."""
    return UnavailableError(f"{where} denies access: {reason}", where=where, next_step=LOG_IN)


def _parse(header: str) -> Mapping[str, Mapping[str, str]]:
    """The parameters of each challenge, by its scheme in lower case."""
    parts = _SCHEME.split(header)
    return {
        scheme.lower(): dict(_PARAMETER.findall(rest)) for scheme, rest in zip(parts[1::2], parts[2::2], strict=True)
    }


def _token(
    client: "Client", challenge: Mapping[str, str], credentials: Credentials | None, where: str, *, loopback_http: bool
) -> str:
    realm = challenge.get("realm", "")
    try:
        check_url(realm, loopback_http=loopback_http)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{where} sends for a token to where none is fetched: {error.what}", where=where
        ) from error
    query = urlencode([(key, challenge[key]) for key in ("service", "scope") if key in challenge])
    headers = {} if credentials is None else {"Authorization": credentials.basic}
    url = f"{realm}{'&' if '?' in realm else '?'}{query}"
    with network(realm), client.stream("GET", url, headers=headers) as response:
        content = b""
        for chunk in response.iter_raw():
            content += chunk
            if len(content) > _LONGEST_TOKEN:
                break
        status = response.status_code
    if status >= _SERVER_ERROR:
        raise TransientError(f"{shown_url(realm)} answers {status}", where=where, next_step="try again later")
    if status != _OK:
        raise _denied(where, f"{shown_url(realm)}, which gives its tokens, answers {status}")
    try:
        answer = msgspec.json.decode(content, type=_Token)
    except msgspec.MsgspecError as error:
        raise UnavailableError(f"{shown_url(realm)} gives no token: {error}", where=where) from error
    return answer.token or answer.access_token
