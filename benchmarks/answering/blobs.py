"""Blobs up and down, by curl: the same requests to a service that speaks the upload protocol of OCI registries."""

import hashlib
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import Request, urlopen

from benchmarks.answering.servers import Answering

ROOTS = {"benchlock": "/v1/blobs", "docker-registry": "/v2/blobs/blobs"}
"""Where each has its blobs."""


@dataclass(frozen=True, slots=True)
class BlobTaken:
    """Bytes a second of one blob, up and down."""

    up: float
    down: float


def blob_rates(server: Answering, mebibytes: int, seed: int, folder: Path) -> BlobTaken:
    """One blob of fresh random bytes: an upload is opened, sent and closed with its digest; then it is read."""
    content = random.Random(seed).randbytes(mebibytes << 20)  # noqa: S311 - no secret
    file = folder / "blob"
    file.write_bytes(content)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    root = f"{server.url}{ROOTS[server.title]}"
    opening = Request(f"{root}/uploads{'' if server.title == 'benchlock' else '/'}", b"", method="POST")  # noqa: S310 - ours
    with urlopen(opening, timeout=30) as answer:  # noqa: S310 - ours
        location = urljoin(server.url, str(answer.headers["Location"]))
    between = "&" if "?" in location else "?"
    sending = ["-X", "PUT", "-H", "Content-Type: application/octet-stream", "-T", str(file)]
    up = _curl(*sending, f"{location}{between}digest={digest}")
    down = _curl(f"{root}/{digest}")
    return BlobTaken(len(content) / up, len(content) / down)


def _curl(*words: str) -> float:
    """Seconds of one request, connection included."""
    command = ["curl", "-sS", "--fail", "-o", "/dev/null", "-w", "%{time_total}", *words]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
