"""Export of a version: its verified files with a manifest, and an OCI artifact that any OCI client pulls.

In the OCI artifact, each file, and each file of a tree, is a layer annotated with its path. A model is an artifact of
ModelPack, the CNCF model specification: its configuration is ModelPack's, and the published manifest is a layer. For
the other kinds, the published manifest is the configuration. An artifact contains no times and places, so a version has
the same bytes and the same digest in every repository.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore, copy_blob, prefetch
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, from_hex, to_hex
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.file_trees import iterate_tree, read_tree
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.oci.oci_documents import (
    MANIFEST,
    TITLE,
    OciDescriptor,
    OciIndex,
    OciManifest,
    describe_bytes,
    empty_descriptor,
    encode,
    split_layers,
)
from benchlock.artifacts.user_output import Progress
from benchlock.registry.artifact_names import Kind, Reference
from benchlock.registry.manifests import File, Manifest, Model, files_of, plain
from benchlock.registry.manifests.manifest_content import content, reference_of

MANIFEST_FILE = "manifest.yaml"


def export(manifest: Manifest, store: BlobStore, folder: Path, progress: Progress) -> int:
    """Write the files of a version to ``folder``, with a manifest that has them as sources; return their number.

    Args:
        manifest: The published manifest.
        store: The store of the blobs.
        folder: The folder to create; an empty folder may exist.
        progress: Shows the progress in bytes.

    Raises:
        IntegrityError: A blob is damaged. Neither its file nor an empty folder remains.
        InvalidInputError: The folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(f"{folder} is not empty", next_step="choose another folder")
    document = plain(manifest)
    files = [entry for file in document.get("files", ()) for entry in _expand(file, store)]
    prefetch(store, (descriptor for _, descriptor in files))
    with (
        _no_empty_folders(folder),
        progress.task(f"writing {folder}", sum(descriptor.size for _, descriptor in files)) as advance,
    ):
        for path, descriptor in files:
            copy_blob(store, descriptor, folder / path, name=path, advance=advance)
    folder.mkdir(parents=True, exist_ok=True)
    document["files"] = [file | {"source": f"./{file['path']}"} for file in document.get("files", ())]
    for file in document["files"]:
        file.pop("size", None)
    if not document["files"]:
        del document["files"]
    # JSON is YAML, and leaves no choice of style.
    (folder / MANIFEST_FILE).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return len(files)


@contextmanager
def _no_empty_folders(folder: Path) -> Iterator[None]:
    """Remove empty folders after an error in the context; ``folder`` itself stays if it existed before."""
    before = folder.exists()
    try:
        yield
    except BaseException:
        for path, _, _ in os.walk(folder, topdown=False):
            if not before or Path(path) != folder:
                with suppress(OSError):  # it has files
                    Path(path).rmdir()
        raise


def _expand(file: Mapping[str, Any], store: BlobStore) -> list[tuple[str, Descriptor]]:
    path, descriptor = file["path"], Descriptor(Digest(from_hex(file["sha256"])), file["size"])
    if not path.endswith("/"):
        return [(path, descriptor)]
    entries = read_tree(store, descriptor, name=path)
    return [(path + entry.path, Descriptor(entry.digest, entry.size)) for entry in entries]


CONFIG: Final = "application/vnd.benchlock.manifest.v1+json"
ARTIFACTS: Final[Mapping[Kind, str]] = {
    "model": "application/vnd.cncf.model.manifest.v1+json",
    "dataset": "application/vnd.benchlock.dataset.v1+json",
    "framework": "application/vnd.benchlock.framework.v1+json",
    "image": "application/vnd.benchlock.image.v1+json",
    "operator": "application/vnd.benchlock.operator.v1+json",
    "recipe": "application/vnd.benchlock.recipe.v1+json",
}
MODEL_CONFIG: Final = "application/vnd.cncf.model.config.v1+json"
PATH: Final = "org.cncf.model.filepath"
MANIFEST_DIGEST: Final = "benchlock-manifest"
"""The annotation of a model's OCI manifest with the digest of the layer that is the published manifest."""
MANIFEST_PATH: Final = "benchlock-manifest.json"

_ROLES: Final = {
    "graph": "weight",
    "weights": "weight",
    "labels": "weight.config",
    "vocabulary": "weight.config",
    "code": "code",
    "golden": "dataset",
    "card": "doc",
}
_OTHER_FILE: Final = "application/vnd.benchlock.file.v1"
_LONGEST_TAG: Final = 128


@runtime_checkable
class NamingStore(Protocol):
    """A blob store that can tag its content for other OCI clients."""

    def name_manifest(self, tag: str, document: OciManifest | OciIndex, config: bytes | None = None) -> Digest:
        """Store and tag an OCI manifest of existing blobs, and its configuration if needed; return its digest.

        Args:
            tag: The tag.
            document: The manifest or index.
            config: The bytes of the configuration; ``None`` if they are stored already.
        """
        ...


@dataclass(frozen=True, slots=True)
class Package:
    """An OCI manifest of a version, and its configuration unless the store has that already."""

    document: OciManifest
    config: bytes | None = None


def name_version(store: BlobStore, manifest: Manifest) -> None:
    """Tag a published version for OCI clients, if the store supports it; repeating it changes nothing.

    Raises:
        UnavailableError: Tagging failed. The version is published nevertheless.
    """
    if not hasattr(store, "name_manifest"):  # many times faster than the check of the protocol
        return
    assert isinstance(store, NamingStore)
    reference = reference_of(manifest)
    tag, parts = tag_of(reference), package_version(manifest, store)
    try:
        if len(parts) == 1:
            store.name_manifest(tag, parts[0].document, parts[0].config)
            return
        descriptors = [_store_part(store, f"{tag}_{number}", part) for number, part in enumerate(parts, 1)]
        store.name_manifest(tag, OciIndex(artifact_type=ARTIFACTS[reference.kind], manifests=tuple(descriptors)))
    except UnavailableError as error:
        raise UnavailableError(
            f"{reference} is published, but not visible to other OCI clients yet: {error.what}",
            where=error.where,
            next_step="publish it again: only what is missing is written",
        ) from error


def package_version(manifest: Manifest, store: BlobStore) -> tuple[Package, ...]:
    """Return the OCI manifests of a published version: several if it has too many layers for one."""
    kind = manifest.kind
    layers = [layer for file in files_of(manifest) for layer in _layers(kind, file, store)]
    annotations = {
        TITLE: manifest.name,
        "org.opencontainers.image.version": manifest.version,
        "org.opencontainers.image.licenses": manifest.license,
    }
    if isinstance(manifest, Model):
        manifest_layer = _published_layer(manifest, {_path_of(layer) for layer in layers})
        return tuple(
            _package_model(manifest, batch, annotations | {MANIFEST_DIGEST: manifest_layer.digest})
            for batch in split_layers([*layers, manifest_layer])
        )
    config = describe_bytes(content(manifest), CONFIG)
    return tuple(
        Package(OciManifest(artifact_type=ARTIFACTS[kind], config=config, layers=batch, annotations=annotations))
        for batch in split_layers(layers or [empty_descriptor()])
    )


def _package_model(model: Model, layers: tuple[OciDescriptor, ...], annotations: Mapping[str, str]) -> Package:
    """Package a model with these layers. They are plain files, so the digest of each is its DiffID."""
    config = encode_canonical(
        {
            "descriptor": {"name": model.name, "version": model.version, "licenses": [model.license]},
            "config": {"format": model.format},
            "modelfs": {"type": "layers", "diffIds": [layer.digest for layer in layers]},
        }
    )
    document = OciManifest(
        artifact_type=ARTIFACTS["model"],
        config=describe_bytes(config, MODEL_CONFIG),
        layers=layers,
        annotations=annotations,
    )
    return Package(document, config)


def _published_layer(model: Model, used_paths: Collection[str]) -> OciDescriptor:
    """Return the layer of the published manifest, under a path that no file of the model has."""
    manifest_bytes = content(model)
    blob = Descriptor(digest_bytes(manifest_bytes), len(manifest_bytes))
    path = MANIFEST_PATH if MANIFEST_PATH not in used_paths else f"{to_hex(blob.digest)}-{MANIFEST_PATH}"
    return _layer(path, blob, _model_layer("doc"))


def _path_of(layer: OciDescriptor) -> str:
    assert layer.annotations is not UNSET
    return layer.annotations[PATH]


def tag_of(reference: Reference) -> str:
    """Return the unique tag of a version, such as ``model-acme__resnet8_1.0.0``.

    Names do not contain ``__``, and versions do not contain ``_``. The tag omits build metadata, which tags cannot
    contain and which does not distinguish versions. A tag that would be too long becomes the kind and the SHA-256 of
    the name and version.
    """
    version = str(reference.version).partition("+")[0]
    tag = f"{reference.kind}-{reference.name.replace('/', '__')}_{version}"
    if len(tag) <= _LONGEST_TAG:
        return tag
    return f"{reference.kind}-{to_hex(digest_bytes(f'{reference.name}@{version}'.encode()))}"


def _layers(kind: Kind, file: File, store: BlobStore) -> Iterator[OciDescriptor]:
    assert file.sha256 is not UNSET
    assert file.size is not UNSET
    blob, media_type = Descriptor(from_hex(file.sha256), file.size), _media_type(kind, file)
    if not file.path.endswith("/"):
        yield _layer(file.path, blob, media_type)
        return
    for entry in iterate_tree(store, blob, name=file.path):
        yield _layer(file.path + entry.path, Descriptor(entry.digest, entry.size), media_type)


def _layer(path: str, blob: Descriptor, media_type: str) -> OciDescriptor:
    annotations = {PATH: path, TITLE: path}
    return OciDescriptor(media_type=media_type, digest=blob.digest, size=blob.size, annotations=annotations)


def _media_type(kind: Kind, file: File) -> str:
    if kind == "dataset":
        part = "dataset"
    elif kind == "model" and file.role is not UNSET:
        part = _ROLES[file.role]
    else:
        return _OTHER_FILE
    return _model_layer(part)


def _model_layer(part: str) -> str:
    """Return ModelPack's media type of a layer that is one plain file."""
    return f"application/vnd.cncf.model.{part}.v1.raw"


def _store_part(store: NamingStore, tag: str, part: Package) -> OciDescriptor:
    digest = store.name_manifest(tag, part.document, part.config)
    return OciDescriptor(media_type=MANIFEST, digest=digest, size=len(encode(part.document)))
