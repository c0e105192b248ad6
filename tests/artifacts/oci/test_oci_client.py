"""The client of registries, with a real one: streams, broken connections, damaged bytes, credentials."""

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchlock.artifacts.blob_store import BlobNotFoundError
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.net.network_policy import NetworkPolicy
from benchlock.artifacts.oci.oci_client import Credentials, DeletionRefusedError, RegistryClient
from benchlock.artifacts.oci.oci_documents import MANIFEST, OciManifest, describe_bytes, encode
from benchlock.artifacts.oci.oci_reference import Repository
from tests.support.servers import web
from tests.support.servers.faulty_proxy import Fault, FaultyProxy, proxy_to
from tests.support.servers.registry_server import RegistryServer, serving
from tests.support.servers.token_server import CERTIFICATE, ISSUER, PASSWORD, SERVICE, USER, giving_tokens
from tests.support.servers.web import File, in_turn, redirect, status
from tests.support.servers.web import serving as serving_web

MIB = 1 << 20
CONTENT = os.urandom(5 * MIB + 7)
BLOB = Descriptor(digest_bytes(CONTENT), len(CONTENT))


@pytest.fixture
def proxy(registry_server: RegistryServer) -> Iterator[FaultyProxy]:
    with proxy_to(registry_server.port) as proxy:
        yield proxy


@pytest.fixture
def repository(registry_server: RegistryServer, proxy: FaultyProxy, tmp_path: Path) -> Repository:
    return registry_server.repository(f"client/{tmp_path.name.lower().replace('_', '-')}", port=proxy.port)


@pytest.fixture
def client(repository: Repository) -> RegistryClient:
    return RegistryClient(repository, piece=MIB)


def put(client: RegistryClient, content: bytes = CONTENT) -> Descriptor:
    blob = Descriptor(digest_bytes(content), len(content))
    client.put_blob(io.BytesIO(content), blob, name="weights")
    return blob


def content_of(client: RegistryClient, blob: Descriptor) -> bytes:
    with client.open_blob(blob) as stream:
        return stream.read()


@pytest.mark.parametrize("content", [b"", b"small", CONTENT], ids=["empty", "small", "pieces"])
def test_a_blob_goes_and_comes(client: RegistryClient, content: bytes) -> None:
    steps: list[int] = []
    blob = Descriptor(digest_bytes(content), len(content))
    assert client.stat_blob(blob.digest) is None
    with pytest.raises(BlobNotFoundError, match=f"has no blob {blob.digest}"):
        client.open_blob(blob)

    client.put_blob(io.BytesIO(content), blob, name="weights", advance=steps.append)

    assert sum(steps) == blob.size
    assert client.stat_blob(blob.digest) == blob
    assert content_of(client, blob) == content
    with client.open_digest(blob.digest) as stream:
        assert stream.read() == content


def test_a_broken_download_goes_on_where_it_broke(client: RegistryClient, proxy: FaultyProxy) -> None:
    put(client)
    before = proxy.passed["down"]
    proxy.faults += [Fault("down", at=1_000_000), Fault("down", at=100), Fault("down", at=2_000_000)]
    assert content_of(client, BLOB) == CONTENT
    assert not proxy.faults
    assert proxy.passed["down"] - before < BLOB.size + MIB  # nothing came twice but what was on its way


def test_a_download_of_unknown_size_goes_on_too() -> None:
    def breaking_off(handler: web.Handler) -> None:
        if handler.headers["Range"]:
            return handler.answer_file(web.File(CONTENT))
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n" % (3 * MIB, CONTENT[: 3 * MIB]))
        handler.close_connection = True
        return None

    with web.serving(tls=False) as server:
        server.pages[f"/v2/a/b/blobs/{BLOB.digest}"] = breaking_off
        client = RegistryClient(Repository(server.origin.removeprefix("http://"), "a/b", plain=True))
        with client.open_digest(BLOB.digest) as stream:
            assert stream.read() == CONTENT
    assert [one.headers["Range"] for one in server.asked] == [None, f"bytes={3 * MIB}-"]


def test_a_download_that_breaks_again_and_again_is_given_up(client: RegistryClient, proxy: FaultyProxy) -> None:
    put(client)
    proxy.faults += [Fault("down", at=0)] * 5
    with pytest.raises(UnavailableError, match=r"^blob .* cannot be read: Server disconnected"):
        client.open_blob(BLOB)
    assert not proxy.faults


def test_a_bit_that_flips_on_the_way_is_noticed(client: RegistryClient, proxy: FaultyProxy) -> None:
    put(client)
    proxy.faults.append(Fault("down", at=3 * MIB, flip=True))
    with pytest.raises(
        IntegrityError, match=f"blob {BLOB.digest} of .* expected {BLOB.digest}, found sha256:"
    ) as caught:
        content_of(client, BLOB)
    assert "(5242887 bytes)" in str(caught.value)


DAMAGES = {
    "flipped": CONTENT[:100] + bytes([CONTENT[100] ^ 1]) + CONTENT[101:],
    "truncated": CONTENT[:-1],
    "empty": b"",
    "grown": CONTENT + b"\0",
    "swapped": bytes(len(CONTENT)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_in_the_registry_is_noticed(
    registry_server: RegistryServer, client: RegistryClient, damage: str
) -> None:
    blob, damaged = put(client), DAMAGES[damage]
    place = registry_server.blob(blob.digest)
    place.write_bytes(damaged)
    found = "sha256:" if damage == "grown" else digest_bytes(damaged)  # of one that grows on, nobody reads the end
    try:
        for opened in (client.open_blob(blob), client.open_digest(blob.digest)):
            with opened as stream, pytest.raises(IntegrityError, match=f"expected {blob.digest}, found {found}"):
                stream.read()
        with client.open_blob(blob) as stream, pytest.raises(IntegrityError):
            stream.read(blob.size)  # who reads no further than to the size is told too
    finally:
        place.unlink()  # other tests put the same blob


def test_an_upload_goes_on_after_the_last_whole_piece(client: RegistryClient, proxy: FaultyProxy) -> None:
    before = proxy.passed["up"]
    proxy.faults.append(Fault("up", at=3, request=b"PATCH"))
    put(client)
    assert not proxy.faults
    assert content_of(client, BLOB) == CONTENT
    assert proxy.passed["up"] - before < BLOB.size + MIB


@pytest.mark.parametrize("at", [2_500_000, 5_000_000])
def test_an_upload_that_breaks_in_the_middle_of_a_piece_arrives(
    client: RegistryClient, proxy: FaultyProxy, at: int
) -> None:
    steps: list[int] = []
    proxy.faults += [Fault("up", at=at), Fault("up", at=10)]
    client.put_blob(io.BytesIO(CONTENT), BLOB, name="weights", advance=steps.append)
    assert not proxy.faults
    assert sum(steps) == BLOB.size
    assert content_of(client, BLOB) == CONTENT


def test_an_upload_of_which_the_last_answer_is_lost_has_arrived(client: RegistryClient, proxy: FaultyProxy) -> None:
    small = os.urandom(1000)
    proxy.faults.append(Fault("down", at=1, request=b"HTTP/1.1 20"))
    assert content_of(client, put(client, small)) == small
    assert not proxy.faults


def test_an_upload_that_never_comes_through_is_given_up(client: RegistryClient, proxy: FaultyProxy) -> None:
    proxy.faults += [Fault("up", at=100_000)] * 5
    with pytest.raises(UnavailableError, match=r"^the connection to http.*/blobs/uploads/.* broke: "):
        put(client)
    assert client.stat_blob(BLOB.digest) is None


def test_a_bit_that_flips_on_its_way_up_is_noticed(client: RegistryClient, proxy: FaultyProxy) -> None:
    proxy.faults.append(Fault("up", at=2 * MIB, flip=True))
    with pytest.raises(IntegrityError, match="weights arrived with different bytes"):
        put(client)
    assert client.stat_blob(BLOB.digest) is None


def test_a_file_that_changes_while_it_is_sent_is_named(client: RegistryClient) -> None:
    changed = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    for other in (changed, CONTENT[:-1]):
        with pytest.raises(IntegrityError) as caught:
            client.put_blob(io.BytesIO(other), BLOB, name="weights")
        for part in ("weights", BLOB.digest, digest_bytes(other)):
            assert part in str(caught.value)
    assert client.stat_blob(BLOB.digest) is None


def test_manifests(registry_server: RegistryServer, client: RegistryClient) -> None:
    put(client, b"layer")
    layer = describe_bytes(b"layer", "application/octet-stream")
    content = encode(OciManifest(config=layer, layers=(layer,)))

    digest = client.put_manifest(content, MANIFEST, "one")

    assert digest == digest_bytes(content)
    assert client.manifest(digest) == client.manifest("one") == content
    assert list(client.tags()) == ["one"]
    place = registry_server.blob(digest)
    place.write_bytes(content.replace(b"octet", b"tecto"))
    with pytest.raises(IntegrityError, match=f"manifest {digest} of .* expected {digest}, found sha256:"):
        client.manifest(digest)
    place.write_bytes(content)
    client.delete_manifest(digest)
    client.delete_manifest(digest)
    assert list(client.tags()) == []
    for gone in (digest, "one"):
        with pytest.raises(BlobNotFoundError, match=f"has no manifest {gone}"):
            client.manifest(gone)


def test_a_manifest_of_blobs_that_are_not_there_is_refused(client: RegistryClient) -> None:
    layer = describe_bytes(os.urandom(8), "application/octet-stream")
    with pytest.raises(UnavailableError, match="the manifest one: the server answers 400 MANIFEST_BLOB_UNKNOWN"):
        client.put_manifest(encode(OciManifest(config=layer, layers=(layer,))), MANIFEST, "one")


def test_a_blob_that_is_not_known_for_a_moment_is_waited_for(
    client: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docker-registry answers while another client sends the same blob."""
    content = os.urandom(8)
    layer = describe_bytes(content, "application/octet-stream")
    monkeypatch.setattr("benchlock.artifacts.oci.oci_client.pause", lambda _failures: put(client, content))
    manifest = encode(OciManifest(config=layer, layers=(layer,)))
    assert client.put_manifest(manifest, MANIFEST, "one") == digest_bytes(manifest)


def test_nobody_there(registry_server: RegistryServer) -> None:
    with proxy_to(registry_server.port) as proxy:
        port = proxy.port
    client = RegistryClient(registry_server.repository("nobody", port=port))
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:\d+/v2/nobody/.* cannot be reached: .*refused"):
        client.stat_blob(BLOB.digest)


@pytest.mark.parametrize(("tls", "step"), [(False, "write http:// (oci+http://"), (True, "set SSL_CERT_FILE")])
def test_tls_that_fails_says_what_to_do(tls: bool, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with serving_web(tls=tls) as server:
        client = RegistryClient(Repository(server.origin.partition("://")[2], "tls"))
        with pytest.raises(UnavailableError, match="cannot be reached") as caught:
            client.stat_blob(BLOB.digest)
    assert step in str(caught.value)
    assert server.asked == []


def test_what_may_not_be_deleted_says_how_to_allow_it(tmp_path: Path) -> None:
    with serving(tmp_path, deletes=False) as server:
        client = RegistryClient(server.repository("kept"))
        blob = put(client, b"kept")
        with pytest.raises(DeletionRefusedError, match="does not permit deletion") as caught:
            client.delete_blob(blob.digest)
        assert "storage.delete.enabled" in str(caught.value)


def test_a_password_is_asked_for_and_given(tmp_path: Path) -> None:
    # bcrypt of "secret", as htpasswd -B writes it
    (tmp_path / "users").write_text("reader:$2y$04$vjx1geCwmzUrilxPMYEwM.MMlpLdMeEsW5XufTBxQOHD2OQvo3z5.\n")
    with serving(tmp_path, more=f"auth: {{htpasswd: {{realm: tests, path: {tmp_path}/users}}}}") as server:
        repository = server.repository("private")
        for wrong in (None, Credentials("reader", "guessed")):
            with pytest.raises(UnavailableError, match="denies access") as caught:
                RegistryClient(repository, wrong).stat_blob(BLOB.digest)
            assert "docker login" in str(caught.value)
            assert "guessed" not in str(caught.value)
        client = RegistryClient(repository, Credentials("reader", "secret"))
        assert content_of(client, put(client, b"private")) == b"private"


def token_auth(realm: str) -> str:
    names = f"realm: {realm}, service: {SERVICE}, issuer: {ISSUER}, rootcertbundle: {CERTIFICATE}"
    return f"auth: {{token: {{{names}}}}}"


def test_a_token_is_fetched_for_what_is_asked(tmp_path: Path) -> None:
    with giving_tokens() as (realm, asked), serving(tmp_path, more=token_auth(realm)) as server:
        repository = server.repository("private")
        for wrong in (None, Credentials(USER, "guessed")):
            with pytest.raises(UnavailableError, match=r"denies access: its token server .*/token answers 401"):
                RegistryClient(repository, wrong).stat_blob(BLOB.digest)
        asked.clear()
        client = RegistryClient(repository, Credentials(USER, PASSWORD), piece=MIB)
        assert client.stat_blob(BLOB.digest) is None
        assert content_of(client, put(client)) == CONTENT
        assert [scope.removeprefix("repository:private:") for scope in asked] in (
            ["pull", "pull,push"],
            ["pull", "push,pull"],
        )


def test_no_proxy_is_asked_for_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the registry nor for its tokens: a proxy on the network would read the password."""
    with giving_tokens() as (realm, _), serving(tmp_path, more=token_auth(realm)) as server:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        client = RegistryClient(server.repository("private"), Credentials(USER, PASSWORD))
        assert client.stat_blob(BLOB.digest) is None


def test_a_registry_sends_nobody_to_this_machine_unless_admitted() -> None:
    with serving_web(tls=False) as registry, serving_web(tls=False) as elsewhere:
        repository = Repository(registry.origin.removeprefix("http://"), "a/b", plain=True)
        registry.pages[f"/v2/a/b/blobs/{BLOB.digest}"] = redirect(f"{elsewhere.origin}/blob?signature=secret", 307)
        elsewhere.pages["/blob"] = File(CONTENT)
        with pytest.raises(InvalidInputError, match=r"redirects to localhost, at the address .* not public") as caught:
            content_of(RegistryClient(repository), BLOB)
        assert "fix the server's redirect" in str(caught.value)
        assert elsewhere.asked == []
        assert (
            content_of(RegistryClient(repository, None, NetworkPolicy(redirect_hosts=frozenset({"localhost"}))), BLOB)
            == CONTENT
        )


@pytest.mark.parametrize("next_page", ["/v2/a/b/tags/list?n=1000", "http://127.0.0.1:9/v2/a/b/tags/list?last=b"])
def test_tags_end_where_the_next_page_is_none(next_page: str) -> None:
    with serving_web(tls=False) as registry:
        page = status(200, b'{"tags": ["b"]}', Link=f'<{next_page}>; rel="next"')
        registry.pages["/v2/a/b/tags/list"] = in_turn(page, page, status(404))
        client = RegistryClient(Repository(registry.origin.removeprefix("http://"), "a/b", plain=True))
        with pytest.raises(UnavailableError, match="tags/list is not a next page"):
            list(client.tags())


def test_a_password_goes_nowhere_without_tls(tmp_path: Path) -> None:
    with serving(tmp_path, more=token_auth("http://registry.example.org/token")) as server:
        client = RegistryClient(server.repository("private"), Credentials(USER, PASSWORD))
        with pytest.raises(InvalidInputError, match=r"names an unusable token server: .* is not an https: URL"):
            client.stat_blob(BLOB.digest)


def test_what_is_no_digest_is_not_asked_for(client: RegistryClient) -> None:
    for text in ("sha256:../../x", "md5:00"):
        with pytest.raises(InvalidInputError):
            client.stat_blob(Digest(text))
