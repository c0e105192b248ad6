"""Who answers: benchlock, MLflow's tracking server, Debian's docker-registry, a bare route; each in one process.

Each is filled with as many versions before it starts: benchlock through its own tables, MLflow through those that its
own migrations made, in SQLite both.
"""

import hashlib
import json
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks.resolving.documents import request as request_of
from benchmarks.resolving.filling import fill
from benchmarks.resolving.universes import Universe, version
from benchmarks.transferring.peers import Mlflow, Oras, Served

Requests = dict[str, list[str]]
"""What is asked, by what it is: lines that ``load`` takes."""

BENCHLOCK = Path(sys.executable).parent / "benchlock"
BARE = Path(__file__).with_name("bare.py")
_PER_NAME, _BLOCK, _ASKED = 100, 1000, 2000


class Answering(Served):
    """A server on the loopback, filled before it starts. ``versions`` are how many it holds."""

    title = ""

    def __init__(self, folder: Path, versions: int) -> None:
        self.versions = versions
        self._folder = folder
        folder.mkdir(parents=True)
        self.fill()
        start = time.monotonic()
        super().__init__(folder)
        self.started_in = time.monotonic() - start

    def fill(self) -> None:
        """Put the versions where the server finds them."""

    def requests(self) -> Requests:
        """What it can be asked."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def memory(self) -> int:
        """Bytes that its processes hold at most, those of shared pages divided among them."""
        total = 0
        for pid in _family(self._server.pid):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        return total


class Benchlock(Answering):
    """`benchlock serve` over a registry in a folder."""

    title = "benchlock"

    def fill(self) -> None:
        self._universe = Universe(self.versions // _BLOCK)
        fill(self._universe, self._folder / "registry")

    def server(self) -> Sequence[str | Path]:
        return [BENCHLOCK, "--registry", self._folder / "registry", "serve", "--open", "--port", str(self._port)]

    def answers_at(self) -> str:
        return "/v1/health"

    def requests(self) -> Requests:
        names = [(kind, name) for kind in ("model", "dataset", "framework") for name in self._universe.names(kind)]
        reads = [
            f"GET /v1/artifacts/{kind}/{name}@{version(number)}"
            for kind, name in names
            for number in range(0, _PER_NAME, max(1, len(names) * _PER_NAME // _ASKED))
        ]
        easy = request_of(self._universe.asks()[0], 7)
        return {
            "register": [f"POST /v1/artifacts {_compact(_publication())}"],
            "read one version": reads,
            "list a page": [
                f"GET /v1/artifacts?kind=model&name={name}&limit=100" for name in self._universe.names("model")
            ],
            "resolve": [f"POST /v1/resolve {_compact({'request': easy})}"],
        }


class MlflowTracking(Answering, Mlflow):
    """MLflow's tracking server with one worker, whose registry is in SQLite."""

    title = "mlflow"

    def fill(self) -> None:
        """Its own migrations make the tables, in a start that does not count; then the rows are written."""
        (self._folder / "first").mkdir()
        first = _FirstStart(self._folder / "first")
        first.close_keeping(self._folder / "mlflow.db")
        names = self.versions // _PER_NAME
        with sqlite3.connect(self._folder / "mlflow.db") as database:
            models = [(f"model-{name}", 0, 0, None, "default") for name in range(names)]
            _insert(database, "registered_models", models, "name creation_time last_updated_time description workspace")
            rows = [
                (f"model-{name}", number + 1, 0, 0, None, None, "None", "s3://bucket/model", None, "READY", "default")
                for name in range(names)
                for number in range(_PER_NAME)
            ]
            columns = "name version creation_time last_updated_time description user_id current_stage source run_id"
            _insert(database, "model_versions", rows, f"{columns} status workspace")

    def requests(self) -> Requests:
        names = range(self.versions // _PER_NAME)
        root = "/api/2.0/mlflow"
        reads = [
            f"GET {root}/model-versions/get?name=model-{name}&version={number}"
            for name in names
            for number in range(1, _PER_NAME + 1, max(1, self.versions // _ASKED))
        ]
        new = _compact({"name": "model-0", "source": "s3://bucket/model"})
        filters = [f"name%3D%27model-{name}%27" for name in names]
        return {
            "register": [f"POST {root}/model-versions/create {new}"],
            "read one version": reads,
            "list a page": [f"GET {root}/model-versions/search?filter={one}&max_results=100" for one in filters],
        }


class _FirstStart(Mlflow):
    """An MLflow that only makes its database."""

    def close_keeping(self, target: Path) -> None:
        self._server.terminate()
        self._server.wait()
        with sqlite3.connect(self._folder / "mlflow.db") as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (self._folder / "mlflow.db").rename(target)


class Manifests(Answering, Oras):
    """Debian's docker-registry, asked for manifests."""

    title = "docker-registry"

    def requests(self) -> Requests:
        digest = self._pushed()
        return {
            "read one version": [f"GET /v2/manifests/manifests/{digest}"],
            "list a page": ["GET /v2/manifests/tags/list?n=100"],
        }

    def _pushed(self) -> str:
        """The digest of a manifest as large as a model's, of one blob; a hundred tags name it."""
        blob = b"{}"
        location = self._send("POST", "/v2/manifests/blobs/uploads/", b"")
        between = "&" if "?" in location else "?"
        self._send("PUT", f"{location}{between}digest={_digest(blob)}", blob)
        described = {"mediaType": "application/octet-stream", "digest": _digest(blob), "size": len(blob)}
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = {"schemaVersion": 2, "mediaType": kind, "config": described, "layers": [described] * 4}
        for number in range(_PER_NAME):
            self._send("PUT", f"/v2/manifests/manifests/{version(number)}", _compact(manifest).encode(), kind)
        return _digest(_compact(manifest).encode())

    def _send(self, method: str, path: str, body: bytes, kind: str = "application/octet-stream") -> str:
        url = path if path.startswith("http") else f"{self.url}{path}"
        asked = Request(url, body, {"Content-Type": kind}, method=method)  # noqa: S310 - ours
        with urlopen(asked, timeout=30) as answer:  # noqa: S310 - ours
            return str(answer.headers.get("Location", ""))


class Bare(Answering):
    """A route that does nothing."""

    title = "a bare route"

    def server(self) -> Sequence[str | Path]:
        return [sys.executable, BARE, str(self._port)]

    def answers_at(self) -> str:
        return "/v1/artifacts/model/steady-0"

    def requests(self) -> Requests:
        return {"read one version": ["GET /v1/artifacts/model/steady-0@1.0.0"]}


def _publication() -> dict[str, object]:
    manifest = {
        "schema": 1,
        "kind": "framework",
        "name": "registered",
        "version": "1.0.{n}",
        "license": "MIT",
        "predictor": "onnxruntime",
        "distributions": ["onnxruntime"],
    }
    return {"manifest": manifest, "authored": "", "sources": {}, "dry_run": False}


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _insert(database: sqlite3.Connection, table: str, rows: Sequence[tuple[object, ...]], columns: str) -> None:
    """The rows, of those columns that the table has in this release."""
    there = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
    kept = [place for place, name in enumerate(columns.split()) if name in there]
    names = ", ".join(columns.split()[place] for place in kept)
    marks = ", ".join("?" for _ in kept)
    statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - names of its own
    database.executemany(statement, [tuple(row[place] for place in kept) for row in rows])


def _family(pid: int) -> list[int]:
    """A process and all that it started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _family(int(child))
    return found
