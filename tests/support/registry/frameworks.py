"""Published versions of frameworks, the kind without files: as many as a test wants, under any names."""

import io

from benchlock.artifacts.blob_store import BlobStore
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Provenance, PublishResult
from benchlock.registry.manifests import Framework, parse_published
from benchlock.registry.manifests.manifest_content import content
from tests.support.registry.authored import read_authored

TEXT = """\
schema: 1
kind: framework
name: {name}
version: {version}
license: Apache-2.0
predictor: onnxruntime
distributions: [onnxruntime]
"""


def framework(name: str, version: str) -> Framework:
    """The manifest of a version."""
    found = read_authored(TEXT.format(name=name, version=version), "framework.yaml")
    assert isinstance(found, Framework)
    return found


def publish_framework(catalogue: Catalogue, store: BlobStore, name: str, version: str) -> PublishResult:
    """Publish it, as publishing does."""
    manifest = framework(name, version)
    store.put(io.BytesIO(content(manifest)))
    assert parse_published(content(manifest)) == manifest
    return catalogue.publish(manifest, Provenance("the author's text", {}))
