"""A client that a generator makes from the OpenAPI document walks the way that a tutorial prints, by a real server."""

import hashlib
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.api.commands import BENCHLOCK, Commands, copied
from tests.support.api.serving import service
from tests.support.registry.digits import DIGITS

pytestmark = pytest.mark.image

GRAPH = DIGITS / "models" / "digits.onnx"
PACKAGE = "generated_registry_client"
QUESTION = {
    "schema": 1,
    "kind": "evaluation",
    "name": "walk",
    "model": {"name": "acme/digits", "version": "^1.0"},
    "dataset": {"name": "digits", "version": "^1.0", "split": "test"},
    "hardware": {"os": "linux", "arch": "amd64", "device": "cpu"},
    "limits": {"time": "5m", "memory": "2GiB", "cpus": 1, "processes": 256},
    "scenario": {"name": "single_stream", "min_queries": 64, "min_duration": "100ms", "warmup": 4},
    "metrics": ["top1", "latency"],
    "seed": 7,
}


def manifest(digest: str, size: int) -> dict[str, Any]:
    steps = [
        {"decode": {"color": "L", "exif": "ignore"}},
        {"cast": {"dtype": "float32"}},
        {"scale": {"factor": 0.0625}},
        {"transpose": {"layout": "NCHW"}},
    ]
    image = {"name": "input", "type": "image", "dtype": "float32", "shape": [None, 1, 8, 8], "layout": "NCHW"}
    return {
        "schema": 1,
        "kind": "model",
        "name": "acme/digits",
        "version": "1.0.0",
        "license": "Apache-2.0",
        "task": "image-classification",
        "framework": {"name": "onnxruntime", "version": ">=1.20 <2"},
        "format": "onnx",
        "inputs": [image | {"steps": steps}],
        "outputs": [{"name": "scores", "type": "class-scores", "dtype": "float32", "label_offset": 0}],
        "files": [{"path": "digits.onnx", "role": "graph", "sha256": digest.removeprefix("sha256:"), "size": size}],
    }


def generate(document: bytes, folder: Path) -> None:
    """Generate the client of a document in ``folder``; a warning of the generator is an error."""
    path, config = folder / "openapi.json", folder / "config.yaml"
    path.write_bytes(document)
    config.write_text("post_hooks: []\n")  # nobody reads the code: it need not be formatted
    words = ["generate", "--path", path, "--output-path", folder / PACKAGE, "--config", config]
    words += ["--meta", "none", "--fail-on-warning"]
    done = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", *map(str, words)],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class Api:
    """The generated client of one server. An operation is called by its tag and id; its bodies have types."""

    client: Any

    def call(self, operation: str, *path: str, **arguments: Any) -> Any:  # noqa: ANN401 - a generated type
        """Call ``tag.operation_id``, which must succeed; the whole response, whose ``parsed`` is the body."""
        module = importlib.import_module(f"{PACKAGE}.api.{operation}")
        response = module.sync_detailed(*path, client=self.client, **arguments)
        assert response.status_code < 300, (operation, response)
        return response

    def body(self, name: str, document: dict[str, Any]) -> Any:  # noqa: ANN401 - a generated type
        return getattr(importlib.import_module(f"{PACKAGE}.models"), name).from_dict(document)

    def file(self, content: bytes) -> Any:  # noqa: ANN401 - a generated type
        return importlib.import_module(f"{PACKAGE}.types").File(payload=io.BytesIO(content))


@pytest.fixture
def registry(built_once: Commands, tmp_path: Path) -> Commands:
    commands = copied(built_once, tmp_path / "registry", "")
    commands.done("publish", DIGITS / "dataset.yaml")
    return commands


@pytest.fixture
def api(registry: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    made = registry.done("token", "create", "walk", "--scope", "publish:acme", "--scope", "run")
    with service(registry.registry, "--host", "127.0.0.1") as served:
        generate(httpx.get(f"{served.url}/v1/openapi.json").content, tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        package = importlib.import_module(PACKAGE)
        client = package.AuthenticatedClient(served.url, token=made["secret"], timeout=httpx.Timeout(300))
        yield Api(client)
        client.get_httpx_client().close()


@contextmanager
def worker(registry: Commands) -> Iterator[None]:
    """A worker of the registry that runs processes, for as long as the context is held."""
    environment = registry.environment() | {"BENCHLOCK_HOST_LOCK": str(registry.registry.with_name("host.lock"))}
    log = registry.registry.with_name("worker.log")
    with log.open("wb") as written:
        process = subprocess.Popen([str(BENCHLOCK), "worker", "--processes"], env=environment, stderr=written)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def test_a_generated_client_walks_through_the_api(api: Api, registry: Commands) -> None:
    assert api.call("health.read_readiness").parsed.status == "ok"
    digest = upload(api, GRAPH.read_bytes())
    publication = api.body("Publication", {"manifest": manifest(digest, GRAPH.stat().st_size)})
    published = api.call("artifacts.publish_version", body=publication).parsed
    lock = ask(api, digest, published.digest)
    first, second = measure(api, registry, lock)
    check_run(api, first)
    verdict = api.call("runs.judge_run", body=api.body("VerdictRequest", {"run": second, "against": first})).parsed
    assert (verdict.verdict, verdict.predictions) == ("reproduced", "bit-equal")


def upload(api: Api, content: bytes) -> str:
    """Send a blob in two pieces; its digest."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    location = api.call("blobs.begin_upload").headers["location"]
    name = location.rpartition("/")[2]
    piece = api.call("blobs.append_to_upload", name, body=api.file(content[:50000]))
    assert piece.headers["range"] == "0-49999"
    finished = api.call("blobs.finish_upload", name, body=api.file(content[50000:]), digest=digest)
    assert finished.headers["docker-content-digest"] == digest
    return digest


def ask(api: Api, blob: str, published: str) -> str:
    """Look at what is published and make a lock; its id."""
    page = api.call("artifacts.list_versions", namespace="acme", limit=10).parsed
    assert [entry.version for entry in page.artifacts] == ["1.0.0"]
    kind = importlib.import_module(f"{PACKAGE}.models").ReadVersionKind.MODEL
    version = api.call("artifacts.read_version", kind, "acme/digits@^1.0").parsed
    assert version.digest == published
    part = api.call("blobs.read_blob", blob, range_="bytes=4-10").parsed
    assert part.payload.read() == b"pytorch"
    resolved = api.call("locks.resolve_request", body=api.body("ResolveRequest", {"request": QUESTION})).parsed
    assert resolved.model.digest == published
    lock = api.call("locks.create_lock", body=api.body("LockRequest", {"request": QUESTION})).parsed.lock
    assert api.call("locks.read_lock", lock).parsed.lock == lock
    return str(lock)


def measure(api: Api, registry: Commands, lock: str) -> tuple[str, str]:
    """Leave two runs of the lock to a worker, and a third to nobody; the ids of the first two."""
    asked = api.body("JobSubmission", {"lock": lock})
    jobs = [api.call("jobs.submit_job", body=asked).parsed.job for _ in range(2)]
    assert all(job.startswith("job/") for job in jobs)
    assert api.call("jobs.explain_job", jobs[0]).parsed.blocked is True
    with worker(registry):
        for job in jobs:
            events = api.call("jobs.watch_job", job).content.decode()
            assert '"state":"done"' in events.splitlines()[-2], events
    first, second = (str(api.call("jobs.read_job", job).parsed.run) for job in jobs)
    left = api.call("jobs.submit_job", body=asked).parsed.job
    assert api.call("jobs.cancel_job", left).parsed.state == "cancelled"
    return first, second


def check_run(api: Api, run: str) -> None:
    """Read a run by the id that its job gave, and its predictions by their digest."""
    assert run.startswith("run/")
    end = api.call("runs.read_run", run).parsed.end
    values = {metric.name: metric.value for metric in end.metrics}
    assert values["top1"] == pytest.approx(0.9972144846796658)
    predictions = end.blobs.additional_properties["predictions"]
    content = api.call("blobs.read_blob", predictions.digest).content
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == predictions.digest
