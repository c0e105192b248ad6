"""A disk that is full, or cannot be written: commands say so (exit code 5), and nothing is lost."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.api.commands import Commands
from tests.support.api.warm import Warm
from tests.support.registry import tiny
from tests.support.registry.digits import DIGITS, locked, model, request, written
from tests.support.system.disks import filled, mounted, read_only

MIB = 1 << 20
FULL = ("No space left on device", "disk is full")
READ_ONLY = ("Read-only file system", "unable to open database file", "readonly database")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(tmp_path_factory.mktemp("disks") / "disk", 16 * MIB) as folder:
        yield folder


@pytest.fixture(scope="module")
def registry(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """The tiny registry on that disk; what is authored lies elsewhere."""
    commands = Warm(disk / "registry")
    commands.done("publish", *tiny.author(tmp_path_factory.mktemp("authored")))
    return commands


@pytest.fixture
def writing(registry: Commands, tmp_path: Path) -> list[tuple[str | Path, ...]]:
    """Commands that write, each something new."""
    lock = locked(registry, tmp_path, request("digits-onnx"))
    wanted = written(tmp_path / "wanted.yaml", request("digits-onnx", time="7m"))
    return [
        ("publish", written(tmp_path / "other.yaml", model("other"))),
        ("lock", wanted, "-o", tmp_path / "new.lock"),
        ("run", lock, "--isolation", "process"),
        ("yank", "model/digits-onnx@1.0.0", "--reason", "no reason"),
    ]


def state(registry: Commands) -> tuple[object, ...]:
    """All that can be seen; every byte of it is what it was."""
    verified = registry.done("verify")
    assert verified["damaged"] == []
    return registry.done("list"), registry.done("runs"), verified["blobs"]


def assert_refused(
    registry: Commands, words: tuple[str | Path, ...], bad: AbstractContextManager[None], reasons: tuple[str, ...]
) -> None:
    with bad:
        error = registry.error(5, *words)
    assert error["code"] == "unavailable"
    assert any(reason in error["message"] for reason in reasons), (words, error)
    assert error["next"], words


def test_on_a_full_disk_nothing_is_lost(
    registry: Commands, disk: Path, writing: list[tuple[str | Path, ...]], tmp_path: Path
) -> None:
    before = state(registry)
    for words in writing:
        assert_refused(registry, words, filled(disk), FULL)
    with filled(disk):
        assert registry.call("gc").code in (0, 5)  # it frees space, where the database finds the little that it needs
    assert state(registry) == before
    assert not (tmp_path / "new.lock").exists()
    done = registry.done("publish", writing[0][1])
    assert done["published"][0]["changed"]
    registry.done("gc")


def test_a_disk_that_fills_up_while_a_blob_is_written(registry: Commands, disk: Path, tmp_path: Path) -> None:
    (tmp_path / "large.bin").write_bytes(bytes(2 * MIB))
    document = tiny.tree_of_digits("large")
    document["files"].append({"path": "large.bin", "source": str(tmp_path / "large.bin")})
    before = state(registry)
    assert_refused(registry, ("publish", written(tmp_path / "large.yaml", document)), filled(disk, MIB), FULL)
    assert state(registry) == before
    assert not [*(disk / "registry" / "blobs" / "incoming").iterdir()]


def test_what_is_taken_out_onto_a_full_disk_is_whole_or_not_there(registry: Commands, tmp_path: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in (DIGITS / "data").iterdir()}
    with mounted(tmp_path / "small", 64 << 10) as small:
        error = registry.error(5, "get", "dataset/digits", "-o", small / "out")
        found = {path.name: path.stat().st_size for path in small.rglob("*") if path.is_file()}
    assert "No space left on device" in error["message"]
    assert 0 < len(found) < len(sizes)
    assert found.items() <= sizes.items()


def test_on_a_read_only_disk_nothing_is_lost(
    registry: Commands, disk: Path, writing: list[tuple[str | Path, ...]]
) -> None:
    before = state(registry)
    for words in (*writing, ("gc",)):
        assert_refused(registry, words, read_only(disk), READ_ONLY)
    assert state(registry) == before
