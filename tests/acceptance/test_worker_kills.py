"""Workers, the service, its database and the connections between them struck at random: nothing is lost or twice.

Two hosts: one with an engine and two workers, one with a worker that has none. Each worker has a cache of its own and
reaches the service through a proxy, and so does the service its database where that is a server. BENCHLOCK_KILLS says
how many strikes there are; a few here, hundreds by hand. BENCHLOCK_SEED repeats their order, not what the machine makes
of it. What is asserted is in the database, in what the harnesses wrote down, and in what the engine told.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.api.commands import BENCHLOCK, Commands
from tests.support.evaluator.struck_site import Site, check_jobs, overlaps, recorded_events, tell
from tests.support.servers.faulty_proxy import FaultyProxy, proxy_to
from tests.support.servers.postgresql import EMPTY
from tests.support.servers.postgresql import serving as postgresql_serving
from tests.support.servers.registry_server import free_port
from tests.support.system.python_image import PythonImage, make_image
from tests.support.system.remains import containers, processes
from tests.support.system.striking import DatabaseFile, Line, Postgres, Program, Victim

KILLS = int(os.environ.get("BENCHLOCK_KILLS", "4"))
SEED = int(os.environ.get("BENCHLOCK_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
JOBS = max(4, KILLS * 3 // 4)
KILLERS = 1 + KILLS // 100
"""Jobs that kill every worker that measures them."""
LEAST = 0.5
"""So large a share of the other jobs is done, whatever is struck."""
LEASE = 3.0
HOSTS = {"m1": "a", "m2": "a", "m3": "b"}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> PythonImage:
    return make_image(tmp_path_factory.mktemp("python"))


@pytest.fixture(params=["sqlite", "postgresql"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    with ExitStack() as stack:
        variables = {"BENCHLOCK_LEASE": str(LEASE)}
        others: list[tuple[Victim, int]]
        if request.param == "postgresql":
            server = stack.enter_context(postgresql_serving())
            server.run(f"CREATE DATABASE kills TEMPLATE {EMPTY}")
            place, proxy = server.address("kills"), stack.enter_context(proxy_to(server.port))
            variables["BENCHLOCK_DATABASE"] = place.replace(f":{server.port}/", f":{proxy.port}/")
            others = [(Postgres("database", server.postmaster), 3), (Line("connection to the database", proxy), 3)]
        else:
            place = str(tmp_path / "registry" / "registry.sqlite")
            others = [(DatabaseFile("database", Path(place)), 3)]
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        commands = Commands(tmp_path / "registry", engine_url, variables)
        commands.done("db", "create")
        found = Site(tmp_path, commands, place, random.Random(SEED), LEASE, others=others)
        stack.callback(found.database.dispose)
        served(found, lambda port: stack.enter_context(proxy_to(port)))
        for one in found.all:
            stack.callback(one.end)
        yield found


def served(site: Site, proxied: Callable[[int], FaultyProxy]) -> None:
    """The service of the site, and its workers."""
    benchlock, port, common = str(BENCHLOCK), free_port(), site.commands.environment()
    words = [benchlock, "--registry", str(site.commands.registry), "serve", "--open", "--port", str(port)]
    site.others.append((Program("service", words, common, site.folder / "service.log"), 3))
    for name, host in HOSTS.items():
        proxy, home = proxied(port), site.folder / "hosts" / host
        words = [benchlock, "--registry", f"http://127.0.0.1:{proxy.port}", "worker", "--processes", "--machine", name]
        own = {"XDG_CACHE_HOME": str(home / name), "BENCHLOCK_HOST_LOCK": str(home / "lock")}
        (home / name).mkdir(parents=True)
        engine = {} if host == "a" else {"DOCKER_HOST": f"unix://{home}/no-engine.sock"}
        log = site.folder / f"{name}.log"
        site.workers.append(Program(f"worker{name[1:]}", [*words], common | own | engine, log))
        site.others.append((Line(f"connection{name[1:]}", proxy), 1))


@pytest.fixture
def engine_events(engine_url: str, tmp_path: Path) -> Iterator[Path]:
    with recorded_events(engine_url, tmp_path / "events") as path:
        yield path


@pytest.mark.engine
def test_whatever_is_struck_each_job_has_one_result_and_measures_alone(
    site: Site, image: PythonImage, engine_events: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [*(["container", "process"] * JOBS)[:JOBS], *["killer"] * KILLERS]
    site.numbers.shuffle(wanted)
    asked = site.submit(image, wanted)
    for one in site.all:
        if isinstance(one, Program):
            one.start()
    with site.mending():
        for _ in range(KILLS):
            site.wait_until(site.is_at_work, 20)
            time.sleep(site.numbers.uniform(0.1, 2.5))
            site.strike()
        site.mend(float("inf"))
        site.wait_until(site.is_over, 120 + JOBS * 5)
    told = {"seed": SEED, **tell(site, asked, engine_events)}
    with capsys.disabled():
        sys.stdout.write(f"\n{told}\n" * ("BENCHLOCK_KILLS" in os.environ))
    check_jobs(site, asked, told, LEAST)
    assert overlaps(site, engine_events, sorted(set(HOSTS.values()))) == []
    assert {code for one in site.workers for code in one.codes} <= {-9}, "a worker gave up"
    assert {one.ask_to_end() for one in site.workers} <= {0, -signal.SIGTERM}  # it may not have begun
    for victim in site.all:
        victim.end()
    assert (processes(site.folder), containers(site.commands)) == ([], [])
    assert site.commands.done("verify")["damaged"] == []
