"""What a launcher expects of every cluster engine: a fake keeps it, and Kubernetes.

That is a double, and a real control plane as well if ``BENCHLOCK_KUBERNETES`` names one (``kubernetes.sh``).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchlock.evaluator.launchers.kubernetes_api import connect
from benchlock.evaluator.launchers.kubernetes_cluster import KubernetesCluster
from benchlock.evaluator.launchers.launcher import Node, NodeSize
from benchlock.evaluator.launchers.node_worker import WorkerReport
from benchlock.evaluator.launchers.pod_manifests import WorkerTemplate
from tests.support.evaluator.engines import EngineBench, FakeBench, KubernetesBench
from tests.support.servers.kubernetes_server import KubernetesServer, granted, kubernetes_server
from tests.support.servers.live_kubernetes import LIVE, LiveKubernetes

TEMPLATE = WorkerTemplate("https://bench.example", f"benchlock@sha256:{'a' * 64}", "benchlock-worker")
LARGE = NodeSize(4, 1)


@pytest.fixture(params=["fake", "kubernetes", *(["live"] if LIVE else [])])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineBench]:
    if request.param == "fake":
        yield FakeBench()
        return
    if request.param == "live":
        live = LiveKubernetes(tmp_path, runs_pods=False)
        monkeypatch.setenv("KUBECONFIG", str(live.kubeconfig()))
        yield KubernetesBench(live, KubernetesCluster(connect("", ""), TEMPLATE))
        return
    server = KubernetesServer(tmp_path, rights={"user": granted("bench")}, runs_pods=False)
    with kubernetes_server(server, steps=False):
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig("user")))
        yield KubernetesBench(server, KubernetesCluster(connect("", ""), TEMPLATE))


def started(bench: EngineBench, *names: str) -> list[Node]:
    """The nodes of these names, each with a worker."""
    for name in names:
        bench.add_node(name)
    nodes = sorted(bench.cluster.nodes(), key=lambda one: one.name)
    for node in nodes:
        bench.cluster.start(node)
    assert bench.workers() == sorted(names)
    return nodes


def test_nodes_are_listed_with_what_they_have(bench: EngineBench) -> None:
    assert list(bench.cluster.nodes()) == []
    bench.add_node("n1")
    bench.add_node("n2", 4, 2)
    assert sorted((one.name, one.cpus, one.gpus) for one in bench.cluster.nodes()) == [("n1", 2, 0), ("n2", 4, 2)]


def test_a_worker_is_reported_once_it_has_ended_and_only_once(bench: EngineBench) -> None:
    one, two = started(bench, "n1", "n2")
    assert bench.cluster.wait(0.01) == {}
    report = WorkerReport(0, "n1", 1)
    bench.end_worker("n1", report)
    assert bench.cluster.wait(0.01) == {one: report}
    assert bench.cluster.wait(0.01) == {}
    bench.cluster.start(one)
    assert bench.workers() == ["n1", "n2"]
    bench.end_worker("n2", WorkerReport(0, "n2", 0))
    assert bench.cluster.wait(0.01) == {two: WorkerReport(0, "n2", 0)}


def test_a_worker_that_fails_is_reported_with_what_it_said(bench: EngineBench) -> None:
    (node,) = started(bench, "n1")
    bench.end_worker("n1", WorkerReport(6, message="the token is refused"))
    report = bench.cluster.wait(0.01)[node]
    assert (report.code, report.machine, report.jobs) == (6, "", 0)
    assert "the token is refused" in report.message


def test_a_worker_that_the_engine_loses_has_failed(bench: EngineBench) -> None:
    (node,) = started(bench, "n1")
    bench.lose_worker("n1")
    report = bench.cluster.wait(0.01)[node]
    assert report.code != 0
    assert report.message
    bench.cluster.start(node)
    assert bench.workers() == ["n1"]


def test_a_node_that_is_lost_is_no_longer_listed_and_its_worker_has_failed(bench: EngineBench) -> None:
    one, two = started(bench, "n1", "n2")
    bench.lose_node("n1")
    assert list(bench.cluster.nodes()) == [two]
    assert bench.cluster.wait(0.01)[one].code != 0
    assert bench.workers() == ["n2"]


def test_a_demand_is_for_a_node_that_is_not_there_until_it_arrives(bench: EngineBench) -> None:
    bench.add_node("n1", 8, 2)
    assert bench.cluster.request(frozenset({LARGE})) == {}
    assert bench.demands() == {LARGE}
    bench.add_node("n2", 2)
    assert bench.cluster.request(frozenset({LARGE})) == {}, "the new node is too small"
    assert bench.demands() == {LARGE}
    bench.add_node("n3", 4, 1)
    (new,) = [one for one in bench.cluster.nodes() if one.name == "n3"]
    assert bench.cluster.request(frozenset({LARGE})) == {LARGE: new.id}
    assert bench.demands() == set()


def test_a_demand_that_is_no_longer_asked_for_is_gone(bench: EngineBench) -> None:
    bench.cluster.request(frozenset({LARGE, NodeSize(1, 0)}))
    assert bench.demands() == {LARGE, NodeSize(1, 0)}
    bench.cluster.request(frozenset({NodeSize(1, 0)}))
    assert bench.demands() == {NodeSize(1, 0)}
    assert bench.cluster.request(frozenset()) == {}
    assert bench.demands() == set()
