"""The demands of a Ray cluster, on a double of Ray: one task each, which ends where a node has arrived."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from benchlock.evaluator.launchers import ray_cluster
from benchlock.evaluator.launchers.launcher import NodeSize
from benchlock.evaluator.launchers.node_worker import WorkerOrder
from benchlock.evaluator.launchers.ray_cluster import RayCluster

SIZE = NodeSize(4, 0)


@dataclass
class Ray:
    """The functions of the library; a test says which tasks ended."""

    cpus: dict[str, float] = field(default_factory=dict)
    pending: list[dict[str, Any]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": name, "Alive": True, "Resources": {"CPU": cpus}} for name, cpus in self.cpus.items()]

    def wait(self, tasks: Sequence[dict[str, Any]], *, timeout: float) -> tuple[list[dict[str, Any]], ...]:
        assert timeout == 0
        return [one for one in tasks if one in self.ended], []

    def cancel(self, task: dict[str, Any]) -> None:
        self.pending.remove(task)

    def remote(self, _function: object = None) -> "Ray | dict[str, Any]":
        if _function is not None:
            return self
        return self.pending[-1]

    def options(self, **options: Any) -> "Ray":  # noqa: ANN401 - of Ray
        self.pending.append(options)
        return self


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    double = Ray({"n1": 2.0})
    monkeypatch.setattr(ray_cluster, "ray", double)
    return double


@pytest.fixture
def cluster(ray: Ray) -> RayCluster:
    found = RayCluster(WorkerOrder("https://bench.example"))
    assert found.request(frozenset({SIZE})) == {}
    (task,) = ray.pending
    assert task["label_selector"] == {"ray.io/node-id": "!in(n1)"}
    return found


def test_a_demand_is_kept_whichever_small_nodes_join(ray: Ray, cluster: RayCluster) -> None:
    (task,) = ray.pending
    ray.cpus["n2"] = 2.0
    assert cluster.request(frozenset({SIZE})) == {}
    assert ray.pending == [task]
    ray.cpus["n3"] = 4.0
    assert cluster.request(frozenset({SIZE})) == {SIZE: "n3"}
    assert ray.pending == []


def test_a_demand_whose_task_failed_is_over(ray: Ray, cluster: RayCluster) -> None:
    ray.ended += ray.pending
    assert cluster.request(frozenset({SIZE})) == {SIZE: ""}
    assert ray.pending == []
    assert cluster.request(frozenset()) == {}
