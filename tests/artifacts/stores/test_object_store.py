"""What a store over a bucket promises beyond every store: whole objects, claims, resumed downloads, bounded memory."""

import base64
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import BinaryIO, cast
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest

from benchlock.artifacts.blob_store import verify
from benchlock.artifacts.digest import Descriptor, digest_bytes, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, RefusedError, UnavailableError
from benchlock.artifacts.net.object_client import ObjectLocation, connect, parse_location
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.stores.object_store import CachedObjects, ObjectStore
from tests.support.servers.faulty_proxy import Fault, proxy_to
from tests.support.servers.object_server import BUCKET, ObjectServer, below

ROOT = Path(__file__).resolve().parents[3]
CONTENT = os.urandom(300_000)
DIGEST = digest_bytes(CONTENT)
IN_PARTS = os.urandom(20 << 20)


S3 = pytest.mark.parametrize("server", ["object_server"], indirect=True)


@pytest.fixture(params=["object_server", "azure_server"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    server: ObjectServer = request.getfixturevalue(request.param)
    use(server, monkeypatch)
    return server


@pytest.fixture
def location(server: ObjectServer, tmp_path: Path) -> ObjectLocation:
    """A prefix that no other test has."""
    return server.location(tmp_path.name)


def remote(home: Path, location: ObjectLocation, owner: str | None = None) -> ObjectStore:
    home.mkdir(exist_ok=True)
    return ObjectStore(connect(location), home / "lock", owner)


def cached(home: Path, location: ObjectLocation) -> CachedObjects:
    store = remote(home, location)
    return CachedObjects(LocalStore(home / "blobs"), store)


def use(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server that answers as ``handler`` does; its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def key(location: ObjectLocation, content: bytes) -> str:
    return f"/{below(location)}/blobs/sha256/{to_hex(digest_bytes(content))}"


def test_an_upload_in_parts_of_a_file_that_changes_leaves_nothing(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path
) -> None:
    store = remote(tmp_path, location)
    stated = Descriptor(digest_bytes(IN_PARTS), len(IN_PARTS))
    for changed in (IN_PARTS[:-1] + b"x", IN_PARTS[:-1], IN_PARTS + b"more"):
        with pytest.raises(IntegrityError, match=rf"weights does not match its digest: expected {stated.digest}"):
            store.send(io.BytesIO(changed), stated, name="weights")
    assert list(store.list()) == []
    assert server.scheme == "az" or not server.has_parts(location)  # Azure deletes parts itself, after a week

    store.send(io.BytesIO(IN_PARTS), stated, name="weights")
    verify(store, stated.digest, name="weights", size=stated.size)


def test_an_upload_that_cannot_be_read_on_leaves_nothing(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path
) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() >= 12 << 20:
                raise OSError("the disk failed")
            return super().read(size)

    store = remote(tmp_path, location)
    with pytest.raises(OSError, match="the disk failed"):
        store.send(cast("BinaryIO", Failing(IN_PARTS)), Descriptor(digest_bytes(IN_PARTS), len(IN_PARTS)), name="x")
    assert list(store.list()) == []
    assert server.scheme == "az" or not server.has_parts(location)  # Azure deletes parts itself, after a week


def test_a_part_that_breaks_off_is_sent_again_alone(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy_to(server.port) as proxy:
        use(server.behind(proxy.port), monkeypatch)
        store = remote(tmp_path, location)
        proxy.faults += [Fault("up", 3 << 20), Fault("up", 0, request=b"PUT"), Fault("up", 0, request=b"PUT")]
        stated = Descriptor(digest_bytes(IN_PARTS), len(IN_PARTS))
        store.send(io.BytesIO(IN_PARTS), stated, name="weights")
        assert not proxy.faults
        assert proxy.passed["up"] < len(IN_PARTS) + (4 << 20)
        verify(store, stated.digest, name="weights", size=stated.size)


@S3
def test_an_upload_outlasts_more_faults_than_the_short_requests_do(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy_to(server.port) as proxy:
        use(server.behind(proxy.port), monkeypatch)
        proxy.faults += [Fault("up", 0, request=b"PUT")] * 5
        assert remote(tmp_path, location).put(io.BytesIO(CONTENT)).digest == DIGEST
        assert not proxy.faults


def test_a_killed_upload_leaves_no_object_and_begins_anew(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path
) -> None:
    (tmp_path / "weights").write_bytes(IN_PARTS)
    with started(STOPPING, location, tmp_path) as process:
        while not server.has_parts(location):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    store = remote(tmp_path, location)
    assert list(store.list()) == []
    found = store.put_file(tmp_path / "weights")
    verify(store, found.digest, name="weights", size=len(IN_PARTS))
    assert server.has_parts(location) == (server.scheme == "s3")  # Azure drops them with the next upload


@S3
def test_the_rule_of_the_documentation_is_accepted(server: ObjectServer) -> None:
    (text,) = re.findall(r"--lifecycle-configuration '(.*?)'", (ROOT / "docs/how-to/storage.md").read_text(), re.DOTALL)
    client = pytest.importorskip("boto3").client("s3", endpoint_url=server.url)
    client.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration=json.loads(text))
    (rule,) = client.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


@pytest.mark.usefixtures("server")
def test_those_that_upload_one_blob_in_parts_at_once_all_succeed(location: ObjectLocation, tmp_path: Path) -> None:
    """Azure drops the parts of every other upload of a blob when one ends."""
    blob = Descriptor(digest_bytes(IN_PARTS), len(IN_PARTS))
    stores = [remote(tmp_path / str(number), location) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda store: store.send(io.BytesIO(IN_PARTS), blob, name="weights"), stores))
    verify(stores[0], blob.digest, name="weights", size=blob.size)


@pytest.mark.parametrize("server", ["azure_server"], indirect=True)
@pytest.mark.usefixtures("server")
def test_a_wrong_key_is_named(location: ObjectLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
    store = remote(tmp_path, location)
    actions: list[Callable[[], object]] = [
        lambda: store.put(io.BytesIO(CONTENT)),
        lambda: store.exists(DIGEST),
        lambda: list(store.list()),
        lambda: store.delete(DIGEST),
        lambda: remote(tmp_path, location, "one").claim(),
    ]
    for act in actions:
        with pytest.raises(UnavailableError, match="403 Forbidden") as caught:
            act()
        assert "AZURE_STORAGE_ACCOUNT_KEY" in str(caught.value.next_step)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "not base64")
    with pytest.raises(InvalidInputError, match="cannot be opened"):
        connect(location)


@S3
def test_s3_gets_a_checksum_to_compare(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Message] = []

    class Recorder(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            received.append(self.headers)
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(b"")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            tags = (
                ("Initiate", b"<UploadId>1</UploadId>") if "uploads" in self.path else ("Complete", b"<ETag>1</ETag>")
            )
            name = f"{tags[0]}MultipartUploadResult".encode()
            self._answer(b"<%s>%s</%s>" % (name, tags[1], name))

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("ETag", '"any"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with answering(Recorder) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        client = connect(location)
        for content in (CONTENT, IN_PARTS):
            client.put_blob(io.BytesIO(content), Descriptor(digest_bytes(content), len(content)), name="weights")
    sent = {base64.b64decode(headers["x-amz-checksum-sha256"]).hex() for headers in received}
    parts = (CONTENT, *(IN_PARTS[at : at + (8 << 20)] for at in range(0, len(IN_PARTS), 8 << 20)))
    assert sent == {to_hex(digest_bytes(part)) for part in parts}
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    remote(tmp_path, location).put(io.BytesIO(CONTENT))
    with server.open("HEAD", key(location, CONTENT)) as answer:
        assert answer.headers["Content-Disposition"] == "attachment"  # a browser saves foreign bytes, and shows none


def test_damage_is_named_and_never_comes_into_the_folder(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path
) -> None:
    cached(tmp_path / "one", location).put(io.BytesIO(CONTENT))
    for damaged in (CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]), CONTENT[:-1]):
        server.ask("PUT", key(location, CONTENT), damaged)
        store = cached(tmp_path / "two", location)
        with pytest.raises(IntegrityError, match=rf"expected {DIGEST}, found sha256:"):
            verify(store, DIGEST, name="weights")
        with pytest.raises(IntegrityError, match=DIGEST):
            store.path(DIGEST)
        assert list(LocalStore(tmp_path / "two" / "blobs").list()) == []
    remote(tmp_path, location).put(io.BytesIO(CONTENT))  # of another size: replaced
    assert cached(tmp_path / "two", location).path(DIGEST).read_bytes() == CONTENT


def test_a_broken_connection_is_resumed_and_a_bit_on_the_way_is_noticed(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote(tmp_path, location).put(io.BytesIO(IN_PARTS))
    digest = digest_bytes(IN_PARTS)
    with proxy_to(server.port) as proxy:
        use(server.behind(proxy.port), monkeypatch)
        store = cached(tmp_path / "cut", location)
        proxy.faults += [Fault("down", 5 << 20)]
        assert store.path(digest).read_bytes() == IN_PARTS
        assert not proxy.faults
        flipped = cached(tmp_path / "flipped", location)
        proxy.faults += [Fault("down", 5 << 20, flip=True)]
        with pytest.raises(IntegrityError, match=f"expected {digest}, found"):
            flipped.path(digest)
        assert flipped.path(digest).read_bytes() == IN_PARTS


@pytest.mark.usefixtures("server")
def test_one_registry_claims_a_prefix(location: ObjectLocation, tmp_path: Path) -> None:
    stores = {name: remote(tmp_path / name, location, name) for name in ("one", "two", "three", "four")}

    def claimed(name: str) -> str | None:
        try:
            stores[name].claim()
        except RefusedError:
            return None
        return name

    with ThreadPoolExecutor(4) as pool:
        (winner,) = filter(None, pool.map(claimed, stores))
    assert stores[winner].read_owner() == winner
    blob = stores[winner].put(io.BytesIO(CONTENT)).digest
    loser = next(store for name, store in stores.items() if name != winner)
    with pytest.raises(RefusedError, match=rf"another registry of benchlock \({winner}\)"), loser.collecting():
        loser.delete(blob)
    with stores[winner].collecting():
        stores[winner].delete(blob)
        assert stores[winner].exists(blob)  # until the end
    assert not stores[winner].exists(blob)
    remote(tmp_path, parse_location(f"{location}-other"), "other").claim()


def test_what_others_keep_in_the_bucket_is_left_alone(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path
) -> None:
    for path in (
        f"/{below(location)}/blobs/sha256/notes.txt",
        f"/{below(location)}/other",
        f"/{below(location)}-2/blobs/sha256/{'0' * 64}",
    ):
        server.ask("PUT", path, b"of others")
    store = remote(tmp_path, location, "one")
    store.claim()
    kept = store.put(io.BytesIO(CONTENT)).digest
    assert list(store.list()) == [kept]
    with store.collecting():
        store.delete(kept)
        store.delete(digest_bytes(b"never there"))
    assert list(store.list()) == []
    assert server.ask("GET", f"/{below(location)}/blobs/sha256/notes.txt") == b"of others"


def test_a_signed_url_needs_no_credentials(server: ObjectServer, location: ObjectLocation, tmp_path: Path) -> None:
    store = cached(tmp_path, location)
    store.put(io.BytesIO(CONTENT))
    url = store.sign_url(Descriptor(DIGEST, len(CONTENT)), 60)
    assert url is not None
    if server.scheme == "az":
        fields = parse_qs(urlsplit(url).query)
        start, end = (datetime.fromisoformat(fields[name][0]) for name in ("st", "se"))
        assert (fields["sp"], (end - start).seconds) == (["r"], 60)
    else:
        assert "X-Amz-Expires=60" in url
    assert urlopen(url, timeout=30).read() == CONTENT
    store.remote.delete(DIGEST)
    assert store.exists(DIGEST)  # in the folder
    assert store.sign_url(Descriptor(DIGEST, len(CONTENT)), 60) is None


@pytest.mark.parametrize(
    "text",
    ["s3://", "s3://b", "s3:///prefix", "s3://bucket/a b", "s3://bucket/..", "s3://bucket//a", "s3://u:p@host/x"],
)
def test_what_is_no_bucket_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid bucket") as caught:
        parse_location(text)
    assert "u:p" not in str(caught.value)


@S3
def test_messages_have_no_secrets(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_location("az://container?sv=1&sig=hunter2")
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url.replace("://", "://user:hunter2@"))
    with pytest.raises(InvalidInputError, match="AWS_ENDPOINT_URL contains a user name or password") as caught:
        connect(parse_location("s3://bucket"))
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:x")
    for endpoint, message in (
        ("http://127.0.0.1:x", "invalid URL"),
        ("127.0.0.1:9000", "AWS_ENDPOINT_URL is not a URL"),
        ("https://", "AWS_ENDPOINT_URL is not a URL"),
    ):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(InvalidInputError, match=message):
            connect(parse_location("s3://bucket"))
    with monkeypatch.context() as strict:
        strict.delenv("AWS_ALLOW_HTTP")
        strict.setenv("AWS_ENDPOINT_URL", server.url)
        with pytest.raises(InvalidInputError, match="is not encrypted") as refused:
            connect(parse_location("s3://bucket"))
    assert "AWS_ALLOW_HTTP" in str(refused.value.next_step)

    class Telling(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<Error><Code>Odd</Code><Message>hunter2</Message></Error>"
            self.send_response(400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with answering(Telling) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        store = ObjectStore(connect(parse_location("s3://bucket")), tmp_path / "lock")
        with pytest.raises(UnavailableError, match=r"400 Bad Request \(Odd\)") as failed:
            list(store.list())
    assert "hunter2" not in str(failed.value)


def test_every_service_opens_by_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    for text in ("s3://bucket/prefix/", "az://container/prefix"):
        assert connect(parse_location(text)).where == text.rstrip("/")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "/nowhere/key.json")
    with pytest.raises(InvalidInputError, match="gs://bucket cannot be opened"):
        connect(parse_location("gs://bucket"))


def test_a_bucket_that_is_not_there_is_named(server: ObjectServer, tmp_path: Path) -> None:
    absent = parse_location(f"{server.scheme}://no-such-bucket/prefix")
    store = ObjectStore(connect(absent), tmp_path / "lock", "one")
    unowned = ObjectStore(connect(absent), tmp_path / "lock")
    actions: list[Callable[[], object]] = [
        store.claim,
        lambda: unowned.put(io.BytesIO(CONTENT)),
        lambda: list(store.list()),
    ]
    for act in actions:
        with pytest.raises(
            UnavailableError, match=r"cannot be .*(NoSuchBucket|no-such-bucket|ContainerNotFound)"
        ) as caught:
            act()
        assert re.search("AWS_ENDPOINT_URL|AZURE_STORAGE_ENDPOINT", str(caught.value.next_step))
        assert "\n" not in caught.value.what


@pytest.mark.usefixtures("server")
@S3
def test_a_service_that_ignores_conditions_of_writes_cannot_be_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Replacing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(404)

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("ETag", '"any"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with answering(Replacing) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        store = ObjectStore(connect(parse_location("s3://bucket")), tmp_path / "lock", "one")
        with pytest.raises(UnavailableError, match="ignores conditions of writes"):
            store.claim()


@pytest.mark.usefixtures("server")
def test_nothing_is_written_into_a_bucket_that_is_not_claimed(location: ObjectLocation, tmp_path: Path) -> None:
    store = remote(tmp_path, location, "one")
    with pytest.raises(RefusedError, match="not claimed by this registry at this endpoint"):
        store.put(io.BytesIO(CONTENT))
    store.claim()
    store.put(io.BytesIO(CONTENT))
    with pytest.raises(RefusedError, match="belongs to another registry"):
        remote(tmp_path, location, "two").put(io.BytesIO(b"other"))


def test_a_name_that_the_library_cannot_read_is_named(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path
) -> None:
    server.ask("PUT", f"/{below(location)}/blobs/sha256//x", b"of others")
    with pytest.raises(UnavailableError, match=r"cannot be listed: .*blobs/sha256//x") as caught:
        list(remote(tmp_path, location).list())
    assert "delete or rename that object" in str(caught.value.next_step)


FORKED = """
import os, sys
from pathlib import Path
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.net.object_client import connect, parse_location
from benchlock.artifacts.stores.object_store import ObjectStore

store = ObjectStore(connect(parse_location(sys.argv[1])), Path(sys.argv[2]) / "lock")
list(store.list())
child = os.fork()
if not child:
    for forked in (store, ObjectStore(connect(parse_location(sys.argv[1])), Path(sys.argv[2]) / "lock")):
        try:
            list(forked.list())
        except UnavailableError as error:
            if "forked" in error.what:
                continue
        os._exit(1)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
STALLED = """
import io, signal, sys, threading, os, time
from pathlib import Path
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.net.object_client import connect, parse_location
from benchlock.artifacts.stores.object_store import ObjectStore

store = ObjectStore(connect(parse_location(sys.argv[1])), Path(sys.argv[2]) / "lock")
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs of background shells
try:
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    store.exists(digest_bytes(b"any"))
except KeyboardInterrupt:
    sys.exit(0)
sys.exit(1)
"""


@pytest.mark.usefixtures("server")
def test_a_forked_process_is_refused_and_does_not_hang(location: ObjectLocation, tmp_path: Path) -> None:
    assert script(FORKED, location, tmp_path).returncode == 0


def test_ctrl_c_ends_the_wait_for_a_silent_service(
    server: ObjectServer, location: ObjectLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy_to(server.port) as proxy:
        proxy.stall()
        use(server.behind(proxy.port), monkeypatch)
        assert script(STALLED, location, tmp_path, seconds=50).returncode == 0


STOPPING = """
import io, sys, time
from pathlib import Path
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.net.object_client import connect, parse_location

content = (Path(sys.argv[2]) / "weights").read_bytes()

class Stopping(io.BytesIO):
    def read(self, size=-1):
        if self.tell() >= 16 << 20:
            time.sleep(600)
        return super().read(size)

connect(parse_location(sys.argv[1])).put_blob(
    Stopping(content), Descriptor(digest_bytes(content), len(content)), name="weights"
)
"""


@contextmanager
def started(text: str, location: ObjectLocation, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that runs a script, and ends with the context."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", text, location.url, str(folder)], env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def script(
    text: str, location: ObjectLocation, folder: Path, *, seconds: float = 300
) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", text, location.url, str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)


LARGE = """
import resource, sys
from pathlib import Path
from benchlock.artifacts.blob_store import verify
from benchlock.artifacts.net.object_client import connect, parse_location
from benchlock.artifacts.stores.object_store import ObjectStore

home = Path(sys.argv[2])
store = ObjectStore(connect(parse_location(sys.argv[1])), home / "lock")
verify(store, store.put_file(home / "small").digest, name="small")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = store.put_file(home / "large")
verify(store, found.digest, name="large", size=found.size)
print(found.size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.usefixtures("server")
@S3
def test_memory_stays_bounded(location: ObjectLocation, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"small")
    with (tmp_path / "large").open("wb") as sparse:
        sparse.truncate(256 << 20)
    done = script(LARGE, location, tmp_path)
    assert not done.returncode, done.stderr
    size, kibibytes = map(int, done.stdout.split())
    assert size == 256 << 20
    assert kibibytes < 128 << 10
