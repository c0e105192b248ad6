"""A store beside a catalogue: published manifests are its blobs, and need no file until somebody asks for one."""

import stat
from pathlib import Path

import pytest

from benchlock.artifacts.blob_store import BlobNotFoundError, read, verify
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.errors import IntegrityError
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import CataloguedStore, Provenance, PublishResult
from benchlock.registry.manifests.manifest_content import content
from benchlock.registry.publishing.garbage_collection import collect_garbage
from benchlock.registry.publishing.remote_publication import publish_received
from tests.support.registry.frameworks import framework

pytestmark = pytest.mark.databases
MANIFEST = framework("acme/ort", "1.0.0")
TEXT = content(MANIFEST)
BLOB = Descriptor(digest_bytes(TEXT), len(TEXT))


@pytest.fixture
def kept(catalogue: Catalogue, tmp_path: Path) -> CataloguedStore:
    return CataloguedStore(tmp_path / "blobs", catalogue.text_of)


def publish(kept: CataloguedStore, catalogue: Catalogue) -> PublishResult:
    return publish_received(MANIFEST, Provenance("", {}), kept, catalogue, warn=print)


def test_a_manifest_is_a_blob_from_its_publication_on(kept: CataloguedStore, catalogue: Catalogue) -> None:
    with pytest.raises(BlobNotFoundError):
        kept.stat(BLOB.digest)
    assert publish(kept, catalogue) == PublishResult(catalogue.list()[0].reference, BLOB.digest, changed=True)
    assert list(kept.list()) == []
    assert kept.exists(BLOB.digest)
    assert kept.stat(BLOB.digest) == BLOB
    assert read(kept, BLOB.digest, name="it") == TEXT
    assert verify(kept, BLOB.digest, name="it", size=BLOB.size) == BLOB
    assert list(kept.list()) == []


def test_it_becomes_a_file_when_its_path_is_asked_for(kept: CataloguedStore, catalogue: Catalogue) -> None:
    publish(kept, catalogue)
    place = kept.path(BLOB.digest)
    assert (place.read_bytes(), stat.S_IMODE(place.stat().st_mode)) == (TEXT, 0o444)
    assert list(kept.list()) == [BLOB.digest]
    assert kept.path(BLOB.digest) == place
    assert collect_garbage(kept, catalogue, tuple).digests == ()


def test_a_file_that_was_damaged_is_told_and_publishing_again_repairs_it(
    kept: CataloguedStore, catalogue: Catalogue
) -> None:
    publish(kept, catalogue)
    place = kept.path(BLOB.digest)
    place.unlink()
    place.write_bytes(b"something else")
    with pytest.raises(IntegrityError, match="does not match its digest"):
        verify(kept, BLOB.digest, name="it")
    assert not publish(kept, catalogue).changed
    verify(kept, BLOB.digest, name="it")


def test_a_file_that_was_lost_is_made_again(kept: CataloguedStore, catalogue: Catalogue) -> None:
    publish(kept, catalogue)
    kept.path(BLOB.digest).unlink()
    assert kept.path(BLOB.digest).read_bytes() == TEXT


def test_what_is_neither_a_file_nor_a_manifest_is_not_there(kept: CataloguedStore, catalogue: Catalogue) -> None:
    publish(kept, catalogue)
    other = Digest(f"sha256:{'0' * 64}")
    assert not kept.exists(other)
    for ask in (kept.open, kept.stat, kept.path):
        with pytest.raises(BlobNotFoundError, match=other):
            ask(other)
