"""What each scope allows, and what it does not."""

from contextlib import nullcontext

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.auth.permissions import (
    ANONYMOUS,
    EMBEDDED,
    EVERYTHING,
    NEEDS,
    NOTHING,
    Actor,
    ForbiddenError,
    Scopes,
    get_actor,
    use_actor,
)

ALLOWED = {
    "": {"public"},
    "read": {"public", "read"},
    "publish:acme": {"public", "read", "upload", "publish"},
    "publish:*": {"public", "read", "upload", "publish"},
    "run": {"public", "read", "upload", "run"},
    "run publish:acme": {"public", "read", "upload", "publish", "run"},
    "admin": set(NEEDS),
}


@pytest.mark.parametrize("text", ALLOWED)
def test_a_scope_allows_this_and_no_more(text: str) -> None:
    scopes = Scopes.parse(text.split()) if text else NOTHING
    assert {need for need in NEEDS if scopes.allow(need)} == ALLOWED[text]


@pytest.mark.parametrize(
    ("text", "name", "may"),
    [
        ("publish:acme", "acme/net", True),
        ("publish:acme", "acme2/net", False),
        ("publish:acme", "other/net", False),
        ("publish:acme", "acme", False),
        ("publish:acme", "net", False),
        ("publish:*", "net", True),
        ("publish:*", "acme/net", True),
        ("admin", "net", True),
        ("run read", "acme/net", False),
    ],
)
def test_a_namespace_is_published_to_by_its_own(text: str, name: str, may: bool) -> None:
    with nullcontext() if may else pytest.raises(ForbiddenError, match="needs the scope publish:"):
        Actor("somebody", Scopes.parse(text.split())).require_publishing(name)


@pytest.mark.parametrize(
    "text", ["", "write", "Read", "read ", "publish", "publish:", "publish:A", "publish:a/b", "publish:**", "admin:*"]
)
def test_what_is_no_scope_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="unknown scope"):
        Scopes.parse([text])


def test_a_token_needs_a_scope() -> None:
    with pytest.raises(InvalidInputError, match="at least one scope"):
        Scopes.parse([])


def test_scopes_are_written_in_order() -> None:
    assert str(Scopes.parse(["run", "read", "run"])) == "read run"


def test_who_acts_is_whoever_opened_the_folder_unless_somebody_is_named() -> None:
    somebody = Actor("token/x", NOTHING)
    assert get_actor() is EMBEDDED
    with use_actor(somebody):
        assert get_actor() is somebody
    assert get_actor() is EMBEDDED


def test_a_refusal_says_what_is_needed_and_what_there_is() -> None:
    actor = Actor("token/x", Scopes.parse(["read"]))
    with pytest.raises(ForbiddenError, match="needs the scope publish:acme; the token has read"):
        actor.require_publishing("acme/net")
    with pytest.raises(ForbiddenError, match=r"net needs the scope publish:\*"):
        actor.require_publishing("net")
    with pytest.raises(ForbiddenError, match="the scope publish:NAMESPACE or run is required"):
        actor.require("upload")
    with pytest.raises(ForbiddenError, match=r"the scope read is required\n"):
        ANONYMOUS.require("read")


def test_what_another_token_began_is_its_own() -> None:
    own = Actor("token/x", Scopes.parse(["run"]))
    own.require_own("token/x", "run/1")
    Actor("token/y", EVERYTHING).require_own("token/x", "run/1")
    with pytest.raises(ForbiddenError, match="run/1 belongs to another token"):
        own.require_own("token/y", "run/1")
