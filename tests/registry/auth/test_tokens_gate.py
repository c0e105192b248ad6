"""Who is let in, and who is not, whatever they send."""

from datetime import timedelta

import pytest

from benchlock.registry.auth.permissions import Scopes, UnauthorizedError
from benchlock.registry.auth.token_format import Secret, new_secret
from benchlock.registry.auth.tokens import CACHE_LIFETIME, Authenticator, Tokens
from tests.support.system.clocks import Standing

READ = Scopes.parse(["read"])


@pytest.fixture
def gate(tokens: Tokens, standing: Standing) -> Authenticator:
    return Authenticator(tokens, standing)


def bearer(secret: Secret) -> str:
    return f"Bearer {secret.text}"


def test_a_token_is_let_in_with_its_scopes_and_no_more(gate: Authenticator, tokens: Tokens) -> None:
    made, secret = tokens.create("ci", READ)
    assert gate.known(bearer(secret)) is None
    actor = gate.admit(bearer(secret), "request-1")
    assert gate.known(bearer(secret), "request-1") == actor
    assert (actor.id, actor.scopes, actor.request) == (made.id, READ, "request-1")
    assert gate.admit(f"bearer   {secret.text} ", "request-2").request == "request-2"


@pytest.mark.parametrize(
    ("authorization", "said"),
    [
        (None, "a token is required"),
        ("", "a token is required"),
        ("Bearer", "malformed token"),
        ("Bearer benchlock_0", "malformed token"),
        (f"Basic {new_secret().text}", "not contain a bearer token"),
        (new_secret().text, "not contain a bearer token"),
        (bearer(new_secret()), "unknown"),
        (f"{bearer(new_secret())}, {bearer(new_secret())}", "malformed token"),
    ],
    ids=["absent", "empty", "no token", "short", "basic", "bare", "unknown", "two"],
)
def test_nobody_else_is(gate: Authenticator, authorization: str | None, said: str) -> None:
    assert gate.known(authorization) is None
    with pytest.raises(UnauthorizedError, match=said) as caught:
        gate.admit(authorization)
    assert len(authorization or "") < 30 or str(authorization)[-20:] not in str(caught.value)


def test_a_token_that_has_ended_is_not_let_in_although_it_was_a_moment_ago(
    gate: Authenticator, tokens: Tokens, standing: Standing
) -> None:
    _, secret = tokens.create("ci", READ, timedelta(minutes=1))
    standing.go_on(seconds=59)
    gate.admit(bearer(secret))
    assert gate.known(bearer(secret))
    standing.go_on(seconds=1)
    assert gate.known(bearer(secret)) is None
    with pytest.raises(UnauthorizedError, match="expired"):
        gate.admit(bearer(secret))


def test_a_revocation_by_another_process_is_known_soon_and_by_this_one_at_once(
    gate: Authenticator, tokens: Tokens, standing: Standing
) -> None:
    made, secret = tokens.create("ci", READ)
    gate.admit(bearer(secret))
    tokens.revoke(made.id)
    standing.at += CACHE_LIFETIME
    assert gate.known(bearer(secret))
    standing.go_on(microseconds=1)
    assert gate.known(bearer(secret)) is None
    with pytest.raises(UnauthorizedError, match="revoked"):
        gate.admit(bearer(secret))
    other, secret = tokens.create("ci", READ)
    gate.admit(bearer(secret))
    tokens.revoke(other.id)
    assert gate.known(bearer(secret))
    gate.forget()
    assert gate.known(bearer(secret)) is None
    with pytest.raises(UnauthorizedError, match="revoked"):
        gate.admit(bearer(secret))
