"""Settings: precedence, what a file may contain, and what the file of a stranger may not do."""

import os
from pathlib import Path

import pytest

from benchlock.api.cli.main import run
from benchlock.api.client.remote_registry import connect_server
from benchlock.api.local.local_registry import source_access
from benchlock.api.settings import (
    KEYS,
    MAX_FILE_BYTES,
    find_misspelt_variables,
    locate_registry,
    read_setting,
    user_file,
)
from benchlock.artifacts.errors import InvalidInputError, RefusedError


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user file without content, no variables, and a project folder as the current one."""
    for name in [name for name in os.environ if name.startswith("BENCHLOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "project" / "below").mkdir(parents=True)
    (tmp_path / "config" / "benchlock").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "below")
    return tmp_path / "config" / "benchlock" / "config.toml"


@pytest.fixture
def project(user: Path, tmp_path: Path) -> Path:  # noqa: ARG001 - the user's settings come first
    return tmp_path / "project" / "benchlock.toml"


def text(key: str) -> str | None:
    value = read_setting(key)
    return None if value is None else value.text


def refusal(key: str = "store") -> InvalidInputError:
    with pytest.raises(InvalidInputError) as refused:
        read_setting(key)
    return refused.value


def test_each_source_has_precedence_over_the_next(
    user: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_setting("download_time") is None
    user.write_text('download_time = "1m"\n')
    assert text("download_time") == "1m"
    (tmp_path / "benchlock.toml").write_text('download_time = "2m"\n')
    assert text("download_time") == "2m"
    project.write_text('download_time = "3m"\n')
    assert text("download_time") == "3m"
    (project.parent / "below" / "benchlock.toml").write_text('download_time = ""\n')
    assert text("download_time") == "1m"
    monkeypatch.setenv("BENCHLOCK_DOWNLOAD_TIME", "4m")
    assert text("download_time") == "4m"


def test_the_option_and_the_variable_have_precedence_over_files(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def searched() -> str:
        assert run(["list"]) == 2
        return capsys.readouterr().err.splitlines()[1].removeprefix("  where: ")

    assert searched() == str(tmp_path / "data" / "benchlock")
    user.write_text('registry = "here"\n')
    assert searched() == str(user.parent / "here")
    monkeypatch.setenv("BENCHLOCK_REGISTRY", str(tmp_path / "variable"))
    assert searched() == str(tmp_path / "variable")
    assert run(["--registry", str(tmp_path / "option"), "list"]) == 2
    assert str(tmp_path / "option") in capsys.readouterr().err


def test_values_are_those_of_the_variables(user: Path) -> None:
    user.write_text(
        'redirect_hosts = ["a.example.org", "b.example.org"]\nlease = 30\ntoken_file = "~/token"\nhost_lock = "lock"\n'
    )
    assert text("redirect_hosts") == "a.example.org b.example.org"
    assert text("lease") == "30"
    assert text("token_file") == str(Path.home() / "token")
    assert text("host_lock") == str(user.parent / "lock")


@pytest.mark.parametrize(
    ("content", "what", "line", "step"),
    [
        ('\nstroe = "x"', "unknown key 'stroe'", 2, "did you mean 'store'?"),
        ('token = "benchlock_secret"', "must not contain a token", 1, "set token_file"),
        ('database = "postgresql://a:b@host/d"', "must not contain a password", 1, "set BENCHLOCK_DATABASE instead"),
        ('database = "postgresql://host/d?password=x"', "must not contain a password", 1, "leave it out"),
        ("# a\n[store]\nx = 1", "invalid value of 'store'", 2, 'write store = "oci://'),
        ('redirect_hosts = "a"', "invalid value of 'redirect_hosts'", 1, "write redirect_hosts = ["),
        ('redirect_hosts = ["a", 1]', "invalid value of 'redirect_hosts'", 1, "write redirect_hosts = ["),
        ('store = ["a"]', "invalid value of 'store'", 1, "write store"),
        ("lease = true", "invalid value of 'lease'", 1, "write lease = 60"),
        ("lease = \n", "invalid TOML in the configuration file: Invalid value (at line 1", None, "correct it"),
        ("a = " + "[" * 5000, "invalid TOML", None, "correct it"),
        ("#" * (MAX_FILE_BYTES + 1), "more than 65536 bytes", None, "shorten it"),
        ("store = '\udcff'", "invalid TOML", None, "correct it"),
    ],
)
def test_an_invalid_file_is_an_error_with_its_line(
    user: Path, content: str, what: str, line: int | None, step: str
) -> None:
    user.write_bytes(content.encode(errors="surrogateescape"))
    error = refusal()
    assert what in error.what
    assert error.where == (f"{user}, line {line}" if line else str(user))
    assert step in str(error.next_step)
    assert "secret" not in str(error)


def test_a_named_pipe_is_not_read(project: Path) -> None:
    os.mkfifo(project)
    assert read_setting("store") is None


def test_a_project_file_sets_only_what_can_do_no_harm(project: Path) -> None:
    assert {key for key, setting in KEYS.items() if setting.in_project} == {"registry", "download_time"}
    for key, setting in KEYS.items():
        project.write_text(f"{key} = {setting.example}\n")
        if not setting.in_project:
            assert f"a project file cannot set '{key}'" in refusal(key).what


@pytest.mark.parametrize(
    ("registry", "trusted", "is_trusted"),
    [
        ("https://bench.example.org", "https://bench.example.org", True),
        ("https://bench.example.org/team", "https://bench.example.org/", True),
        ("https://bench.example.org", "https://bench.example.org/team", False),
        ("https://bench.example.org.evil.net", "https://bench.example.org", False),
        ("https://bench.example.org@evil.net", "https://bench.example.org", False),
        ("https://bench.example.org:444", "https://bench.example.org", False),
        ("http://bench.example.org", "https://bench.example.org", False),
        ("registry", "../../project", True),
        ("registry", "../../project/registry", True),
        ("registry", "../../other", False),
        ("../outside", "../../project", False),
        ("link", "../../project", False),
        ("registry", "https://bench.example.org", False),
    ],
)
def test_a_project_file_selects_only_a_registry_that_the_user_trusts(
    user: Path, project: Path, registry: str, trusted: str, *, is_trusted: bool
) -> None:
    (project.parent / "link").symlink_to(project.parent.parent)
    project.write_text(f'registry = "{registry}"\n')
    with pytest.raises(RefusedError, match="is not trusted") as refused:
        locate_registry()
    assert f"add it to trusted_registries in {user}" in str(refused.value.next_step)
    user.write_text(f'trusted_registries = ["{trusted}"]\n')
    if is_trusted:
        assert locate_registry() == (registry if "://" in registry else str(project.parent / registry))
    else:
        with pytest.raises(RefusedError, match="is not trusted"):
            locate_registry()


def test_a_cloned_project_gets_no_request_and_no_token(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write_text('registry = "https://evil.example.org"\n')
    monkeypatch.setenv("BENCHLOCK_TOKEN", "benchlock_secret")

    def refuse(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    assert run(["list"]) == 1
    assert "is not trusted" in capsys.readouterr().err
    assert run(["--help"]) == 0


def test_a_token_in_the_environment_has_precedence_over_a_token_file(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.write_text('token_file = "token"\n')
    with pytest.raises(InvalidInputError, match="cannot read the token file") as refused:
        connect_server("http://127.0.0.1:1")
    assert refused.value.where == str(user.parent / "token")
    monkeypatch.setenv("BENCHLOCK_TOKEN", "benchlock_secret")
    connect_server("http://127.0.0.1:1")


def test_a_database_and_a_store_in_a_file_are_those_of_new_registries(user: Path, tmp_path: Path) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    assert run(["--registry", old, "db", "create"]) == 0
    for key in ("database", "store"):
        user.write_text(f'{key} = "nowhere"\n')
        assert run(["--registry", old, "list"]) == 0
        assert run(["--registry", new, "db", "create"]) == 2


def test_an_invalid_value_has_its_file_as_the_place(user: Path) -> None:
    user.write_text('download_time = "soon"\n')
    with pytest.raises(InvalidInputError, match=f"invalid download_time in {user} 'soon'") as refused:
        source_access()
    assert refused.value.next_step == 'write download_time = "30m"'


def test_a_misspelt_variable_gets_a_suggestion(
    user: Path,  # noqa: ARG001 - no other variables
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BENCHLOCK_TOKENFILE", "x")
    run(["--registry", str(tmp_path), "list"])
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "warning: unknown environment variable BENCHLOCK_TOKENFILE; did you mean BENCHLOCK_TOKEN_FILE?"
    kubernetes = ("BENCHLOCK_SERVICE_HOST", "BENCHLOCK_PORT", "BENCHLOCK_PORT_8080_TCP_ADDR", "BENCHLOCK_STORE")
    assert list(find_misspelt_variables(kubernetes)) == []


def test_a_user_without_a_home_has_no_settings_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container with another user id, where neither HOME nor the list of users has a folder."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "BENCHLOCK_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    assert user_file() == Path("/.config/benchlock/config.toml")
    assert locate_registry() == "/.local/share/benchlock"
