"""Publishing from the Hub, a DVC repository and a server, as an author does it: real commands, real counterparts."""

import random
import re
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.digest import digest_bytes, to_hex
from tests.support.api.commands import Commands
from tests.support.api.warm import Warm
from tests.support.artifacts.repository import DvcRepository
from tests.support.registry import graphs
from tests.support.servers.hub import HubServer, serving_hub
from tests.support.servers.web import CERTIFICATE, File, Web, redirect, serving, status

WEIGHTS = random.Random(10).randbytes(8_000_000)
MANIFEST = """\
schema: 1
kind: dataset
name: digits
version: {version}
license: MIT
format: idx
splits: {{test: {{images: images.idx, labels: labels.idx, samples: 1}}}}
files:
  - {{path: images.idx, source: images.idx}}
  - {{path: labels.idx, source: labels.idx}}
{files}
"""
LOCAL = {"images.idx": "images.idx", "labels.idx": "labels.idx"}


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with serving_hub() as running:
        running.repo.lfs = frozenset({"net.onnx"})
        running.repo.commit("main", net_onnx=WEIGHTS, labels_txt=b"cat\n")
        yield running


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as running:
        running.pages["/net.onnx"] = File(WEIGHTS)
        yield running


@pytest.fixture
def desk(tmp_path: Path, hub: HubServer) -> Commands:
    variables = {"HF_ENDPOINT": hub.web.origin, "SSL_CERT_FILE": str(CERTIFICATE), "NO_PROXY": "localhost"}
    return Warm(tmp_path / "registry", variables=variables)


def manifest(folder: Path, *files: tuple[str, str, bytes], version: str = "1.0.0") -> Path:
    rows = [
        f'  - {{path: {path}, source: "{source}", sha256: {to_hex(digest_bytes(content))}}}'
        for path, source, content in files
    ]
    (folder / "images.idx").write_bytes(struct.pack(">HBB3I", 0, 8, 3, 1, 2, 2) + bytes(4))
    (folder / "labels.idx").write_bytes(struct.pack(">HBBI", 0, 8, 1, 1) + bytes(1))
    target = folder / "manifest.yaml"
    target.write_text(MANIFEST.format(version=version, files="\n".join(rows)))
    return target


def sources(desk: Commands, version: str = "1.0.0") -> dict[str, str]:
    found: dict[str, str] = desk.done("show", f"dataset/digits@{version}")["sources"]
    return found


def test_one_publication_from_everywhere(desk: Commands, hub: HubServer, web: Web, tmp_path: Path) -> None:
    repository = DvcRepository(tmp_path / "dvc")
    repository.commit({"net.onnx": WEIGHTS[:1000]})
    repository.forget()
    files = (
        ("a.onnx", "hf://org/net@main/net.onnx", WEIGHTS),
        ("labels.txt", "hf://org/net@main/labels.txt", b"cat\n"),
        ("b.onnx", "dvc://./dvc/repo@main/net.onnx", WEIGHTS[:1000]),
        ("c.onnx", f"{web.origin}/net.onnx", WEIGHTS),
    )
    desk.done("publish", manifest(tmp_path, *files))
    commit, revision = hub.repo.revisions["main"], repository.git("rev-parse", "main")
    assert sources(desk) == LOCAL | {
        "a.onnx": f"hf://org/net@{commit}/net.onnx",
        "labels.txt": f"hf://org/net@{commit}/labels.txt",
        "b.onnx": f"dvc://./dvc/repo@{revision}/net.onnx",
        "c.onnx": f"{web.origin}/net.onnx",
    }
    assert web.asked == []  # the same bytes came from the Hub
    assert desk.done("verify")["damaged"] == []
    # And again without any of them, by commit, under another version.
    hub.web.otherwise = status(503)
    asked = len(hub.web.asked)
    again = tuple((path, sources(desk)[path], content) for path, _, content in files)
    desk.done("publish", manifest(tmp_path, *again, version="1.0.1"))
    assert len(hub.web.asked) == asked
    assert sources(desk, "1.0.1") == sources(desk)


def test_a_model_of_the_hub_is_outlined_and_published_without_a_second_download(
    desk: Commands, hub: HubServer, tmp_path: Path
) -> None:
    graph = graphs.graph()
    hub.repo.lfs = frozenset({"net.onnx"})
    commit = hub.repo.commit("v1", net_onnx=graph, config_json=b'{"architectures": ["ResNetForImageClassification"]}')
    desk.done("db", "create")
    target = tmp_path / "net.yaml"
    outlined = desk.done("init", "model", "hf:org/net@v1", "-o", target)
    assert (outlined["manifest"], outlined["files"]) == (str(target), [])
    asked = len(hub.storage.asked)
    assert asked
    answers = {
        "license": "license: MIT",
        "steps": "steps: [{decode: {color: L, exif: ignore}}, {cast: {dtype: float32}}]",
        "label_offset": "label_offset: 0",
    }
    lines = [
        re.sub(r"# TODO (\w+): .*", lambda todo: answers[todo[1]], line) for line in target.read_text().splitlines()
    ]
    target.write_text("\n".join(lines))
    desk.done("publish", target)
    assert len(hub.storage.asked) == asked
    shown = desk.done("show", "model/net@1.0.0")
    assert shown["sources"] == {"net.onnx": f"hf://org/net@{commit}/net.onnx"}
    assert shown["manifest"]["task"] == "image-classification"
    error = desk.error(2, "init", "dataset", "hf:org/net@v1", "-o", tmp_path / "other.yaml")
    assert error["message"] == "hf:org/net@v1 is a model on the Hub, not a dataset"


def test_a_damaged_blob_is_repaired_from_its_source(desk: Commands, tmp_path: Path, hub: HubServer) -> None:
    path = manifest(tmp_path, ("net.onnx", f"hf://org/net@{hub.repo.revisions['main']}/net.onnx", WEIGHTS))
    desk.done("publish", path)
    digest = to_hex(digest_bytes(WEIGHTS))
    blob = desk.registry / "blobs" / "sha256" / digest[:2] / digest
    blob.chmod(0o644)
    blob.write_bytes(WEIGHTS[:-1] + b"?")
    assert desk.call("verify").code == 4
    desk.done("publish", path)
    assert desk.done("verify")["damaged"] == []


def refused(desk: Commands, code: int, path: Path) -> dict[str, Any]:
    error = desk.error(code, "publish", path)
    assert "secret" not in str(error)
    assert desk.done("list")["artifacts"] == []
    return error


def test_exit_codes(desk: Commands, hub: HubServer, web: Web, tmp_path: Path) -> None:
    desk.variables["HF_TOKEN"] = "hf_secret"
    refused(desk, 2, manifest(tmp_path, ("x", "hf://org/net@v9/net.onnx", WEIGHTS)))
    refused(desk, 2, manifest(tmp_path, ("x", "hf://org/other@main/net.onnx", WEIGHTS)))
    refused(desk, 2, manifest(tmp_path, ("x", "https://user:secret@localhost/x", WEIGHTS)))
    web.pages["/private"] = redirect("https://169.254.169.254/latest?token=secret")
    error = refused(desk, 2, manifest(tmp_path, ("x", f"{web.origin}/private?token=secret", WEIGHTS)))
    assert "169.254.169.254, which is not public" in error["message"]
    refused(desk, 5, manifest(tmp_path, ("x", f"{web.origin}/missing", WEIGHTS)))
    refused(desk, 2, manifest(tmp_path, ("x", f"dvc://{tmp_path}/nothing@main/x", WEIGHTS)))
    hub.storage.pages[f"/lfs/{to_hex(digest_bytes(WEIGHTS))}"] = File(WEIGHTS[:-1] + b"?")
    error = refused(desk, 4, manifest(tmp_path, ("net.onnx", "hf://org/net@main/net.onnx", WEIGHTS)))
    assert "net.onnx does not match its digest" in error["message"]
    hub.web.otherwise = status(500)
    refused(desk, 5, manifest(tmp_path, ("x", "hf://org/net@main/net.onnx", WEIGHTS)))


def test_a_killed_publication_goes_on_where_it_was(desk: Commands, hub: HubServer, tmp_path: Path) -> None:
    stored = hub.storage.pages[f"/lfs/{to_hex(digest_bytes(WEIGHTS))}"] = File(WEIGHTS, pause=0.05)
    path = manifest(tmp_path, ("net.onnx", "hf://org/net@main/net.onnx", WEIGHTS))
    process = subprocess.Popen(desk.command("publish", path), env=desk.environment(), stdout=subprocess.DEVNULL)
    incoming = desk.registry / "blobs" / "incoming"
    while not any(part.stat().st_size > 4_000_000 for part in incoming.glob("*.part")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stored.pause = 0
    assert desk.done("list")["artifacts"] == []
    desk.done("publish", path)
    assert hub.storage.asked[-1].sent < 4_000_000
    assert desk.done("verify")["damaged"] == []
    assert list(incoming.iterdir()) == []
