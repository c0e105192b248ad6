"""Blobs up and down, by curl: the same requests to a service that speaks the upload protocol of OCI registries."""

import hashlib
import random
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import Request, urlopen

from benchmarks.answering.servers import Answering

ROOTS = {"benchlock": "/v1/blobs", "docker-registry": "/v2/blobs/blobs"}
"""Where each has its blobs."""
DOWNLOADS = 5
"""Of each blob, from each server."""


@dataclass(frozen=True, slots=True)
class BlobTaken:
    """Bytes a second of one blob, up and down."""

    up: float
    down: float


def blob_rates(servers: Sequence[Answering], mebibytes: int, seed: int, folder: Path) -> dict[str, BlobTaken]:
    """One blob of fresh random bytes, by server: sent to each, then read from each in turn, several times.

    To send it an upload is opened, sent and closed with its digest. The reading takes hundredths of a second: of
    several, the median.
    """
    content = random.Random(seed).randbytes(mebibytes << 20)  # noqa: S311 - no secret
    file = folder / "blob"
    file.write_bytes(content)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    up = [_sent(server, file, digest) for server in servers]
    down = [[_curl(f"{_root(server)}/{digest}") for server in servers] for _ in range(DOWNLOADS)]
    middle = map(statistics.median, zip(*down, strict=True))
    return {
        server.title: BlobTaken(len(content) / sent, len(content) / read)
        for server, sent, read in zip(servers, up, middle, strict=True)
    }


def _sent(server: Answering, file: Path, digest: str) -> float:
    opening = Request(f"{_root(server)}/uploads{'' if server.title == 'benchlock' else '/'}", b"", method="POST")  # noqa: S310 - ours
    with urlopen(opening, timeout=30) as answer:  # noqa: S310 - ours
        location = urljoin(server.url, str(answer.headers["Location"]))
    between = "&" if "?" in location else "?"
    sending = ["-X", "PUT", "-H", "Content-Type: application/octet-stream", "-T", str(file)]
    return _curl(*sending, f"{location}{between}digest={digest}")


def _root(server: Answering) -> str:
    return f"{server.url}{ROOTS[server.title]}"


def _curl(*words: str) -> float:
    """Seconds of one request, connection included."""
    command = ["curl", "-sS", "--fail", "-o", "/dev/null", "-w", "%{time_total}", *words]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
