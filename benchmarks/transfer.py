"""What `benchlock publish` and `get` take, beside the limits of the machine and what a user would pick instead.

Wall-clock time and memory of whole processes, for one large file and for many small ones; and what each reader gets
when the store has been damaged.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from benchmarks.resolving.report import machine, write
from benchmarks.transferring.contestants import Benchlock, Contestant
from benchmarks.transferring.loads import Load, large, many
from benchmarks.transferring.moving import LONG, Kind, damaged, measure
from benchmarks.transferring.peers import BenchlockServed, Dvc, Mlflow, Oras, OrasFolder, VerifyingDvc, versions
from benchmarks.transferring.report import bars, damages, delivers_nothing, integrity_bar, table

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
DAMAGED_MIB = 8
OURS = (Benchlock,)
PEERS = (BenchlockServed, Dvc, Mlflow, Oras)

METHOD = f"""\
In is what an author calls, out what a reader does: `benchlock publish` and `get`; `dvc add` and `push`, and `pull`
with an empty cache, to and from a remote in a folder; `mlflow artifacts log-artifact(s)` and `download`, with MLflow's
server and one worker; `push` and `pull` of oras-py, a layer a file or the folder as one archive, with Debian's
docker-registry. A figure is the median of the rounds; in every round each contestant is measured once, on random bytes,
in an empty store, in whole processes with compiled byte code, servers started before. Before each way everything is
written to the disk, and what is read is dropped from the page cache. What takes over {LONG} s in and out is measured
once. The limits are a process that digests the same files and keeps nothing, and `cp` with a `sync` of each copy; which
of them took longer in the same round is what the others are compared with.

A peer that delivers damaged bytes digests nothing on the way out: it can be faster than the first limit, and what
digests with SHA-256 cannot. benchlock's publication is durable when the command ends, as that copy is; what `get` wrote
is, like a plain `cp`, not yet. Memory is the peak resident set of the largest process that the command starts, servers
not counted.
"""


def main() -> None:
    """Measure the damage and the loads that were asked for; print tables and bars, write each into RESULTS.md."""
    options = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers and folders go
    about = [*islice(machine(), 2), *([] if options.alone else [f"- {versions()}"])]
    _tell("transfer", ["## Transfer", "", *about, "", METHOD], options)
    several = [*kinds(OURS), *([] if options.alone else kinds((*PEERS, VerifyingDvc)))]
    with tempfile.TemporaryDirectory(prefix="benchlock-transfer-") as temporary:
        folder = Path(temporary)
        careful = _damage(folder, several, options)  # by the way, everyone's byte code is compiled
        if "large" in options.loads:
            _load(large(folder, options.mebibytes), several, careful, folder, options)
        if "small" in options.loads:
            folders = [] if options.alone else kinds((OrasFolder,))
            _load(many(folder, options.files), [*several, *folders], careful, folder, options)


def _damage(folder: Path, several: Sequence[tuple[str, Kind]], options: argparse.Namespace) -> frozenset[str]:
    """The titles of those that delivered nothing of what was damaged."""
    (folder / "damaged").mkdir()
    source = large(folder / "damaged", DAMAGED_MIB).source
    found = {title: damaged(kind, source, folder) for title, kind in several}
    _tell("transfer: damage", [damages(found), integrity_bar(found)], options)
    return frozenset(title for title, said in found.items() if delivers_nothing(said))


def _load(
    load: Load, several: Sequence[tuple[str, Kind]], careful: frozenset[str], folder: Path, options: argparse.Namespace
) -> None:
    start = time.monotonic()
    measured = measure(load, several, options.rounds, folder)
    took = f"{(time.monotonic() - start) / 60:.0f} minutes, load average {os.getloadavg()[0]:.2f} at the end"
    section = [table(measured), *bars(measured, careful), f"\nMeasured {datetime.now(UTC):%Y-%m-%d}: {took}."]
    _tell(f"transfer: {load.name}", section, options)


def _tell(name: str, lines: Sequence[str], options: argparse.Namespace) -> None:
    text = "\n".join(lines)
    print(text, flush=True)
    if not options.dry:
        write(RESULTS, name, text)


def parsed() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=2048, help="of the large file")
    parser.add_argument("--files", type=int, default=10_000, help="small ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", nargs="*", choices=("large", "small"), default=("large", "small"))
    parser.add_argument("--alone", action="store_true", help="without the peers, which need requirements/bench.txt")
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    return parser.parse_args()


def kinds(classes: Sequence[type[Contestant]]) -> list[tuple[str, Kind]]:
    """Contestants by their titles."""
    return [(one.title, one) for one in classes]


if __name__ == "__main__":
    main()
