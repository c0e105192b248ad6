"""What it costs to recompute a record from its blobs: 50,000 predictions of 1,000 classes, and a small run.

``python -m benchmarks.evidence`` prints the seconds. ``--registry FOLDER`` prints, for each run of a registry, what
share of the run's time its examination takes when nothing is remembered.
"""

import argparse
import io
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from benchlock.api.local.local_registry import open_registry
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.recomputation import Subject, recompute
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.resolution.variants import variant

SAMPLES, CLASSES = 50_000, 1000
TIMES, SHARE_TIMES = 3, 5
BOUND = 2.0
MAX_LABELS = 100
NO_LABELS = {"outputs.0.labels": None}


@dataclass(frozen=True)
class Measured:
    """Seconds of several recomputations of one run, and the bytes of its evidence."""

    name: str
    seconds: list[float]
    size: int


def main() -> None:
    """Print the seconds of each, and whether the large one is within its bound; or the shares of a registry's runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--registry", type=Path, metavar="FOLDER", help="examine the runs of this registry instead")
    registry = parser.parse_args().registry
    if registry is not None:
        print_shares(registry)
        return
    with tempfile.TemporaryDirectory() as folder:
        for measured in (_measured(Path(folder) / "small", IDX, 2, 10), _large(Path(folder) / "large")):
            seconds = ", ".join(f"{one:.3f}" for one in measured.seconds)
            print(f"{measured.name}: {seconds} s for {measured.size / 1e6:.1f} MB of evidence")
        print(f"bound: {BOUND:g} s for {SAMPLES} predictions of {CLASSES} classes: {min(measured.seconds) < BOUND}")


def print_shares(folder: Path) -> None:
    """Print the seconds of examining each ended run, the median of several, and their share of the run's own time."""
    registry = open_registry(str(folder), print)
    for listed in registry.records.list():
        run = registry.records.get(listed.id)
        if run.end is None:
            continue
        seconds = []
        for _ in range(SHARE_TIMES):
            shutil.rmtree(folder / "evidence", ignore_errors=True)
            begun = time.perf_counter()
            examined = registry.examiner.examine(replace(run, evidence=None))
            seconds.append(time.perf_counter() - begun)
            assert examined.evidence is not None
            assert examined.evidence.state == "verified", examined.evidence
        median = statistics.median(seconds)
        whole = (run.end.ended_at - run.start.started_at).total_seconds()
        print(f"{run.id}: examined in {median:.3f} s, the run took {whole:.2f} s: {median / whole:.1%}")


def _large(folder: Path) -> Measured:
    labels = bytes(number % MAX_LABELS for number in range(SAMPLES))
    count = SAMPLES.to_bytes(4, "big")
    files = {
        "dataset/images.idx": b"\0\0\x08\x03" + count + b"\0\0\0\x01" * 2 + bytes(SAMPLES),
        "dataset/labels.idx": b"\0\0\x08\x01" + count + labels,
    }
    return _measured(folder, files, SAMPLES, CLASSES)


def _measured(folder: Path, files: Mapping[str, bytes], samples: int, classes: int) -> Measured:
    store = LocalStore(folder)
    made = variant(
        {
            "lock": CURRENT,
            "files": files,
            "dataset": {"labels": None, "splits.test.samples": samples},
            "model": NO_LABELS,
        }
    )
    for manifest in made.manifests.values():
        for blob in (content(manifest), *made.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    lock = made.lock
    run = make_run(lock, store, right=samples // 2, classes=classes)
    assert run.end is not None
    blobs = run.end.blobs
    subject = Subject(lock, lock.image.platforms[0], read_manifests(lock, store))
    seconds = []
    for _ in range(TIMES):
        start = time.perf_counter()
        assert recompute(subject, blobs, store, folder / "labels").metrics
        seconds.append(time.perf_counter() - start)
    return Measured(f"{samples} predictions of {classes} classes", seconds, sum(blob.size for blob in blobs.values()))


if __name__ == "__main__":
    main()
