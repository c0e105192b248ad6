"""A small lock and a run of it, with every blob in a store; and bundles taken apart and put together again."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.harness import VERSION
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.workflows.bundles import create_bundle
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import open_engine
from benchlock.registry.lock.lock_creation import Harness
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.publishing.publication import Draft, publish
from benchlock.registry.requests.evaluation_request import parse_request
from tests.support.evaluator.evidence import make_run
from tests.support.registry import tiny
from tests.support.registry.authored import read_authored
from tests.support.registry.digits import model, request, written
from tests.support.resolution.locks import make_lock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HARNESS = b"the harness"
LABELS = "".join(f"digit {number}\n" for number in range(10)).encode()
PICTURES = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 8, *range(128)])
CLASSES = bytes([0, 0, 8, 1, 0, 0, 0, 2, 3, 7])
OTHER_WHEEL = b"no wheel either\n"
OTHER_PATH = "wheels/numpy-2.3.0-cp311-cp311-manylinux_2_28_aarch64.whl"
OTHER_PYLOCK = f"""\
{tiny.PYLOCK}
[[packages]]
name = "numpy"
version = "2.3.0"
wheels = [{{path = "{OTHER_PATH}", size = {len(OTHER_WHEEL)}, hashes = {{sha256 = "{digest_bytes(OTHER_WHEEL)[7:]}"}}}}]
""".encode()
OTHER_PLATFORM = {"arm64.toml": OTHER_PYLOCK, OTHER_PATH: OTHER_WHEEL}
"""What the image's second platform needs, and the first does not."""

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


def bundled(store: BlobStore, folder: Path, schema: Path) -> Bundled:
    """Such a lock: a tree is the dataset, and the image has two platforms that share a wheel.

    ``schema`` is an empty registry's database, of which a copy in ``folder`` is used.
    """
    shutil.copy(schema, folder / "maker.db")
    database = open_engine(folder / "maker.db")
    catalogue = Catalogue(database, lambda: NOON)
    for path in _authored(folder / "authored"):
        text = path.read_text()
        publish(Draft(read_authored(text, str(path)), text, path), store, catalogue)
    asked = parse_request(request("digits") | {"hardware": HARDWARE}, "request")
    lock = make_lock(asked, {}, Harness(VERSION, HARNESS), store, catalogue)
    database.dispose()
    return Bundled(lock, run_of(lock, store), store)


HARDWARE = {"os": "linux", "arch": ["amd64", "arm64"], "device": "cpu"}


def _authored(folder: Path) -> Iterable[Path]:
    """Manifests beside their files."""
    folder.mkdir()
    framework, image, _, _ = map(json.loads, map(Path.read_text, tiny.author(folder)))
    files = {"labels.txt": LABELS, "data/images.idx": PICTURES, "data/deeper/labels.idx": CLASSES, **OTHER_PLATFORM}
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    network = model("digits")
    network["outputs"][0]["labels"] = "labels.txt"
    network["files"].append({"path": "labels.txt", "role": "labels", "source": "labels.txt"})
    dataset = tiny.tree_of_digits("digits")
    dataset["splits"]["test"] = {"images": "data/images.idx", "labels": "data/deeper/labels.idx", "samples": 2}
    dataset["files"][0]["source"] = "data"
    place = {"os": "linux", "arch": "arm64", "device": "cpu", "python": "3.11"}
    image["platforms"][0] |= {"arch": "amd64", "python": "3.11"}
    image["platforms"].append(place | {"wheels": "arm64.toml"})
    image["files"] += [{"path": path, "role": "wheels", "source": path} for path in OTHER_PLATFORM]
    for document in (framework, image, dataset, network):
        yield written(folder / f"{document['kind']}.yaml", document)


def run_of(lock: Lock, store: BlobStore, *, seconds: int = 0) -> Run:
    """A run of the lock on its first platform, done; runs that began in another second have other samples."""
    return make_run(lock, store, at=NOON + timedelta(seconds=seconds), slowness=1 + seconds)


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
        text = encode_canonical(manifest)
        one |= {"digest": digest_bytes(text), "size": len(text)}
        files[name_of(one["digest"])] = text
    return {**files, "index.json": encode_canonical(index)}


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
