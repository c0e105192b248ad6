"""Sources on the Hub, through its own client, from a server of this machine that speaks its protocol."""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.sources import (
    Hub,
    HubSource,
    NetworkPolicy,
    SourceAccess,
    fetch_file,
    open_source,
    pin_revision,
)
from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.servers.hub import HubServer, serving_hub
from tests.support.servers.web import File, redirect, status

WEIGHTS = random.Random(7).randbytes(2_000_000)
LABELS = b"cat\ndog\n"
SWIFT = NetworkPolicy(pauses=(0.01,) * 3)


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """A Hub with a model: weights in LFS, labels in git."""
    with serving_hub() as running:
        running.repo.lfs = frozenset({"net.onnx"})
        running.repo.commit("main", net_onnx=WEIGHTS, sub__labels_txt=LABELS)
        yield running
        huggingface_hub.close_session()  # its connections are kept for the next question, and the server waits for them


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def source(hub: HubServer, text: str, token: str | None = None) -> HubSource:
    found = open_source(text, Path("/nowhere"), SourceAccess(SWIFT, Hub(hub.web.origin, token)))
    assert isinstance(found, HubSource)
    return found


def taken(hub: HubServer, text: str, content: bytes, store: LocalStore, token: str | None = None) -> str:
    """Fetch what ``text`` names, which must be ``content``; the source as it is recorded."""
    digest = digest_bytes(content)
    found = pin_revision(source(hub, text, token), digest, store)
    fetch_file(found, digest, store, name="file")
    with store.open(digest) as stream:
        assert stream.read() == content
    return str(found)


@pytest.mark.parametrize(("path", "content"), [("net.onnx", WEIGHTS), ("sub/labels.txt", LABELS)])
def test_a_branch_is_recorded_as_its_commit(hub: HubServer, store: LocalStore, path: str, content: bytes) -> None:
    commit = hub.repo.revisions["main"]
    assert taken(hub, f"hf://org/net@main/{path}", content, store) == f"hf://org/net@{commit}/{path}"


@pytest.mark.parametrize(("kind", "prefix"), [("dataset", "datasets/"), ("space", "spaces/")])
def test_datasets_and_spaces(hub: HubServer, store: LocalStore, kind: str, prefix: str) -> None:
    hub.repo.kind = kind
    commit = hub.repo.revisions["main"]
    assert (
        taken(hub, f"hf://{prefix}org/net@main/net.onnx", WEIGHTS, store) == f"hf://{prefix}org/net@{commit}/net.onnx"
    )


@pytest.mark.parametrize("revision", ["v1.0", "refs/pr/1", "feature/a b"])
def test_tags_and_branches_with_slashes(hub: HubServer, store: LocalStore, revision: str) -> None:
    commit = hub.repo.commit(revision, net_onnx=WEIGHTS[:1000])
    quoted = revision.replace("/", "%2F").replace(" ", "%20")
    assert taken(hub, f"hf://org/net@{quoted}/net.onnx", WEIGHTS[:1000], store) == f"hf://org/net@{commit}/net.onnx"


def test_all_files_of_one_publication_are_of_one_commit(hub: HubServer) -> None:
    access = SourceAccess(SWIFT, Hub(hub.web.origin))
    commit = hub.repo.revisions["main"]
    for path in ("net.onnx", "sub/labels.txt"):
        found = open_source(f"hf://org/net@main/{path}", Path("/nowhere"), access)
        assert isinstance(found, HubSource)
        assert found.resolve().revision == commit
        hub.repo.commit("main", net_onnx=b"newer")


def test_a_blob_that_is_there_needs_no_network(hub: HubServer, store: LocalStore) -> None:
    commit = hub.repo.revisions["main"]
    taken(hub, f"hf://org/net@{commit}/net.onnx", WEIGHTS, store)
    asked = len(hub.web.asked)
    taken(hub, f"hf://org/net@{commit}/net.onnx", WEIGHTS, store)
    assert len(hub.web.asked) == asked
    hub.web.otherwise = status(503)
    assert taken(hub, "hf://org/net@main/net.onnx", WEIGHTS, store) == "hf://org/net@main/net.onnx"


def test_nothing_is_kept_but_in_the_store(hub: HubServer, tmp_path: Path) -> None:
    """In a process of its own: the client reads its settings when it is loaded."""
    script = (
        "import sys; from pathlib import Path; from benchlock.artifacts.digest import Digest\n"
        "from benchlock.artifacts.stores.local_store import *\n"
        "from benchlock.artifacts.sources import *\n"
        "found = open_source(sys.argv[1], Path('/'), SourceAccess(hub=Hub(sys.argv[2])))\n"
        "fetch_file(found, Digest(sys.argv[3]), LocalStore(Path(sys.argv[4])), name='x')\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text("secret")
    environment = os.environ | {"HOME": str(home), "HF_TOKEN_PATH": str(home / "token"), "HF_TOKEN": "secret"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    environment["HF_HOME"] = str(home / "hf")
    words = [f"hf://org/net@{hub.repo.revisions['main']}/net.onnx", hub.web.origin, digest_bytes(WEIGHTS)]
    subprocess.run([sys.executable, "-c", script, *words, tmp_path / "store"], env=environment, check=True)
    assert [path.name for path in home.rglob("*")] == ["token"]
    assert all("secret" not in str(one.headers) for one in (*hub.web.asked, *hub.storage.asked))


def test_a_token_goes_to_the_hub_alone(hub: HubServer, store: LocalStore) -> None:
    hub.repo.token = "hf_secret"
    found = taken(hub, "hf://org/net@main/net.onnx", WEIGHTS, store, token="hf_secret")
    assert "secret" not in found + repr(source(hub, "hf://org/net@main/net.onnx", "hf_secret"))
    assert all(one.headers.get("Authorization") == "Bearer hf_secret" for one in hub.web.asked)
    assert [one.headers.get("Authorization") for one in hub.storage.asked] == [None]


def refused(hub: HubServer, text: str, error: type[BenchlockError], match: str, store: LocalStore) -> str:
    digest = digest_bytes(WEIGHTS)
    with pytest.raises(error, match=match) as caught:
        fetch_file(pin_revision(source(hub, text, "hf_secret"), digest, store), digest, store, name="net.onnx")
    assert "secret" not in str(caught.value)
    assert list(store.list()) == []
    return str(caught.value)


def test_what_the_hub_does_not_have(hub: HubServer, store: LocalStore) -> None:
    commit = hub.repo.revisions["main"]
    refused(hub, "hf://org/net@v9/net.onnx", InvalidInputError, "the model org/net has no revision v9", store)
    refused(hub, f"hf://org/net@{'0' * 40}/net.onnx", InvalidInputError, "has no revision 0000", store)
    refused(hub, "hf://org/net@main/no.onnx", InvalidInputError, f"has no file no.onnx at {commit}", store)
    refused(hub, "hf://org/other@main/net.onnx", InvalidInputError, "has no accessible model org/other", store)
    refused(hub, "hf://datasets/org/net@main/x", InvalidInputError, "has no accessible dataset org/net", store)
    refused(hub, "hf://org/a--b@main/x", InvalidInputError, "a--b", store)
    hub.repo.token = "another"
    message = refused(hub, "hf://org/net@main/net.onnx", InvalidInputError, "has no accessible model org/net", store)
    assert "HF_TOKEN" in message


def test_a_hub_that_does_not_answer(hub: HubServer, store: LocalStore) -> None:
    hub.web.otherwise = status(500)
    refused(hub, "hf://org/net@main/net.onnx", UnavailableError, "it answers 500", store)
    hub.web.otherwise = status(200, b"<html>a login page</html>")
    refused(hub, "hf://org/net@main/net.onnx", UnavailableError, "not that of a Hub", store)
    hub.web.otherwise = status(200, b'{"id": "org/net", "sha": "main"}')
    refused(hub, "hf://org/net@main/net.onnx", UnavailableError, "returned no commit", store)
    for unencrypted in ("http://10.0.0.1", "ftp://localhost", "https://user:secret@localhost"):
        with pytest.raises(InvalidInputError) as caught:
            HubSource("model", "org/net", "main", "x", Hub(unencrypted, "hf_secret"), SWIFT).resolve()
        assert "secret" not in str(caught.value)
    nobody = HubSource("model", "org/net", "main", "x", Hub("http://127.0.0.1:9"), SWIFT)
    with pytest.raises(UnavailableError, match="HF_ENDPOINT"):
        nobody.resolve()


def test_wrong_bytes_that_come_with_success(hub: HubServer, store: LocalStore) -> None:
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    hub.storage.pages[f"/lfs/{digest}"] = File(WEIGHTS[:-1] + b"?")
    refused(hub, "hf://org/net@main/net.onnx", IntegrityError, f"expected sha256:{digest}, found sha256:", store)
    hub.storage.pages[f"/lfs/{digest}"] = File(WEIGHTS[:-1])
    refused(hub, "hf://org/net@main/net.onnx", IntegrityError, f"expected sha256:{digest}, found sha256:", store)


def test_another_digest_than_the_hub_states_costs_no_download(hub: HubServer, store: LocalStore) -> None:
    other = Digest("sha256:" + "0" * 64)
    with pytest.raises(IntegrityError, match=f"expected {other}, but hf://.* states {digest_bytes(WEIGHTS)}"):
        fetch_file(source(hub, "hf://org/net@main/net.onnx"), other, store, name="net.onnx")
    assert hub.storage.asked == []


def test_answers_that_break_off_are_gone_on_with(hub: HubServer, store: LocalStore) -> None:
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    breaking = hub.storage.pages[f"/lfs/{digest}"] = File(WEIGHTS, breaks=[600_000, 0, 600_000])
    taken(hub, "hf://org/net@main/net.onnx", WEIGHTS, store)
    assert breaking.breaks == []
    assert hub.storage.sent == len(WEIGHTS)
    hub.storage.pages[f"/lfs/{digest}"] = File(WEIGHTS, breaks=[1_500_000] + [0] * 9)
    again = LocalStore(store._root.with_name("another"))
    refused(hub, "hf://org/net@main/net.onnx", UnavailableError, "cannot be read", again)
    hub.storage.pages[f"/lfs/{digest}"] = File(WEIGHTS)
    sent = hub.storage.sent
    taken(hub, "hf://org/net@main/net.onnx", WEIGHTS, again)
    assert hub.storage.sent - sent < 1_000_000


def test_the_hubs_client_asks_nobody_else(hub: HubServer, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither who it is redirected to, nor a proxy of a Hub on this machine."""
    hub.storage.otherwise = status(200, b'{"id": "org/net", "sha": "0000000000000000000000000000000000000000"}')
    hub.web.pages["/api/models/org/net/revision/main"] = redirect(f"{hub.storage.origin}/metadata?token=secret")
    refused(
        hub,
        "hf://org/net@main/net.onnx",
        InvalidInputError,
        f"redirects to another host: {hub.storage.origin}/metadata",
        store,
    )
    assert hub.storage.asked == []
    del hub.web.pages["/api/models/org/net/revision/main"]
    huggingface_hub.close_session()
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    taken(hub, "hf://org/net@main/net.onnx", WEIGHTS, store, "hf_secret")


def test_a_redirect_from_the_public_hub_to_a_private_address(hub: HubServer, store: LocalStore) -> None:
    """A Hub on this machine may redirect within it, but not from TLS to plain HTTP elsewhere."""
    hub.web.pages[f"/org/net/resolve/{hub.repo.revisions['main']}/net.onnx"] = redirect("http://example.com/x")
    refused(hub, "hf://org/net@main/net.onnx", InvalidInputError, "is not an https: URL", store)
