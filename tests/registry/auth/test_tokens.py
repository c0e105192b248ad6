"""Tokens from their making to their end: at rest is a digest, and nothing of it is ever taken back."""

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from benchlock.artifacts.errors import InvalidInputError, RefusedError, UnknownNameError
from benchlock.registry.auth.audit_log import AuditLog
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.token_format import TokenId, new_secret
from benchlock.registry.auth.tokens import Tokens, parse_lifetime, parse_token_id
from benchlock.registry.database.engine import write_transaction
from tests.support.system.clocks import Standing

READ = Scopes.parse(["read"])


@pytest.mark.databases
def test_a_token_is_found_by_its_text_with_all_that_was_said_of_it(tokens: Tokens, standing: Standing) -> None:
    scopes = Scopes.parse(["publish:acme", "run"])
    made, secret = tokens.create("ci", scopes)
    found = tokens.find(secret)
    assert found == made
    assert (made.name, made.scopes, made.created_by) == ("ci", scopes, "embedded")
    assert made.expires_at - made.created_at == timedelta(days=90)
    assert tokens.list() == (made,)
    assert tokens.find(new_secret()) is None
    assert made.state(standing.at) == "valid"


@pytest.mark.databases
def test_a_token_expires_at_its_time(tokens: Tokens, standing: Standing) -> None:
    made, _ = tokens.create("ci", READ, timedelta(hours=1))
    standing.go_on(minutes=59, seconds=59)
    assert made.state(standing.at) == "valid"
    standing.go_on(seconds=1)
    assert made.state(standing.at) == "expired"


@pytest.mark.databases
def test_a_revocation_is_for_ever_and_said_once(tokens: Tokens, database: Engine, standing: Standing) -> None:
    made, secret = tokens.create("ci", READ)
    assert tokens.revoke(made.id)
    assert not tokens.revoke(made.id)
    found = tokens.find(secret)
    assert found is not None
    assert found.state(standing.at) == "revoked"
    for statement in ("DELETE FROM token_revocations", "UPDATE tokens SET expires_at = '9999'"):
        with pytest.raises(IntegrityError, match="append-only"), write_transaction(database) as connection:
            connection.execute(text(statement))
    assert [entry.action for entry in AuditLog(database).list(actor="embedded")].count("token.revoke") == 1


@pytest.mark.databases
def test_a_rotation_gives_a_new_secret_and_ends_the_old_one_after_the_grace_period(
    tokens: Tokens, standing: Standing, database: Engine
) -> None:
    made, first = tokens.create("ci", READ, timedelta(days=2))
    standing.go_on(hours=1)
    rotated, second = tokens.rotate(made.id, timedelta(days=30), timedelta(hours=3))
    assert (rotated.id, rotated.scopes, rotated.created_at) == (made.id, made.scopes, made.created_at)
    assert (rotated.rotated_at, rotated.expires_at) == (standing.at, standing.at + timedelta(days=30))
    assert tokens.list() == (rotated,)
    assert tokens.find(second) == rotated

    def states() -> list[str]:
        found = [tokens.find(one) for one in (first, second)]
        return [one.state(standing.at) for one in found if one is not None]

    assert states() == ["valid", "valid"]
    standing.go_on(hours=3)
    assert states() == ["expired", "valid"]
    tokens.rotate(made.id, timedelta(days=1), timedelta(hours=5))
    assert states() == ["expired", "valid"]
    _, third = tokens.rotate(made.id, timedelta(days=1), timedelta(0))  # ends all the secrets before it
    assert states() == ["expired", "expired"]
    assert tokens.find(third) == tokens.list()[0]
    with pytest.raises(IntegrityError, match="append-only"), write_transaction(database) as connection:
        connection.execute(text("UPDATE token_rotations SET grace_until = '9999'"))
    assert [entry.action for entry in AuditLog(database).list()].count("token.rotate") == 3


@pytest.mark.databases
def test_a_secret_never_outlives_its_own_expiry_by_a_grace_period(tokens: Tokens, standing: Standing) -> None:
    made, first = tokens.create("ci", READ, timedelta(hours=1))
    tokens.rotate(made.id, grace=timedelta(days=7))
    found = tokens.find(first)
    assert found is not None
    assert found.expires_at == made.expires_at
    standing.go_on(hours=2)
    assert found.state(standing.at) == "expired"


@pytest.mark.databases
def test_a_token_that_ended_is_not_rotated(tokens: Tokens, standing: Standing) -> None:
    revoked, expired = tokens.create("ci", READ)[0], tokens.create("ci", READ, timedelta(minutes=1))[0]
    tokens.revoke(revoked.id)
    standing.go_on(minutes=1)
    for one, state in ((revoked, "revoked"), (expired, "expired")):
        with pytest.raises(RefusedError, match=f"is {state} and cannot be rotated"):
            tokens.rotate(one.id)
    other = tokens.create("ci", READ)[0]
    _, secret = tokens.rotate(other.id)
    tokens.revoke(other.id)
    found = tokens.find(secret)
    assert found is not None
    assert found.state(standing.at) == "revoked"


@pytest.mark.databases
def test_what_is_unknown_cannot_be_revoked(tokens: Tokens) -> None:
    with pytest.raises(UnknownNameError, match="unknown token/"):
        tokens.revoke(TokenId("token/" + "0" * 26))


@pytest.mark.parametrize(
    "id_", ["", "token/", "run/" + "0" * 26, "token/" + "u" * 26, pytest.param(new_secret().text, id="secret")]
)
def test_what_is_no_id_is_refused_and_not_repeated(id_: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_token_id(id_)
    assert not id_ or id_ not in str(caught.value) or id_ == "token/"


def test_no_file_of_the_registry_holds_the_text(tokens: Tokens, database: Engine, tmp_path: Path) -> None:
    _, secret = tokens.create("ci", READ)
    tokens.find(secret)
    database.dispose()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert secret.text[10:].encode() not in path.read_bytes()


@pytest.mark.parametrize("name", ["", "Ci", "a b", "-", "a" * 65, "a\n", pytest.param(new_secret().text, id="secret")])
def test_a_name_is_a_word(tokens: Tokens, name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        tokens.create(name, READ)
    assert len(name) < 3 or name not in str(caught.value)
    assert tokens.list() == ()


@pytest.mark.parametrize("lifetime", ["366d", "999999d", "8761h"])
def test_no_token_lives_longer_than_a_year(tokens: Tokens, lifetime: str) -> None:
    with pytest.raises(InvalidInputError, match="to 365 days"):
        tokens.create("ci", READ, parse_lifetime(lifetime))


@pytest.mark.parametrize(("text", "days"), [("365d", 365), ("24h", 1), ("1440m", 1)])
def test_a_lifetime_is_read(text: str, days: int) -> None:
    assert parse_lifetime(text) == timedelta(days=days)


@pytest.mark.parametrize("text", ["", "0d", "d", "1", "-1d", "1.5d", "1w", "1d ", "0" * 99])
def test_what_is_no_lifetime_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid lifetime"):
        parse_lifetime(text)
