"""A real nginx with the configuration that the project ships, its addresses and files replaced by a test's own."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers.registry_server import free_port
from tests.support.servers.web import CERTIFICATE, TLS

CONFIGURATION = Path(__file__).parents[3] / "deploy" / "nginx.conf"
HOST = "localhost"
"""What the certificate is of."""


@dataclass(frozen=True, slots=True)
class Nginx:
    """A proxy that answers at the port ``front`` for the service, and at ``back`` for its store."""

    front: int
    back: int
    lines: Path


@contextmanager
def proxying(folder: Path, service: int, store: int) -> Iterator[Nginx]:
    """The proxy before two ports of this machine, for as long as the context is held; skipped where there is none."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("needs nginx (Debian: apt-get install nginx-light)")
    folder.mkdir()
    found = Nginx(free_port(), free_port(), folder / "lines")
    text = CONFIGURATION.read_text()
    for shipped, here in {
        "/tmp/": f"{folder}/",
        "listen 8443": f"listen 127.0.0.1:{found.front}",
        "listen 5443": f"listen 127.0.0.1:{found.back}",
        "http://benchlock:8080": f"http://127.0.0.1:{service}",
        "http://store:5000": f"http://127.0.0.1:{store}",
        "/run/secrets/certificate": str(CERTIFICATE),
        "/run/secrets/key": str(TLS / "localhost.key"),
        "/dev/stdout": str(found.lines),
    }.items():
        assert shipped in text, f"the configuration has no {shipped}"
        text = text.replace(shipped, here)
    (folder / "nginx.conf").write_text(text)
    command = [program, "-e", "stderr", "-c", str(folder / "nginx.conf")]
    tried = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr
    assert "[warn]" not in tried.stderr, tried.stderr
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "-g", "daemon off;"], stdout=log, stderr=log)
    try:
        _wait(found.front, process)
        yield found
    finally:
        process.terminate()
        process.wait(20)


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    pytest.fail(f"nginx does not answer at port {port}")
