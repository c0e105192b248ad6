"""What `benchlock serve` answers in a second, beside MLflow's tracking server, docker-registry and a bare route.

One interleaved run: every round measures every way of every server once, one way of all servers
after the other, in every other round from the last to the first.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from itertools import islice, product
from pathlib import Path
from typing import Literal

from benchmarks.answering.blobs import ROOTS, BlobTaken, blob_rates
from benchmarks.answering.load import Answered, ask
from benchmarks.answering.report import Key, bars, blobs_table, rates_table, starts_table
from benchmarks.answering.servers import Answering, Bare, Benchlock, Manifests, MlflowTracking, Requests
from benchmarks.resolving.report import machine, write
from benchmarks.transferring.peers import versions

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
SMALL, LARGE = 1_000, 100_000
CLIENTS = (1, 16)
_WARM_S = 1

METHOD = """\
Requests are sent by wrk, with one thread, over as many connections as there are clients, each a request after the
other, on the loopback of the same machine. benchlock and MLflow hold the same number of versions, 100 of a name, in
SQLite, each served by one process; benchlock's commits are on the disk when they are answered (synchronous=FULL, write-
ahead log), MLflow's are as it configures SQLite itself. Register is one version more: a manifest of a framework,
checked and published, beside a version of a registered model. A page is the 100 versions of a name. Of docker-registry
a manifest of a repository is read by its digest. The bare route is a Litestar application that answers with a few
bytes. Each measurement follows a second of the same requests that does not count: what another server was still asked
when its own measurement ended would be load for this one, and what lay idle since the last round is read from the disk
again. A rate is the median over the rounds, so is p99, the time that a hundredth of the answers exceed; how many times
another's rate is the median of the rounds' own ratios, of what was measured seconds apart. A blob is sent by curl to
each, and then read from each in turn, five times a round. A start is from the process to its first answer.
"""


def main() -> None:
    """Measure; print tables and bars, and write them into RESULTS.md."""
    options = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers go
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="benchlock-service-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        servers = [stack.enter_context(closing(one)) for one in started(folder, options)]
        stores = [server for server in servers if server.title in ROOTS and server.versions in (SMALL, 0)]
        asked = [(server, server.requests()) for server in servers]
        taken: defaultdict[Key, list[Answered]] = defaultdict(list)
        blobs: defaultdict[str, list[BlobTaken]] = defaultdict(list)
        for number in range(options.rounds):
            rates(asked[:: turned(number)], taken, options.seconds, folder)
            for title, found in blob_rates(stores[:: turned(number)], options.mebibytes, number, folder).items():
                blobs[title].append(found)
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        memory = {(server.title, server.versions): (server.started_in, server.memory()) for server in servers}
    took = f"{(time.monotonic() - start) / 60:.0f} minutes, {options.rounds} rounds"
    section = [
        "## The service",
        "",
        *islice(machine(), 2),
        *([] if options.alone else [f"- {versions()}"]),
        "",
        METHOD,
        rates_table(taken),
        blobs_table(blobs),
        starts_table(memory),
        *bars(taken, blobs, memory),
        "",
        f"Measured {datetime.now(UTC):%Y-%m-%d}: {took}, load average {os.getloadavg()[0]:.2f} at the end.",
    ]
    print("\n".join(section))
    if not options.alone:
        write(RESULTS, "service", "\n".join(section))


def started(folder: Path, options: argparse.Namespace) -> Iterator[Answering]:
    """The servers, each filled and answering."""
    for count in (SMALL, options.largest):
        yield Benchlock(folder / f"benchlock-{count}", count)
        if not options.alone:
            yield MlflowTracking(folder / f"mlflow-{count}", count)
    yield Manifests(folder / "docker-registry", 0)
    yield Bare(folder / "bare", 0)


def turned(number: int) -> Literal[1, -1]:
    """The step through the servers in that round: every other one begins with the last."""
    return -1 if number % 2 else 1


def rates(
    asked: Sequence[tuple[Answering, Requests]],
    taken: defaultdict[Key, list[Answered]],
    seconds: float,
    folder: Path,
) -> None:
    """Every way of every server once, and warm; of one way the servers after each other."""
    ways = dict.fromkeys(way for _, requests in asked for way in requests)
    for way, clients, (server, requests) in product(ways, CLIENTS, asked):
        if way in requests:
            ask(server.url, requests[way], clients, _WARM_S, folder)
            key = Key(server.title, server.versions, way, clients)
            taken[key].append(ask(server.url, requests[way], clients, seconds, folder))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement (default: 3)")
    parser.add_argument(
        "--largest", type=int, default=LARGE, help=f"versions of the larger registry (default: {LARGE})"
    )
    parser.add_argument("--mebibytes", type=int, default=64, help="of a blob (default: 64)")
    parser.add_argument("--alone", action="store_true", help="without MLflow; nothing is written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
