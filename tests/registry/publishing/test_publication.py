"""Publishing: all or nothing, once and for all, and only what the bytes bear out."""

import gzip
import http.server
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchlock.artifacts.blob_store import verify
from benchlock.artifacts.digest import Descriptor, digest_bytes, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.file_trees import read_tree
from benchlock.artifacts.sources import NetworkPolicy, SourceAccess
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import VersionTakenError
from benchlock.registry.manifests import Dataset, Image, files_of
from benchlock.registry.publishing.oci_artifacts import export
from benchlock.registry.publishing.publication import Draft, dry_run_publish, publish
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.registry.graphs import ANOTHER_GRAPH, GRAPH
from tests.support.registry.idx_files import idx_file, idx_manifest
from tests.support.servers.web import File, serving

Author = Callable[..., Draft]

MODEL = """\
schema: 1
kind: model
name: net
version: 1.0.0
license: Apache-2.0  # a comment, which is kept as provenance
task: image-classification
framework: {name: onnxruntime, version: ">=1.20 <2"}
format: onnx
inputs:
  - name: x
    type: image
    dtype: float32
    shape: [null, 8, 8, 1]
    layout: NHWC
    steps: [{decode: {color: L, exif: ignore}}, {cast: {dtype: float32}}]
outputs:
  - {name: y, type: class-scores, dtype: float32, label_offset: 0}
files:
  - {path: net.onnx, role: graph, source: ./net.onnx}
"""
DATASET = """\
schema: 1
kind: dataset
name: pictures
version: 1.0.0
license: MIT
format: image-index
splits: {test: {index: index.csv, samples: 3}}
labels: labels.txt
files:
  - {path: index.csv, source: index.csv}
  - {path: labels.txt, source: labels.txt}
  - {path: images/, source: images}
"""
PICTURES = {
    "index.csv": b"path,label\nimages/a.png,cat\nimages/b.png,1\nimages/deep/c.png,0\n",
    "labels.txt": b"dog\ncat\n",
    "images/a.png": b"a",
    "images/b.png": b"b",
    "images/deep/c.png": b"cc",
}
FRAMEWORK = """\
{schema: 1, kind: framework, name: onnxruntime, version: 1.31.1, predictor: onnxruntime, distributions: [onnxruntime],
 license: MIT}
"""
NET = parse_reference("model/net@1.0.0")
LOOPBACK = SourceAccess(NetworkPolicy(loopback_http=True))


def test_what_is_published_can_be_read_by_digest(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    draft = author(MODEL, {"net.onnx": GRAPH})
    published = publish(draft, store, catalogue)
    assert (str(published.reference), published.changed) == ("model/net@1.0.0", True)
    assert catalogue.get(NET).digest == published.digest
    manifest = catalogue.manifest(NET)
    (file,) = files_of(manifest)
    assert (file.sha256, file.size) == (to_hex(digest_bytes(GRAPH)), len(GRAPH))
    assert set(store.list()) == {published.digest, digest_bytes(GRAPH)} == set(catalogue.live_digests())
    verify(store, published.digest, name="the manifest")


def test_text_and_sources_are_kept_outside_the_digest(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    first = publish(author(MODEL, {"net.onnx": GRAPH}), store, catalogue)
    other = MODEL.replace("  # a comment, which is kept as provenance", "").replace("./net.onnx", "again.onnx")
    again = publish(author(other, {"again.onnx": GRAPH}), store, catalogue)
    assert (again.digest, again.changed) == (first.digest, False)
    provenance = catalogue.provenance(NET)
    assert (provenance.authored, provenance.sources) == (MODEL, {"net.onnx": "./net.onnx"})


def test_publishing_again_replaces_a_damaged_blob(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    draft = author(MODEL, {"net.onnx": GRAPH})
    publish(draft, store, catalogue)
    place = store.path(digest_bytes(GRAPH))
    place.chmod(0o644)
    place.write_bytes(GRAPH[:-1] + b"f")
    assert not publish(draft, store, catalogue).changed
    verify(store, digest_bytes(GRAPH), name="net.onnx")


def test_getting_what_is_damaged_leaves_no_folder(
    author: Author, store: LocalStore, catalogue: Catalogue, tmp_path: Path
) -> None:
    publish(author(MODEL, {"net.onnx": GRAPH}), store, catalogue)
    place = store.path(digest_bytes(GRAPH))
    place.chmod(0o644)
    place.write_bytes(GRAPH[:-1] + b"f")
    (tmp_path / "mine").mkdir()
    for name in ("got", "mine"):
        with pytest.raises(IntegrityError):
            export(catalogue.manifest(NET), store, tmp_path / name, SILENT)
    assert not (tmp_path / "got").exists()
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize("version", ["1.0.0", "1.0.0+rebuilt"])
def test_a_version_keeps_its_content(author: Author, store: LocalStore, catalogue: Catalogue, version: str) -> None:
    publish(author(MODEL, {"net.onnx": GRAPH}), store, catalogue)
    before = catalogue.list(), catalogue.manifest(NET)
    other = author(MODEL.replace("version: 1.0.0", f"version: {version}"), {"net.onnx": ANOTHER_GRAPH})
    message = r"model/net@1\.0\.0 is already published with different content: sha256:"
    with pytest.raises(VersionTakenError, match=message):
        dry_run_publish(other, catalogue)
    with pytest.raises(VersionTakenError, match=message):
        publish(other, store, catalogue)
    assert (catalogue.list(), catalogue.manifest(NET)) == before


def test_a_rehearsal_says_what_would_happen_and_publishes_nothing(
    author: Author, store: LocalStore, catalogue: Catalogue
) -> None:
    for text, files in ((MODEL, {"net.onnx": GRAPH}), (DATASET, PICTURES), (FRAMEWORK, {})):
        draft = author(text, files)
        rehearsed = dry_run_publish(draft, catalogue)
        assert catalogue.list(draft.manifest.kind) == ()
        assert rehearsed == publish(draft, store, catalogue)
        assert dry_run_publish(draft, catalogue) == replace(rehearsed, changed=False)
    assert dry_run_publish(author(DATASET.replace("1.0.0", "1.1.0"), PICTURES), catalogue).changed


def test_a_framework_needs_no_files(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    assert publish(author(FRAMEWORK), store, catalogue).changed
    assert str(catalogue.list("framework")[0].reference) == "framework/onnxruntime@1.31.1"


def test_a_tree_is_published_with_every_file_in_it(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    publish(author(DATASET, PICTURES), store, catalogue)
    dataset = catalogue.manifest(parse_reference("dataset/pictures@1.0.0"))
    tree = files_of(dataset)[2]
    (listing,) = catalogue.live_trees()
    assert to_hex(listing) == tree.sha256
    entries = read_tree(store, Descriptor(listing, 4), name="images/")
    assert [entry.path for entry in entries] == ["a.png", "b.png", "deep/c.png"]
    assert all(store.exists(entry.digest) for entry in entries)


def test_a_tree_leaves_out_the_manifest_that_is_published(
    author: Author, store: LocalStore, catalogue: Catalogue
) -> None:
    text = DATASET.replace("source: images}", "source: .}").replace("index: index.csv", "index: all/index.csv")
    text = text.replace("path: images/", "path: all/").replace("  - {path: index.csv, source: index.csv}\n", "")
    publish(author(text, PICTURES), store, catalogue)
    (listing,) = catalogue.live_trees()
    with store.open(listing) as stream:
        assert b"manifest.yaml" not in stream.read()


def refused(draft: Draft, catalogue: Catalogue, message: str, where: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        publish(draft, MemoryStore(), catalogue)
    assert where in str(caught.value.where)
    with pytest.raises(InvalidInputError, match=message):
        dry_run_publish(draft, catalogue)
    assert catalogue.list() == ()


def test_a_missing_file_is_named_by_its_place(author: Author, catalogue: Catalogue) -> None:
    refused(author(MODEL), catalogue, "not found", "files[0].source")
    refused(author(DATASET, {"index.csv": b"x"}), catalogue, "not found", "files[1].source")


def test_a_folder_is_a_tree_and_a_file_is_none(author: Author, catalogue: Catalogue) -> None:
    refused(
        author(MODEL, {"net.onnx/part": b"x"}), catalogue, "is a file, but ./net.onnx is a folder", "files[0].source"
    )
    files = {"index.csv": b"", "labels.txt": b"", "images": b"no folder"}
    refused(author(DATASET, files), catalogue, "is a tree, but images is not a folder", "files[2].source")


def test_other_bytes_than_the_author_states_are_an_integrity_error(author: Author, catalogue: Catalogue) -> None:
    stated, found = digest_bytes(ANOTHER_GRAPH), digest_bytes(GRAPH)
    draft = author(MODEL.replace("./net.onnx", f'./net.onnx, sha256: "{to_hex(stated)}"'), {"net.onnx": GRAPH})
    with pytest.raises(IntegrityError, match=f"net.onnx .*{stated}.*{found}"):
        publish(draft, MemoryStore(), catalogue)
    tree = DATASET.replace("source: images", f'source: images, sha256: "{to_hex(stated)}"')
    with pytest.raises(IntegrityError, match=f"images/ .*{stated}"):
        publish(author(tree, PICTURES), MemoryStore(), catalogue)
    assert catalogue.list() == ()


@pytest.mark.parametrize(
    ("files", "message", "where"),
    [
        ({"index.csv": b"path,label\nimages/a.png,1\n"}, "has 1 sample, not 3", "splits.test.samples"),
        ({"index.csv": PICTURES["index.csv"] + b"images/a.png,0\n"}, "has 4 samples, not 3", "splits.test.samples"),
        (
            {"index.csv": PICTURES["index.csv"].replace(b"b.png,1", b"b.png,")},
            "some samples have a label and some do not",
            "index.csv, line 3",
        ),
        (
            {"index.csv": PICTURES["index.csv"].replace(b"b.png", b"no.png")},
            "images/no.png is not in files",
            "index.csv, line 3",
        ),
        ({"index.csv": PICTURES["index.csv"].replace(b"images/a", b"../a")}, "is not in files", "line 2"),
        ({"index.csv": PICTURES["index.csv"].replace(b"cat", b"cow")}, "'cow' is neither", "index.csv, line 2"),
        ({"index.csv": PICTURES["index.csv"].replace(b",1", b",2")}, "'2' is neither", "index.csv, line 3"),
        ({"index.csv": PICTURES["index.csv"].replace(b"path,", b"file,")}, "no column 'path'", "splits.test.index"),
        ({"index.csv": b"path,label\n\xff,1\n"}, "not UTF-8 CSV", "splits.test.index"),
        ({"labels.txt": b"\xff"}, "is not UTF-8", "labels"),
    ],
)
def test_an_index_says_what_is_there(
    author: Author, catalogue: Catalogue, files: dict[str, bytes], message: str, where: str
) -> None:
    refused(author(DATASET, PICTURES | files), catalogue, message, where)


def test_an_idx_split_is_counted_in_its_header(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    files = {"images.idx": gzip.compress(idx_file(5, 8, 8), mtime=0), "labels.idx": idx_file(5)}
    published = publish(author(idx_manifest(5), files), store, catalogue)
    assert isinstance(catalogue.manifest(published.reference), Dataset)


@pytest.mark.parametrize(
    ("pictures", "labels", "message"),
    [
        (idx_file(4, 8, 8), idx_file(4), "has 4 samples, not 5"),
        (idx_file(5, 8, 8), idx_file(4), "labels for 5 pictures"),
        (b"\0\0\x08", idx_file(5), "is not a valid idx file"),
        (b"PNG and more of it", idx_file(5), "is not a valid idx file"),
        (gzip.compress(idx_file(5, 8, 8), mtime=0)[:20], idx_file(5), "is not a valid idx file"),
    ],
)
def test_an_idx_split_that_is_not_what_it_says_is_refused(
    author: Author, catalogue: Catalogue, pictures: bytes, labels: bytes, message: str
) -> None:
    refused(author(idx_manifest(5), {"images.idx": pictures, "labels.idx": labels}), catalogue, message, "splits.test")


WHEEL = "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl"
IMAGE = """\
schema: 1
kind: image
name: onnxruntime-cpu
version: 1.0.0
license: various
provides: {{framework: onnxruntime, version: 1.31.1}}
platforms:
  - {{os: linux, arch: amd64, device: cpu, python: "3.11", wheels: pylock.toml,
     config: "{config}", layers: ["{layer}"]}}
files:
  - {{path: pylock.toml, role: wheels, source: pylock.toml}}
  - {{path: wheels/{wheel}, role: wheels, source: wheel}}
  - {{path: config.json, role: config, source: config.json}}
  - {{path: layers/base.tar, role: layer, source: base.tar}}
"""


def pylock(*wheels: str, version: str = "1.31.1", content: bytes = b"wheel") -> bytes:
    """A lock of wheels that all have the bytes of ``content``."""
    packages = [
        f"""[[packages]]
name = "{wheel.partition("-")[0].replace("_", "-")}"
version = "{version}"
wheels = [{{path = "wheels/{wheel}", size = {len(content)}, hashes = {{sha256 = "{to_hex(digest_bytes(content))}"}}}}]
"""
        for wheel in wheels
    ]
    return "\n".join(['lock-version = "1.0"\ncreated-by = "hand"\n', *packages]).encode()


def image(arch: str = "amd64", layers: object = None, *, wheel: str = WHEEL) -> tuple[str, dict[str, bytes]]:
    """The manifest of an image with one wheel, and its files."""
    roots = "{}" if layers is None else f'{{"diff_ids": {layers!r}}}'.replace("'", '"')
    config = f'{{"architecture": "{arch}", "os": "linux", "rootfs": {roots}}}'.encode()
    text = IMAGE.format(config=digest_bytes(config), layer=digest_bytes(b"tar"), wheel=wheel)
    return text, {"pylock.toml": pylock(wheel), "wheel": b"wheel", "config.json": config, "base.tar": b"tar"}


BASE = [digest_bytes(b"tar")]


@pytest.mark.parametrize(
    ("arch", "layers", "message"),
    [
        ("amd64", BASE, None),
        ("arm64", BASE, "is built for arm64, not amd64"),
        ("amd64", [digest_bytes(b"tar"), digest_bytes(b"more")], "the 2 layers of the image differ from the 1"),
        ("amd64", "none", "invalid image configuration"),
        ("amd64", None, "invalid image configuration"),
    ],
)
def test_an_image_is_made_for_what_its_manifest_says(
    author: Author, catalogue: Catalogue, arch: str, layers: object, message: str | None
) -> None:
    draft = author(*image(arch, layers))
    if message:
        refused(draft, catalogue, message, "platforms[0]")
    else:
        published = publish(draft, MemoryStore(), catalogue)
        assert isinstance(catalogue.manifest(published.reference), Image)


def test_an_image_is_published_with_its_layers(author: Author, catalogue: Catalogue) -> None:
    text, files = image(layers=BASE)
    text = text.replace("  - {path: layers/base.tar, role: layer, source: base.tar}\n", "")
    refused(author(text, files), catalogue, "no file with the role layer has the digest", "platforms[0].layers[0]")


FINISHED = f"""\
schema: 1
kind: image
name: vendor/onnxruntime
version: 1.0.0
license: various
provides: {{framework: onnxruntime, version: 1.31.1}}
platforms:
  - {{os: linux, arch: amd64, device: cpu, python: "3.12", reference: "example.org/ort@{digest_bytes(b"manifest")}"}}
"""


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (b'{"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": []}}', None),
        (None, None),  # nobody could be asked
        (b'{"architecture": "arm64", "os": "linux", "rootfs": {"diff_ids": []}}', "is built for arm64, not amd64"),
        (b'{"architecture": "amd64", "os": "windows", "rootfs": {"diff_ids": []}}', "is built for windows, not linux"),
        (b"{}", "invalid image configuration"),
    ],
)
def test_a_finished_image_is_made_for_what_its_manifest_says(
    author: Author, catalogue: Catalogue, found: bytes | None, message: str | None
) -> None:
    draft = replace(author(FINISHED, {}), ask=lambda *_asked: found)
    if message:
        refused(draft, catalogue, message, "platforms[0]")
    else:
        assert publish(draft, MemoryStore(), catalogue).changed


@pytest.fixture
def server() -> Iterator[str]:
    """A server of this machine that answers a graph whatever is asked."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(GRAPH)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/net.onnx"
        running.shutdown()
        thread.join()


def test_a_remote_file_is_verified_and_kept(
    author: Author, store: LocalStore, catalogue: Catalogue, server: str
) -> None:
    remote = MODEL.replace("./net.onnx", f'"{server}", sha256: "{to_hex(digest_bytes(GRAPH))}"')
    published = publish(replace(author(remote), access=LOOPBACK), store, catalogue)
    assert published.changed
    assert catalogue.provenance(NET).sources == {"net.onnx": server}
    local = publish(author(MODEL, {"net.onnx": GRAPH}), store, catalogue)
    assert (local.digest, local.changed) == (published.digest, False)


def test_what_a_rehearsal_fetched_is_not_fetched_again(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    with serving(tls=False) as web:
        web.pages["/net.onnx"] = File(GRAPH)
        remote = MODEL.replace("./net.onnx", f'"{web.origin}/net.onnx", sha256: "{to_hex(digest_bytes(GRAPH))}"')
        draft = replace(author(remote), access=LOOPBACK)
        rehearsed = dry_run_publish(draft, catalogue, store)
        assert (catalogue.list(), list(store.list())) == ((), [digest_bytes(GRAPH)])
        assert (
            publish(draft, store, catalogue)
            == rehearsed
            == replace(dry_run_publish(draft, catalogue, store), changed=True)
        )
        assert len(web.asked) == 1


def test_a_remote_file_with_other_bytes_is_refused(author: Author, catalogue: Catalogue, server: str) -> None:
    remote = MODEL.replace("./net.onnx", f'"{server}", sha256: "{to_hex(digest_bytes(b"x"))}"')
    with pytest.raises(IntegrityError, match=r"net\.onnx"):
        publish(replace(author(remote), access=LOOPBACK), MemoryStore(), catalogue)


PUBLISH = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import open_engine
from benchlock.registry.publishing.publication import Draft, publish
from tests.support.registry.authored import read_authored
from tests.support.registry.graphs import ANOTHER_GRAPH, GRAPH
root, path = Path(sys.argv[1]), Path(sys.argv[2])
text = path.read_text()
draft = Draft(read_authored(text, path.name), text, path)
print("ready", flush=True)
publish(draft, LocalStore(root / "blobs"), Catalogue(open_engine(root / "registry.db"), lambda: datetime.now(UTC)))
"""


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.05, 0.1])
def test_a_killed_publication_leaves_nothing_visible_and_can_be_repeated(
    author: Author, store: LocalStore, catalogue: Catalogue, tmp_path: Path, delay: float
) -> None:
    files = {f"images/{number}.png": os.urandom(1 << 14) for number in range(200)}
    draft = author(DATASET, PICTURES | files)
    process = subprocess.Popen(
        [sys.executable, "-c", PUBLISH, tmp_path, draft.path], cwd=Path(__file__).parents[3], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    threading.Event().wait(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    for digest in store.list():
        verify(store, digest, name=digest)
    assert len(catalogue.list()) in (0, 1)
    publish(draft, store, catalogue)
    assert not publish(draft, store, catalogue).changed
    assert set(catalogue.live_digests()) <= set(store.list())
