"""The documents of the OCI image specification: the same bytes for the same content, and strict reading."""

from typing import Any

import msgspec
import pytest

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.oci.oci_documents import (
    DOCKER_MANIFEST,
    EMPTY_CONTENT,
    MANIFEST,
    OciDescriptor,
    OciIndex,
    OciLayout,
    OciManifest,
    OciPlatform,
    decode,
    describe_bytes,
    empty_descriptor,
    encode,
)

LAYER = describe_bytes(b"layer", "application/octet-stream")


def test_a_manifest_is_canonical_json() -> None:
    named = msgspec.structs.replace(LAYER, annotations={"b": "2", "a": "1"})
    content = encode(OciManifest(config=empty_descriptor(), layers=(named,), artifact_type="x/y"))
    assert content == (
        b'{"artifactType":"x/y",'
        b'"config":{"digest":"%s","mediaType":"application/vnd.oci.empty.v1+json","size":2},'
        b'"layers":[{"annotations":{"a":"1","b":"2"},"digest":"%s","mediaType":"application/octet-stream","size":5}],'
        b'"mediaType":"application/vnd.oci.image.manifest.v1+json","schemaVersion":2}'
        % (digest_bytes(EMPTY_CONTENT).encode(), LAYER.digest.encode())
    )
    assert encode(decode(content, OciManifest, "it")) == content


def test_an_index_and_a_layout() -> None:
    platform = OciPlatform(os="linux", architecture="arm64", variant="v8")
    index = OciIndex(manifests=(msgspec.structs.replace(LAYER, platform=platform),))
    assert decode(encode(index), OciIndex, "it") == index
    assert encode(OciLayout()) == b'{"imageLayoutVersion":"1.0.0"}'
    assert decode(encode(OciLayout()), OciLayout, "it") == OciLayout()


def test_documents_of_docker_and_keys_of_others_are_read() -> None:
    document = msgspec.to_builtins(OciManifest(config=LAYER, layers=(), media_type=DOCKER_MANIFEST))
    found = decode(msgspec.json.encode(document | {"subject": {"x": 1}}), OciManifest, "it")
    assert found.config.blob == LAYER.blob


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schemaVersion": 1}, "schema version is 1"),
        ({"mediaType": "application/json"}, "media type is application/json"),
        ({"config": None}, "object"),
        ({"layers": [{"mediaType": "x", "digest": "sha256:00", "size": 1}]}, "invalid digest"),
        ({"layers": [{"mediaType": "x", "digest": LAYER.digest, "size": -1}]}, "negative size"),
        ({"layers": [{"mediaType": "x", "digest": LAYER.digest, "size": "5"}]}, "int"),
    ],
)
def test_what_is_no_manifest(change: dict[str, Any], reason: str) -> None:
    document = msgspec.to_builtins(OciManifest(config=LAYER, layers=())) | change
    with pytest.raises(InvalidInputError, match=rf"the base is not a valid OCI document: .*{reason}"):
        decode(msgspec.json.encode(document), OciManifest, "the base")


def test_what_is_no_document() -> None:
    for content in (b"", b"\xff", b"[]", b"{"):
        with pytest.raises(InvalidInputError, match="the base is not a valid OCI document"):
            decode(content, OciIndex, "the base")
    with pytest.raises(InvalidInputError, match=r"its version is 2\.0\.0"):
        decode(b'{"imageLayoutVersion":"2.0.0"}', OciLayout, "the base")
    with pytest.raises(InvalidInputError, match=MANIFEST.replace("+", r"\+")):
        decode(encode(OciManifest(config=LAYER, layers=())).replace(b'"layers"', b'"manifests"'), OciIndex, "the base")


def test_a_descriptor_knows_its_blob() -> None:
    assert OciDescriptor(media_type="x", digest=LAYER.digest, size=5).blob == LAYER.blob
