"""Publishing is atomic, whatever store it goes to: killed at any moment, all of a version is visible or none of it.

Over every store that outlives a process; one in memory dies with it, and leaves nothing that could be wrong.
"""

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Event

import pytest

from benchlock.registry.database.engine import open_engine
from tests.support.registry.noise import Bench, open_bench
from tests.support.servers.registry_server import RegistryServer
from tests.support.system.forking import DONE, KILLED, REFUSED, Ended, Place, Server, forking

LOTS, ROUNDS = 1, 6
RACES = 2
PUBLISHED = 8
"""The number of versions that each of two publishers publishes; every other one is killed."""


@pytest.fixture(params=["local", "oci"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fresh(request: pytest.FixtureRequest, kind: str, schema: Path) -> Iterator[Callable[[Path], Bench]]:
    """Makes an empty registry in a folder that is not there yet."""
    with ExitStack() as stack:

        def make(folder: Path) -> Bench:
            folder.mkdir()
            shutil.copy(schema, folder / "registry.db")
            database = open_engine(folder / "registry.db")
            stack.callback(database.dispose)
            place = Place(folder / "registry.db", folder / "blobs", repository(request, kind))
            return open_bench(place, database, folder / "drafts")

        yield make


@pytest.fixture
def bench(fresh: Callable[[Path], Bench], tmp_path: Path) -> Bench:
    """On the disk, where a publication mostly waits."""
    return fresh(tmp_path / "registry")


@pytest.fixture
def swift_bench(fresh: Callable[[Path], Bench], tmp_path: Path) -> Iterator[Bench]:
    """In memory, where there is such a file system: a killed process leaves the same there, and the test takes less."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as temporary:
        yield fresh(Path(temporary) / "registry")


def repository(request: pytest.FixtureRequest, kind: str) -> str:
    """A new repository of the suite's own registry; none for a store that is a folder."""
    if kind == "local":
        return ""
    server: RegistryServer = request.getfixturevalue("registry_server")
    return str(server.repository(f"kills/{random.randbytes(8).hex()}"))


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, ...]]:
    """Three, so that as many publish or collect at once."""
    with ExitStack() as stack:
        yield tuple(stack.enter_context(forking()) for _ in range(3))


@pytest.fixture
def tell(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Says something in the terminal, though the test passes."""

    def say(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{request.node.name}: {text}\n")

    return say


def assert_atomic(bench: Bench, version: int, others: set[int]) -> bool:
    """Whether the version can be seen, whose publishing was killed; whatever the answer, everything is in order."""
    seen = bench.visible()
    assert seen - {version} == others
    bench.assert_clean(anew=False)
    return version in seen


def test_killed_before_each_step(
    swift_bench: Bench, kind: str, servers: tuple[Server, ...], tell: Callable[[str], None]
) -> None:
    """Steps are calls that change files, database or repository: every third of a folder, every tenth of an OCI one."""
    bench, stride = swift_bench, {"local": 3, "oci": 10}[kind]
    found, others, step = Counter[bool](), set[int](), random.randint(1, stride)
    while (ended := servers[0].publish(bench.place, bench.draft(step, pictures=2, large=2000), step=step)).code != DONE:
        assert ended.code == KILLED, ended
        visible = assert_atomic(bench, step, others)
        found[visible] += 1
        others |= {step} if visible else set()
        step += stride
    tell(f"killed before {found.total()} of {step} steps: {found[False]} times nothing was visible, {found[True]} all")
    assert ended.said == "published"
    assert found[False] > 15
    assert bench.visible() == others | {step}  # a kill may fall behind the commit; what was not killed is visible
    bench.assert_clean()


def test_killed_at_random_moments(
    fresh: Callable[[Path], Bench], servers: tuple[Server, ...], tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """The moments are spread over the time that a publication takes, measured first, and some more.

    Some of them in each of several registries: every look at one asks for all that it has.
    """
    longest, found = 0.0, Counter[bool]()
    for lot in range(LOTS):
        bench = fresh(tmp_path / str(lot))
        whole = [servers[0].publish(bench.place, bench.draft(version)) for version in range(3)]
        longest = max(longest, *(ended.seconds * 1.1 for ended in whole))
        others = {0, 1, 2}
        drafts = {version: bench.draft(version) for version in range(3, 3 + ROUNDS)}
        for round_, (version, manifest) in enumerate(drafts.items()):
            moment = longest * (round_ + random.random()) / ROUNDS
            ended = servers[0].publish(bench.place, manifest, after=moment)
            assert ended.code == KILLED, ended
            visible = assert_atomic(bench, version, others)
            found[visible] += 1
            others |= {version} if visible else set()
        for version, manifest in drafts.items():
            again = servers[0].publish(bench.place, manifest)
            assert (again.code, again.said) == (DONE, "already there" if version in others else "published")
        assert bench.visible() == {0, 1, 2, *drafts}
        bench.assert_clean()
    times = f"killed at {found.total()} moments of {longest:.3f} s"
    tell(f"{times}: {found[False]} times nothing was visible, {found[True]} all")


def test_killed_while_others_publish_and_collect(
    bench: Bench, servers: tuple[Server, ...], tell: Callable[[str], None]
) -> None:
    """Two publish, one collects; all three are killed again and again, and none takes from another."""
    over = Event()

    def publish(server: Server, versions: range) -> set[int]:
        """Those of them that were said to be published; every other one is killed somewhere."""
        promised = set()
        for version in versions:
            cut = {"after": random.uniform(0, 0.15)} if version % 2 else {}
            ended = server.publish(bench.place, bench.draft(version), **cut)
            assert ended.code == (KILLED if cut else DONE), ended
            promised |= set() if cut else {version}
        return promised

    def collect_on_and_on() -> Counter[int]:
        """How often it ended so and so."""
        codes = Counter[int]()
        while not over.is_set():
            cut = {"after": random.uniform(0, 0.1)} if codes.total() % 3 == 2 else {}
            codes[servers[2].collect(bench.place, **cut).code] += 1
        return codes

    with ThreadPoolExecutor(3) as pool:
        publishers = [
            pool.submit(publish, servers[which], range(which * 100, which * 100 + PUBLISHED)) for which in (0, 1)
        ]
        collector = pool.submit(collect_on_and_on)
        try:
            promised = set[int]().union(*(publisher.result() for publisher in publishers))
        finally:
            over.set()
        codes = collector.result()
    count = 2 * PUBLISHED
    tell(f"beside {count} publications, half of them killed: {codes[DONE]} collections, {codes[KILLED]} more killed")
    assert codes[DONE] > 0
    assert set(codes) <= {DONE, KILLED}
    assert promised <= bench.visible()
    bench.assert_clean()


def race(place: Place, servers: tuple[Server, ...], manifests: tuple[Path, Path]) -> list[Ended]:
    """Both published at once, by a server each."""
    barrier = Barrier(2)

    def publish(server: Server, manifest: Path) -> Ended:
        barrier.wait()
        return server.publish(place, manifest)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(publish, servers[:2], manifests))


def test_two_publish_the_same(bench: Bench, servers: tuple[Server, ...]) -> None:
    for version in range(RACES):
        manifest = bench.draft(version)
        ended = race(bench.place, servers, (manifest, manifest))
        assert [one.code for one in ended] == [DONE, DONE], ended
        assert {one.said for one in ended} == {"published", "already there"}
    assert bench.visible() == set(range(RACES))
    bench.assert_clean()


def test_two_publish_one_name_with_other_content(bench: Bench, servers: tuple[Server, ...]) -> None:
    for version in range(RACES):
        manifests = (bench.draft(version), bench.draft(version))
        ended = race(bench.place, servers, manifests)
        won, lost = sorted(ended, key=lambda one: one.code)
        assert (won.code, won.said) == (DONE, "published")
        assert lost.code == REFUSED
        assert f"dataset/noise@{version}.0.0 is already published with different content" in lost.said
        winner = servers[0].publish(bench.place, manifests[ended.index(won)])
        assert winner.said == "already there"
    assert bench.visible() == set(range(RACES))
    bench.assert_clean()
