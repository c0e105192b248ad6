"""Published versions as OCI artifacts: what a registry holds, and what another client pulls."""

import io
import json
from pathlib import Path
from typing import Any, Final

import msgspec
import oras.client
import pytest
from jsonschema.validators import validator_for
from sqlalchemy import Engine

from benchlock.api.client.draft_publication import read_draft
from benchlock.api.local.local_registry import now
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.file_trees import put_tree
from benchlock.artifacts.oci import oci_documents
from benchlock.artifacts.oci.oci_client import RegistryClient
from benchlock.artifacts.oci.oci_documents import OciDescriptor, OciIndex, OciManifest, decode
from benchlock.artifacts.oci.oci_reference import Repository
from benchlock.artifacts.stores.oci_store import OciStore
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import open_engine
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.manifest_content import content, parse_published
from benchlock.registry.publishing import oci_artifacts
from benchlock.registry.publishing.oci_artifacts import package_version, tag_of
from benchlock.registry.publishing.publication import publish
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.registry import digits, tiny
from tests.support.registry.digits import GRAPH
from tests.support.servers.registry_server import RegistryServer

CONFIG_SCHEMA: Final = Path(__file__).parents[2] / "cases" / "modelpack" / "config-schema.json"
TAGS = (
    "framework-onnxruntime_1.31.1",
    "image-onnxruntime-cpu_1.0.0",
    "dataset-digits_1.0.0",
    "model-digits-onnx_1.0.0",
)


@pytest.fixture
def repository(registry_server: RegistryServer, tmp_path: Path) -> Repository:
    return registry_server.repository(f"packaging/{tmp_path.name.lower().replace('_', '-')}")


@pytest.fixture
def published(repository: Repository, database: Engine, tmp_path: Path) -> RegistryClient:
    """A repository with one version of each kind."""
    client = RegistryClient(repository)
    store, catalogue = OciStore(client, tmp_path / "lock"), Catalogue(database, now)
    for path in tiny.author(tmp_path / "manifests"):
        publish(read_draft(path), store, catalogue)
    return client


def document(client: RegistryClient, tag: str) -> OciManifest:
    return decode(client.manifest(tag), OciManifest, tag)


def test_each_version_has_a_tag(published: RegistryClient) -> None:
    assert {tag for tag in published.tags() if not tag.startswith("blobs-")} == set(TAGS)


def read(client: RegistryClient, blob: Descriptor) -> bytes:
    with client.open_blob(blob) as stream:
        return stream.read()


def test_a_model_is_a_model_pack(published: RegistryClient) -> None:
    found = document(published, "model-digits-onnx_1.0.0")
    assert found.artifact_type == "application/vnd.cncf.model.manifest.v1+json"
    assert found.config.media_type == "application/vnd.cncf.model.config.v1+json"
    config = json.loads(read(published, found.config.blob))
    check_config(config)
    assert config == {
        "descriptor": {"name": "digits-onnx", "version": "1.0.0", "licenses": ["Apache-2.0"]},
        "config": {"format": "onnx"},
        "modelfs": {"type": "layers", "diffIds": [layer.digest for layer in found.layers]},
    }
    layer, last = found.layers
    assert layer.media_type == "application/vnd.cncf.model.weight.v1.raw"
    assert layer.annotations == {
        "org.cncf.model.filepath": "digits.onnx",
        "org.opencontainers.image.title": "digits.onnx",
    }
    assert layer.digest == digest_bytes(GRAPH.read_bytes())
    assert last.media_type == "application/vnd.cncf.model.doc.v1.raw"
    assert (last.annotations or {})["org.cncf.model.filepath"] == "benchlock-manifest.json"
    assert (found.annotations or {})["benchlock-manifest"] == last.digest
    manifest = parse_published(read(published, last.blob))
    assert (manifest.name, digest_bytes(content(manifest))) == ("digits-onnx", last.digest)


def test_a_model_of_many_files_has_a_configuration_for_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci_documents, "LARGEST_BATCH", 1200)
    files = [
        {"path": f"{number:02}.bin", "role": "weights", "sha256": f"{number:064x}", "size": 1} for number in range(9)
    ]
    taken = {"path": "benchlock-manifest.json", "role": "card", "sha256": "f" * 64, "size": 1}
    packages = package_version(_model([*files, taken]), MemoryStore())
    assert len(packages) > 2
    for package in packages:
        assert package.config is not None
        config = json.loads(package.config)
        check_config(config)
        assert config["modelfs"]["diffIds"] == [layer.digest for layer in package.document.layers]
        assert package.document.config.digest == digest_bytes(package.config)
    layers = [layer for package in packages for layer in package.document.layers]
    assert len({(layer.annotations or {})["org.cncf.model.filepath"] for layer in layers}) == len(layers) == 11


def test_garbage_collection_leaves_configurations_alone(published: RegistryClient, tmp_path: Path) -> None:
    store = OciStore(published, tmp_path / "lock")
    config = document(published, "model-digits-onnx_1.0.0").config
    assert config.digest not in set(store.list())
    with store.collecting():
        for digest in tuple(store.list()):
            store.delete(digest)
    check_config(json.loads(read(published, config.blob)))


def test_each_file_of_a_tree_is_a_layer(published: RegistryClient) -> None:
    found = document(published, "dataset-digits_1.0.0")
    assert {layer.media_type for layer in found.layers} == {"application/vnd.cncf.model.dataset.v1.raw"}
    paths = [(layer.annotations or {})["org.cncf.model.filepath"] for layer in found.layers]
    assert paths == sorted(paths)
    assert all("/" in path for path in paths)


def test_what_has_no_files_has_the_empty_layer(published: RegistryClient) -> None:
    (layer,) = document(published, "framework-onnxruntime_1.31.1").layers
    assert layer.media_type == "application/vnd.oci.empty.v1+json"


@pytest.mark.parametrize("tag", TAGS[1:])
def test_oras_pulls_it_by_digest(published: RegistryClient, tag: str, tmp_path: Path) -> None:
    bytes_ = published.manifest(tag)
    expected = {
        (layer.annotations or {})["org.opencontainers.image.title"]: layer.digest
        for layer in decode(bytes_, OciManifest, tag).layers
    }
    host, path = published.repository.host, published.repository.path
    client = oras.client.OrasClient(hostname=host, insecure=True)

    pulled = client.pull(target=f"{host}/{path}@{digest_bytes(bytes_)}", outdir=str(tmp_path / "pulled"))

    folder = (tmp_path / "pulled").resolve()
    assert {
        str(Path(file).resolve().relative_to(folder)): digest_bytes(Path(file).read_bytes()) for file in pulled
    } == (expected)


def test_the_same_version_is_the_same_bytes_anywhere(
    published: RegistryClient, registry_server: RegistryServer, schema: Path, tmp_path: Path
) -> None:
    other = RegistryClient(registry_server.repository(f"{published.repository.path}-other"))
    (tmp_path / "other.db").write_bytes(schema.read_bytes())
    engine = open_engine(tmp_path / "other.db")
    for path in tiny.author(tmp_path / "elsewhere"):
        publish(read_draft(path), OciStore(other, tmp_path / "lock"), Catalogue(engine, now))
    engine.dispose()
    assert [other.manifest(tag) for tag in TAGS] == [published.manifest(tag) for tag in TAGS]


def test_what_is_missing_is_written_when_the_same_is_published_again(
    published: RegistryClient, database: Engine, tmp_path: Path
) -> None:
    before = published.manifest(TAGS[3])
    published.delete_manifest(digest_bytes(before))
    again = publish(
        read_draft(tmp_path / "manifests" / "model.yaml"),
        OciStore(published, tmp_path / "lock"),
        Catalogue(database, now),
    )
    assert not again.changed
    assert published.manifest(TAGS[3]) == before


def test_what_is_too_large_for_one_manifest_is_an_index_of_several(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, store = tmp_path / "tree", OciStore(RegistryClient(repository), tmp_path / "lock")
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:02}.bin").write_bytes(bytes([number]))
    tree, _ = put_tree(store, folder)
    manifest = _dataset(tree.digest.removeprefix("sha256:"), tree.size)
    store.put(io.BytesIO(content(manifest)))
    monkeypatch.setattr(oci_documents, "LARGEST_BATCH", 2000)

    oci_artifacts.name_version(store, manifest)

    client = RegistryClient(repository)
    index = decode(client.manifest("dataset-many_1.0.0"), OciIndex, "it")
    parts = [decode(client.manifest(part.digest), OciManifest, "part") for part in index.manifests]
    assert len(parts) > 2
    assert [layer.digest for part in parts for layer in part.layers] == [
        digest_bytes(bytes([number])) for number in range(20)
    ]
    assert {part.config for part in parts} == {parts[0].config}


def test_a_model_that_was_named_in_the_older_form_is_read_and_named_anew(
    published: RegistryClient, database: Engine, tmp_path: Path
) -> None:
    """Before, the manifest as published was the configuration of a model."""
    tag, store = TAGS[3], OciStore(published, tmp_path / "lock")
    found = document(published, tag)
    graph, last = found.layers
    config = OciDescriptor(media_type=oci_artifacts.CONFIG, digest=last.digest, size=last.size)
    store.name_manifest(tag, OciManifest(artifact_type=found.artifact_type, config=config, layers=(graph,)))

    assert parse_published(read(published, document(published, tag).config.blob)).name == "digits-onnx"
    assert {graph.digest, last.digest} <= set(store.list())
    publish(read_draft(tmp_path / "manifests" / "model.yaml"), store, Catalogue(database, now))
    assert document(published, tag) == found


def test_a_store_that_names_nothing_is_left_alone() -> None:
    oci_artifacts.name_version(MemoryStore(), _dataset("00" * 32, 1))


@pytest.mark.parametrize(
    ("reference", "tag"),
    [
        ("model/digits@1.0.0", "model-digits_1.0.0"),
        ("model/acme/digits@1.0.0-rc.1+build.7", "model-acme__digits_1.0.0-rc.1"),
        ("dataset/x-1.0.0@2.0.0", "dataset-x-1.0.0_2.0.0"),
        ("dataset/x@1.0.0-2.0.0", "dataset-x_1.0.0-2.0.0"),
        ("image/a_b@1.0.0", "image-a_b_1.0.0"),
    ],
)
def test_tags(reference: str, tag: str) -> None:
    assert tag_of(parse_reference(reference)) == tag


def test_a_tag_that_would_be_too_long_is_a_digest() -> None:
    long = "model/" + "a" * 120 + "@1.0.0"
    assert tag_of(parse_reference(long)) == "model-" + digest_bytes(f"{'a' * 120}@1.0.0".encode()).removeprefix(
        "sha256:"
    )


def test_it_says_what_it_is() -> None:
    (part,) = package_version(_dataset("00" * 32, 1, path="one.csv"), MemoryStore())
    assert part.document.annotations == {
        "org.opencontainers.image.title": "many",
        "org.opencontainers.image.version": "1.0.0",
        "org.opencontainers.image.licenses": "MIT",
    }


def check_config(config: Any) -> None:  # noqa: ANN401 - a JSON value
    """Validate a configuration against the schema that ModelPack publishes."""
    schema = json.loads(CONFIG_SCHEMA.read_text())
    validator_for(schema)(schema).validate(config)


def _model(files: list[dict[str, Any]]) -> Manifest:
    document = digits.model("many") | {"files": files}
    document["framework"] = {"name": "onnxruntime", "version": "^1.20"}
    made: Manifest = msgspec.convert(document, Manifest)
    return made


def _dataset(sha256: str, size: int, path: str = "tree/") -> Manifest:
    document = {
        "schema": 1,
        "kind": "dataset",
        "name": "many",
        "version": "1.0.0",
        "license": "MIT",
        "format": "idx",
        "splits": {"test": {"images": path if path[-1] != "/" else f"{path}00.bin", "samples": 1}},
        "files": [{"path": path, "sha256": sha256, "size": size}],
    }
    made: Manifest = msgspec.convert(document, Manifest)
    return made
