"""A registry that has something of everything, and for each operation of its service a question that succeeds."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import msgspec
import requests
from litestar.testing import TestClient
from msgspec.structs import replace

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.pagination_cursors import encode_cursor
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.records.run_types import new_run_id
from benchlock.evaluator.workflows.bundles import create_bundle
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.lock.lockfile import dataset_of, dump
from benchlock.registry.manifests import plain
from benchlock.registry.requests.evaluation_request import parse_request, read_request
from benchlock.registry.requests.request_form import read_document
from tests.support.evaluator.evidence import IDX, make_run
from tests.support.evaluator.queues import BOOT, facts
from tests.support.evaluator.recorded import recorded
from tests.support.registry.frameworks import framework
from tests.support.resolution.locks import REQUEST
from tests.support.resolution.variants import variant

FILE: Final = b"what a run left"
ASKED: Final = read_request(REQUEST, "request.yaml").document


@dataclass(frozen=True)
class Question:
    """What is asked of an operation: its parameters by name, and its body."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


CANCELLED: Final[dict[str, Any]] = {
    "outcome": "cancelled",
    "metrics": [],
    "packages": {},
    "blobs": {},
    "timings": {},
    "details": {},
}


class Questions:
    """By an operation, as ``METHOD /path``, what makes a question that has a success for an answer.

    What a success uses up is made anew each time: an upload, a token, a run that goes on.
    """

    def __init__(self, registry: LocalRegistry, client: requests.Session | TestClient[Any]) -> None:
        self._registry, self._client = registry, client
        self._seconds = count()
        self._open_upload = "0" * 32
        self._publish()
        self._done, self._again = self._ended_run(), self._ended_run()
        self._ended_job = self._job()
        self._asked("DELETE", f"/v1/jobs/{_tail(self._ended_job)}")
        self._machines = count(2)
        self._enrol("m1")
        self.by_operation: Mapping[str, Callable[[], Question]] = {
            **self._of_artifacts(),
            **self._of_locks(),
            **self._of_runs(),
            **self._of_pages(),
            **self._of_blobs(),
            **self._of_jobs(),
            **self._of_workers(),
            **self._of_administrators(),
        }

    def _publish(self) -> None:
        catalogue, store, home = self._registry.catalogue, self._registry.store, self._registry.home
        for version in ("1.0.0", "1.1.0"):
            variant({"model": {"version": version}, "files": IDX}).publish(catalogue, store)
        catalogue.yank(parse_reference("model/digits@1.1.0"), "wrong labels")
        self._lock = EmbeddedRegistry(self._registry).lock(parse_request(ASKED, "request"), {}).lock
        self._file = store.put(io.BytesIO(FILE))
        create_bundle(home / "a.bundle", self._lock, None, store, SILENT)
        self._bundle = store.put_file(home / "a.bundle")

    def _asked(self, method: str, path: str, body: Any = None, **more: Any) -> Any:  # noqa: ANN401 - JSON values
        answer = self._client.request(method, path, json=body, **more)
        assert answer.status_code < 300, (method, path, answer.text)
        return answer.json() if answer.content else dict(answer.headers)

    def _start(self) -> dict[str, Any]:
        platform = self._lock.image.platforms[0]
        at = datetime.now(UTC) - timedelta(hours=1) + timedelta(milliseconds=next(self._seconds))
        start = replace(
            recorded(lock=self._lock.id, isolation="process").start,
            id=new_run_id(at),
            started_at=at,
            image_id=None,
            platform={name: getattr(platform, name) for name in ("os", "arch", "device", "python")},
        )
        return dict(msgspec.to_builtins(start))

    def _end(self) -> dict[str, Any]:
        end = make_run(self._lock, self._registry.store).end
        assert end is not None
        return dict(msgspec.to_builtins(replace(end, ended_at=datetime.now(UTC))))

    def _begun_run(self) -> str:
        start = self._start()
        self._asked("POST", "/v1/runs", start)
        return str(start["id"])

    def _ended_run(self) -> str:
        run = self._begun_run()
        self._asked("PUT", f"/v1/runs/{_tail(run)}/end", self._end())
        return run

    def _upload(self, content: bytes = b"") -> str:
        """An upload that goes on; the one before is given up, since there may be so many and no more."""
        self._client.delete(f"/v1/blobs/uploads/{self._open_upload}")
        begun = self._asked("POST", "/v1/blobs/uploads")
        upload = self._open_upload = str(begun["location"].rpartition("/")[2])
        if content:
            sent: Any = {"data" if isinstance(self._client, requests.Session) else "content": content}
            self._asked("PATCH", f"/v1/blobs/uploads/{upload}", **sent)
        return upload

    def _token(self) -> str:
        made = self._asked("POST", "/v1/tokens", {"name": "a-token", "scopes": ["read"]})
        return _tail(made["token"]["id"])

    def _job(self) -> str:
        return str(self._asked("POST", "/v1/jobs", {"lock": self._lock.id, "isolation": "container"})["job"])

    def _comparison(self) -> dict[str, Any]:
        """Two locks to run in turn, on a machine of their own that asks for no work."""
        same = ASKED | {"model": {"name": "digits", "version": "1.0.0"}}
        other = EmbeddedRegistry(self._registry).lock(parse_request(same, "request"), {}).lock
        return {"locks": [self._lock.id, other.id], "machine": self._enrol(f"m{next(self._machines)}"), "rounds": 3}

    def _queued_comparison(self) -> dict[str, str]:
        return {"comparison": self._asked("POST", "/v1/comparisons/interleaved", self._comparison())["comparison"]}

    def _matrix(self) -> dict[str, Any]:
        shared = {key: value for key, value in ASKED.items() if key not in ("schema", "kind", "name", "model")}
        axes = {"model": {"one": ASKED["model"], "other": {"name": "digits", "version": "1.0.0"}}}
        return {"schema": 1, "kind": "matrix", "name": "digits", "request": shared, "axes": axes, "seed": 7}

    def _submitted_matrix(self) -> dict[str, str]:
        return {"matrix_id": self._asked("POST", "/v1/matrices", {"matrix": self._matrix()})["matrix"]}

    def _enrol(self, name: str) -> str:
        self._asked("PUT", f"/v1/machines/{name}", {"boot": BOOT, "facts": facts().document()})
        return name

    def _lease(self, *, begun: bool = False) -> tuple[str, str]:
        """The fence of a lease of a machine of its own, and the run that it began."""
        name = self._enrol(f"m{next(self._machines)}")
        self._job()
        fence = str(self._asked("POST", "/v1/leases", {"machine": name, "boot": BOOT})["lease"]["fence"])
        start = self._start() | {"isolation": "container", "image_id": self._lock.image.platforms[0].image_id}
        if begun:
            self._asked("POST", f"/v1/leases/{fence}/run", start)
        return fence, start["id"]

    def _of_artifacts(self) -> dict[str, Callable[[], Question]]:
        manifest = plain(framework("acme/ort", "1.0.0"))
        publication = {
            "manifest": manifest,
            "authored": "",
            "sources": {},
            "digest": digest_bytes(encode_canonical(manifest)),
        }
        listing = {"kind": "model", "name": "digits", "limit": "1", "cursor": encode_cursor(("model", "a", "1.0.0"))}
        yank = {"target": "model/digits@1.1.0", "reason": "wrong labels", "undo": False}
        return {
            "GET /v1/artifacts": lambda: Question(query=listing),
            "POST /v1/artifacts": lambda: Question(body=publication),
            "GET /v1/artifacts/{kind}/{name}": lambda: Question({"kind": "model", "name": "digits@1.0.0"}),
            "POST /v1/yanks": lambda: Question(body=yank),
        }

    def _of_locks(self) -> dict[str, Callable[[], Question]]:
        text, known = dump(self._lock), [{"kind": "model", "name": "digits", "version": "1.0.0"}]
        return {
            "POST /v1/resolve": lambda: Question(body={"request": ASKED, "preferences": known}),
            "POST /v1/locks": lambda: Question(body={"request": ASKED, "preferences": known}),
            "GET /v1/locks/{lock_id}": lambda: Question({"lock_id": self._lock.id}),
            "POST /v1/locks/check": lambda: Question(body={"lock": self._lock.id, "request": ASKED}),
            "POST /v1/locks/why": lambda: Question(body={"lock": text, "target": "framework/onnxruntime"}),
            "POST /v1/locks/diff": lambda: Question(body={"before": self._lock.id, "after": text}),
        }

    def _of_runs(self) -> dict[str, Callable[[], Question]]:
        listing = {"lock": self._lock.id, "outcome": "done", "limit": "1", "cursor": encode_cursor((self._again,))}
        return {
            "GET /v1/runs": lambda: Question(query=listing),
            "POST /v1/runs": lambda: Question(body=self._start()),
            "GET /v1/runs/count": lambda: Question(query={"lock": self._lock.id}),
            "GET /v1/runs/{run_id}": lambda: Question({"run_id": _tail(self._done)}),
            "PUT /v1/runs/{run_id}/hold": lambda: Question({"run_id": _tail(self._begun_run())}),
            "PUT /v1/runs/{run_id}/end": lambda: Question({"run_id": _tail(self._begun_run())}, body=self._end()),
            "POST /v1/hidings": lambda: Question(body={"target": self._again, "reason": "", "undo": True}),
            "POST /v1/comparisons": lambda: Question(body={"runs": [self._done, self._again]}),
            "POST /v1/verdicts": lambda: Question(body={"run": self._again, "against": self._done}),
        }

    def _of_pages(self) -> dict[str, Callable[[], Question]]:
        dataset = dataset_of(self._lock)
        board = {"dataset": f"{dataset.name}@{dataset.version}", "split": dataset.split}
        form = read_document(ASKED, "onnxruntime").as_parameters()
        return {
            "GET /v1/locks/diff": lambda: Question(query={"before": self._lock.id, "after": self._lock.id[:20]}),
            "GET /v1/comparisons": lambda: Question(query={"run": self._done, "anyway": "1"}),
            "GET /v1/runs/{run_id}/samples": lambda: Question({"run_id": _tail(self._done)}),
            "GET /v1/used-by": lambda: Question(query={"target": "model/digits@1.0.0"}),
            "GET /v1/leaderboards": lambda: Question(query=board),
            "GET /v1/requests/preview": lambda: Question(query=form),
        }

    def _of_blobs(self) -> dict[str, Callable[[], Question]]:
        digest, part = self._file.digest, {"Content-Range": f"0-{len(FILE) - 1}"}
        read = Question({"digest": digest}, headers={"Range": "bytes=0-3", "If-Range": f'"{digest}"'})
        return {
            "GET /v1/blobs/{digest}": lambda: read,
            "HEAD /v1/blobs/{digest}": lambda: read,
            "POST /v1/blobs/uploads": lambda: Question(query={"digest": digest}, body=FILE),
            "GET /v1/blobs/uploads/{upload}": lambda: Question({"upload": self._upload()}),
            "DELETE /v1/blobs/uploads/{upload}": lambda: Question({"upload": self._upload()}),
            "PATCH /v1/blobs/uploads/{upload}": lambda: Question({"upload": self._upload()}, headers=part, body=FILE),
            "PUT /v1/blobs/uploads/{upload}": lambda: Question(
                {"upload": self._upload(FILE)}, {"digest": digest}, body=b""
            ),
        }

    def _of_jobs(self) -> dict[str, Callable[[], Question]]:
        over = {"job_id": _tail(self._ended_job)}
        listing = {"state": "cancelled", "limit": "1", "cursor": encode_cursor((self._ended_job,))}
        return {
            "GET /v1/jobs": lambda: Question(query=listing),
            "POST /v1/jobs": lambda: Question(body={"request": ASKED, "isolation": "container", "allow_code": True}),
            "GET /v1/jobs/{job_id}": lambda: Question(over),
            "DELETE /v1/jobs/{job_id}": lambda: Question({"job_id": _tail(self._job())}),
            "GET /v1/jobs/{job_id}/explanation": lambda: Question(over),
            "GET /v1/jobs/{job_id}/events": lambda: Question(over),
            "POST /v1/comparisons/interleaved": lambda: Question(body=self._comparison()),
            "GET /v1/comparisons/interleaved/{comparison}": lambda: Question(self._queued_comparison()),
            "POST /v1/matrices": lambda: Question(body={"matrix": self._matrix()}),
            "GET /v1/matrices/{matrix_id}": lambda: Question(self._submitted_matrix()),
            "GET /v1/matrices/{matrix_id}/table": lambda: Question(self._submitted_matrix()),
            "POST /v1/matrices/{matrix_id}/cancel": lambda: Question(self._submitted_matrix()),
        }

    def _of_workers(self) -> dict[str, Callable[[], Question]]:
        enrolment = {"boot": BOOT, "facts": facts().document()}
        release = {"ended": "returned", "reason": "asked to end"}

        def committed() -> Question:
            fence, run = self._lease(begun=True)
            return Question({"fence": fence}, body={"run": run, "end": self._end() | CANCELLED})

        def shared() -> Question:  # of a token that has no jobs, so that no job waits for its quota
            return Question(body={"owner": f"token/{self._token()}", "weight": 2.5, "max_running": 8})

        def begun() -> Question:
            fence, _ = self._lease()
            start = self._start() | {"isolation": "container", "image_id": self._lock.image.platforms[0].image_id}
            return Question({"fence": fence}, body=start)

        return {
            "GET /v1/queue/shares": Question,
            "PATCH /v1/queue/shares": shared,
            "GET /v1/machines": lambda: Question(query={"limit": "1", "cursor": encode_cursor(("m1",))}),
            "PUT /v1/machines/{name}": lambda: Question({"name": "m1"}, body=enrolment),
            "POST /v1/machines/{name}/departure": lambda: Question({"name": "m1"}),
            "GET /v1/machines/{name}/work": lambda: Question({"name": "m1"}, query={"wait": "0"}),
            "PATCH /v1/machines/{name}": lambda: Question({"name": "m1"}, body={"draining": "its owner wants it"}),
            "POST /v1/leases": lambda: Question(body={"machine": "m1", "boot": BOOT, "nonce": "a-word", "wait": 0}),
            "GET /v1/leases/{fence}": lambda: Question({"fence": self._lease()[0]}),
            "PATCH /v1/leases/{fence}": lambda: Question({"fence": self._lease()[0]}, body={"phase": "measuring"}),
            "POST /v1/leases/{fence}/progress": lambda: Question(
                {"fence": self._lease()[0]}, body={"lines": [{"number": 1, "task": "golden", "done": 3, "total": 8}]}
            ),
            "POST /v1/leases/{fence}/release": lambda: Question({"fence": self._lease()[0]}, body=release),
            "POST /v1/leases/{fence}/run": begun,
            "PUT /v1/leases/{fence}/run": committed,
        }

    def _of_administrators(self) -> dict[str, Callable[[], Question]]:
        token = {"name": "ci", "scopes": ["publish:acme", "run"], "expires": "30d"}
        return {
            "POST /v1/bundles": lambda: Question(body={"blob": self._bundle.digest}),
            "POST /v1/verifications": lambda: Question(
                body={"targets": ["model/digits", self._lock.id, self._done], "remote": False}
            ),
            "POST /v1/collections": lambda: Question(body={"dry_run": True, "local": False}),
            "GET /v1/tokens": lambda: Question(query={"limit": "1"}),
            "POST /v1/tokens": lambda: Question(body=token),
            "POST /v1/tokens/{token}/rotation": lambda: Question({"token": self._token()}, body={"grace": "0"}),
            "DELETE /v1/tokens/{token}": lambda: Question({"token": self._token()}),
            "GET /v1/log": lambda: Question(query={"limit": "1", "actor": "open"}),
        }


def _tail(text: str) -> str:
    return text.partition("/")[2]
