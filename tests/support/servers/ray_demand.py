"""Ask a cluster for a node of three CPUs; print the demand that its autoscaler sees, then the node that arrives."""

import json
import sys
import time

from ray.autoscaler.v2.sdk import get_cluster_status

from benchlock.evaluator.launchers.launcher import NodeSize
from benchlock.evaluator.launchers.node_worker import WorkerOrder
from benchlock.evaluator.launchers.ray_cluster import attach_cluster

SIZES = frozenset({NodeSize(3, 0)})


def main(address: str) -> None:
    with attach_cluster(address, WorkerOrder("http://127.0.0.1:1")) as cluster:
        told = False
        while not (arrived := cluster.request(SIZES)):
            demands = get_cluster_status(address).resource_demands.ray_task_actor_demand
            bundles = [dict(each.bundle) for demand in demands for each in demand.bundles_by_count]
            if bundles and not told:
                tell(bundles)
                told = True
            time.sleep(0.2)
        known = {node.id: node.name for node in cluster.nodes()}
        tell([known[node] for node in arrived.values()])


def tell(document: object) -> None:
    sys.stdout.write(f"{json.dumps(document)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
