"""A real `benchlock serve` on the loopback: a process of its own, ended by its id."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.api.commands import BENCHLOCK, Commands, link_environments
from tests.support.api.warm import Warm
from tests.support.servers.registry_server import free_port


@dataclass(frozen=True, slots=True)
class Served:
    """A service that answers. ``log`` is what it writes to standard error."""

    process: subprocess.Popen[bytes]
    registry: Path
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def end(self) -> int:
        """Tell it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """End it as a failing machine does."""
        self.process.kill()
        self.process.wait(60)


@contextmanager
def service(
    registry: Path, *options: str, port: int | None = None, variables: dict[str, str] | None = None
) -> Iterator[Served]:
    """``benchlock serve`` over the registry in a folder, for as long as the context is held; open unless told else."""
    port = port or free_port()
    words: Sequence[str] = options or ("--open",)
    log = registry.with_name(f"{registry.name}-{port}.log")
    environment = Commands(registry, variables=variables or {}).environment()
    with log.open("ab") as written:
        process = subprocess.Popen(
            [str(BENCHLOCK), "serve", "--port", str(port), *words], env=environment, stdout=written, stderr=written
        )
    served = Served(process, registry, port, log)
    try:
        _wait(served)
        yield served
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


@contextmanager
def tuned_service(registry: Path, settings: str) -> Iterator[Served]:
    """An open service whose settings are those in ``settings``, as ``name=value, …`` of ``Settings``."""
    port, log = free_port(), registry.with_name(f"{registry.name}-tuned.log")
    command = [sys.executable, "-c", _TUNED.format(settings=settings), str(registry), str(port)]
    environment = Commands(registry).environment()
    with log.open("ab") as written:
        process = subprocess.Popen(command, env=environment, stdout=written, stderr=written, cwd=_ROOT)
    served = Served(process, registry, port, log)
    try:
        _wait(served)
        yield served
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


_ROOT = Path(__file__).parents[3]
_TUNED = """
import sys
from benchlock.api.http.routes.app import create_app
from benchlock.api.service_log import log_to_stderr
from benchlock.api.http.server_process import serve
from benchlock.api.http.service_settings import *
from benchlock.api.local.local_registry import open_registry

app = create_app(open_registry(sys.argv[1], lambda _: None), Settings({settings}))
log_to_stderr()
serve(app, "127.0.0.1", int(sys.argv[2]), lambda: None)
"""


def memory_of(served: Served) -> int:
    """Bytes of memory that the process of the service has now (its resident set)."""
    lines = Path(f"/proc/{served.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) << 10


def at(url: str, folder: Path, *, engine: str = "", **variables: str) -> Commands:
    """Commands on the registry at ``url``, whose cache is in ``folder``."""
    named = {"BENCHLOCK_REGISTRY": url, "XDG_CACHE_HOME": str(folder / "cache")}
    return Warm(folder, engine, named | variables)


def share_environments(remote: Commands, registry: Path) -> None:
    """Let ``remote``, which has no cache yet, use the environments of processes of a registry in a folder."""
    remote.done("doctor")
    (home,) = Path(remote.variables["XDG_CACHE_HOME"], "benchlock").iterdir()
    link_environments(registry, home)


def _wait(served: Served) -> None:
    deadline = time.monotonic() + 300
    with httpx.Client(timeout=5) as client:  # one: each loads all certificates, which is slower than the answer
        while time.monotonic() < deadline and served.process.poll() is None:
            try:
                client.get(f"{served.url}/v1/health").raise_for_status()
            except httpx.HTTPError:
                time.sleep(0.02)
            else:
                return
    pytest.fail(f"the service does not answer at {served.url}: {served.log.read_text()}")
