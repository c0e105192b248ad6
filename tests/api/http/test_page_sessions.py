"""Where a form may lead, and which forms are ours."""

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlock.api.http.page_sessions import COOKIE, CSRF_TOKEN, check_form, local_path, make_cookie, make_csrf_token
from benchlock.registry.auth.permissions import ForbiddenError


def connection(token: str | None = None, **headers: str) -> Any:  # noqa: ANN401 - what a connection has of it
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return SimpleNamespace(headers={"host": "a.example"} | named, cookies={} if token is None else {COOKIE: token})


@given(st.one_of(st.text(), st.text(alphabet="/\\.:@a\t\n?#", max_size=12).map("/".__add__)))
def test_a_form_leads_to_a_page_of_this_service(text: str) -> None:
    parts = urlsplit(local_path(text))
    assert (parts.scheme, parts.netloc) == ("", "")
    assert parts.path.startswith("/")
    assert not local_path(text).startswith(("//", "/\\"))
    assert local_path(text).isascii()
    assert local_path(local_path(text)) == local_path(text)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://b.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "https://a.example", "sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site"},
    ],
)
def test_a_form_of_another_site_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ForbiddenError):
        check_form(connection(**headers), {})


@pytest.mark.parametrize("headers", [{"origin": "https://a.example"}, {"sec_fetch_site": "same-origin"}])
def test_a_form_needs_the_token_of_its_session(headers: dict[str, str]) -> None:
    mine = connection("benchlock_a", **headers)
    check_form(connection(**headers), {})
    check_form(mine, {CSRF_TOKEN: make_csrf_token(mine)})
    for token in ("", make_csrf_token(connection("benchlock_b")), "é"):
        with pytest.raises(ForbiddenError):
            check_form(mine, {CSRF_TOKEN: token})


@pytest.mark.parametrize(
    ("host", "secure"), [("127.0.0.1:8080", False), ("localhost", False), ("a.example", True), ("[::1]:1", False)]
)
def test_a_session_needs_tls_except_on_this_machine(host: str, *, secure: bool) -> None:
    cookie = make_cookie(connection(host=host), "benchlock_a")
    assert (cookie.secure, cookie.httponly, cookie.samesite) == (secure, True, "strict")


def test_a_cookie_that_is_too_long_is_no_session() -> None:
    assert make_csrf_token(connection("a" * 5000)) == ""
