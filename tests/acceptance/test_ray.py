"""Workers that a real Ray cluster of three nodes starts, on the loopback and with a token.

The container is struck, and two others of: raylets, tasks of Ray, workers, whole nodes, the database, the service and
the launcher. BENCHLOCK_SEED repeats which. ``benchmarks/ray_faults.py`` strikes a hundred times, the head too.

One matrix is measured on this host, by a worker of a service and on the cluster.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.commands import BENCHLOCK, Commands, copied, link_environments
from tests.support.api.serving import at, service
from tests.support.evaluator.ray_site import HOSTS, RaySite, inspected, node_variables, ray_site
from tests.support.evaluator.struck_site import Site, check_jobs, overlaps, recorded_events, tell
from tests.support.registry.digits import DIGITS, model, request, written
from tests.support.servers.ray_nodes import RayNodes, ray_nodes
from tests.support.system.python_image import PythonImage, make_image
from tests.support.system.remains import containers, processes
from tests.support.system.striking import Program, Victim

SEED = int(os.environ.get("BENCHLOCK_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
STRUCK = 2
REQUEST = {key: value for key, value in request("").items() if key not in ("schema", "kind", "name", "model")}
MATRIX: dict[str, Any] = {
    "schema": 1,
    "kind": "matrix",
    "name": "places",
    "request": REQUEST,
    "axes": {"model": {name: {"name": f"digits-{name}", "version": "*"} for name in ("onnx", "plain")}},
    "repeat": 2,
    "isolation": "process",
    "seed": 7,
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> PythonImage:
    return make_image(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, engine_url: str) -> Iterator[RayNodes]:
    with ray_nodes(node_variables(tmp_path_factory.mktemp("nodes"), engine_url)) as found:
        yield found


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory, cluster: RayNodes, engine_url: str) -> Iterator[RaySite]:
    with ray_site(tmp_path_factory.mktemp("site"), cluster, engine_url, SEED) as found:
        for one in found.site.all:
            if isinstance(one, Program):
                one.start()
        yield found


@pytest.mark.engine
def test_no_secret_is_found_where_ray_or_the_host_shows_it(ray: RaySite, image: PythonImage, engine_url: str) -> None:
    site, secret = ray.site, ray.secret.encode()
    ray.asked |= site.submit(image, ["container", "process"])
    seen = b""
    with site.mending():
        while not site.is_over():
            seen += inspected(engine_url).encode() + shown_by_processes()
            time.sleep(0.2)
    # Both have run; on a slow host they may lose leases of 3 s.
    assert site.rows("SELECT count(DISTINCT job) FROM leases WHERE run IS NOT NULL") == [(2,)]
    assert b"--token-file" in seen
    assert secret not in seen
    told = shown_by_ray(ray.cluster)
    assert b"worker-token" in told, "the path of the file is no secret, and is shown"
    assert secret not in told
    written = [path for folder in (ray.cluster.folder, site.folder) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in written if secret in path.read_bytes()] == [site.folder / "worker-token"]


@pytest.mark.engine
def test_a_cluster_refuses_another_token_and_the_launcher_says_so(ray: RaySite, tmp_path: Path) -> None:
    other = tmp_path / "token"
    other.write_text("0" * 64)
    variables = {**ray.cluster.variables, "RAY_AUTH_TOKEN_PATH": str(other)}
    commands = replace(ray.site.commands, variables=variables)
    words = ("--registry", "http://127.0.0.1:1", "cluster", "ray", "--address", ray.cluster.address)
    assert "refuses the token" in commands.error(1, *words)["message"]


@pytest.mark.engine
def test_a_node_that_is_missing_is_a_demand_of_the_autoscaler_until_it_arrives(cluster: RayNodes) -> None:
    words = [sys.executable, "-m", "tests.support.servers.ray_demand", cluster.address]
    variables = os.environ | cluster.script_variables
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        assert json.loads(script.stdout.readline()) == [{"CPU": 3.0}]
        try:
            cluster.finish("n4", cluster.starting("n4", cpus=3))
            assert json.loads(script.stdout.readline()) == ["n4"]
            assert script.wait() == 0
        finally:
            cluster.kill("n4")


@pytest.mark.engine
@pytest.mark.image
def test_one_matrix_has_the_same_locks_results_and_rows_on_this_host_on_a_service_and_on_ray(
    cluster: RayNodes, small_images: Commands, tmp_path: Path
) -> None:
    file = written(tmp_path / "matrix.yaml", MATRIX)
    lock = {"BENCHLOCK_HOST_LOCK": str(tmp_path / "lock")}
    published = copied(small_images, tmp_path / "published" / "registry", "")
    plain = written(tmp_path / "plain.json", model("digits-plain"))
    published.done("publish", DIGITS / "dataset.yaml", DIGITS / "models" / "digits-onnx.yaml", plain)
    local, served, on_ray = (
        replace(copied(published, tmp_path / name / "registry", ""), variables=lock) for name in ("a", "b", "c")
    )
    work = ("worker", "--processes", "--until-idle", "--machine", "m1")
    local.done("matrix", "submit", file)
    local.done(*work)
    results = [results_of(local, file, {"m1"})]
    with service(served.registry) as place:
        remote = at(place.url, tmp_path / "remote", **lock)
        share_environments(remote, small_images.registry, [tmp_path / "remote" / "cache"])
        remote.done("matrix", "submit", file)
        remote.done(*work)
        results.append(results_of(remote, file, {"m1"}))
    with service(on_ray.registry) as place:
        remote = at(place.url, tmp_path / "client")
        homes = [Path(variables["XDG_CACHE_HOME"]) for variables in cluster.nodes.values()]
        share_environments(remote, small_images.registry, homes)
        words = [str(BENCHLOCK), "--registry", place.url, "cluster", "ray", "--processes", "--address", cluster.address]
        launcher = Program("launcher", words, remote.environment() | cluster.variables, tmp_path / "launcher.log")
        launcher.start()
        try:
            remote.done("matrix", "submit", file)
            remote.done("matrix", "status", file, "--wait")
            results.append(results_of(remote, file, {*HOSTS}))
            assert launcher.ask_to_end() == 0
        finally:
            launcher.end()
    assert results[0] == results[1] == results[2]
    cells = results[0][2]
    assert [cell for cell, *_ in cells] == ["model=onnx", "model=plain"]
    assert {(runs, missing) for _, _, _, missing, runs, _ in cells} == {(2, None)}
    assert json.loads(file.read_text()) == MATRIX


@pytest.mark.engine
def test_whatever_is_struck_each_job_has_one_result_and_measures_alone(
    ray: RaySite, image: PythonImage, engine_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site = ray.site
    victims = [victim for victim, weight in site.others if weight]
    names = sorted({victim.name for victim in victims} - {"container"})  # which is there at the beginning
    with recorded_events(engine_url, site.folder / "events") as events:
        ray.asked |= site.submit(image, ["container", "process"] * 3)
        with site.mending():
            for name in ["container", *site.numbers.sample(names, STRUCK)]:
                site.wait_until(site.is_at_work, 5)
                choices = [victim for victim in victims if victim.name == name]
                site.wait_until(partial(strike_one, site, choices), 5)
            site.mend(float("inf"))
            site.wait_until(site.is_over, 300)
    told = {"seed": SEED, **tell(site, ray.asked, events)}
    with capsys.disabled():
        sys.stdout.write(f"\n{told}\n" * ("BENCHLOCK_SEED" in os.environ))
    check_jobs(site, ray.asked, told, 0.5)
    assert overlaps(site, events, sorted(set(HOSTS.values()))) == []
    assert ray.launcher.ask_to_end() in (0, -15)
    for victim in site.all:
        victim.end()
    # The process of a launcher that was killed returns its jobs before it ends.
    site.wait_until(lambda: not processes(site.folder), 120)
    assert (processes(site.folder), containers(site.commands)) == ([], [])


def share_environments(remote: Commands, registry: Path, homes: Sequence[Path]) -> None:
    """Let workers on the server, whose caches are in ``homes``, use the environments of a registry in a folder."""
    remote.done("doctor")
    (cache,) = Path(remote.variables["XDG_CACHE_HOME"], "benchlock").iterdir()
    for home in homes:
        link_environments(registry, home / "benchlock" / cache.name / "worker")


def results_of(commands: Commands, matrix: Path, machines: set[str]) -> tuple[Any, ...]:
    """The states of a matrix, and each row of its table without the times.

    Each job has one run, on one of the machines, and the registry has no other runs.
    """
    jobs = commands.done("jobs")["jobs"]
    runs = commands.done("runs")["runs"]
    assert len(jobs) == 2 * MATRIX["repeat"]
    assert {job["state"] for job in jobs} == {"done"}
    assert {job["machine"] for job in jobs} <= machines
    assert sorted(job["run"] for job in jobs) == sorted(run["run"] for run in runs)
    table = commands.done("matrix", "table", matrix)
    rows = [
        (
            cell["cell"],
            cell["lock"],
            cell["group"],
            cell["missing"],
            len(cell["runs"]),
            tuple(map(row_of, cell["metrics"])),
        )
        for cell in table["cells"]
    ]
    return table["matrix"], commands.done("matrix", "status", matrix)["states"], rows, table["groups"]


def row_of(entry: dict[str, Any]) -> tuple[Any, ...]:
    """A metric of a cell: its name, and its value, rank and verdict unless it is a time, which a busy host disturbs."""
    name = entry["metric"]["name"]
    return (name, entry["metric"]["value"], entry["rank"], entry["verdict"]) if name == "top1" else (name,)


def strike_one(site: Site, victims: Sequence[Victim]) -> bool:
    """Strike one of them; whether it was there."""
    return site.strike(site.numbers.choice(victims)) != "missed"


def shown_by_processes() -> bytes:
    """The command lines and the environments of all processes of this host."""
    found = []
    for path in [*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")]:
        with suppress(OSError):  # it ended meanwhile
            found.append(path.read_bytes())
    return b"\n".join(found)


def shown_by_ray(cluster: RayNodes) -> bytes:
    words = [sys.executable, "-m", "tests.support.servers.ray_dump", cluster.address]
    variables = os.environ | cluster.script_variables
    return subprocess.run(words, env=variables, capture_output=True, check=True).stdout
