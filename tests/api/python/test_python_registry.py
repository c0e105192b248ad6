"""The Python API on a registry in a folder and on the same one behind a real server."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import benchlock
from benchlock.api.local.local_registry import LocalRegistry, open_registry
from benchlock.evaluator.records.run_types import RunEnd, new_run_id
from tests.evaluator.queue.test_client_runs import start_of
from tests.support.api.serving import service
from tests.support.evaluator.recorded import NOON
from tests.support.registry import tiny
from tests.support.registry.digits import request, written
from tests.support.resolution.variants import variant

OLD, NEW = variant({}), variant({"model": {"name": "other"}, "request": {"model": {"name": "other", "version": "*"}}})


@dataclass(frozen=True)
class Desk:
    """A registry as users open it, its folder, and the ids of its runs, newest first."""

    registry: benchlock.Registry
    folder: Path
    manifests: tuple[Path, ...]
    runs: tuple[str, ...]


@pytest.fixture(scope="module", params=["folder", "server"])
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    opened = open_registry(str(folder / "registry"), print)
    ids = tuple(reversed([_record(opened, number) for number in range(6)]))
    opened.database.dispose()
    manifests = tiny.author(folder / "manifests")
    if request.param == "folder":
        with benchlock.open(folder / "registry") as registry:
            yield Desk(registry, folder, manifests, ids)
        return
    with service(folder / "registry") as served, pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        with benchlock.open(served.url, token=None) as registry:
            yield Desk(registry, folder, manifests, ids)


def _record(opened: LocalRegistry, number: int) -> str:
    """Record a cancelled run, of every third lock of another model."""
    lock, at = (OLD if number % 3 else NEW).lock, NOON + timedelta(seconds=number)
    opened.catalogue.put_lock(lock)
    run = new_run_id(at)
    opened.records.start(replace(start_of(lock, at), id=run))
    opened.records.finish(run, RunEnd(outcome="cancelled", ended_at=at))
    return run


def test_manifests_are_published_and_read(desk: Desk) -> None:
    trial = desk.registry.publish(*desk.manifests, dry_run=True)
    published = desk.registry.publish(*desk.manifests)
    assert [str(one) for one in published] == [
        "framework/onnxruntime@1.31.1",
        "image/onnxruntime-cpu@1.0.0",
        "dataset/digits@1.0.0",
        "model/digits-onnx@1.0.0",
    ]
    assert {one.changed for one in published} == {one.changed for one in trial} == {True}
    assert {one.changed for one in desk.registry.publish(*desk.manifests)} == {False}
    (version,) = desk.registry.versions("model/digits-onnx")
    assert (version.digest, version.yanked) == (published[3].digest, None)
    assert desk.registry.versions("model") == (version,)
    assert desk.registry.versions("model/digits-onnx@^2") == ()
    assert len(desk.registry.versions()) == 4
    assert desk.registry.manifest("model/digits-onnx@^1")["name"] == "digits-onnx"


def test_all_problems_of_all_manifests_are_raised_at_once(desk: Desk, tmp_path: Path) -> None:
    unreadable, incomplete = tmp_path / "a.yaml", tmp_path / "b.yaml"
    unreadable.write_text("kind: [")
    incomplete.write_text("schema: 1\nkind: framework\nname: none\nversion: x\n")
    with pytest.raises(benchlock.BenchlockError) as caught:
        desk.registry.publish(unreadable, incomplete, tmp_path / "missing.yaml")
    told = "\n".join(map(str, caught.value.problems))
    assert all(name in told for name in ("a.yaml", "b.yaml", "missing.yaml"))


def test_a_request_is_locked_from_a_file_and_from_a_mapping(desk: Desk) -> None:
    desk.registry.publish(*desk.manifests)
    document = request("digits-onnx")
    path = written(desk.folder / "request.json", document)
    lock = desk.registry.lock(path)
    assert lock.versions["model"] == "digits-onnx@1.0.0"
    assert desk.registry.lock(document).id == lock.id
    assert desk.registry.lock(str(path)).id == lock.id
    stored = lock.save(desk.folder / "digits.lock")
    assert desk.registry.get_lock(stored).id == desk.registry.get_lock(lock.id[:20]).id == lock.id
    with pytest.raises(benchlock.InvalidInputError, match="is a lockfile, not a request"):
        desk.registry.lock(stored)
    with pytest.raises(benchlock.ConflictError, match="digits-onnx"):
        desk.registry.lock({**document, "model": {"name": "digits-onnx", "version": "^9"}})


def test_runs_are_listed_by_model_and_lock(desk: Desk) -> None:
    assert [run.id for run in desk.registry.runs()] == list(desk.runs)
    assert [run.id for run in desk.registry.runs(limit=2)] == list(desk.runs[:2])
    others = [run.id for number, run in enumerate(desk.registry.runs()) if number % 3 == 2]
    assert [run.id for run in desk.registry.runs(model="other")] == others
    assert [run.id for run in desk.registry.runs(lock=NEW.lock.id)] == others
    assert [run.id for run in desk.registry.runs(model="other", limit=1)] == others[:1]
    for kind in ("model", "operator", "recipe"):
        assert len(desk.registry.runs(**{kind: "nothing"})) == 0  # type: ignore[arg-type]
    assert [run.id for run in desk.registry.runs(outcome="cancelled")] == [
        run.id for run in desk.registry.runs() if run.outcome == "cancelled"
    ]
    assert [run.id for run in desk.registry.runs(since="2020-01-01", dataset=NEW.lock.dataset.name)] == list(desk.runs)
    for wrong in ({"since": "soon"}, {"outcome": "fine"}, {"model": "other@"}):
        with pytest.raises(benchlock.InvalidInputError):
            desk.registry.runs(**wrong)  # type: ignore[arg-type]
    assert desk.registry.get_run(desk.runs[0]).outcome == "cancelled"
    assert desk.registry.get_run(desk.runs[0]).versions["model"] == f"{OLD.lock.model.name}@1.0.0"


def test_errors_are_those_of_the_command_line(desk: Desk) -> None:
    with pytest.raises(benchlock.UnknownNameError):
        desk.registry.versions("model/nothing")
    with pytest.raises(benchlock.InvalidInputError, match="invalid run id"):
        desk.registry.get_run("run/1")
    with pytest.raises(benchlock.InvalidInputError, match="at least two runs"):
        desk.registry.compare(desk.runs[0])
    with pytest.raises(benchlock.RefusedError, match="not comparable"):
        desk.registry.compare(*desk.runs[:3])
    assert not desk.registry.compare(*desk.runs[:3], force=True).comparable
    with pytest.raises(benchlock.InvalidInputError, match="no completed run"):
        desk.registry.rerun(OLD.lock.id)
    with pytest.raises(benchlock.InvalidInputError, match="not a run: <Lock"):
        desk.registry.compare(desk.registry.get_lock(OLD.lock.id), desk.runs[0])  # type: ignore[arg-type]
    with pytest.raises(benchlock.InvalidInputError, match="at least two locks"):
        desk.registry.compare_locks(OLD.lock.id)
    with pytest.raises(benchlock.InvalidInputError, match="at least two locks"):
        desk.registry.compare_locks()
    with pytest.raises(benchlock.InvalidInputError, match="invalid margin 5 for latency_p50"):
        desk.registry.compare_locks(OLD.lock.id, NEW.lock.id, margins={"latency_p50": 5})
    with pytest.raises(benchlock.InvalidInputError, match="not every lock measures miou"):
        desk.registry.compare_locks(OLD.lock.id, NEW.lock.id, margins={"miou": 0.05})
    with pytest.raises(benchlock.InvalidInputError, match="2 rounds are too few"):
        desk.registry.compare_locks(OLD.lock.id, NEW.lock.id, rounds=2)
    with pytest.raises(benchlock.InvalidInputError, match="invalid limit 0"):
        desk.registry.runs(limit=0)
    with pytest.raises(benchlock.InvalidInputError, match="unknown isolation"):
        desk.registry.run(OLD.lock.id, isolation="vm")  # type: ignore[arg-type]


def test_a_run_is_named_by_the_beginning_of_its_id(desk: Desk) -> None:
    """The runs are a second apart, so that the first ten digits, which are milliseconds, distinguish them."""
    full = desk.runs[0]
    for text in (full, full[:14], full[4:14], full[4:]):
        assert desk.registry.get_run(text).id == full
    short = [run[:14] for run in desk.runs[:2]]
    assert desk.registry.compare(*short, force=True).comparable is False
    assert desk.registry.claims(full[4:14]) == ()
    with pytest.raises(benchlock.InvalidInputError, match=f"ambiguous id {full[:8]}") as caught:
        desk.registry.get_run(full[4:8])
    assert full in str(caught.value.where)
    with pytest.raises(benchlock.InvalidInputError, match="ambiguous id"):
        desk.registry.rerun(full[:8])
    with pytest.raises(benchlock.UnknownNameError, match="no run id begins with run/7zzz"):
        desk.registry.get_run("7zzz")


def test_a_run_that_is_not_done_judges_no_claim(desk: Desk) -> None:
    assert desk.registry.claims(desk.runs[0]) == desk.registry.claims(desk.registry.get_run(desk.runs[0])) == ()


def test_several_threads_share_a_registry(desk: Desk) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [run.id for run in desk.registry.runs()], range(16)))
    assert found == [list(desk.runs)] * 16


def test_several_registries_are_open_at_once(tmp_path: Path) -> None:
    with (
        benchlock.open(tmp_path / "a", create=True) as first,
        benchlock.open(str(tmp_path / "b"), create=True) as second,
    ):
        first.publish(tiny.author(tmp_path / "manifests")[0])
        assert (len(first.versions()), len(second.versions())) == (1, 0)
        assert repr(second) == f"<Registry {tmp_path / 'b'}>"


def test_a_folder_without_a_registry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(benchlock.UnknownNameError, match="no registry found") as caught:
        benchlock.open(tmp_path)
    assert "create=True" in str(caught.value.next_step)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(benchlock.InvalidInputError, match="takes no token"):
        benchlock.open(tmp_path, token="secret", create=True)


def test_the_default_is_that_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHLOCK_REGISTRY", str(tmp_path / "named"))
    with benchlock.open(create=True) as named:
        assert repr(named) == f"<Registry {tmp_path / 'named'}>"
    monkeypatch.delenv("BENCHLOCK_REGISTRY")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with benchlock.open(create=True) as default:
        assert repr(default) == f"<Registry {tmp_path / 'benchlock'}>"


def test_a_given_token_is_sent_in_place_of_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BENCHLOCK_TOKEN_FILE", str(tmp_path / "missing"))
    folder = tmp_path / "registry"
    tokens = [sys.executable, "-m", "benchlock", "--registry", str(folder), "token", "create", "ci", "--scope", "run"]
    secret = subprocess.run(tokens, check=True, capture_output=True, text=True).stdout.strip()
    with service(folder, "--host", "127.0.0.1") as served:
        with benchlock.open(served.url, token=secret) as registry:
            assert len(registry.runs()) == 0
        with benchlock.open(served.url, token=secret[:-1]) as registry, pytest.raises(benchlock.BenchlockError):
            registry.runs()


def test_messages_are_logged_and_logging_is_not_set_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "benchlock"), benchlock.open(tmp_path / "registry", create=True):
        pass
    assert [(entry.levelname, entry.message) for entry in caplog.records if entry.name == "benchlock"] == [
        ("INFO", f"created the registry in {tmp_path / 'registry'}")
    ]
    assert logging.getLogger("benchlock").handlers == []


def test_the_import_loads_nothing_and_lists_the_public_names() -> None:
    code = (
        "import sys, benchlock; print([name for name in sys.modules if name.startswith('benchlock.')], dir(benchlock))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == f"[] {sorted(benchlock.__all__)}\n"
    for name in benchlock.__all__:
        assert getattr(benchlock, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        benchlock.nothing  # type: ignore[attr-defined]  # noqa: B018
