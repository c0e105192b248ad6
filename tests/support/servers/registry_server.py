"""A real OCI registry (Debian's docker-registry) on the loopback, with a data folder of its own."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from benchlock.artifacts.digest import Digest, to_hex
from benchlock.artifacts.oci.oci_reference import Repository

_CONFIGURATION = """\
version: 0.1
log: {{level: warn, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {data}}}
  delete: {{enabled: {deletes}}}
  cache: {{blobdescriptor: ""}}
http: {{addr: "127.0.0.1:{port}", secret: tests, relativeurls: true}}
{more}
"""


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """A registry that answers; its ``data`` folder may be tampered with."""

    port: int
    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data" / "docker" / "registry" / "v2"

    def repository(self, path: str, *, port: int | None = None) -> Repository:
        """A repository of it, or through the proxy at ``port``."""
        return Repository(f"127.0.0.1:{port or self.port}", path, plain=True)

    def blob(self, digest: Digest) -> Path:
        """Where the registry keeps the bytes of a blob."""
        return self.data / "blobs" / "sha256" / to_hex(digest)[:2] / to_hex(digest) / "data"

    def collect_garbage(self) -> None:
        """Run the registry's own collection, as whoever operates it does."""
        command = ["docker-registry", "garbage-collect", "--delete-untagged", str(self.folder / "config.yml")]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


@contextmanager
def serving(folder: Path, *, deletes: bool = True, more: str = "") -> Iterator[RegistryServer]:
    """A registry with its data below ``folder``, for as long as the context is held.

    ``more`` is appended to its configuration; without Debian's docker-registry the test is skipped.
    """
    if shutil.which("docker-registry") is None:
        pytest.skip("needs docker-registry (Debian: apt-get install docker-registry)")
    port = free_port()
    configuration = folder / "config.yml"
    configuration.write_text(
        _CONFIGURATION.format(data=folder / "data", deletes=str(deletes).lower(), port=port, more=more)
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(configuration)], stdout=log, stderr=log)
    try:
        _wait(port, process)
        yield RegistryServer(port, folder)
    finally:
        process.terminate()
        process.wait(60)


def free_port() -> int:
    """A port of the loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
        except (URLError, OSError):
            time.sleep(0.02)
        else:
            return
    pytest.fail(f"the registry does not answer at port {port}")
