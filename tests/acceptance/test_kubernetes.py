"""Workers that the launcher starts in Kubernetes, which is a double whose pods are processes of this checkout.

If ``BENCHLOCK_KUBERNETES`` names a real control plane (``kubernetes.sh``), it is tested as well. Two nodes drain a
small queue; a pod is killed, and a node is lost while another joins.
"""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.api.commands import BENCHLOCK, Commands
from tests.support.evaluator.struck_site import Site, check_jobs, together
from tests.support.evaluator.stub_harness import spans
from tests.support.servers.kubernetes_server import KubernetesServer, granted, kubernetes_server
from tests.support.servers.live_kubernetes import LIVE, LiveKubernetes, live_kubernetes
from tests.support.servers.registry_server import free_port
from tests.support.system.remains import processes
from tests.support.system.striking import DatabaseFile, Program

IMAGE = f"registry.example.org/benchlock@sha256:{'a' * 64}"
LEASE = 3.0
USER = "controller"
Cluster = KubernetesServer | LiveKubernetes


@pytest.fixture(params=["double", *(["live"] if LIVE else [])])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    def variables(node: str) -> dict[str, str]:
        home = tmp_path / "hosts" / node
        home.mkdir(parents=True, exist_ok=True)
        return {"BENCHLOCK_HOST_LOCK": str(home / "lock"), "DOCKER_HOST": f"unix://{home}/no-engine.sock"}

    with ExitStack() as stack:
        found: Cluster
        if request.param == "live":
            found = stack.enter_context(live_kubernetes(LiveKubernetes(tmp_path, variables)))
        else:
            double = KubernetesServer(tmp_path, variables, {USER: granted("bench")})
            found = stack.enter_context(kubernetes_server(double))
        for name in ("n1", "n2"):
            found.add_node(name)
        yield found


@pytest.fixture
def site(tmp_path: Path, cluster: Cluster) -> Iterator[Site]:
    with ExitStack() as stack:
        commands = Commands(tmp_path / "registry", "", {"BENCHLOCK_LEASE": str(LEASE)})
        commands.done("db", "create")
        secret = commands.done("token", "create", "workers", "--scope", "read", "--scope", "run")["secret"]
        cluster.secrets["benchlock-worker"] = {"token": secret}
        token = tmp_path / "token"
        token.write_text(secret)
        token.chmod(0o600)
        database = tmp_path / "registry" / "registry.sqlite"
        found = Site(tmp_path, commands, str(database), random.Random(1), LEASE)
        stack.callback(found.database.dispose)
        port, common = free_port(), commands.environment()
        words = [str(BENCHLOCK), "--registry", str(commands.registry), "serve", "--port", str(port)]
        service = Program("service", words, common, tmp_path / "service.log")
        words = [str(BENCHLOCK), "--registry", f"http://127.0.0.1:{port}", "cluster", "kubernetes", "--image", IMAGE]
        own = {**common, "BENCHLOCK_TOKEN_FILE": str(token), "KUBECONFIG": str(cluster.kubeconfig(USER))}
        launcher = Program("launcher", words, own, tmp_path / "launcher.log")
        found.others = [(DatabaseFile("database", database), 0), (service, 0), (launcher, 0)]
        for one in (service, launcher):
            stack.callback(one.end)
            one.start()
        yield found


def test_each_job_has_one_result_though_a_pod_is_killed_and_a_node_is_lost(site: Site, cluster: Cluster) -> None:
    asked = site.submit(None, ["medium", "medium", "process", "process"])

    def lost() -> int:
        return len(site.rows("SELECT fence FROM leases WHERE ended = 'lost'"))

    def strike_pod() -> bool:
        return strike(site, cluster, "n1", cluster.kill_pod)

    def strike_node() -> bool:
        return strike(site, cluster, "n2", lambda _: cluster.lose_node("n2"))

    with site.mending():
        site.wait_until(strike_pod, 120)
        site.wait_until(strike_node, 120)
        cluster.add_node("n3")
        site.wait_until(site.is_over, 240)
    log = (site.folder / "launcher.log").read_text()
    check_jobs(site, asked, {"launcher": log}, 1.0)
    assert lost() >= 2, log
    assert len({node for _, node in cluster.placed}) == 3, log
    for node in ("n1", "n2", "n3"):
        pods = [pod for pod, place in cluster.placed if place == node]
        assert together([one for one in spans(site.log) if any(f"/{pod}/" in one.where for pod in pods)]) == []
    assert "not a worker of benchlock" not in log, "a report was not written"
    secret = cluster.secrets["benchlock-worker"]["token"]
    assert secret not in json.dumps(cluster.created) + log
    launcher = next(one for one, _ in site.others if one.name == "launcher")
    assert isinstance(launcher, Program)
    assert launcher.ask_to_end() == 0
    site.wait_until(lambda: not cluster.live_pods(), 60)
    assert processes(site.folder / "pods") == []


def strike(site: Site, cluster: Cluster, node: str, harm: Callable[[str], None]) -> bool:
    """Strike the pod of a node while it measures."""
    at_work = site.rows(f"SELECT 1 FROM leases WHERE ended IS NULL AND run IS NOT NULL AND machine = '{node}'")
    pods = [pod for pod, place in cluster.placed if place == node and pod in cluster.running]
    if at_work and pods:
        harm(pods[0])
    return bool(at_work and pods)
