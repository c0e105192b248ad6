"""``kill -9`` and Ctrl-C of real commands: nothing is half there, nothing stays, and the next command goes on."""

import random
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.commands import Commands
from tests.support.api.warm import Warm
from tests.support.registry.digits import DIGITS, locked, model, request, written
from tests.support.system.interrupting import cut
from tests.support.system.remains import containers, processes, remains

KILLED = -signal.SIGKILL
CHUNK = 1 << 20


@pytest.fixture
def numbers() -> random.Random:
    """Random moments. No seed would repeat them: the machine has a part in when a signal comes."""
    return random.Random()


def names(commands: Commands, kind: str = "") -> list[str]:
    listed = commands.done("list", *([kind] if kind else []))
    return [f"{one['kind']}/{one['name']}@{one['version']}" for one in listed["artifacts"]]


def assert_intact(commands: Commands, count: int) -> None:
    """Everything published is what it was; ``count`` blobs are there when garbage is collected, and nothing else."""
    commands.done("gc")
    assert commands.done("verify")["damaged"] == []
    assert blobs(commands) == count
    assert remains(commands) == []


def blobs(commands: Commands) -> int:
    return sum(1 for _ in (commands.registry / "blobs" / "sha256").glob("*/*"))


def sizes(folder: Path) -> list[int]:
    """Of the files in ``folder``, which may be gone the next moment."""
    found = []
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):
            found.append(path.stat().st_size)
    return found


# publish


PICTURES = 120
BLOBS = PICTURES + 4
"""Of the dataset below: the pictures, their index, the listing of the tree, the large file, the manifest."""


def dataset(folder: Path, numbers: random.Random) -> Path:
    """The manifest of a dataset of many small files and one of 64 MiB."""
    tree = folder / "pictures"
    tree.mkdir()
    for number in range(PICTURES):
        (tree / f"{number:03}.png").write_bytes(numbers.randbytes(2000))
    (tree / "index.csv").write_text("path,label\n" + "".join(f"{number:03}.png,0\n" for number in range(PICTURES)))
    with (folder / "large.bin").open("wb") as large:
        for _ in range(64):
            large.write(numbers.randbytes(CHUNK))
    document = {
        "schema": 1,
        "kind": "dataset",
        "name": "noise",
        "version": "1.0.0",
        "license": "CC0-1.0",
        "format": "image-index",
        "splits": {"dev": {"index": "pictures/index.csv", "samples": PICTURES}},
        "files": [
            {"path": "pictures/", "source": "./pictures"},
            {"path": "large.bin", "source": "./large.bin"},
        ],
    }
    return written(folder / "noise.yaml", document)


def test_a_killed_publish_publishes_nothing_by_halves(tmp_path: Path, numbers: random.Random) -> None:
    commands, manifest = Warm(tmp_path / "registry"), dataset(tmp_path, numbers)

    def stored(count: int) -> Callable[[], bool]:
        return lambda: blobs(commands) >= count

    def storing_the_large_one() -> bool:
        return any(size > CHUNK for size in sizes(commands.registry / "blobs" / "incoming"))

    moments = [
        stored(numbers.randrange(1, PICTURES // 2)),
        stored(numbers.randrange(PICTURES // 2, PICTURES)),
        storing_the_large_one,
        stored(BLOBS),  # the version is about to be seen, or is
    ]
    killed = []
    for moment in moments:
        killed.append(cut(commands, "publish", manifest, when=moment, after=numbers.uniform(0, 0.02)) == KILLED)
        assert commands.done("verify")["damaged"] == []
        assert names(commands) in ([], ["dataset/noise@1.0.0"])
    assert all(killed[:2]), killed  # the others may be too late
    if not names(commands):
        assert commands.done("gc")["blobs"] > 0
        assert blobs(commands) == 0
    commands.done("publish", manifest)
    assert names(commands) == ["dataset/noise@1.0.0"]
    assert_intact(commands, BLOBS)


# image build


def test_a_killed_image_build_publishes_nothing_by_halves(tmp_path: Path, numbers: random.Random) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    commands = Warm(tmp_path / "registry", variables={"TMPDIR": str(temporary)})
    build = ("image", "build", "onnxruntime==1.31.1", "--no-layers")

    def working(what: str) -> Callable[[], bool]:
        return lambda: any((commands.registry / "builds").glob(f"work-*/{what}"))

    published = ["framework/onnxruntime@1.31.1", "image/onnxruntime-cpu@1.0.0"]
    killed = []
    for moment in (working("resolution-*"), working("wheels*"), lambda: blobs(commands) > 0):
        killed.append(cut(commands, *build, when=moment, after=numbers.uniform(0, 0.02)) == KILLED)
        assert commands.done("verify")["damaged"] == []
        assert names(commands) in (published[:0], published[:1], published)  # each in a transaction of its own
        assert names(commands) == [] or len(killed) == 3
    assert all(killed[:2]), killed  # the last one was in the middle of publishing, or too late
    assert blobs(commands) > 0
    assert "resolving wheels\nfetching wheels\n" in commands.call(*build).stderr
    assert names(commands) == published
    assert not [*(commands.registry / "builds").glob("work-*")]
    assert_intact(commands, blobs(commands))
    assert not [*temporary.iterdir()]


@pytest.mark.engine
@pytest.mark.image
def test_a_killed_build_of_layers_changes_nothing(
    registry: Commands, base_tarball: Path, numbers: random.Random
) -> None:
    build = ("image", "build", "onnxruntime==1.31.1", "--base", base_tarball)
    registry.done("gc")
    published, count = names(registry), blobs(registry)

    def unpacking() -> bool:
        return any((work / "root" / "usr").exists() for work in (registry.registry / "builds").glob("work-*"))

    assert cut(registry, *build, when=unpacking, after=numbers.uniform(0, 5)) == KILLED
    assert names(registry) == published
    assert_intact(registry, count)
    again = registry.done(*build)
    assert [one["changed"] for one in again["published"]] == [False]
    assert not [*(registry.registry / "builds").glob("work-*")]
    assert (names(registry), blobs(registry)) == (published, count)


# run


@pytest.fixture(scope="module")
def digits(registry: Commands, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A lock that measures for ten seconds, and one that does for a moment."""
    folder = tmp_path_factory.mktemp("digits")
    manifests = [written(folder / f"{name}.yaml", model(name)) for name in ("long", "short")]
    registry.done("publish", DIGITS / "dataset.yaml", *manifests)
    return (
        locked(registry, folder, request("long", duration="10s")),
        locked(registry, folder, request("short")),
    )


def started_to_run(registry: Commands) -> bool:
    return any((registry.registry / "runs").glob("*/*/job"))


def measuring(registry: Commands) -> bool:
    """The accuracy phase has ended; a call after another is measured."""
    return any((registry.registry / "runs").glob("*/model/out/predictions.safetensors"))


def newest(registry: Commands) -> dict[str, Any]:
    """The newest run, by the very next command; whatever is wrong has been put right by then."""
    found: dict[str, Any] = registry.done("runs")["runs"][0]
    assert remains(registry) == []
    assert registry.done("runs")["runs"][0] == found
    return found


@pytest.mark.engine
@pytest.mark.image
@pytest.mark.parametrize("isolation", ["container", "process"])
def test_a_killed_run_is_abandoned(
    registry: Commands, digits: tuple[Path, Path], isolation: str, numbers: random.Random
) -> None:
    long, short = digits
    words = ("run", long, "--isolation", isolation)
    before = len(registry.done("runs")["runs"])
    assert cut(registry, *words, when=lambda: started_to_run(registry), after=numbers.uniform(0, 1)) == KILLED
    assert newest(registry)["end"]["outcome"] == "abandoned"
    assert cut(registry, *words, when=lambda: measuring(registry)) == KILLED
    # Nobody has looked yet: this shows that the test would see what stays.
    if isolation == "container":
        assert containers(registry)
        # It is removed once its engine answers again.
        without = replace(registry, engine="")
        assert without.done("runs")["runs"][0]["end"]["outcome"] == "abandoned"
        assert containers(registry)
    else:
        assert processes(registry.registry)
    abandoned = newest(registry)
    assert (abandoned["end"]["outcome"], abandoned["end"]["failure_class"], abandoned["end"]["metrics"]) == (
        "abandoned",
        None,
        [],
    )
    assert len(registry.done("runs")["runs"]) == before + 2
    assert registry.done("verify")["damaged"] == []
    done = registry.done("run", short, "--isolation", isolation)
    assert (done["end"]["outcome"], done["start"]["isolation"]) == ("done", isolation)


@pytest.mark.engine
@pytest.mark.image
@pytest.mark.parametrize("isolation", ["container", "process"])
def test_an_interrupted_run_is_cancelled(registry: Commands, digits: tuple[Path, Path], isolation: str) -> None:
    words = ("run", digits[0], "--isolation", isolation)
    assert cut(registry, *words, when=lambda: measuring(registry), by=signal.SIGINT) == 130
    assert remains(registry) == []  # before another command could tidy up
    cancelled = newest(registry)
    assert (cancelled["end"]["outcome"], cancelled["end"]["failure_class"], cancelled["end"]["metrics"]) == (
        "cancelled",
        None,
        [],
    )
