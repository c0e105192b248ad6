"""The job folder: links into the store, modes whatever the umask, trees laid out."""

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.runner.job_folder import RunFolders, job_document, write_job
from benchlock.evaluator.runner.lock_verification import VerifiedFiles, verify_lock
from benchlock.registry.lock.lockfile import Lock
from tests.evaluator.evaluation import NOTHING, Evaluation, locked_file


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def lock(store: LocalStore, tmp_path: Path) -> Lock:
    return Evaluation(store, tmp_path, NOTHING).lock()


@pytest.fixture
def verified(store: LocalStore, lock: Lock) -> VerifiedFiles:
    return verify_lock(lock, lock.image.platforms[0], store, SILENT)


@pytest.fixture
def place(tmp_path: Path) -> RunFolders:
    (tmp_path / "run").mkdir()
    return RunFolders(tmp_path / "run")


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def modes(folder: Path, *, folders: bool) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_dir() == folders}


@pytest.mark.usefixtures("strict_umask")
def test_every_file_is_a_link_that_anybody_may_read(
    place: RunFolders, lock: Lock, verified: VerifiedFiles, store: LocalStore
) -> None:
    said: list[str] = []
    write_job(place, job_document(lock, "cpu", verified.manifests), lock, verified, store, said.append)
    files = {str(path.relative_to(place.job)) for path in place.job.rglob("*") if path.is_file()}
    pictures = {f"dataset/pictures/{number}.png" for number in range(30)}
    assert files == {"job.json", "harness.pyz", "model/weights.npz", "dataset/index.csv"} | pictures
    blob = store.path(locked_file(lock, "weights.npz"))
    assert (place.job / "model" / "weights.npz").samefile(blob)
    assert all((place.job / path).stat().st_nlink >= 2 for path in files - {"job.json", "harness.pyz"})
    assert modes(place.job, folders=False) == {0o444}
    assert modes(place.job, folders=True) | {stat.S_IMODE(place.job.stat().st_mode)} == {0o755}
    assert said == []


@pytest.mark.usefixtures("strict_umask")
def test_only_the_output_folder_is_open_and_only_to_who_gets_there(
    place: RunFolders, lock: Lock, verified: VerifiedFiles, store: LocalStore
) -> None:
    write_job(place, job_document(lock, "cpu", verified.manifests), lock, verified, store, print)
    found = [stat.S_IMODE(path.stat().st_mode) for path in (place.root, place.output, place.scratch)]
    assert found == [0o700, 0o777, 0o700]


def test_the_harness_understands_the_job(lock: Lock, verified: VerifiedFiles) -> None:
    document = job_document(lock, "cuda12", verified.manifests)
    job = parse_job(json.loads(json.dumps(document)))
    assert (job.model.predictor, job.model.files[0].path, job.threads) == ("onnxruntime", "weights.npz", 1)
    assert job.device == "cuda12"
    assert (job.metrics, job.dataset.split["index"]) == (("top1", "top5", "latency_p50", "throughput"), "index.csv")
    assert (job.seeds.qsl, job.seeds.sample_index, job.seeds.schedule) == (1, 2, 3)


def test_another_file_system_means_copies_and_is_said_once(
    tmp_path: Path, lock: Lock, verified: VerifiedFiles, store: LocalStore
) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        memory = Path("/run")
    root = memory / f"benchlock-test-{os.getpid()}"
    root.mkdir()
    try:
        said: list[str] = []
        write_job(RunFolders(root), job_document(lock, "cpu", verified.manifests), lock, verified, store, said.append)
        assert len(said) == 1
        assert said[0].startswith("copying files into the job folder")
        assert (root / "job" / "model" / "weights.npz").read_bytes() == store.path(
            locked_file(lock, "weights.npz")
        ).read_bytes()
        assert modes(root / "job", folders=False) == {0o444}
    finally:
        shutil.rmtree(root)


def test_a_folder_that_cannot_be_written_is_said(
    place: RunFolders, lock: Lock, verified: VerifiedFiles, store: LocalStore
) -> None:
    place.job.write_text("in the way")
    with pytest.raises(UnavailableError, match="cannot write the job folder"):
        write_job(place, job_document(lock, "cpu", verified.manifests), lock, verified, store, print)
