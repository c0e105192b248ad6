"""The image that runs is the locked one; the container is what the lock allows."""

import json
from pathlib import Path

import pytest

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import IntegrityError
from benchlock.evaluator.images.image_layers import encode_config
from benchlock.evaluator.runner.container_engine import LoadedImage, Mount
from benchlock.evaluator.runner.container_run import ContainerRun, check_image, confinement
from benchlock.evaluator.runner.job_folder import RunFolders
from benchlock.registry.lock.lockfile import LockedLimits

LAYERS = [digest_bytes(b"lower"), digest_bytes(b"upper")]
CONFIG = encode_config("amd64", LAYERS)
ID = digest_bytes(CONFIG)
SETTINGS = json.loads(CONFIG)["config"]


def test_the_locked_image_is_accepted() -> None:
    check_image(LoadedImage(ID, tuple(LAYERS), SETTINGS), ID, CONFIG, LAYERS)


@pytest.mark.parametrize("found", [LAYERS[:1], LAYERS[::-1], [*LAYERS, digest_bytes(b"more")]])
def test_other_layers_are_refused_with_both(found: list[Digest]) -> None:
    with pytest.raises(IntegrityError, match="its layers are") as raised:
        check_image(LoadedImage(ID, tuple(found), SETTINGS), ID, CONFIG, LAYERS)
    assert all(digest in raised.value.what for digest in (*LAYERS, *found))


def test_an_engine_may_call_it_otherwise_if_it_would_run_alike() -> None:
    other = digest_bytes(b"a manifest")
    filled = SETTINGS | {"User": "", "Cmd": None, "Labels": {"x": "y"}}
    check_image(LoadedImage(other, tuple(LAYERS), filled), ID, CONFIG, LAYERS)


@pytest.mark.parametrize(
    "change",
    [{"Env": ["PATH=/elsewhere"]}, {"Entrypoint": ["sh"]}, {"Cmd": ["sh"]}, {"WorkingDir": "/x"}, {"User": "1"}],
)
def test_under_another_id_other_settings_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(IntegrityError, match=f"its {next(iter(change))} are"):
        check_image(LoadedImage(digest_bytes(b"x"), tuple(LAYERS), SETTINGS | change), ID, CONFIG, LAYERS)


def test_a_container_gets_what_the_lock_allows_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 0)
    limits = LockedLimits(seconds=1, bytes=1 << 30, cpus=2, processes=17)
    place = RunFolders(tmp_path)
    found = confinement(ContainerRun("run/x", ID, "3.11", limits, (2, 3)), place)
    assert (found.command[0], found.command[-4:]) == ("python3.11", ("-B", "/job/harness.pyz", "/job", "/out"))
    assert (found.mounts, found.in_memory) == ((Mount(place.job, "/job"),), "/out")
    assert (found.user, found.memory, found.scratch) == ("65534:65534", 1 << 30, 1 << 29)
    assert (found.processes, found.cpus, found.run, found.image) == (17, (2, 3), "run/x", ID)


def test_only_a_container_without_a_model_writes_to_a_folder_of_the_host(tmp_path: Path) -> None:
    limits = LockedLimits(seconds=1, bytes=1 << 30, cpus=2, processes=17)
    place = RunFolders(tmp_path)
    found = confinement(ContainerRun("run/x", ID, "3.11", limits, (2, 3), keeps_output=True), place)
    assert found.command == ("python3.11", "-B", "/job/harness.pyz", "/job", "/out")
    assert found.mounts == (Mount(place.job, "/job"), Mount(place.output, "/out", writable=True))
    assert found.in_memory is None


def test_a_container_gets_the_accelerators_of_the_run(tmp_path: Path) -> None:
    limits = LockedLimits(seconds=1, bytes=1 << 30, cpus=1, processes=1)
    found = confinement(ContainerRun("run/x", ID, "3.11", limits, (0,), (1, 2)), RunFolders(tmp_path))
    assert found.accelerators == (1, 2)


def test_a_container_of_a_user_is_that_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setattr("os.getgid", lambda: 100)
    limits = LockedLimits(seconds=1, bytes=1 << 30, cpus=1, processes=1)
    assert confinement(ContainerRun("run/x", ID, "3.11", limits, (0,)), RunFolders(tmp_path)).user == "1000:100"
