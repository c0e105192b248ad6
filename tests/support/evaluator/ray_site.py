"""A registry whose workers a Ray cluster starts: three nodes on two hosts, of which the first has an engine."""

import random
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.support.api.commands import BENCHLOCK, Commands
from tests.support.evaluator.struck_site import Site
from tests.support.servers.postgresql import EMPTY, PostgresServer
from tests.support.servers.ray_nodes import HEAD, RayNodes
from tests.support.servers.registry_server import free_port
from tests.support.system.striking import DatabaseFile, Postgres, Program, Victim
from tests.support.system.striking_ray import MeasuringContainer, RayMember, parts_of

LEASE: Final = 3.0
HOSTS: Final = {"n1": "a", "n2": "a", "n3": "b"}


def node_variables(folder: Path, engine: str) -> Mapping[str, Mapping[str, str]]:
    """The variables of each node: the folders and the lock of its host, and the engine of the first host."""
    found = {}
    for name, host in HOSTS.items():
        home = folder / "hosts" / host
        (home / name).mkdir(parents=True)
        docker = engine if host == "a" else f"unix://{home}/no-engine.sock"
        own = {"XDG_CACHE_HOME": str(home / name), "BENCHLOCK_HOST_LOCK": str(home / "lock"), "DOCKER_HOST": docker}
        found[name] = own
    return found


@dataclass
class RaySite:
    """The site, its cluster, the secret of its workers, which is in a file, and the jobs that were queued."""

    site: Site
    cluster: RayNodes
    secret: str
    launcher: Program
    asked: dict[str, str] = field(default_factory=dict)


@contextmanager
def ray_site(
    folder: Path, cluster: RayNodes, engine: str, seed: int, server: PostgresServer | None = None
) -> Iterator[RaySite]:
    """A new registry in ``folder`` with a service, whose launcher is attached to the cluster; nothing is started.

    With ``server``, its database is there, under the name of the folder, and the server is struck.
    """
    with ExitStack() as stack:
        variables, place = {"BENCHLOCK_LEASE": str(LEASE)}, str(folder / "registry" / "registry.sqlite")
        database: tuple[Victim, int] = (DatabaseFile("database", Path(place)), 3)
        if server is not None:
            server.run(f"CREATE DATABASE {folder.name} TEMPLATE {EMPTY}")
            place, database = server.address(folder.name), (Postgres("database", server.postmaster), 8)
            variables["BENCHLOCK_DATABASE"] = place
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("BENCHLOCK_DATABASE", place)  # for ``submit``
        commands = Commands(folder / "registry", engine, variables)
        commands.done("db", "create")
        token = folder / "worker-token"
        answer = commands.done("token", "create", "ray", "--scope", "read", "--scope", "run")
        token.write_text(answer["secret"])
        token.chmod(0o600)
        site = Site(folder, commands, place, random.Random(seed), LEASE)
        stack.callback(site.database.dispose)
        port, common = free_port(), commands.environment()
        serve = [str(BENCHLOCK), "--registry", str(commands.registry), "serve", "--port", str(port)]
        service = Program("service", serve, common, folder / "service.log")
        words = [str(BENCHLOCK), "--registry", f"http://127.0.0.1:{port}", "cluster", "ray", "--processes"]
        words += ["--address", cluster.address, "--token-file", str(token)]
        own = {**common, **cluster.variables, "BENCHLOCK_TOKEN_FILE": str(token)}
        launcher = Program("launcher", words, own, folder / "launcher.log")
        site.others = [database, (service, 3), (launcher, 2)]
        site.others.append((MeasuringContainer("container", engine), 3))
        for name in HOSTS:
            site.others += [(part, 2) for part in parts_of(cluster, name)]
        site.others += [(RayMember(name, cluster), 0) for name in (HEAD, *HOSTS)]  # mended; who strikes, chooses them
        for one in site.all:
            stack.callback(one.end)
        yield RaySite(site, cluster, answer["secret"], launcher)


def inspected(engine: str) -> str:
    """What the engine tells of its containers."""
    ids = subprocess.run(["docker", f"--host={engine}", "ps", "-aq"], capture_output=True, text=True, check=True)
    if not ids.stdout.split():
        return ""
    words = ["docker", f"--host={engine}", "inspect", *ids.stdout.split()]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout
