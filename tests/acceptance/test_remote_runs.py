"""Runs of a registry on a server, by a token: measured on this machine or by a worker, the same as in a folder."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.support.api.commands import Commands, copied
from tests.support.api.serving import at, service, share_environments
from tests.support.registry.digits import DIGITS, model, request, written

pytestmark = [pytest.mark.engine, pytest.mark.image]

PROCESS = ("--isolation", "process")
SHORT: dict[str, Any] = {"scenario": {"name": "accuracy", "warmup": 0}, "metrics": ["top1"]}


@dataclass(frozen=True)
class Place:
    """A registry that commands reach, and the folder of this test's files of it."""

    commands: Commands
    folder: Path

    @property
    def lock(self) -> Path:
        return self.folder / "digits.lock"

    def run_files(self, run: str, name: str) -> dict[str, bytes]:
        """The files that were kept of a run, but for those that hold times."""
        self.commands.done("get", run, "-o", self.folder / name)
        return {"predictions": (self.folder / name / "predictions.safetensors").read_bytes()}


@dataclass(frozen=True)
class Desk:
    """The same registry in a folder and on a server, of which ``token`` may publish and run, and ``running`` run."""

    local: Place
    remote: Place
    url: str
    token: str
    running: str
    engine: str
    request: Path


@pytest.fixture(scope="module")
def desk(small_images: Commands, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    manifest = written(folder / "model.json", model("digits-onnx"))
    asked = written(folder / "request.json", request("digits-onnx") | SHORT)
    with ExitStack() as stack:
        made = {}
        for name in ("local", "served"):
            made[name] = copied(small_images, folder / name / "registry", small_images.engine)
        create = partial(made["served"].done, "token", "create")
        token = create("alice", "--scope", "publish:*", "--scope", "run")["secret"]
        running = create("farm", "--scope", "run")["secret"]
        served = stack.enter_context(service(made["served"].registry, "--host", "127.0.0.1"))
        remote = at(served.url, folder / "remote", engine=small_images.engine, BENCHLOCK_TOKEN=token)
        (folder / "remote").mkdir()
        share_environments(remote, small_images.registry)
        places = Place(made["local"], folder / "local"), Place(remote, folder / "remote")
        for place in places:
            place.commands.done("publish", DIGITS / "dataset.yaml", manifest)
            place.commands.done("lock", asked, "-o", place.lock)
        yield Desk(*places, served.url, token, running, small_images.engine, asked)


@pytest.fixture(scope="module")
def runs(desk: Desk) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a run of the lock says, in the folder and against the server."""
    local, remote = (place.commands.done("run", place.lock, *PROCESS) for place in (desk.local, desk.remote))
    return local, remote


def lasting(document: dict[str, Any]) -> dict[str, Any]:
    """What a run says but for what is another's in each: its id, its times, and how the machine was."""
    changing = {
        "run",
        "id",
        "started_at",
        "ended_at",
        "timings",
        "wall",
        "process",
        "host",
        "blobs",
        "details",
        "attempt",
    }
    parts = document | document["start"] | document["end"]
    return {name: value for name, value in parts.items() if name not in {*changing, "start", "end", "position"}}


def test_the_same_lock_gives_the_same_answer(desk: Desk, runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    local, remote = runs
    assert desk.local.lock.read_bytes() == desk.remote.lock.read_bytes()
    assert lasting(local) == lasting(remote)
    assert (remote["end"]["outcome"], remote["start"]["isolation"]) == ("done", "process")
    files = [place.run_files(found["run"], "got") for place, found in zip((desk.local, desk.remote), runs, strict=True)]
    assert files[0] == files[1]


def test_it_is_shown_and_compared_from_the_server(desk: Desk, runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    shown = [
        place.commands.done("show", one["run"]) for place, one in zip((desk.local, desk.remote), runs, strict=True)
    ]
    assert lasting(shown[0]) == lasting(shown[1])
    assert shown[0].keys() == shown[1].keys()
    assert set(shown[0]["end"]["blobs"]) == set(shown[1]["end"]["blobs"])
    why = [one.commands.done("why", "model/digits-onnx", one.lock) for one in (desk.local, desk.remote)]
    assert why[0] == why[1]


def test_a_rerun_has_the_same_verdict_and_both_compare(desk: Desk, runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    found = []
    for place, first in zip((desk.local, desk.remote), runs, strict=True):
        verdict = place.commands.done("rerun", first["run"], *PROCESS)
        compared = place.commands.done("compare", first["run"], verdict["run"])
        told = [verdict[name] for name in ("verdict", "reasons", "predictions", "claims")]
        found.append((*told, sorted(compared)))
    assert found[0] == found[1]
    assert found[1][:3] == ("reproduced", ["the predictions of all 359 samples are bit-equal"], "bit-equal")


def test_golden_tensors_are_the_same_bytes(desk: Desk) -> None:
    manifest, made = desk.request.with_name("model.json"), []
    for place in (desk.local, desk.remote):
        path = place.folder / "golden.npz"
        place.commands.done("golden", manifest, "--from", "digits", "--split", "test", *PROCESS, "-o", path)
        made.append(path.read_bytes())
    assert made[0] == made[1]


def test_a_request_that_is_left_to_a_worker_is_measured_in_a_container_and_watched_to_its_result(
    desk: Desk, runs: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    """The worker has a token of its own that can run and nothing more, and its machine fetches all that it needs."""
    left = desk.remote.commands.done("run", "--submit", desk.request)["job"]
    assert left["lock"] == desk.remote.commands.done("lock", desk.request, "-o", desk.remote.lock)["lock"]
    worker = at(desk.url, desk.remote.folder / "worker", engine=desk.engine, BENCHLOCK_TOKEN=desk.running)
    assert worker.done("worker", "--once", "--machine", "m1") == {"machine": "m1", "jobs": 1}
    path = f"{desk.url}/v1/jobs/{left['job'].removeprefix('job/')}/events"
    events = httpx.get(path, headers={"authorization": f"Bearer {desk.token}"}).text
    (data,) = (line.removeprefix("data: ") for line in events.splitlines() if line.startswith("data: "))
    job = msgspec.json.decode(data)
    assert (job["state"], job["machine"], job["failure"]) == ("done", "m1", None)
    shown = desk.remote.commands.done("show", job["run"])
    assert (shown["lock"], shown["end"]["outcome"], shown["start"]["isolation"]) == (left["lock"], "done", "container")
    here = runs[0]
    assert shown["end"]["metrics"] == here["end"]["metrics"]
    assert desk.remote.run_files(job["run"], "left") == desk.local.run_files(here["run"], "here")
    assert desk.remote.commands.done("jobs", left["job"])["run"] == job["run"]
