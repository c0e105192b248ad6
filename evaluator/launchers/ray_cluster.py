"""A Ray cluster that runs the workers of its nodes, one task each. The only module that imports Ray.

Ray carries no jobs and no results: a task starts a worker, and returns its exit code and the name of its machine.
``python -m benchlock.evaluator.launchers.ray_cluster ADDRESS`` prints what the cluster says of itself as JSON.
"""

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import ray
from ray._raylet import GcsClient  # type: ignore[attr-defined] # made in C
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.launchers.launcher import Node, NodeSize
from benchlock.evaluator.launchers.node_worker import WorkerOrder, WorkerReport, describe_error, run_worker

MACHINE_LABEL: Final = "benchlock.org/machine"
"""The label of a node that names its machine, for nodes whose system ids do not, such as Kubernetes pods."""
_NODE_ID: Final = "ray.io/node-id"
_GRACE_SECONDS: Final = 40.0
"""How long cancelled workers may take to return their jobs."""
_ANSWER_SECONDS: Final = 10.0
_ALIVE: Final = 0


class RayCluster:
    """The nodes of the Ray cluster that this process is attached to."""

    def __init__(self, order: WorkerOrder) -> None:
        """Start workers as ``order`` says."""
        self._order = order
        self._workers: dict[Any, Node] = {}
        self._demands: dict[NodeSize, tuple[frozenset[str], Any]] = {}

    def nodes(self) -> Sequence[Node]:
        """List the nodes that are alive and have CPUs: Ray runs no task on the others, such as many a head."""
        return [
            Node(
                node["NodeID"],
                node["NodeName"],
                node["Labels"].get(MACHINE_LABEL, ""),
                node["Resources"]["CPU"],
                node["Resources"].get("GPU", 0),
            )
            for node in self._alive()
            if node["Resources"].get("CPU", 0) >= 1
        ]

    def start(self, node: Node) -> None:
        """Start a worker, which takes all of the node: Ray places nothing beside a measurement."""
        work = ray.remote(run_worker).options(
            name=f"worker on {node.name}",
            num_cpus=node.cpus,
            num_gpus=node.gpus,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        self._workers[work.remote(replace(self._order, machine=node.machine))] = node

    def wait(self, seconds: float) -> Mapping[Node, WorkerReport]:
        """Wait until a worker ends; a worker that Ray lost ends without a code."""
        if not self._workers:
            time.sleep(seconds)
            return {}
        ray.wait([*self._workers], num_returns=1, timeout=seconds)
        ended, _ = ray.wait([*self._workers], num_returns=len(self._workers), timeout=0)
        return {self._workers.pop(reference): _report(reference) for reference in ended}

    def request(self, sizes: frozenset[NodeSize]) -> Mapping[NodeSize, str]:
        """Keep a task pending for each size, which fits no existing node.

        Ray's autoscaler sees the task and adds a node that is large enough. The task ends there at once. Any
        node of the size that was not there when the task was submitted counts as arrived.
        """
        ended = {size for size, (_, task) in self._demands.items() if ray.wait([task], timeout=0)[0]}
        nodes = {node["NodeID"]: node["Resources"] for node in self._alive()}  # later, so with that of an ended task
        arrived: dict[NodeSize, str] = {}
        for size, (known, task) in [*self._demands.items()]:
            new = [id_ for id_, amounts in nodes.items() if id_ not in known and _fits(size, amounts)]
            if size in sizes and (new or size in ended):
                arrived[size] = new[0] if new else ""
            if size in arrived or size not in sizes:
                del self._demands[size]
                ray.cancel(task)
        for size in sizes - self._demands.keys() - arrived.keys():
            task = ray.remote(_do_nothing).options(
                name="new node",
                num_cpus=size.cpus,
                num_gpus=size.gpus,
                max_retries=0,
                label_selector={_NODE_ID: f"!in({', '.join(sorted(nodes))})"},
            )
            self._demands[size] = (frozenset(nodes), task.remote())
        return arrived

    def stop(self) -> None:
        """Cancel all workers, which return their jobs, and wait for that."""
        for _, task in self._demands.values():
            ray.cancel(task)
        for worker in self._workers:
            ray.cancel(worker)
        if self._workers:
            ray.wait([*self._workers], num_returns=len(self._workers), timeout=_GRACE_SECONDS)

    def _alive(self) -> list[dict[str, Any]]:
        try:
            nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        except ray.exceptions.RayError as error:
            raise UnavailableError(f"the head of the Ray cluster does not answer: {describe_error(error)}") from error
        return [node for node in nodes if node["Alive"]]


@contextmanager
def attach_cluster(address: str, order: WorkerOrder) -> Iterator[RayCluster]:
    """Attach this process to a Ray cluster; stop the workers at the end.

    Raises:
        UnavailableError: Ray cannot attach this process, for example because no node of the cluster is on this host.
    """
    try:
        ray.init(address=address, logging_level=logging.WARNING, namespace="benchlock")
    except Exception as error:
        raise UnavailableError(
            f"cannot attach to the Ray cluster: {describe_error(error)}",
            where=address,
            next_step="run the command on a node of the cluster, such as its head",
        ) from error
    cluster = RayCluster(order)
    try:
        yield cluster
    finally:
        cluster.stop()
        ray.shutdown()


def _do_nothing() -> None:
    """End: the task has its node."""


def _fits(size: NodeSize, amounts: Mapping[str, float]) -> bool:
    return amounts.get("CPU", 0) >= size.cpus and amounts.get("GPU", 0) >= size.gpus


def _report(worker: Any) -> WorkerReport:  # noqa: ANN401 - a reference of Ray
    try:
        report = ray.get(worker)
    except ray.exceptions.RayError as error:
        return WorkerReport(None, message=describe_error(error))
    assert isinstance(report, WorkerReport)
    return report


def main() -> None:
    """Print the versions of a cluster and the addresses of its nodes, or why it refuses to tell."""
    try:
        client = GcsClient(address=sys.argv[1])
        stored = client.internal_kv_get(b"CLUSTER_METADATA", namespace=b"cluster", timeout=_ANSWER_SECONDS)
        nodes = client.get_all_node_info(timeout=_ANSWER_SECONDS).values()
    except ray.exceptions.AuthenticationError:
        sys.stdout.write(json.dumps({"refused": True}))
        return
    metadata = json.loads(stored)
    addresses = sorted({node.node_manager_address for node in nodes if node.state == _ALIVE})
    answer = {"ray": metadata["ray_version"], "python": metadata["python_version"], "addresses": addresses}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
