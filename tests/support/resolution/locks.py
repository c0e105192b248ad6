"""A small registry as plain values: four manifests with their files, a request, and the lock of them."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.registry.artifact_names import Kind
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.lock.file_facts_reader import read_file_facts
from benchlock.registry.lock.lock_assembly import build_lock, file_questions, list_admitted_platforms, question_of
from benchlock.registry.lock.lock_creation import Harness, keep_lock, resolve_request
from benchlock.registry.lock.lock_feasibility import ChosenManifests
from benchlock.registry.lock.lockfile import Lock, LockedHarness
from benchlock.registry.manifests import Dataset, Framework, Image, Manifest, Model
from benchlock.registry.manifests.manifest_content import content, manifest_digest, parse_published, with_files
from benchlock.registry.requests.evaluation_request import Request, read_request
from benchlock.registry.resolution.resolver import Candidate, Resolution, resolve
from benchlock.registry.resolution.version_search import Preferences
from benchlock.registry.versions.semantic_version import parse_version
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.registry.authored import read_authored
from tests.support.resolution.universe import Universe

MODEL = """
schema: 1
kind: model
name: digits
version: {version}
license: Apache-2.0
task: image-classification
framework: {{name: onnxruntime, version: ">=1.20 <2"}}
format: onnx
inputs:
  - name: input
    type: image
    dtype: float32
    shape: [null, 8, 8, 1]
    layout: NHWC
    steps: [{{decode: {{color: L, exif: ignore}}}}, {{cast: {{dtype: float32}}}}]
outputs:
  - {{name: scores, type: class-scores, dtype: float32, labels: labels.txt, label_offset: {offset}}}
files:
  - {{path: model.onnx, role: graph, source: ./model.onnx}}
  - {{path: labels.txt, role: labels, source: ./labels.txt}}
"""
DATASET = """
schema: 1
kind: dataset
name: digits
version: {version}
license: MIT
format: idx
splits:
  test: {{images: images.idx, labels: labels.idx, samples: 2}}
  bare: {{images: images.idx, samples: 2}}
labels: labels.txt
files:
  - {{path: labels.txt, source: ./labels.txt}}
  - {{path: labels.idx, source: ./labels.idx}}
  - {{path: images.idx, source: ./images.idx}}
"""
FRAMEWORK = """
{{schema: 1, kind: framework, name: onnxruntime, version: {version}, predictor: onnxruntime,
  distributions: [onnxruntime], license: MIT}}
"""
WHEEL = b"the wheel of onnxruntime"
WHEEL_NAME = "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl"
CONFIG, LAYER = b"{}", b"a layer"
PYLOCK = f"""
lock-version = "1.0"
created-by = "benchlock"
[[packages]]
name = "onnxruntime"
version = "1.31.1"
wheels = [{{path = "wheels/{WHEEL_NAME}", size = {len(WHEEL)}, hashes = {{sha256 = "{sha256(WHEEL).hexdigest()}"}}}}]
""".encode()
IMAGE = f"""
schema: 1
kind: image
name: onnxruntime-cpu
version: {{version}}
license: various
provides: {{{{framework: onnxruntime, version: 1.31.1}}}}
platforms:
  - os: linux
    arch: amd64
    device: cpu
    python: "3.11"
    wheels: amd64/pylock.toml
    config: "{digest_bytes(CONFIG)}"
    layers: ["{digest_bytes(LAYER)}"]
  - {{{{os: linux, arch: arm64, device: cpu, python: "3.11", wheels: amd64/pylock.toml}}}}
files:
  - {{{{path: amd64/pylock.toml, role: wheels, source: ./pylock.toml}}}}
  - {{{{path: amd64/wheels/{WHEEL_NAME}, role: wheels, source: ./wheel}}}}
  - {{{{path: config.json, role: config, source: ./config.json}}}}
  - {{{{path: layers/0.tar, role: layer, source: ./0.tar}}}}
"""
FINISHED_CONFIG = (
    b'{"architecture":"amd64","config":{"Env":["PATH=/usr/bin"]},"os":"linux","rootfs":{"diff_ids":["'
    + f'{digest_bytes(LAYER)}","{digest_bytes(b"another layer")}'.encode()
    + b'"],"type":"layers"}}'
)
FINISHED_REFERENCE = f"example.org/ort@{digest_bytes(b'manifest')}"
FINISHED = f"""
schema: 1
kind: image
name: onnxruntime-cpu
version: {{version}}
license: various
provides: {{{{framework: onnxruntime, version: 1.31.1}}}}
platforms:
  - {{{{os: linux, arch: amd64, device: cpu, python: "3.12", reference: {FINISHED_REFERENCE!r}}}}}
"""
FILES: dict[str, dict[str, bytes]] = {
    "model": {"model.onnx": b"weights", "labels.txt": b"zero\none\ntwo\n"},
    "dataset": {"images.idx": b"pictures", "labels.idx": b"digits", "labels.txt": b"Zero\none \ntwo\n"},
    "framework": {},
    "image": {
        "amd64/pylock.toml": PYLOCK,
        f"amd64/wheels/{WHEEL_NAME}": WHEEL,
        "config.json": CONFIG,
        "layers/0.tar": LAYER,
    },
}
REQUEST = """
schema: 1
kind: evaluation
name: digits
model: {name: digits, version: "^1.0"}
dataset: {name: digits, version: ">=1.0 <2", split: test}
hardware: {os: linux, arch: amd64, device: cpu}
limits: {time: 10m, memory: 2GiB, cpus: 1, processes: 256}
scenario: {name: single_stream, min_queries: 662, min_duration: 1s, warmup: 8}
metrics: [top1, latency]
seed: 7
"""
HARNESS = LockedHarness(version="0.1.0", digest=digest_bytes(b"harness"), size=7)


def published(template: str, files: Mapping[str, bytes], **fields: Any) -> Manifest:  # noqa: ANN401 - of a template
    """The manifest of the template, with its files' digests."""
    authored = read_authored(template.format(**fields), "manifest.yaml")
    described = {path: Descriptor(digest_bytes(text), len(text)) for path, text in files.items()}
    return parse_published(content(with_files(authored, described)))


@dataclass(frozen=True)
class Shelf:
    """One version of each kind: manifests, the bytes of their files, and whether one is yanked."""

    chosen: ChosenManifests
    files: Mapping[str, Mapping[str, bytes]]
    yanked: Mapping[str, str]

    def snapshot(self) -> Universe:
        return Universe([self._candidate(manifest) for manifest in self.chosen.all()])

    def resolution(self, request: Request, preferences: Preferences | None = None) -> Resolution:
        return resolve(question_of(request), self.snapshot(), preferences or {})

    def lock(self, request: Request) -> Lock:
        store = MemoryStore()
        for files in self.files.values():
            for blob in files.values():
                store.put(io.BytesIO(blob))
        manifests: Mapping[Kind, Manifest] = {one.kind: one for one in self.chosen.all()}
        facts = read_file_facts(file_questions(request, self.chosen), manifests, store)
        finished = {
            one: FINISHED_CONFIG for one in list_admitted_platforms(request, self.chosen) if one.reference is not UNSET
        }
        return build_lock(request, self.resolution(request), self.chosen, facts, HARNESS, finished)

    def _candidate(self, manifest: Manifest) -> Candidate:
        image = manifest if isinstance(manifest, Image) else None
        return Candidate(
            kind=manifest.kind,
            name=manifest.name,
            version=parse_version(manifest.version),
            digest=manifest_digest(manifest),
            yanked=self.yanked.get(manifest.kind),
            requires=(("framework", manifest.framework.name, manifest.framework.version),)
            if isinstance(manifest, Model)
            else (),
            provides=(image.provides.framework, parse_version(image.provides.version)) if image else None,
            platforms=tuple((one.os, one.arch, one.device, one.python, True) for one in image.platforms)
            if image
            else (),
        )


def shelf(
    *,
    version: str = "1.0.0",
    offset: int = 0,
    files: Mapping[str, Mapping[str, bytes]] | None = None,
    yanked: Mapping[str, str] | None = None,
    image_text: str = IMAGE,
) -> Shelf:
    """``version`` and ``offset`` are the model's; ``files`` replaces bytes by kind and path."""
    held = {kind: {**FILES[kind], **(files or {}).get(kind, {})} for kind in FILES}
    model = published(MODEL, held["model"], version=version, offset=offset)
    dataset = published(DATASET, held["dataset"], version="1.0.0")
    framework = published(FRAMEWORK, {}, version="1.31.1")
    image = published(image_text, held["image"], version="1.0.0")
    assert isinstance(model, Model)
    assert isinstance(dataset, Dataset)
    assert isinstance(framework, Framework)
    assert isinstance(image, Image)
    return Shelf(ChosenManifests(model, dataset, framework, image), held, yanked or {})


def request(text: str = REQUEST, **replaced: str) -> Request:
    """The request, with whole lines replaced by key: ``request(seed="8")``."""
    lines = [line for line in text.splitlines() if line and line.partition(":")[0] not in replaced]
    return read_request("\n".join([*lines, *(f"{key}: {value}" for key, value in replaced.items())]), "request.yaml")


def make_lock(
    request: Request, preferences: Preferences, harness: Harness, store: BlobStore, catalogue: Catalogue
) -> Lock:
    """The lock that answers ``request``, resolved and kept. Raises as ``resolve_request`` and ``keep_lock``."""
    return keep_lock(request, resolve_request(request, catalogue, preferences), harness, store, catalogue)
