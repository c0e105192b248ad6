"""A server that speaks S3 (moto's) on the loopback, with a bucket that is empty at first."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPResponse
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Self, cast
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from benchlock.artifacts.net.object_client import ObjectLocation, parse_location
from tests.support.servers.registry_server import free_port

BUCKET = "bucket"


@dataclass(frozen=True, slots=True)
class ObjectServer:
    """A server that answers."""

    url: str
    scheme: ClassVar = "s3"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in its environment."""
        return {
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
        }

    def location(self, name: str) -> ObjectLocation:
        """A prefix of a test of this name in the bucket."""
        return parse_location(f"{self.scheme}://{BUCKET}/{re.sub(r'[^A-Za-z0-9._-]', '-', name)}")

    def behind(self, port: int) -> Self:
        """The server as it is reached through a proxy on a port of this machine."""
        return replace(self, url=f"http://127.0.0.1:{port}")

    @property
    def port(self) -> int:
        """The server's own port."""
        return int(self.url.rpartition(":")[2])

    @property
    def objects_url(self) -> str:
        """The URL below which the objects of the bucket are."""
        return f"{self.url}/{BUCKET}"

    def has_parts(self, location: ObjectLocation) -> bool:
        """Whether there are parts of uploads below a prefix that did not end."""
        return f"<Key>{below(location)}/".encode() in self.ask("GET", "?uploads")

    def open(self, method: str, path: str, content: bytes | None = None) -> HTTPResponse:
        """Send a request; this server requires credentials, and checks no signature."""
        scope = "tests/20260101/us-east-1/s3/aws4_request"
        headers = {
            "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
            "Content-Type": "application/octet-stream",
        }
        request = Request(f"{self.objects_url}{path}", data=content, method=method, headers=headers)
        return cast("HTTPResponse", urlopen(request, timeout=30))

    def ask(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """Return the body of the answer to a request."""
        with self.open(method, path, content) as answer:
            return answer.read()


def below(location: ObjectLocation) -> str:
    """The prefix of a location in its bucket."""
    return location.url.partition("://")[2].partition("/")[2]


@contextmanager
def serving_objects(folder: Path) -> Iterator[ObjectServer]:
    """A server with an empty bucket, for as long as the context is held; skipped without moto and obstore."""
    for package in ("moto", "obstore"):
        if find_spec(package) is None:
            pytest.skip(f"needs {package} (requirements/dev.txt)")
    port = free_port()
    with (folder / "object-server.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    server = ObjectServer(f"http://127.0.0.1:{port}")
    with created(server, process, ""):
        yield server


@contextmanager
def created(server: ObjectServer, process: subprocess.Popen[bytes], request: str) -> Iterator[None]:
    """The server with its bucket, which the path ``request`` creates; its process ends with the context."""
    try:
        _create_bucket(server, process, request)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _create_bucket(server: ObjectServer, process: subprocess.Popen[bytes], request: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server.ask("PUT", request)
        except (URLError, OSError):
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"the object server does not answer at {server.url}")
