"""`benchlock serve` as a process: it answers, bounds what strangers send, and ends in order."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from benchlock.api.http.server_process import listen
from benchlock.artifacts.errors import UnavailableError
from tests.support.api.commands import BENCHLOCK, Commands
from tests.support.api.serving import Served, service, tuned_service
from tests.support.servers.registry_server import free_port

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with service(tmp_path_factory.mktemp("served") / "registry") as found:
        yield found


def test_several_requests_share_a_connection(served: Served) -> None:
    with httpx.Client(base_url=served.url) as client:
        assert {client.get("/v1/health").status_code for _ in range(5)} == {200}


def test_a_port_that_is_served_is_served_by_nobody_else(served: Served, tmp_path: Path) -> None:
    error = Commands(tmp_path / "registry").error(5, "serve", "--open", "--port", str(served.port))
    assert "in use" in error["message"]
    assert "--port" in error["next"]
    assert httpx.get(f"{served.url}/v1/health").status_code == 200


def test_an_address_is_listened_at_by_one_even_where_another_would_share_it() -> None:
    with listen("127.0.0.1", free_port()) as found:
        host, port = found.getsockname()
        for other in (host, "0.0.0.0"):
            with pytest.raises(UnavailableError, match="in use"):
                listen(other, port)
        with socket.socket() as sharing:
            sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            with pytest.raises(OSError, match="in use"):
                sharing.bind((host, port))


@pytest.mark.parametrize("host", ["192.0.2.1", "no address"])
def test_where_nobody_can_listen_is_said(host: str) -> None:
    with pytest.raises(UnavailableError, match=host):
        listen(host, free_port())


def raw(served: Served, sent: bytes) -> bytes:
    """What comes back for some bytes, until the server has nothing more to say."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * (1 << 20) + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET\r\n\r\n",
    ],
)
def test_what_is_no_request_gets_no_success_and_harms_nobody(served: Served, sent: bytes) -> None:
    try:
        answer = raw(served, sent)
    except OSError:  # it hung up in the middle
        answer = b""
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert httpx.get(f"{served.url}/v1/health").status_code == 200


def test_its_log_is_lines_of_json_and_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with service(tmp_path / "registry") as found, httpx.Client(base_url=found.url) as client:
        answer = client.get("/v1/artifacts", headers={"x-request-id": "seen-in-the-log"})
        assert answer.json() == {"artifacts": []}
        assert found.end() == 0  # though a connection is open
        created, first, *lines = map(json.loads, found.log.read_text().splitlines())
    assert (created["level"], created["message"]) == ("info", f"created the registry in {found.registry}")
    assert found.url in first["message"]
    seen = [one for one in lines if one["request_id"] == "seen-in-the-log"]
    assert [(one["path"], one["status"]) for one in seen] == [("/v1/artifacts", 200)]


# Serves a registry with a route that takes an hour.
STAYS = """
import sys, time
from litestar import get
from benchlock.api.http.routes import app
from benchlock.api.http.request_authorization import PUBLIC
from benchlock.api.http.request_parsing import Injected
from benchlock.api.http.server_process import serve
from benchlock.api.http.service_state import Service
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import open_registry

@get("/stuck", opt=PUBLIC)
async def stay(service: Injected[Service]) -> None:
    print("stuck", flush=True)
    await service.work.do(time.sleep, 3600)

app.CONTROLLERS = (*app.CONTROLLERS, stay)
made = app.create_app(open_registry(sys.argv[1], print), Settings(last_seconds=0.1))
serve(made, "127.0.0.1", int(sys.argv[2]), lambda: print("listens", flush=True))
"""


def test_it_ends_though_something_takes_for_ever_and_says_so_to_who_waits(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", STAYS, str(tmp_path / "registry"), str(port)]
    environment = Commands(tmp_path / "registry").environment()
    with (
        (tmp_path / "log").open("wb") as log_file,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log_file, text=True, cwd=ROOT, env=environment
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert any(line == "listens\n" for line in process.stdout)
            with _connected(port) as connection:
                connection.sendall(b"GET /v1/stuck HTTP/1.1\r\nHost: x\r\n\r\n")
                assert process.stdout.readline() == "stuck\n"
                process.send_signal(signal.SIGTERM)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
                assert process.wait(120) == 1
        finally:
            process.kill()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"urn:benchlock:problem:unavailable" in answer
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "InvalidState" not in log


def test_an_upload_that_does_not_end_is_cut_and_the_exit_code_says_so(tmp_path: Path) -> None:
    with tuned_service(tmp_path / "registry", "last_seconds=0.3") as found:
        path = f"/v1/blobs/uploads?digest=sha256:{'0' * 64}"
        with _connected(found.port) as connection:
            sent = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n".encode()
            connection.sendall(sent + b"x" * 1000)
            _until(lambda: "benchlock_requests_under_way 2.0" in httpx.get(f"{found.url}/v1/metrics").text)
            assert found.end() == 1
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        lines = [json.loads(line) for line in found.log.read_text().splitlines()]
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert [line["cut"] for line in lines if line["level"] == "warning"] == [1]


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Writes to standard error in all the ways that a Python program has.
WRITES = """
import logging, sys, threading, warnings
from benchlock.api.service_log import log_to_stderr
log_to_stderr()
warnings.warn("of a warning")
logging.getLogger("library").error("of a library")
print("of print", file=sys.stderr)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise RuntimeError("of an exception")
"""


def test_all_of_standard_error_is_json() -> None:
    done = subprocess.run([sys.executable, "-c", WRITES], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    assert [line["level"] for line in lines] == ["warning", "error", "error", "critical", "critical"]
    text = "\n".join(f"{line['message']} {line.get('error', '')}" for line in lines)
    for part in ("of a warning", "of a library", "of print", "ZeroDivisionError", "of an exception"):
        assert part in text


def test_a_service_that_does_not_start_says_why_in_json(served: Served, tmp_path: Path) -> None:
    command = [str(BENCHLOCK), "serve", "--open", "--port", str(served.port)]
    environment = Commands(tmp_path / "registry").environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 5
    assert any("in use" in line["message"] for line in lines)


def _connected(port: int) -> socket.socket:
    """A connection to what begins to listen now."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize("more", [("--host", "0.0.0.0"), ("--proxy", "127.0.0.1")])
def test_it_does_not_start_open_to_everyone(tmp_path: Path, more: tuple[str, str]) -> None:
    words = ("serve", "--port", str(free_port()), "--open", *more)
    error = Commands(tmp_path / "registry").error(2, *words)
    assert "access without a token" in error["message"]
    assert "--open" in f"{error['where']} {error['next']}"


def test_unless_it_is_open_it_asks_for_a_token_which_it_writes_down_nowhere(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    secret = Commands(registry).done("token", "create", "ci", "--scope", "read")["secret"]
    with service(registry, "--host", "127.0.0.1") as found, httpx.Client(base_url=found.url) as client:
        assert client.get("/v1/artifacts").status_code == 401
        own = {"authorization": f"Bearer {secret}"}
        assert client.get("/v1/artifacts", headers=own).status_code == 200
        assert client.get(f"/v1/artifacts?name={secret}", headers=own).status_code == 422
        assert client.post("/v1/tokens", headers=own, json={"name": secret, "scopes": ["admin"]}).status_code == 403
        assert found.end() == 0
    _unsaid(tmp_path, secret)


def test_tokens_are_made_and_the_log_is_read_with_the_commands_on_a_url(tmp_path: Path) -> None:
    folder = Commands(tmp_path / "registry")
    root = folder.done("token", "create", "root", "--scope", "admin")
    with service(tmp_path / "registry", "--host", "127.0.0.1") as found:
        variables = {"BENCHLOCK_REGISTRY": found.url, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        commands = Commands(folder.registry, variables=variables | {"BENCHLOCK_TOKEN": root["secret"]})
        made = commands.done("token", "create", "ci", "--scope", "read", "--expires", "1h")
        listed = commands.done("token", "list")["tokens"]
        assert [one["id"] for one in listed] == [root["token"]["id"], made["token"]["id"]]
        assert commands.done("token", "revoke", made["token"]["id"])["changed"]
        assert not commands.done("token", "revoke", made["token"]["id"])["changed"]
        entries = commands.done("log", "--actor", root["token"]["id"])["log"]
        assert [one["action"] for one in entries] == ["token.revoke", "token.create"]
        assert commands.done("log", "--limit", "1", "--before", entries[0]["id"])["log"] == entries[1:]
        refused = Commands(folder.registry, variables=variables | {"BENCHLOCK_TOKEN": made["secret"]})
        assert refused.error(2, "token", "list")["code"] == "unauthorized"
        assert found.end() == 0
    for secret in (root["secret"], made["secret"]):
        _unsaid(tmp_path, secret)


def _unsaid(folder: Path, secret: str) -> None:
    """No file of ``folder`` has the token."""
    for path in folder.rglob("*"):
        assert not path.is_file() or secret[10:].encode() not in path.read_bytes(), path
