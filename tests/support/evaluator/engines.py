"""Cluster engines for tests of what a launcher expects of them: a fake in memory, and the double of Kubernetes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from benchlock.evaluator.launchers.kubernetes_cluster import KubernetesCluster
from benchlock.evaluator.launchers.launcher import Cluster, Node, NodeSize
from benchlock.evaluator.launchers.node_worker import WorkerReport
from benchlock.evaluator.launchers.pod_manifests import read_resources
from tests.support.servers.kubernetes_server import KubernetesServer
from tests.support.servers.live_kubernetes import LiveKubernetes

_Server = TypeVar("_Server", KubernetesServer, LiveKubernetes)


class EngineBench(Protocol):
    """An engine, and what happens to it."""

    @property
    def cluster(self) -> Cluster:
        """What the launcher sees of it."""

    def add_node(self, name: str, cpus: int = 2, gpus: int = 0) -> None: ...

    def lose_node(self, name: str) -> None: ...

    def end_worker(self, node: str, report: WorkerReport) -> None:
        """The worker of a node ends, and says how."""

    def lose_worker(self, node: str) -> None:
        """The engine ends a worker, without a word of it."""

    def workers(self) -> list[str]:
        """The nodes on which there are workers."""

    def demands(self) -> set[NodeSize]:
        """The sizes for which the engine would add a node."""


@dataclass
class FakeCluster:
    """The simplest cluster that keeps the promises of the protocol."""

    alive: dict[str, Node] = field(default_factory=dict)
    running: dict[str, Node] = field(default_factory=dict)
    ended: dict[Node, WorkerReport] = field(default_factory=dict)
    known: dict[NodeSize, frozenset[str]] = field(default_factory=dict)

    def nodes(self) -> Sequence[Node]:
        return list(self.alive.values())

    def start(self, node: Node) -> None:
        self.running[node.id] = node

    def wait(self, _seconds: float) -> Mapping[Node, WorkerReport]:
        ended, self.ended = self.ended, {}
        return ended

    def request(self, sizes: frozenset[NodeSize]) -> Mapping[NodeSize, str]:
        arrived = {}
        for size, known in self.known.items():
            new = [one.id for one in self.alive.values() if one.id not in known and _fits(size, one)]
            if new and size in sizes:
                arrived[size] = new[0]
        self.known = {size: self.known.get(size, frozenset(self.alive)) for size in sizes - arrived.keys()}
        return arrived


@dataclass
class FakeBench:
    cluster: FakeCluster = field(default_factory=FakeCluster)

    def add_node(self, name: str, cpus: int = 2, gpus: int = 0) -> None:
        self.cluster.alive[name] = Node(name, name, name, cpus, gpus)

    def lose_node(self, name: str) -> None:
        del self.cluster.alive[name]
        if name in self.cluster.running:
            self.lose_worker(name)

    def end_worker(self, node: str, report: WorkerReport) -> None:
        self.cluster.ended[self.cluster.running.pop(node)] = report

    def lose_worker(self, node: str) -> None:
        self.end_worker(node, WorkerReport(None, message="it was lost"))

    def workers(self) -> list[str]:
        return sorted(self.cluster.running)

    def demands(self) -> set[NodeSize]:
        return set(self.cluster.known)


@dataclass
class KubernetesBench(Generic[_Server]):
    server: _Server
    cluster: KubernetesCluster

    def add_node(self, name: str, cpus: int = 2, gpus: int = 0) -> None:
        self.server.add_node(name, str(cpus), str(gpus) if gpus else "")

    def lose_node(self, name: str) -> None:
        self.server.lose_node(name)
        self.act()

    def end_worker(self, node: str, report: WorkerReport) -> None:
        assert report.code is not None
        message = report.message if report.code else json.dumps({"machine": report.machine, "jobs": report.jobs})
        self.server.finish_pod(self.pod(node), report.code, message)
        self.act()

    def lose_worker(self, node: str) -> None:
        self.server.delete_pod(self.pod(node))
        self.act()

    def workers(self) -> list[str]:
        self.act()
        pods = self.server.live_pods()
        return sorted(node for pod, node in self.server.placed if pod in pods)

    def demands(self) -> set[NodeSize]:
        self.act()
        found = [self.server.pods[name]["spec"] for name in self.server.live_pods("benchlock-demand")]
        assert all("nodeName" not in spec for spec in found), "it is placed on an existing node"
        wanted = [read_resources(spec["containers"][0]["resources"]["requests"]) for spec in found]
        return {NodeSize(one.millicpus // 1000, one.gpus) for one in wanted}

    def act(self) -> None:
        """Let Kubernetes act until it has nothing to do."""
        for _ in range(4):
            self.server.step()

    def pod(self, node: str) -> str:
        live = self.server.live_pods()
        return next(pod for pod, place in self.server.placed if place == node and pod in live)


def _fits(size: NodeSize, node: Node) -> bool:
    return node.cpus >= size.cpus and node.gpus >= size.gpus
