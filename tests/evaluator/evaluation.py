"""A whole evaluation without a framework: pictures that a matrix tells apart, locked, with the real harness.

The harness is built from its sources with the predictor of numpy alone, that its own tests use, in the place of ONNX
Runtime's.
"""

import io
import shutil
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, from_hex, to_hex
from benchlock.artifacts.file_trees import put_tree
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.harness_archive import HARNESS_VERSION, build_harness, compile_harness
from benchlock.registry.lock.lockfile import (
    Lock,
    LockContent,
    LockedArtifact,
    LockedDataset,
    LockedFile,
    LockedHarness,
    LockedImage,
    LockedLimits,
    LockedPlatform,
    dataset_of,
    from_content,
)
from benchlock.registry.manifests import content, parse_published
from tests.evaluator.harness.conftest import JOB, PREDICTORS, write_job

HARNESS_SOURCES = Path(__file__).parents[2] / "evaluator" / "harness"
MIB = 1 << 20
ROLES = {".py": "code", ".golden": "golden"}
PYLOCK = b"lock-version = '1.0'\n"
LIMITS = LockedLimits(seconds=60, bytes=512 * MIB, cpus=1, processes=64)
SCENARIO: dict[str, Any] = {**JOB["scenario"], "seeds": JOB["seeds"]}
NOTHING = LockedPlatform(
    os="linux",
    arch="amd64",
    device="cpu",
    python="3.11",
    wheels_lock=LockedFile(path="pylock.toml", sha256="0" * 64, size=0),
    wheels=(),
)


class Evaluation:
    """Builds locks of one model on one dataset; what is changed between two locks is an argument."""

    def __init__(self, store: LocalStore, folder: Path, platform: LockedPlatform, predictor: str = "linear") -> None:
        self.store = store
        self.predictor = predictor
        self.scenario = dict(SCENARIO)
        self.folder = folder
        write_job(folder / "job", JOB)
        self.files: dict[str, bytes] = {"weights.npz": (folder / "job" / "model" / "weights.npz").read_bytes()}
        pylock = self._put(PYLOCK)
        locked = LockedFile(path="pylock.toml", sha256=to_hex(pylock.digest), size=pylock.size)
        self.platform = _with(platform, wheels_lock=locked)
        self.model: dict[str, Any] = {
            "schema": 1,
            "kind": "model",
            "name": "matrix",
            "version": "1.0.0",
            "license": "MIT",
            "task": "image-classification",
            "framework": {"name": "onnxruntime", "version": "*"},
            "format": "onnx",
            "inputs": deepcopy(JOB["model"]["inputs"]),
            "outputs": [output | {"label_offset": 0} for output in JOB["model"]["outputs"]],
        }

    def lock(
        self,
        *,
        limits: LockedLimits = LIMITS,
        metrics: tuple[str, ...] = ("top1", "top5", "latency_p50", "throughput"),
        platforms: tuple[LockedPlatform, ...] = (),
        **request: Any,  # noqa: ANN401 - keys of a request
    ) -> Lock:
        """The lock, with every blob that it names in the store."""
        image = self._image(platforms)
        return from_content(
            LockContent(
                schema="1.0",
                request={"schema": 1, "kind": "evaluation", **request},
                model=self._model(),
                dataset=self._dataset(),
                framework=self._framework(),
                image=LockedImage(
                    name=image.name, version="1.0.0", digest=image.digest, platforms=platforms or (self.platform,)
                ),
                harness=self._harness(),
                limits=limits,
                scenario=self.scenario,
                metrics=dict.fromkeys(metrics, 1),
            )
        )

    def _model(self) -> LockedArtifact:
        files = [
            self._file(path, data) | {"role": ROLES.get(Path(path).suffix, "graph")}
            for path, data in self.files.items()
        ]
        return self._artifact({**self.model, "files": files})

    def _dataset(self) -> LockedDataset:
        tree, _ = put_tree(self.store, self.folder / "job" / "dataset" / "pictures")
        index = self._file("index.csv", (self.folder / "job" / "dataset" / "index.csv").read_bytes())
        manifest = {
            "schema": 1,
            "kind": "dataset",
            "name": "pictures",
            "version": "1.0.0",
            "license": "MIT",
            "format": "image-index",
            "splits": {"test": JOB["dataset"]["split"]},
            "files": [index, {"path": "pictures/", "sha256": to_hex(tree.digest), "size": tree.size}],
        }
        found = self._artifact(manifest)
        return LockedDataset(
            name=found.name, version=found.version, digest=found.digest, files=found.files, split="test"
        )

    def _framework(self) -> LockedArtifact:
        manifest = {"schema": 1, "kind": "framework", "name": "onnxruntime", "version": "1.31.1", "license": "MIT"}
        return self._artifact({**manifest, "predictor": "onnxruntime", "distributions": ["onnxruntime"]})

    def _image(self, platforms: tuple[LockedPlatform, ...]) -> LockedArtifact:
        """The image of the evaluation's platform, and of ``platforms``, perhaps with another Python."""
        platform = _place(self.platform)
        others = {str(one): _place(one) for one in platforms if _place(one) != platform}
        places = list(({str(self.platform): platform} | others).values())
        manifest = {"schema": 1, "kind": "image", "name": "matrix-cpu", "version": "1.0.0", "license": "various"}
        provides = {"framework": "onnxruntime", "version": "1.31.1"}
        files = [self._file("pylock.toml", PYLOCK) | {"role": "wheels"}]
        files += [
            {"path": wheel.path, "role": "wheels", "sha256": wheel.sha256, "size": wheel.size}
            for wheel in self.platform.wheels
        ]
        if self.platform.image_id is not UNSET and self.platform.layers is not UNSET:
            platform["config"] = self.platform.image_id
            platform["layers"] = [layer.digest for layer in self.platform.layers]
            files.append(self._blob("config.json", "config", self.platform.image_id, self.platform.config_size))
            files += [
                self._blob(f"{to_hex(one.digest)}.tar", "layer", one.digest, one.size) for one in self.platform.layers
            ]
        return self._artifact({**manifest, "provides": provides, "platforms": places, "files": files})

    @staticmethod
    def _blob(path: str, role: str, digest: Digest, size: object) -> dict[str, Any]:
        return {"path": path, "role": role, "sha256": to_hex(digest), "size": size}

    def _harness(self) -> LockedHarness:
        sources = self.folder / "harness-sources"
        if not sources.exists():
            shutil.copytree(HARNESS_SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(PREDICTORS / f"{self.predictor}.py", sources / "predictors" / "onnxruntime.py")
        kept = self._put(_compiled(build_harness(sources)))
        return LockedHarness(version=HARNESS_VERSION, digest=kept.digest, size=kept.size)

    def _artifact(self, manifest: dict[str, Any]) -> LockedArtifact:
        text = content(parse_published(encode_canonical(manifest)))
        files = tuple(
            LockedFile(path=file["path"], sha256=file["sha256"], size=file["size"])
            for file in manifest.get("files", ())
        )
        digest = self._put(text).digest
        return LockedArtifact(name=manifest["name"], version=manifest["version"], digest=digest, files=files)

    def _file(self, path: str, data: bytes) -> dict[str, Any]:
        kept = self._put(data)
        return {"path": path, "sha256": to_hex(kept.digest), "size": kept.size}

    def _put(self, data: bytes) -> Descriptor:
        return self.store.put(io.BytesIO(data))


@cache
def _compiled(harness: bytes) -> bytes:
    """The harness with its byte code, as runs have their own: none of their stages compiles it anew."""
    return compile_harness(harness)


def _place(platform: LockedPlatform) -> dict[str, Any]:
    """The platform as the image's manifest names it."""
    place = {name: getattr(platform, name) for name in ("os", "arch", "device", "python")}
    return place | {"wheels": "pylock.toml"}


def _with(platform: LockedPlatform, **changes: Any) -> LockedPlatform:  # noqa: ANN401 - fields of any type
    fields = {name: getattr(platform, name) for name in LockedPlatform.__struct_fields__}
    return LockedPlatform(**(fields | changes))


def link_blob(source: LocalStore, digest: Digest, root: Path) -> None:
    """Put a blob of one store into that in the folder ``root`` by a hard link: to copy an image takes long."""
    path = source.path(digest)
    target = root / path.relative_to(path.parents[2])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.hardlink_to(path)


def damage(store: LocalStore, digest: Digest) -> Digest:
    """Flip one bit of a blob behind the store's back; the digest that it has now."""
    path = store.path(digest)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()  # it may be a link to a blob of another store
    path.write_bytes(data)
    path.chmod(0o444)
    return digest_bytes(bytes(data))


def huge_weights() -> bytes:
    """A model that needs 400 MB once it is loaded."""
    written = io.BytesIO()
    np.savez_compressed(written, weights=np.zeros((96, 6), np.float32), offset=np.zeros(100_000_000, np.float32))
    return written.getvalue()


def locked_file(lock: Lock, path: str) -> Digest:
    return next(from_hex(file.sha256) for file in (*lock.subject.files, *dataset_of(lock).files) if file.path == path)
