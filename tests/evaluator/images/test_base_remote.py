"""Bases pulled from a real registry: what they become, and what is wrong with some."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchlock.artifacts.digest import Digest, describe, digest_bytes, to_hex
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.oci.oci_client import RegistryClient
from benchlock.artifacts.oci.oci_reference import Repository
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.images.base_image import Base, RemoteBase, parse_base
from benchlock.evaluator.images.build import Builder, BuildOptions, BuiltImage
from benchlock.evaluator.images.wheels import host_target
from tests.support.artifacts.pushing import configuration, push_image, push_index
from tests.support.servers.registry_server import RegistryServer, free_port, serving

ARCH = host_target().arch
OTHER = "arm64" if ARCH == "amd64" else "amd64"
SETTINGS = ("PATH=/usr/local/bin:/usr/bin:/bin", "GREETING=hello", "LANG=C")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with serving(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def repository(server: RegistryServer, tmp_path: Path) -> Repository:
    """A repository of the test's own."""
    return server.repository(to_hex(digest_bytes(str(tmp_path).encode())))


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    """A layer that changes one file of Debian's, and hides another."""
    path = tmp_path / "upper.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in (("etc/issue", b"changed\n"), ("etc/.wh.debian_version", b"")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def diff_id(layer: Path) -> Digest:
    with layer.open("rb") as stream:
        return describe(stream).digest


def fetch(reference: str, folder: Path, store: LocalStore) -> Base:
    folder.mkdir()
    return RemoteBase(reference, RegistryClient).fetch(folder, store, SILENT)


def refused(kind: type[BenchlockError], reference: str, tmp_path: Path, store: LocalStore) -> str:
    with pytest.raises(kind) as caught:
        fetch(reference, tmp_path / "workspace", store)
    return caught.value.what


def build(reference: str, folder: Path, store: LocalStore) -> BuiltImage:
    folder.mkdir()
    options = BuildOptions(base=RemoteBase(reference, RegistryClient))
    return Builder(folder, folder, store, SILENT).build("onnxruntime==1.31.1", options)


@pytest.mark.usefixtures("index")
def test_an_image_stands_on_the_layers_of_its_base(
    repository: Repository, base_tarball: Path, upper: Path, tmp_path: Path, store: LocalStore
) -> None:
    layers = [base_tarball, upper]
    config = configuration([*map(diff_id, layers)], ARCH, *SETTINGS)
    zstd = push_image(repository, config, layers, "zstd")
    index = push_index(repository, [(OTHER, zstd), (ARCH, push_image(repository, config, layers, "gzip"))])
    one, two = build(index, tmp_path / "one", store), fetch(zstd, tmp_path / "two", LocalStore(tmp_path / "other"))
    assert [descriptor.digest for _, descriptor in two.layers] == [*map(diff_id, layers)]
    platform = one.image.platforms[0]
    assert isinstance(platform.layers, tuple)
    assert list(platform.layers[:2]) == [*map(diff_id, layers)]
    written = (one.folder / f"config.linux-{ARCH}-cpu.json").read_bytes()
    assert b'"PATH=/opt/benchlock/bin:/usr/local/bin:/usr/bin:/bin"' in written
    assert b'"GREETING=hello"' in written
    assert b'"LANG=C"' not in written
    assert (one.folder / "root" / "etc" / "issue").read_text() == "changed\n"
    assert not (one.folder / "root" / "etc" / "debian_version").exists()


def test_a_damaged_layer_is_named_and_nothing_is_built(
    server: RegistryServer, repository: Repository, upper: Path, tmp_path: Path, store: LocalStore
) -> None:
    digest = diff_id(upper)
    reference = push_image(repository, configuration([digest], ARCH), [upper])
    kept = server.blob(digest)
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    try:
        assert digest in refused(IntegrityError, reference, tmp_path, store)
    finally:
        content[len(content) // 2] ^= 1
        kept.write_bytes(content)


def test_a_layer_that_is_not_what_the_configuration_says_is_refused(
    repository: Repository, upper: Path, tmp_path: Path, store: LocalStore
) -> None:
    reference = push_image(repository, configuration([digest_bytes(b"another")], ARCH), [upper], "gzip")
    what = refused(IntegrityError, reference, tmp_path, store)
    assert f"contains {diff_id(upper)}, but the image's configuration states {digest_bytes(b'another')}" in what


@pytest.mark.parametrize("start", [b"\x1f\x8b\x08\x00 no gzip", b"\x28\xb5\x2f\xfd no zstd", b"no tar at all"])
def test_a_layer_that_cannot_be_unpacked_is_refused(
    repository: Repository, tmp_path: Path, store: LocalStore, start: bytes
) -> None:
    (tmp_path / "layer").write_bytes(start)
    reference = push_image(repository, configuration([digest_bytes(start)], ARCH), [tmp_path / "layer"])
    what = refused(InvalidInputError, reference, tmp_path, store)
    assert ("not a tar" if start.startswith(b"no") else "cannot be decompressed") in what


@pytest.mark.parametrize("packing", ["plain", "gzip", "zstd"])
def test_layers_that_unpack_to_more_than_is_allowed_are_refused(
    repository: Repository, upper: Path, tmp_path: Path, store: LocalStore, packing: str
) -> None:
    bomb = tmp_path / "bomb"
    with bomb.open("wb") as grown:
        grown.truncate(8_000_000)
    reference = push_image(repository, configuration([diff_id(upper), diff_id(bomb)], ARCH), [upper, bomb], packing)
    limit = upper.stat().st_size + 4_000_000
    (tmp_path / "workspace").mkdir()
    with pytest.raises(InvalidInputError, match="unpacks to more than 4000000 bytes"):
        RemoteBase(reference, RegistryClient, limit).fetch(tmp_path / "workspace", store, SILENT)
    (tarball,) = (path for path in (tmp_path / "workspace" / "base").iterdir() if diff_id(upper)[7:] not in path.name)
    assert tarball.stat().st_size <= 4_000_000


def test_an_image_for_another_machine_is_refused(
    repository: Repository, upper: Path, tmp_path: Path, store: LocalStore
) -> None:
    single = push_image(repository, configuration([diff_id(upper)], OTHER), [upper])
    assert f"is built for linux/{OTHER}, but this machine is linux/{ARCH}" in refused(
        InvalidInputError, single, tmp_path, store
    )
    (tmp_path / "workspace").rmdir()
    index = push_index(repository, [(OTHER, single)])
    assert f"has no image for linux/{ARCH}; it has linux/{OTHER}" in refused(InvalidInputError, index, tmp_path, store)


def test_other_numbers_of_layers_are_refused(
    repository: Repository, upper: Path, tmp_path: Path, store: LocalStore
) -> None:
    reference = push_image(repository, configuration([diff_id(upper)] * 2, ARCH), [upper])
    assert "has 1 layers, but its configuration lists 2" in refused(InvalidInputError, reference, tmp_path, store)


def test_what_was_looked_up_once_is_not_asked_again(tmp_path: Path, upper: Path, store: LocalStore) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with serving(folder) as running:
        reference = push_image(running.repository("base"), configuration([diff_id(upper)], ARCH), [upper])
        assert "python3" in refused(UnavailableError, reference, tmp_path, store)
        store.put_file(upper)
    (tmp_path / "workspace").rename(tmp_path / "before")
    assert "python3" in refused(UnavailableError, reference, tmp_path, store)
    other = f"{reference.partition('@')[0]}@{digest_bytes(b'another')}"
    assert "cannot be reached" in refused(UnavailableError, other, tmp_path / "before", store)


def test_a_reference_without_a_digest_is_refused_and_its_digest_told(repository: Repository, upper: Path) -> None:
    reference = push_image(repository, configuration([diff_id(upper)], ARCH), [upper], tag="1.0")
    name = reference.partition("@")[0]
    with pytest.raises(InvalidInputError, match="references an image by tag, and tags can change") as caught:
        parse_base(f"{name}:1.0", RegistryClient)
    assert caught.value.next_step == f"use {reference}, the current digest of the tag"
    with pytest.raises(InvalidInputError, match="has no manifest latest"):
        parse_base(name, RegistryClient)
    closed = f"127.0.0.1:{free_port()}/base:1.0"
    with pytest.raises(InvalidInputError, match="tags can change") as caught:
        parse_base(closed, RegistryClient)
    assert "cannot be reached" in str(caught.value.next_step)


@pytest.mark.parametrize("text", ["base.tar", "./base", "/base", "base", "folder/base.tar"])
def test_a_path_is_a_tarball(text: str) -> None:
    assert parse_base(text, RegistryClient) == Path(text)
