"""Artifacts whose files are an attack on whoever makes a lock of them, and locks that name blobs of any size."""

import gzip
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Descriptor, digest_bytes, to_hex
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.lock.lockfile import dump, read
from benchlock.registry.manifests import Manifest, parse_published
from benchlock.registry.manifests.manifest_content import content, with_files
from benchlock.registry.text.yaml import read_yaml
from tests.support.registry.authored import read_authored
from tests.support.registry.hostile import pack_repeated
from tests.support.resolution.locks import DATASET, FILES, FRAMEWORK, IMAGE, MODEL, REQUEST
from tests.support.resolution.variants import variant

_MIB = 1 << 20
_MANY = 1_250_000
"""So many texts or lists take more than the memory that the service may grow by."""
_INDEX = """
schema: 1
kind: dataset
name: digits
version: {version}
license: MIT
format: image-index
splits:
  test: {{index: PATH, samples: 2}}
files:
  - {{path: FILE, source: ./f}}
"""
_COCO = """
schema: 1
kind: dataset
name: digits
version: {version}
license: MIT
format: coco
splits:
  test: {{annotations: a.json, images: i/, samples: 1}}
files:
  - {{path: a.json, source: ./a}}
  - {{path: i/, source: ./i}}
"""
_PICTURE = b"\xff\xd8"
_TREE = encode_canonical([["1.jpg", to_hex(digest_bytes(_PICTURE)), 2]])


@dataclass(frozen=True, slots=True)
class LockCase:
    """A request for a lock. ``files`` replaces bytes by kind and path; ``statuses`` are the answers it may get."""

    name: str
    statuses: tuple[int, ...]
    files: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    dataset: str = DATASET
    metrics: str = "[top1, latency]"
    sizes: Mapping[str, int] = field(default_factory=dict)
    more: tuple[bytes, ...] = ()

    def request(self) -> dict[str, Any]:
        """The request as JSON values."""
        text = REQUEST.replace("name: digits, version", f"name: {self.name}, version")
        document: dict[str, Any] = read_yaml(text.replace("[top1, latency]", self.metrics), "request").value
        document["image"] = {"name": self.name, "version": "*"}
        return document

    def publish(self, registry: LocalRegistry) -> None:
        """Publish the artifacts of the case, past the inspection of their files."""
        for kind, template in (("model", MODEL), ("dataset", self.dataset), ("image", IMAGE)):
            held = dict(self.files.get(kind, {}))
            if kind != "dataset" or self.dataset == DATASET:
                held = {**FILES[kind], **held}
            text = template.format(version="1.0.0", offset=0)
            text = text.replace("name: digits", f"name: {self.name}").replace("onnxruntime-cpu", self.name)
            described = {
                path: Descriptor(digest_bytes(blob), self.sizes.get(path, len(blob))) for path, blob in held.items()
            }
            manifest = parse_published(content(with_files(read_authored(text, "manifest.yaml"), described)))
            _put(registry, manifest, held.values())
        for blob in self.more:
            registry.store.put(io.BytesIO(blob))


def publish_framework(registry: LocalRegistry) -> None:
    """Publish the framework that all cases need."""
    text = FRAMEWORK.format(version="1.31.1")
    _put(registry, parse_published(content(read_authored(text, "manifest.yaml"))), ())


def lock_cases() -> Iterator[LockCase]:
    """Every case."""
    names = b"\n".join(b"%x" % number for number in range(_MANY))
    yield LockCase("labels-many", (201, 422), {"dataset": {"labels.txt": names}})
    swapped = {"model": b"".join(b"n%d\n" % number for number in range(50_000))}
    swapped["dataset"] = b"".join(b"n%d\n" % number for number in reversed(range(50_000)))
    yield LockCase("labels-swapped", (409,), {kind: {"labels.txt": names} for kind, names in swapped.items()})
    yield LockCase("labels-packed", (422,), {"model": {"labels.txt": pack_repeated(b"", bytes(_MIB), 600)}})
    category = b",".join(b'{"id":%d,"name":"%x"}' % (number, number) for number in range(_MANY))
    for name, annotations in {
        "annotations-line": pack_repeated(b'{"images": [], "x": "', b"a" * _MIB, 1500, b'"}'),
        "annotations-names": gzip.compress(b'{"images": [], "categories": [' + category + b"]}", 1),
        "annotations-deep": b'{"images": ' + b"[" * 5_000_000,
    }.items():
        files = {"dataset": {"a.json": annotations, "i/": _TREE}}
        yield LockCase(name, (201, 422), files, _COCO, "[latency]", {"i/": 2}, (_PICTURE,))
    index = _INDEX.replace("PATH", "d.csv").replace("FILE", "d.csv")
    yield LockCase("index-line", (422,), {"dataset": {"d.csv": b"path,label\n" + b"," * (48 * _MIB)}}, index)
    yield LockCase("index-columns", (422,), {"dataset": {"d.csv": b"," * (15 * _MIB) + b"\nlabel\n"}}, index)
    yield LockCase("index-quoted", (422,), {"dataset": {"d.csv": b'path,label\n"' + b"a\n" * (8 * _MIB)}}, index)
    rows = b"path,label\na.png,1\n"
    entries = [[f"{number:06}", to_hex(digest_bytes(b"")), 0] for number in range(60_000)]
    listing = encode_canonical([*entries, ["d.csv", to_hex(digest_bytes(rows)), len(rows)]])
    inside = _INDEX.replace("PATH", "t/d.csv").replace("FILE", "t/")
    yield LockCase(
        "index-in-tree", (201,), {"dataset": {"t/": listing}}, inside, sizes={"t/": len(rows)}, more=(rows, b"")
    )
    rowless = b"[" + b'["a",' * 3_000_000
    yield LockCase("tree-malformed", (422,), {"dataset": {"t/": rowless}}, inside, sizes={"t/": 1})
    lists = b"a = [" + b"[]," * _MANY + b"]\n"
    yield LockCase("wheels-lists", (422,), {"image": {"amd64/pylock.toml": lists}})


def lock_naming(store: BlobStore, manifest: bytes) -> str:
    """Return the text of a lock whose model is said to have ``manifest`` as its manifest."""
    document = dict(variant({}).lock.document)
    document["model"] = dict(document["model"]) | {"digest": store.put(io.BytesIO(manifest)).digest}
    return dump(read(document, "lock"))


def _put(registry: LocalRegistry, manifest: Manifest, blobs: Any) -> None:  # noqa: ANN401 - an iterable of bytes
    for blob in (content(manifest), *blobs):
        registry.store.put(io.BytesIO(blob))
    registry.catalogue.publish(manifest, Provenance("", {}))
