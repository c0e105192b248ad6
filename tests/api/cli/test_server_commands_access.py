"""Tokens and the log through the commands: shown once, listed without their text."""

import json
from pathlib import Path

import pytest

from benchlock.api.cli.main import run
from benchlock.registry.auth.token_format import parse_secret

CREATE = "token create ci --scope read --scope publish:acme"


class Desk:
    """Commands on a registry of the test's own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, words: str) -> tuple[int, str, str]:
        code = run(["--registry", str(self.folder), *words.split()])
        said = self._capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    desk = Desk(tmp_path / "registry", capsys)
    desk("db create")
    return desk


def test_a_token_is_alone_on_standard_output_and_nowhere_else_ever(desk: Desk) -> None:
    code, out, err = desk(CREATE)
    secret = parse_secret(out.strip())
    assert code == 0
    assert out == f"{secret.text}\n"
    assert "scopes publish:acme read" in err
    for words in ("token list", "--json token list", "log", "--json log"):
        code, *said = desk(words)
        assert code == 0
        assert secret.text[10:] not in "".join(said)


def test_tokens_are_listed_and_revoked_and_the_log_says_so(desk: Desk) -> None:
    made = json.loads(desk(f"--json {CREATE} --expires 12h")[1])
    id_ = made["token"]["id"]
    parse_secret(made["secret"])
    assert made["token"] | {"created_at": "", "expires_at": ""} == {
        "id": id_,
        "name": "ci",
        "scopes": ["publish:acme", "read"],
        "created_by": "embedded",
        "created_at": "",
        "expires_at": "",
        "revoked_at": None,
        "rotated_at": None,
        "state": "valid",
    }
    assert desk(f"token revoke {id_}")[:2] == (0, f"{id_} revoked\n")
    assert desk(f"token revoke {id_}")[:2] == (0, f"{id_} was already revoked\n")
    (listed,) = json.loads(desk("--json token list")[1])["tokens"]
    assert listed["state"] == "revoked"
    assert id_ in desk("token list")[1]
    entries = json.loads(desk("--json log")[1])["log"]
    assert [(one["actor"], one["action"], one["outcome"]) for one in entries] == [
        ("embedded", "token.revoke", "done"),
        ("embedded", "token.create", "done"),
    ]
    assert len(json.loads(desk("--json log --limit 1")[1])["log"]) == 1
    assert "token.revoke" in desk("log --actor embedded")[1]


def test_a_rotation_prints_the_new_secret_alone(desk: Desk) -> None:
    made = json.loads(desk(f"--json {CREATE} --expires 12h")[1])
    id_ = made["token"]["id"]
    code, out, err = desk(f"token rotate {id_} --grace 30m")
    secret = parse_secret(out.strip())
    assert (code, out) == (0, f"{secret.text}\n")
    assert secret.text != made["secret"]
    assert id_ in err
    (listed,) = json.loads(desk("--json token list")[1])["tokens"]
    assert listed["rotated_at"] is not None
    assert listed["expires_at"] > made["token"]["expires_at"]
    assert desk(f"token revoke {id_}")[0] == 0
    assert desk(f"token rotate {id_}")[0] == 1


@pytest.mark.parametrize(
    "words",
    [
        "token rotate token/none",
        f"token rotate token/{'0' * 26}",
        f"token rotate token/{'0' * 26} --grace 8d",
        f"token rotate token/{'0' * 26} --grace soon",
        "token create ci",
        "token create ci --scope write",
        "token create CI --scope read",
        "token create ci --scope read --expires 2y",
        "token create ci --scope read --expires 366d",
        "token revoke ci",
        "token revoke token/00000000000000000000000000",
        "log --limit 0",
        "log --before nothing",
    ],
)
def test_what_cannot_be_is_refused_in_one_message(desk: Desk, words: str) -> None:
    code, out, err = desk(words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")


def test_the_beginning_of_a_token_id_names_the_one_token_that_has_it(desk: Desk) -> None:
    first, second = (json.loads(desk(f"--json token create {name} --scope read")[1])["token"]["id"] for name in "ab")
    unique = next(first[:end] for end in range(len("token/") + 4, len(first)) if first[:end] != second[:end])
    code, out, _ = desk(f"--json token revoke {unique.removeprefix('token/')}")
    assert (code, json.loads(out)["token"]) == (0, first)
    code, _, err = desk(f"token revoke {first[:10]}")
    assert code == 2
    assert f"ambiguous id {first[:10]}" in err
    for id_, description in ((first, "a, revoked"), (second, "b, valid")):
        assert id_ in err
        assert description in err
    code, _, err = desk("token rotate 7zzz")
    assert code == 2
    assert "no token id begins with token/7zzz" in err
    assert desk(f"log --actor {unique}")[0] == 0
