"""Publishing over HTTP: what is missing is named, what is wrong is refused, nothing that a sender says is trusted."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.manifests import parse_published, plain
from benchlock.registry.publishing.drafts import read_draft
from benchlock.registry.publishing.publication import store_draft
from tests.api.http.conftest import Client
from tests.registry.manifests.test_model_checks_geometry import CODE, DECODE, FULL, WIDE, detector
from tests.support.registry.frameworks import framework
from tests.support.registry.graphs import Port, graph

DATASET = Path(__file__).parents[4] / "examples" / "digits" / "dataset.yaml"
FRAMEWORK = plain(framework("acme/ort", "1.0.0"))


@pytest.fixture(scope="module")
def sender(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], LocalStore]:
    """A manifest as it would be published, and a store of the sender's own with its files."""
    store = LocalStore(tmp_path_factory.mktemp("sender"))
    with store.writing():
        manifest = store_draft(read_draft(DATASET.read_text(), "dataset.yaml", DATASET), store)
    return plain(manifest), store


def send(registry: LocalRegistry, store: LocalStore, digests: list[str]) -> None:
    for digest in digests:
        registry.store.put_file(store.path(Digest(digest)))


def test_a_sender_is_told_what_to_send_and_then_it_is_published(
    client: Client, registry: LocalRegistry, sender: tuple[dict[str, Any], LocalStore]
) -> None:
    manifest, store = sender
    publication = {"manifest": manifest, "authored": "its text", "sources": {"labels.txt": "./labels.txt"}}
    refused = client.post("/v1/artifacts", json=publication)
    assert (refused.status_code, refused.json()["code"]) == (409, "missing-blobs")
    assert sorted(refused.json()["blobs"]) == sorted({f"sha256:{file['sha256']}" for file in manifest["files"]})
    assert registry.catalogue.list() == ()

    send(registry, store, refused.json()["blobs"][:1])
    assert len(client.post("/v1/artifacts", json=publication).json()["blobs"]) == len(refused.json()["blobs"]) - 1
    send(registry, store, refused.json()["blobs"])
    rehearsed = client.post("/v1/artifacts", json=publication | {"dry_run": True})
    assert (rehearsed.status_code, rehearsed.json()["changed"]) == (200, True)
    assert registry.catalogue.list() == ()

    done = client.post("/v1/artifacts", json=publication | {"digest": digest_bytes(encode_canonical(manifest))})
    assert (done.status_code, done.json()["changed"]) == (201, True)
    again = client.post("/v1/artifacts", json=publication)
    assert (again.status_code, again.json()) == (200, done.json() | {"changed": False})
    (entry,) = registry.catalogue.list()
    assert entry.digest == done.json()["digest"] == digest_bytes(encode_canonical(manifest))
    assert registry.catalogue.provenance(entry.reference).authored == "its text"
    assert registry.store.exists(entry.digest)


def changed(manifest: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    made: Any = deepcopy(manifest)
    part, (*way, last) = made, path.split(".")
    for step in way:
        part = part[int(step)] if step.isdecimal() else part[step]
    part[int(last) if last.isdecimal() else last] = value
    assert isinstance(made, dict)
    return made


@pytest.mark.parametrize(
    ("path", "value", "status", "said"),
    [
        ("files.0.size", 1, 422, "the manifest states"),
        ("files.0.path", "../../etc/passwd", 422, "has a part"),
        ("files.0.path", "/etc/passwd", 422, "is absolute"),
        ("files.0.sha256", "0" * 64, 409, "not sent yet"),
        ("files.0.source", "file:///etc/passwd", 422, "source"),
        ("splits.test.samples", 5, 422, "samples"),
        ("name", "Acme/../x", 422, "name"),
        ("kind", "weights", 422, "kind"),
        ("unheard", 1, 422, "unheard"),
    ],
)
def test_what_the_bytes_or_the_rules_contradict_is_not_published(
    client: Client,
    registry: LocalRegistry,
    sender: tuple[dict[str, Any], LocalStore],
    path: str,
    value: object,
    status: int,
    said: str,
) -> None:
    manifest, store = sender
    send(registry, store, [f"sha256:{file['sha256']}" for file in manifest["files"]])
    answer = client.post("/v1/artifacts", json={"manifest": changed(manifest, path, value)})
    assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert registry.catalogue.list() == ()


def test_of_a_blob_that_was_cut_on_the_server_the_manifest_is_not_to_blame(
    client: Client, registry: LocalRegistry, sender: tuple[dict[str, Any], LocalStore]
) -> None:
    manifest, store = sender
    digests = [f"sha256:{file['sha256']}" for file in manifest["files"]]
    send(registry, store, digests)
    cut = registry.store.path(Digest(digests[0]))
    cut.chmod(0o644)
    cut.write_bytes(cut.read_bytes()[:-1])
    answer = client.post("/v1/artifacts", json={"manifest": manifest})
    assert (answer.status_code, answer.json()["code"]) == (422, "integrity"), answer.text
    assert manifest["files"][0]["path"] in answer.text
    assert "the correct bytes replace the damaged ones" in answer.text


def test_a_new_detector_whose_code_moves_pixels_is_refused_and_one_that_is_there_is_not(
    client: Client, registry: LocalRegistry, tmp_path: Path
) -> None:
    picture: dict[str, Port] = {"picture": (TensorProto.UINT8, ["batch", 320, 320, 3])}
    found: dict[str, Port] = {
        name: (TensorProto.FLOAT, ["batch", 9, width]) for name, width in (("boxes", 4), ("scores", 2))
    }
    (tmp_path / "finder.onnx").write_bytes(graph(picture, found))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "steps.py").write_text("def prepare(value):\n    return value\n")
    text = json.dumps(detector([DECODE, FULL, CODE]))
    with registry.store.writing():
        followed = plain(store_draft(read_draft(text, "model.yaml", tmp_path / "model.yaml"), registry.store))
    moved = changed(followed, "inputs.0.steps.1", WIDE)
    refused = client.post("/v1/artifacts", json={"manifest": moved})
    assert (refused.status_code, "code makes 320 x 320 pixels of 240 x 320" in refused.text) == (422, True)
    assert registry.catalogue.list() == ()
    registry.catalogue.publish(parse_published(encode_canonical(moved)), Provenance(text, {}))
    again = client.post("/v1/artifacts", json={"manifest": moved})
    assert (again.status_code, again.json()["changed"]) == (200, False)
    taken = client.post("/v1/artifacts", json={"manifest": followed | {"version": "1.0.1"}})
    assert taken.status_code == 201, taken.text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"manifest": []}', 400),
        (b'{"manifest": {}}', 422),
        (b'{"manifest": {"schema": 1e400}}', 400),
        (b'{"manifest": ' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}", 400),
        (b'{"manifest": {}, "more": 1}', 400),
        (b'\xff{"manifest": {}}', 400),
    ],
)
def test_what_is_no_publication_is_a_problem(client: Client, body: bytes, status: int) -> None:
    answer = client.post("/v1/artifacts", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_body_that_is_too_large_is_not_read(client: Client) -> None:
    answer = client.post("/v1/artifacts", json={"manifest": {}, "authored": "x" * (17 << 20)})
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


def test_other_content_under_the_same_version_is_refused_and_so_is_a_lying_digest(
    client: Client, registry: LocalRegistry
) -> None:
    assert client.post("/v1/artifacts", json={"manifest": FRAMEWORK}).status_code == 201
    other = client.post("/v1/artifacts", json={"manifest": FRAMEWORK | {"license": "MIT"}})
    assert (other.status_code, other.json()["code"]) == (409, "version-taken")
    lie = {"manifest": FRAMEWORK | {"version": "2.0.0"}, "digest": "sha256:" + "0" * 64}
    answer = client.post("/v1/artifacts", json=lie)
    assert (answer.status_code, answer.json()["code"]) == (422, "integrity")
    assert len(registry.catalogue.list()) == 1


def test_a_version_is_yanked_and_admitted_again(client: Client, registry: LocalRegistry) -> None:
    client.post("/v1/artifacts", json={"manifest": FRAMEWORK})
    target, reference = "framework/acme/ort@1.0.0", parse_reference("framework/acme/ort@1.0.0")
    yank = {"target": target, "reason": "broken"}
    assert client.post("/v1/yanks", json={"target": target}).status_code == 422
    assert client.post("/v1/yanks", json=yank).json() == {"target": target, "yanked": True, "changed": True}
    assert client.post("/v1/yanks", json=yank).json()["changed"] is False
    assert registry.catalogue.get(reference).yanked == "broken"
    undo = {"target": target, "undo": True}
    assert client.post("/v1/yanks", json=undo).json() == {"target": target, "yanked": False, "changed": True}
    assert registry.catalogue.get(reference).yanked is None
    assert client.post("/v1/yanks", json=yank | {"target": "model/nobody@1.0.0"}).status_code == 404


def test_a_published_manifest_is_read_as_a_blob_and_reading_writes_nothing(
    client: Client, registry: LocalRegistry
) -> None:
    content = encode_canonical(FRAMEWORK)
    digest = client.post("/v1/artifacts", json={"manifest": FRAMEWORK}).json()["digest"]
    with registry.store.collecting():  # whoever writes waits for it
        whole, part = (client.get(f"/v1/blobs/{digest}", headers=more) for more in ({}, {"range": "bytes=5-9"}))
        head = client.head(f"/v1/blobs/{digest}")
    assert (whole.status_code, whole.content) == (200, content)
    assert (part.status_code, part.content) == (206, content[5:10])
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(content)))
    assert list(registry.store.list()) == []
