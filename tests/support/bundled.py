"""A small lock and a run of it, with every blob in a store; and bundles taken apart and put together again."""

import io
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from artifacts.canonical import canonical
from artifacts.digest import digest_bytes, to_hex
from artifacts.progress import SILENT
from artifacts.store import BlobStore
from artifacts.trees import put_tree
from evaluator.bundles import create_bundle
from evaluator.records.runs import Run, RunEnd, RunStart, new_run_id
from evaluator.statistics.figures import Interval, Metric
from registry.lockfile import Lock, read
from registry.manifests import parse_published, plain
from registry.manifests.identity import content
from tests.support.variants import variant

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HARNESS = b"the harness"
PICTURES = {"0.png": b"zero", "deeper/1.png": b"one"}
OTHER_PLATFORM = {"arm64.toml": b"other wheels", "wheels/numpy-2.3.0-cp311-cp311-linux_aarch64.whl": b"another numpy"}
Document = dict[str, Any]
Files = dict[str, bytes]
"""The files of a bundle by their names, in order."""


@dataclass(frozen=True)
class Bundled:
    """A lock, a run of it, and the store that has their blobs."""

    lock: Lock
    run: Run
    store: BlobStore

    def create(self, path: Path, *, platform: str = "", alone: bool = False) -> Path:
        """The bundle of the run, or of the lock ``alone``."""
        create_bundle(path, self.lock, None if alone else self.run, self.store, SILENT, platform=platform)
        return path


def bundled(store: BlobStore, folder: Path, *, seed: int = 7) -> Bundled:
    """Such a lock: a tree among the dataset's files, and an image of two platforms that share a wheel."""
    made = variant({"request": {"seed": seed}})
    for manifest in made.manifests.values():
        for blob in (content(manifest), *made.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    locked: Document = deepcopy(made.lock.document)
    dataset, image = (plain(made.manifests[locked[kind]["digest"]]) for kind in ("dataset", "image"))
    _add_tree(locked, dataset, store, folder)
    _add_platform(locked, image, store)
    for kind, manifest in (("dataset", dataset), ("image", image)):
        locked[kind]["digest"] = store.put(io.BytesIO(content(parse_published(canonical(manifest))))).digest
    harness = store.put(io.BytesIO(HARNESS))
    locked["harness"] |= {"digest": harness.digest, "size": harness.size}
    lock = read(locked, "lock")
    return Bundled(lock, run_of(lock, store), store)


def _add_tree(locked: Document, dataset: Document, store: BlobStore, folder: Path) -> None:
    for path, picture in PICTURES.items():
        (folder / "pictures" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "pictures" / path).write_bytes(picture)
    tree, _ = put_tree(store, folder / "pictures")
    row = {"path": "pictures/", "sha256": to_hex(tree.digest), "size": tree.size}
    dataset["files"].append(row)
    locked["dataset"]["files"].append(row)


def _add_platform(locked: Document, image: Document, store: BlobStore) -> None:
    rows = [_kept(path, text, store) for path, text in OTHER_PLATFORM.items()]
    shared = locked["image"]["platforms"][0]["wheels"][0]
    place = {"os": "linux", "arch": "arm64", "device": "cpu", "python": "3.11"}
    image["files"] += [row | {"role": "wheels"} for row in rows]
    image["platforms"].append(place | {"wheels": "arm64.toml"})
    locked["image"]["platforms"].append(place | {"wheels_lock": rows[0], "wheels": [shared, rows[1]]})


def _kept(path: str, text: bytes, store: BlobStore) -> Document:
    blob = store.put(io.BytesIO(text))
    return {"path": path, "sha256": to_hex(blob.digest), "size": blob.size}


def run_of(lock: Lock, store: BlobStore, *, seconds: int = 0) -> Run:
    """A run of the lock on its first platform, done, with predictions that only their digest tells from others."""
    begun = NOON + timedelta(seconds=seconds)
    platform = lock.image.platforms[0]
    start = RunStart(
        id=new_run_id(begun, bytes(10)),
        lock=lock.id,
        attempt=1,
        isolation="process",
        platform={name: getattr(platform, name) for name in ("os", "arch", "device", "python")},
        host={
            "cpu_model": "A CPU",
            "cpu_flags": ["avx2", "sse"],
            "cores": 2,
            "memory": 24 << 30,
            "kernel": "Linux",
            **dict.fromkeys(("governor", "engine", "accelerator", "driver")),
        },
        process={"pid": 17, "born": "then"},
        started_at=begun,
    )
    blobs = {role: store.put(io.BytesIO(f"{role} {seconds}".encode())) for role in ("predictions", "samples")}
    end = RunEnd(
        outcome="done",
        ended_at=begun + timedelta(minutes=1, microseconds=1),
        metrics=(Metric("top1", 0.5, "fraction", "higher", 2, Interval(0.1, None), lock.metrics["top1"]),),
        packages={"numpy": "2.3.0"},
        blobs=blobs,
        timings={"run": 1.5, "verification": 2},
        details={"loadgen": {"valid": True, "errors": []}},
    )
    return Run(start, end)


def unpacked(path: Path) -> Files:
    """What is in a bundle."""
    with tarfile.open(path) as tar:
        return {entry.name: _content(tar, entry) for entry in tar}


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(entry)
    assert stream is not None
    return stream.read()


def packed(path: Path, files: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> Path:
    """A tar of these files, in this order; a list may hold a name twice."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, text in files.items() if isinstance(files, Mapping) else files:
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    return path


def changed(files: Files, change: Callable[[Document, list[Document]], None]) -> Files:
    """The same bundle with other documents: ``change`` is given the index and its manifests, to be changed in place.

    Digests and sizes of the manifests are made true again; nothing else is.
    """
    index = json.loads(files["index.json"])
    manifests = [json.loads(files.pop(name_of(one["digest"]))) for one in index["manifests"]]
    change(index, manifests)
    for one, manifest in zip(index["manifests"], manifests, strict=True):
        text = canonical(manifest)
        one |= {"digest": digest_bytes(text), "size": len(text)}
        files[name_of(one["digest"])] = text
    return {**files, "index.json": canonical(index)}


def with_root(files: Files, number: int, text: bytes) -> Files:
    """The same bundle with another root document: the lock is number 0, the run number 1."""
    index = json.loads(files["index.json"])
    old = json.loads(files[name_of(index["manifests"][number]["digest"])])["config"]["digest"]

    def change(_: Document, manifests: list[Document]) -> None:
        manifests[number]["config"] |= {"digest": digest_bytes(text), "size": len(text)}

    kept = {name: content for name, content in files.items() if name != name_of(old)}
    return changed(kept, change) | {name_of(digest_bytes(text)): text}


def root_of(files: Files, number: int) -> bytes:
    """The root document: the lock is number 0, the run number 1."""
    index = json.loads(files["index.json"])
    return files[name_of(json.loads(files[name_of(index["manifests"][number]["digest"])])["config"]["digest"])]


def name_of(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"
