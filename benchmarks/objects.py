"""What a registry's store over a bucket takes to send and to receive a file, beside the library that it uses alone."""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import obstore
from obstore.store import S3Store

from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.net.object_client import connect
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.stores.object_store import CachedObjects, ObjectStore
from benchmarks.resolving.report import machine, write
from tests.support.servers.object_server import BUCKET, ObjectServer, serving_objects

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
MIB, BAR = 1 << 20, 0.8
METHOD = """\
A server that speaks S3 (moto) on the loopback, and a file of random bytes. benchlock digests the file, sends it in
parts, each with a checksum that the server gets, and digests again what it sends; receiving, it digests the bytes and
writes them durably into its cache. The library obstore sends the same file with its own defaults, and writes what it
receives into a file, without any digest. Interleaved, in an order that alternates; every round has other bytes. MiB/s.
"""


def main() -> None:
    """Measure in rounds; print the table and the bars, and write them into RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mebibytes", type=int, default=128)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchlock-objects-") as folder, serving_objects(Path(folder)) as server:
        os.environ |= server.environment
        taken = measure(Path(folder), connect_plainly(server.url), options.rounds, options.mebibytes, server)
    lines = ["| way | benchlock | obstore | ratio of the medians |", "| --- | ---: | ---: | ---: |"]
    bars = []
    for way in ("send", "receive"):
        ours, plain = (options.mebibytes / statistics.median(taken[way, name]) for name in ("benchlock", "obstore"))
        lines.append(f"| {way} | {ours:.0f} | {plain:.0f} | {ours / plain:.2f} |")
        met = "met" if ours / plain >= BAR else "not met"
        bars.append(f"- {met}: {way} (at least {BAR} of the library's throughput; {ours / plain:.2f})")
    size = f"{options.mebibytes} MiB, --rounds {options.rounds}."
    text = "\n".join(
        ("## Objects in a bucket", "", *machine(), "", METHOD, *lines, "", *bars, "", f"Measured: {size}", "")
    )
    write(RESULTS, "objects", text)
    print(text)


def connect_plainly(url: str) -> S3Store:
    """Return the library's own store for the bucket."""
    return S3Store(BUCKET, endpoint=url, region="us-east-1", client_options={"allow_http": True})


def measure(
    folder: Path, plain: S3Store, rounds: int, mebibytes: int, server: ObjectServer
) -> dict[tuple[str, str], list[float]]:
    """Return seconds by way and contestant, one of each a round."""
    taken: dict[tuple[str, str], list[float]] = {}
    store = ObjectStore(connect(server.location("benchmark")), folder / "lock")
    for number in range(rounds + 1):
        content = os.urandom(mebibytes * MIB)
        path, blob = folder / "file", Descriptor(digest_bytes(content), len(content))
        path.write_bytes(content)
        home = CachedObjects(LocalStore(folder / f"cache-{number}"), store)
        actions: dict[tuple[str, str], Callable[[], object]] = {
            ("send", "benchlock"): lambda path=path: store.put_file(path),  # type: ignore[misc] # bound now
            ("send", "obstore"): lambda path=path: obstore.put(plain, "plain", path),  # type: ignore[misc]
            ("receive", "benchlock"): lambda home=home, blob=blob: home.path(blob.digest),  # type: ignore[misc]
            ("receive", "obstore"): lambda: receive_plainly(plain, folder / "received"),
        }
        order = list(actions) if number % 2 else [*list(actions)[1::-1], *list(actions)[:1:-1]]
        for key in order:
            start = time.perf_counter()
            actions[key]()
            if number:  # the first round warms up
                taken.setdefault(key, []).append(time.perf_counter() - start)
        store.delete(blob.digest)
    return taken


def receive_plainly(plain: S3Store, path: Path) -> None:
    """Write the object into a file, durably."""
    with path.open("wb") as file:
        for chunk in obstore.get(plain, "plain").stream():
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    main()
