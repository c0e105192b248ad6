"""Sessions of browsers: a token in a cookie that scripts cannot read, and forms that only our own pages can send.

The cookie holds the token itself, so that revoking the token ends the session in every process of the service.
"""

import hashlib
import hmac
from typing import Any, Final
from urllib.parse import quote, urlsplit

from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie

from benchlock.artifacts.net.urls import is_loopback
from benchlock.registry.auth.permissions import ForbiddenError

PAGE: Final = {"page": True}
"""The option of routes that are pages: a session authenticates them."""
COOKIE: Final = "benchlock_session"
CSRF_TOKEN: Final = "csrf_token"  # noqa: S105 - the name of a field
_READING: Final = frozenset(("GET", "HEAD"))
_LONGEST: Final = 200
_LONGEST_PATH: Final = 2000
"""The maximum length of a path in a Location header; no address of ours is longer."""
_UNQUOTED: Final = "%/:?#[]@!$&'()*+,;="
"""The reserved characters of addresses, and the sign of what is encoded already."""

Connection = ASGIConnection[Any, Any, Any, Any]


def find_authorization(connection: Connection) -> str | None:
    """Return the Authorization header; without one that of the session, for pages and for everything that only reads.

    Other hosts' pages cannot use a session: the cookie is not sent with their requests (SameSite), and what changes
    anything is a form of a page, which ``check_form`` checks.
    """
    header: str | None = connection.headers.get("authorization")
    if header is not None or not (
        connection.route_handler.opt.get("page") or connection.scope.get("method") in _READING
    ):
        return header
    token = find_token(connection)
    return None if token is None else f"Bearer {token}"


def find_token(connection: Connection) -> str | None:
    """Return the token of the session; None without one, or if it is too long to be one."""
    token = connection.cookies.get(COOKIE)
    return token if token and len(token) <= _LONGEST else None


def make_cookie(connection: Connection, token: str) -> Cookie:
    """Make the cookie of a session; an empty token ends it. Without TLS, browsers keep it on the loopback alone.

    Characters that a header cannot hold are replaced; a text with such characters is not a valid token anyway.
    """
    is_local = is_loopback(urlsplit(f"//{connection.headers.get('host', '')}").hostname or "")
    return Cookie(
        key=COOKIE,
        value=token.encode("ascii", "replace").decode()[:_LONGEST],
        path="/",
        httponly=True,
        samesite="strict",
        secure=not is_local,
        max_age=None if token else 0,
    )


def make_csrf_token(connection: Connection) -> str:
    """Return the text that forms of this session must send back; empty without a session."""
    token = find_token(connection)
    return "" if token is None else hmac.new(token.encode(), b"form", hashlib.sha256).hexdigest()


def check_form(connection: Connection, fields: dict[str, str]) -> None:
    """Require that a form comes from a page of this service, against cross-site request forgery (CSRF).

    Raises:
        ForbiddenError: A page of another host sent it, or a page of another session.
    """
    headers = connection.headers
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    is_ours = site in (None, "same-origin", "none")
    if origin is not None:
        is_ours = is_ours and origin.partition("://")[2] == headers.get("host")
    if site is None and origin is None:
        is_ours = False  # every browser sends one of them
    if not is_ours or not hmac.compare_digest(
        fields.get(CSRF_TOKEN, "").encode(), make_csrf_token(connection).encode()
    ):
        raise ForbiddenError(
            "this form was not sent by a page of this session", next_step="load the page again, then send the form"
        )


def local_path(text: str) -> str:
    """Return ``text`` if it is a path of this service, percent-encoded; else the path of the front page."""
    is_path = text.startswith("/") and not text.startswith("//") and text.isprintable() and "\\" not in text
    path = quote(text, safe=_UNQUOTED) if is_path and len(text) <= _LONGEST_PATH else "/"
    return path if len(path) <= _LONGEST_PATH else "/"


def find_return_path(connection: Connection) -> str:
    """Return the path to show after signing in: of a form, which GET cannot load, that of the page that sent it."""
    if connection.scope.get("method") in _READING:
        query = connection.scope["query_string"].decode("ascii", "replace")
        return local_path(connection.scope["path"] + (f"?{query}" if query else ""))
    host, slash, path = connection.headers.get("referer", "").partition("://")[2].partition("/")
    return local_path(slash + path) if host == connection.headers.get("host") else "/"
