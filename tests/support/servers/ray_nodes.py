"""A real Ray cluster on the loopback: a head, and nodes that are raylets of this host; a token is needed.

The processes of a node are told apart by a variable in their environments, which all of them inherit.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests.support.servers.registry_server import free_port

HEAD: Final = "head"
_MARK: Final = "TEST_RAY_NODE"
_SETTINGS: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_health_check_initial_delay_ms": "3000",
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "4000",
}
_NO_TASKS: Final = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
_MEMORY: Final = 80_000_000
_START_SECONDS: Final = 120


@dataclass
class RayNodes:
    """The cluster; ``nodes`` are the variables of each node beside the head, by name."""

    folder: Path
    nodes: Mapping[str, Mapping[str, str]]
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.token_file = self.folder / "cluster-token"
        self.token_file.write_text(self.token)
        self.token_file.chmod(0o600)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """What the launcher needs to reach the cluster."""
        return _SETTINGS | {"RAY_AUTH_TOKEN_PATH": str(self.token_file)}

    @property
    def script_variables(self) -> dict[str, str]:
        """What any script needs to reach it."""
        return self.variables | {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

    def starting(self, name: str, cpus: int = 2) -> "subprocess.Popen[bytes]":
        """The command that starts a node, which ends when the node is there."""
        place = (
            ["--head", f"--port={self.port}", "--num-cpus=0", "--include-dashboard=false"]
            if name == HEAD
            else [f"--address={self.address}", f"--num-cpus={cpus}", f"--labels=benchlock.org/machine={name}"]
        )
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("BENCHLOCK_", "RAY_"))}
        own = {"RAY_AUTH_MODE": "token", _MARK: self._mark(name)} | dict(self.nodes.get(name, {}))
        words = [sys.executable, "-m", "tests.support.servers.ray_start", "start", *place]
        (self.folder / name).mkdir(exist_ok=True)  # nodes that start at once in one folder take the same sockets
        limits = [
            f"--temp-dir={self.folder / name}",
            f"--object-store-memory={_MEMORY}",
            "--disable-usage-stats",
            "--include-log-monitor=false",
            f"--node-name={name}",
        ]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*words, "--node-ip-address=127.0.0.1", *limits],
                env=inherited | self.variables | own,
                stdout=log,
                stderr=log,
            )

    def start(self) -> None:
        """Start the head, then all nodes at once."""
        self.finish(HEAD, self.starting(HEAD))
        starting = {name: self.starting(name) for name in self.nodes}
        for name, process in starting.items():
            self.finish(name, process)

    def finish(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        assert process.wait(_START_SECONDS) == 0, (self.folder / f"{name}.log").read_text()[-3000:]

    def processes(self, name: str, part: str = "") -> list[int]:
        """The ids of the processes of a node whose command lines contain ``part``."""
        found = []
        mark = f"{_MARK}={self._mark(name)}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if part in line:
                        found.append(int(folder.name))
        return found

    def raylet(self, name: str) -> int | None:
        return next(iter(self.processes(name, "/raylet/raylet ")), None)

    def workers(self, name: str) -> list[int]:
        """The processes of Ray that run tasks, which are children of the raylet."""
        lines = {pid: _read_line(pid) for pid in self._children(self.raylet(name))}
        return [pid for pid, line in lines.items() if line.startswith("ray::") and not line.startswith(_NO_TASKS)]

    def agents(self, name: str) -> list[int]:
        """The workers of benchlock."""
        return self.processes(name, " worker --until-idle ")

    def kill(self, name: str) -> None:
        """End every process of a node, and those that have hidden their environment."""
        for _ in range(100):
            pids = {*self.processes(name), *self._children(self.raylet(name))}
            if not pids:
                return
            for pid in pids:
                send(pid, signal.SIGKILL)
            time.sleep(0.1)

    def end(self) -> None:
        for name in (*self.nodes, HEAD):
            self.kill(name)

    def _mark(self, name: str) -> str:
        return f"{self.folder}:{name}"

    def _children(self, pid: int | None) -> list[int]:
        if pid is None:
            return []
        with suppress(OSError):
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _read_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


@contextmanager
def ray_nodes(nodes: Mapping[str, Mapping[str, str]]) -> Iterator[RayNodes]:
    """A cluster for as long as the context is held; without Ray the test is skipped."""
    if find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'benchlock[ray]'")
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # paths of sockets must be short
    cluster = RayNodes(folder, nodes)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()
        shutil.rmtree(folder, ignore_errors=True)
