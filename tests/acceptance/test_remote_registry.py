"""The same commands on a folder and on a server answer the same; and what stands between a client and its server."""

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchlock.api.cli.main import run
from tests.support.api.commands import Answer, Commands
from tests.support.api.serving import at, service
from tests.support.api.warm import Warm
from tests.support.registry import tiny
from tests.support.registry.digits import request, written
from tests.support.servers.registry_server import free_port
from tests.support.servers.web import redirect, serving, status
from tests.support.system.interrupting import cut

TIMES = ("published_at", "started_at", "ended_at", "imported_at")


@dataclass(frozen=True)
class Desk:
    """The same manifests and request, for a registry in a folder and one on a server."""

    folder: Path
    local: Commands
    remote: Commands
    manifests: tuple[Path, ...]
    request: Path


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    for name in ("local", "remote", "served"):
        (folder / name).mkdir()
    manifests = tiny.author(folder / "manifests")
    asked = written(folder / "request.json", request("digits-onnx"))
    with service(folder / "served") as served:
        local = Warm(folder / "local" / "registry")
        local.done("db", "create")
        yield Desk(folder, local, at(served.url, folder), manifests, asked)


def alike(answer: Answer) -> Any:  # noqa: ANN401 - a JSON document
    """The answer without what no two registries share: times, ids of runs, places."""
    text = json.dumps(answer.document)
    return answer.code, json.loads(text.replace("/remote/", "/local/"), object_hook=_timeless)


def _timeless(found: dict[str, Any]) -> dict[str, Any]:
    # The log of a server names tokens too, and so has more records.
    changing = {*TIMES, "run", "id", "position", "timings", "host", "process", "records", "head"}
    return {name: value for name, value in found.items() if name not in changing}


SCRIPT: tuple[tuple[int, str], ...] = (
    (0, "publish --dry-run MANIFESTS"),
    (0, "publish MANIFESTS"),
    (0, "publish MANIFESTS"),
    (0, "list"),
    (0, "list model"),
    (0, "show model/digits-onnx"),
    (2, "show model/digit"),
    (2, "show model/digits-onnx@^9"),
    (0, "get model/digits-onnx -o HERE/got"),
    (0, "resolve REQUEST"),
    (0, "lock REQUEST -o HERE/digits.lock"),
    (0, "lock REQUEST -o HERE/digits.lock"),
    (0, "lock --check REQUEST -o HERE/digits.lock"),
    (0, "why framework/onnxruntime HERE/digits.lock"),
    (2, "why model/other HERE/digits.lock"),
    (0, "diff HERE/digits.lock HERE/digits.lock"),
    (2, "run HERE/digits.lock --isolation process"),
    (0, "runs"),
    (0, "runs --lock HERE/digits.lock"),
    (2, "rerun HERE/digits.lock"),
    (2, "run sha256:00000000"),
    (0, "yank model/digits-onnx@1.0.0 --reason wrong"),
    (0, "yank model/digits-onnx@1.0.0 --reason wrong"),
    (3, "resolve REQUEST"),
    (3, "lock REQUEST -o HERE/other.lock"),
    (0, "yank model/digits-onnx@1.0.0 --undo"),
    (2, "yank model/digits-onnx@7.0.0 --reason wrong"),
    (0, "verify"),
    (0, "verify model/digits-onnx HERE/digits.lock"),
    (0, "gc --dry-run"),
    (0, "gc"),
    (0, "bundle create HERE/digits.lock -o HERE/bundle.tar"),
    (0, "bundle import HERE/bundle.tar"),
)


def said(capsys: pytest.CaptureFixture[str], commands: Commands, words: list[str]) -> Answer:
    """What a command answers: run in this process, but for one that looks for an engine."""
    if words[0] in ("run", "rerun"):
        return commands.call(*words)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in commands.environment().items():
            patched.setenv(name, value)
        code = run(["--json", *words])
    written = capsys.readouterr()
    return Answer(code, json.loads(written.out), written.err)


def test_every_command_answers_as_on_a_folder(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    for code, line in SCRIPT:
        words = line.replace("REQUEST", str(desk.request)).replace("MANIFESTS", " ".join(map(str, desk.manifests)))
        local, remote = (
            said(capsys, commands, words.replace("HERE", str(desk.folder / name)).split())
            for name, commands in (("local", desk.local), ("remote", desk.remote))
        )
        assert (local.code, remote.code) == (code, code), (line, local, remote)
        assert alike(local) == alike(remote), line
        assert "Traceback" not in remote.stderr
    for name in ("digits.lock", "bundle.tar", "got/digits.onnx"):
        assert (desk.folder / "local" / name).read_bytes() == (desk.folder / "remote" / name).read_bytes()


def test_a_run_of_this_machine_is_shown_there_with_all_that_was_recorded(desk: Desk) -> None:
    desk.remote.done("publish", *desk.manifests)
    desk.remote.done("lock", desk.request, "-o", desk.folder / "shown.lock")
    desk.remote.call("run", desk.folder / "shown.lock", "--isolation", "process")
    newest = desk.remote.done("runs")["runs"][0]
    served = Warm(desk.folder / "served").done("show", newest["run"])
    assert desk.remote.done("show", newest["run"]) == served
    assert served["end"]["outcome"] == "failed"


def test_a_run_whose_client_dies_is_recorded_as_abandoned_by_the_next_one(desk: Desk) -> None:
    desk.remote.done("publish", *desk.manifests)
    desk.remote.done("lock", desk.request, "-o", desk.folder / "dying.lock")
    (cache,) = (desk.folder / "cache" / "benchlock").iterdir()

    def begun() -> bool:
        return any((cache / "runs").glob("*"))

    code = cut(desk.remote, "run", desk.folder / "dying.lock", "--isolation", "process", when=begun)
    assert code in (-signal.SIGKILL, 2)
    found = desk.remote.done("runs")["runs"][0]
    assert found["end"]["outcome"] in ("abandoned", "failed")
    assert not begun()


def test_a_publication_that_was_killed_is_done_by_doing_it_again(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    manifests = tiny.author(tmp_path / "manifests")
    with service(tmp_path / "served") as served:
        remote = at(served.url, tmp_path)

        def sending() -> bool:
            return any((tmp_path / "served" / "blobs" / "sha256").glob("*/*"))

        cut(remote, "publish", *manifests, when=sending)
        served.kill()
        with service(tmp_path / "served", port=served.port):
            document = remote.done("publish", *manifests)
            assert len(document["published"]) == len(manifests)
            assert remote.done("verify")["damaged"] == []
            assert len(remote.done("list")["artifacts"]) == len(manifests)


def test_what_a_server_lost_is_sent_again_from_the_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "served").mkdir()
    manifests = tiny.author(tmp_path / "manifests")
    asked = written(tmp_path / "request.json", request("digits-onnx"))
    with service(tmp_path / "served") as served:
        remote = at(served.url, tmp_path)
        for words in (["publish", *map(str, manifests)], ["lock", str(asked), "-o", str(tmp_path / "a.lock")]):
            assert said(capsys, remote, words).code == 0
        said(capsys, remote, ["run", str(tmp_path / "a.lock"), "--isolation", "process"])
        for path in (tmp_path / "served" / "blobs" / "sha256").glob("*/*"):
            path.unlink()
        again = said(capsys, remote, ["run", str(tmp_path / "a.lock"), "--isolation", "process"])
        assert again.document["error"]["message"].endswith("File is not a zip file")


HEALTH = b'{"status": "ok", "version": "9.9.9"}'


@pytest.mark.parametrize(
    ("pages", "code", "says"),
    [
        ({"/": status(200, b"<html>")}, 2, "is not a benchlock registry: it answers 404"),
        ({"/v1/artifacts": status(200, b"<html>")}, 2, "is not a benchlock registry"),
        ({"/v1/health": status(200, HEALTH)}, 5, "is benchlock 9.9.9, which is not compatible"),
        (
            {"/v1/artifacts": status(200, b'{"versions": 1}'), "/v1/health": status(200, HEALTH)},
            5,
            "is benchlock 9.9.9",
        ),
        ({"/v1/artifacts": status(502, b"<html>")}, 5, "answers 502"),
    ],
)
def test_what_is_no_benchlock_or_another_one_is_said_so(
    tmp_path: Path, pages: dict[str, Any], code: int, says: str
) -> None:
    with serving(tls=False) as web:
        web.pages.update(pages)
        told = at(web.origin, tmp_path, BENCHLOCK_TOKEN="benchlock_secret").call("list")
    assert (told.code, says in told.document["error"]["message"]) == (code, True), told
    assert "benchlock_secret" not in json.dumps(told.document) + told.stderr


def test_a_token_is_told_to_no_other_host(tmp_path: Path) -> None:
    with serving(tls=False) as elsewhere, serving(tls=False) as web:
        web.otherwise = redirect(f"{elsewhere.origin}/v1/artifacts")
        told = at(web.origin, tmp_path, BENCHLOCK_TOKEN="benchlock_secret").call("list")
        assert told.code in (2, 5)
        assert all("benchlock_secret" not in str(one) for one in elsewhere.asked)
        assert elsewhere.asked == []


def test_no_server_a_wrong_one_and_an_open_line_are_each_said_in_one_message(tmp_path: Path) -> None:
    nobody = at(f"http://127.0.0.1:{free_port()}", tmp_path).error(5, "list")
    assert "cannot be reached" in nobody["message"]
    for url, code, says in (
        ("http://example.org", 2, "is not encrypted: the token could be read"),
        ("ftp://example.org", 2, "is neither a server URL nor a folder"),
        ("https://user:secret@example.org", 2, "contains a user name or password"),
    ):
        told = at(url, tmp_path, BENCHLOCK_TOKEN="benchlock_secret").error(code, "list")
        assert says in told["message"]
        assert "secret" not in json.dumps(told)


def test_what_needs_the_folder_says_so(desk: Desk) -> None:
    told = desk.remote.error(2, "serve", "--open")
    assert "this command needs a registry in a local folder" in told["message"]


def test_a_doctor_says_who_asks_and_who_answers(desk: Desk) -> None:
    document = desk.remote.done("doctor")
    assert document["server"].startswith("benchlock ")
    assert document["registry"].startswith("http://127.0.0.1:")
    assert document["caller"]


def test_nothing_of_a_cache_is_needed(desk: Desk, tmp_path: Path) -> None:
    desk.remote.done("publish", *desk.manifests)
    elsewhere = replace(desk.remote, variables=desk.remote.variables | {"XDG_CACHE_HOME": str(tmp_path)})
    assert elsewhere.done("get", "model/digits-onnx", "-o", tmp_path / "got")["files"] == 1
