"""Real workers of a served registry, whose tokens are revoked and rotated as docs/how-to/access.md says."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.commands import BENCHLOCK, Commands
from tests.support.api.serving import Served, at, service
from tests.support.api.warm import Warm
from tests.support.servers.registry_server import free_port

SECONDS = 60
"""So long a test waits for what is to happen."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with service(tmp_path / "registry", "--host", "127.0.0.1", variables={"BENCHLOCK_LEASE": "6"}) as found:
        yield found


@contextmanager
def worker(commands: Commands, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """An idle worker that would take jobs as processes."""
    words = [str(BENCHLOCK), "worker", "--machine", "m1", "--processes"]
    with log.open("ab") as written:
        process = subprocess.Popen(words, env=commands.environment(), stdout=written, stderr=written)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS)


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def machine(commands: Commands) -> dict[str, Any]:
    """The machine of the worker as ``machines`` shows it; empty before it is enrolled."""
    (found,) = commands.done("machines")["machines"] or [{}]
    return dict(found)


def test_a_worker_whose_token_is_revoked_exits_with_its_own_code_and_is_shown_as_gone(
    served: Served, tmp_path: Path
) -> None:
    folder = Warm(served.registry)
    made = folder.done("token", "create", "a-worker", "--scope", "run")
    own = at(served.url, tmp_path / "worker", BENCHLOCK_TOKEN=made["secret"])
    log = tmp_path / "worker.log"
    with worker(own, log) as process:
        wait_until(lambda: machine(folder).get("state") == "free")
        folder.done("token", "revoke", made["token"]["id"])
        assert process.wait(SECONDS) == 6
    assert "the worker stops because its token was rejected: the token is revoked" in log.read_text()
    assert "Traceback" not in log.read_text()
    found = machine(folder)
    assert (found["state"], found["gone_because"]) == ("gone", "its token is revoked")
    lines = [json.loads(line) for line in served.log.read_text().splitlines() if line.startswith("{")]
    assert len([one for one in lines if one.get("status") == 401]) == 1
    refused = [one for one in folder.done("log")["log"] if one["outcome"] == "refused"]
    assert [one["actor"] for one in refused] == [made["token"]["id"]]


def test_a_worker_takes_up_a_rotated_token_and_keeps_its_machine(served: Served, tmp_path: Path) -> None:
    folder, file = Warm(served.registry), tmp_path / "worker.token"
    made = folder.done("token", "create", "a-worker", "--scope", "run")
    file.write_text(f"{made['secret']}\n")
    own = at(served.url, tmp_path / "worker", BENCHLOCK_TOKEN_FILE=str(file))
    with worker(own, tmp_path / "worker.log") as process:
        wait_until(lambda: machine(folder).get("state") == "free")
        process.send_signal(signal.SIGSTOP)  # so that it sees both changes at once
        rotated = folder.done("token", "rotate", made["token"]["id"], "--grace", "0")
        file.write_text(f"{rotated['secret']}\n")
        process.send_signal(signal.SIGCONT)
        before = machine(folder)["unseen"]
        wait_until(lambda: machine(folder)["unseen"] < before)
        assert process.poll() is None
        assert machine(folder)["state"] == "free"
        folder.done("token", "rotate", made["token"]["id"], "--grace", "0")  # and the file is not written
        assert process.wait(SECONDS) == 6
    assert [one["action"] for one in folder.done("log")["log"]].count("machine.enrol") == 1


def test_a_token_file_and_a_token_at_once_are_refused(tmp_path: Path) -> None:
    """Before any server is asked."""
    url = f"http://127.0.0.1:{free_port()}"
    file = tmp_path / "worker.token"
    file.write_text("two words")
    both = at(url, tmp_path / "cache", BENCHLOCK_TOKEN="x", BENCHLOCK_TOKEN_FILE=str(file))
    assert "both set" in both.error(2, "list")["message"]
    one = at(url, tmp_path / "cache", BENCHLOCK_TOKEN_FILE=str(file))
    assert "does not hold one token" in one.error(2, "list")["message"]
    file.unlink()
    assert "cannot read the token file" in one.error(2, "list")["message"]
