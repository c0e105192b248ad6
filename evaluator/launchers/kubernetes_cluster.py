"""A Kubernetes cluster that runs the workers of its nodes, one Job each.

Kubernetes carries no jobs of the queue and no results: a pod starts a worker, and its termination message has the
name of the machine and the number of jobs. All that is remembered here is also in the API server.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.launchers.kubernetes_api import KubernetesApi, connect
from benchlock.evaluator.launchers.kubernetes_objects import JobObject, NodeObject, PodObject, WorkerAnswer
from benchlock.evaluator.launchers.launcher import Node, NodeSize
from benchlock.evaluator.launchers.node_worker import WorkerReport, shorten
from benchlock.evaluator.launchers.pod_manifests import (
    CPUS,
    DEMAND,
    GPUS,
    NAME,
    REGISTRY,
    WORKER,
    Resources,
    WorkerTemplate,
    name_machine,
    name_worker,
    read_known_nodes,
    render_demand,
    render_worker,
    sum_resources,
)

_POLL: Final = 1.0
"""Seconds between two looks at the Jobs."""
_PATIENCE: Final = 60.0
"""Seconds for which a pod may be unable to start before its Job is deleted."""
_PULL_PATIENCE: Final = 1200.0
"""The same without a known reason: the image may be large."""
_UNKNOWN_TROUBLE: Final = (
    "its container is still being created; check the Secret of the workers, and `kubectl get events`"
)
_NO_POD: Final = "Kubernetes has created no pod for its Job; check quotas, and `kubectl get events`"
_MIN_MILLICPUS: Final = 1000
"""The thousandths of a CPU that a worker needs."""
_ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})


class KubernetesCluster:
    """The nodes of a Kubernetes cluster.

    Args:
        api: The API server.
        template: What all workers have in common.
        clock: Returns seconds.
        pause: Waits for seconds.
    """

    def __init__(
        self,
        api: KubernetesApi,
        template: WorkerTemplate,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare; Jobs of an earlier launcher are adopted when their nodes get a worker."""
        self._api, self._template, self._clock, self._pause = api, template, clock, pause
        self._workers: dict[str, Node] = {}
        self._full_nodes: dict[Node, WorkerReport] = {}
        self._waiting: dict[str, tuple[float, float]] = {}
        self._may_have_demands = True

    @property
    def namespace(self) -> str:
        """The namespace of the workers."""
        return self._api.namespace

    def nodes(self) -> Sequence[Node]:
        """List the chosen nodes that are ready, schedulable and without taints that workers do not tolerate.

        Raises:
            RefusedError: A permission is missing.
            UnavailableError: The API server does not answer.
        """
        return [
            Node(
                one.metadata.name,
                one.metadata.name,
                name_machine(self._template, one.metadata.name),
                one.resources.millicpus / 1000,
                one.resources.gpus,
            )
            for one in self._read_nodes()
            if self._is_usable(one)
        ]

    def start(self, node: Node) -> None:
        """Create the Job of a worker, or adopt the one that is there: its name is that of the node.

        Raises:
            RefusedError: A permission is missing.
            UnavailableError: The API server does not answer.
        """
        name = name_worker(self._template, node.name)
        free = self._find_free(node)
        is_free = free.millicpus >= _MIN_MILLICPUS
        if is_free and self._api.create("jobs", render_worker(self._template, node.name, free)):
            self._workers[name] = node
            return
        jobs = [job.metadata for job in self._list_jobs(WORKER) if job.metadata.name == name]
        if jobs and not jobs[0].deletion_timestamp:
            self._workers[name] = node
            return
        full = f"insufficient CPU: {free.millicpus / 1000:g} of {node.cpus:g} free; a worker needs 1"
        message = "Kubernetes is still deleting the Job of its last worker" if jobs or is_free else full
        self._full_nodes[node] = WorkerReport(None, message=message)

    def wait(self, seconds: float) -> Mapping[Node, WorkerReport]:
        """Wait until a worker ends; a pod that was deleted or evicted is a failure, whatever it had done.

        Raises:
            RefusedError: A permission is missing.
        """
        deadline = self._clock() + seconds
        ended: dict[Node, WorkerReport] = {}
        while True:
            with suppress(UnavailableError):  # the next call of ``nodes`` says so
                ended |= self._collect()
            ended |= self._full_nodes
            self._full_nodes.clear()
            left = deadline - self._clock()
            if ended or left <= 0:
                return ended
            self._pause(min(_POLL, left))

    def request(self, sizes: frozenset[NodeSize]) -> Mapping[NodeSize, str]:
        """Keep a Job pending for each size, which fits no existing node.

        Cluster autoscalers see its pod and add a node that is large enough. The Job lists the nodes at its creation;
        any other node of the size counts as arrived.

        Raises:
            RefusedError: A permission is missing.
            UnavailableError: The API server does not answer.
        """
        if not sizes and not self._may_have_demands:
            return {}
        jobs = [job for job in self._list_jobs(DEMAND) if not job.metadata.deletion_timestamp]
        nodes = self._read_nodes()  # later, so with that of an ended Job
        arrived: dict[NodeSize, str] = {}
        pending = set()
        for job in jobs:
            size = _read_size(job)
            known = read_known_nodes(job.spec.template)
            new = [
                one.metadata.name
                for one in nodes
                if one.metadata.name not in known and self._is_usable(one) and _fits(size, one)
            ]
            if size in sizes and (new or job.is_over):
                arrived[size] = new[0] if new else ""
            if new or size not in sizes or job.is_over:
                self._api.delete("jobs", job.metadata.name, job.metadata.uid)
            else:
                pending.add(size)
        for size in sizes - pending - arrived.keys():
            self._api.create("jobs", render_demand(self._template, size, [one.metadata.name for one in nodes]))
        self._may_have_demands = bool(sizes)
        return arrived

    def _read_nodes(self) -> list[NodeObject]:
        labels = ",".join(f"{key}={value}" for key, value in self._template.node_selector)
        return self._api.list_all("nodes", NodeObject, labelSelector=labels)

    def _is_usable(self, node: NodeObject) -> bool:
        return node.is_usable(self._template.tolerations)

    def _list_jobs(self, role: str) -> list[JobObject]:
        """List the Jobs of a role; those that are being deleted are among them."""
        return self._api.list_all("jobs", JobObject, labelSelector=self._select(role))

    def _select(self, role: str) -> str:
        return f"{NAME}={role},{REGISTRY}={self._template.registry_label}"

    def _find_free(self, node: Node) -> Resources:
        """Return what the pods on a node leave of it; the pod of a demand ends at once and does not count."""
        nodes = self._api.list_all("nodes", NodeObject, fieldSelector=f"metadata.name={node.name}")
        allocatable = sum_resources(one.resources for one in nodes)
        pods = self._api.list_all("pods", PodObject, everywhere=True, fieldSelector=f"spec.nodeName={node.name}")
        running = [
            one for one in pods if one.status.phase not in _ENDED_PHASES and one.metadata.labels.get(NAME) != DEMAND
        ]
        return allocatable - sum_resources(one.spec.requested for one in running)

    def _collect(self) -> dict[Node, WorkerReport]:
        """Return the workers that ended, and delete their Jobs."""
        if not self._workers:
            return {}
        jobs = {job.metadata.name: job for job in self._list_jobs(WORKER)}
        pods = self._api.list_all("pods", PodObject, labelSelector=self._select(WORKER))
        ended = {}
        for name, node in list(self._workers.items()):
            job = jobs.get(name)
            report = WorkerReport(None, message="its Job was deleted") if job is None else self._examine(job, pods)
            if report is None:
                continue
            ended[node] = report
            del self._workers[name]
            self._waiting.pop(name, None)
            if job is not None:
                with suppress(UnavailableError):  # Kubernetes deletes it later (``ttlSecondsAfterFinished``)
                    self._api.delete("jobs", name, job.metadata.uid)
        return ended

    def _examine(self, job: JobObject, pods: Iterable[PodObject]) -> WorkerReport | None:
        """Return how the worker of a Job ended; None if it has not."""
        children = [
            one for one in pods if any(owner.uid == job.metadata.uid for owner in one.metadata.owner_references)
        ]
        if job.is_over:
            return _report(children)
        if job.spec.suspend or (children and not children[0].is_pending):
            self._waiting.pop(job.metadata.name, None)
            return None
        trouble = children[0].trouble if children else _NO_POD
        patience = _PATIENCE if trouble else _PULL_PATIENCE
        before, since = self._waiting.get(job.metadata.name, (0.0, 0.0))
        if before != patience:
            since = self._clock()
            self._waiting[job.metadata.name] = (patience, since)
        if self._clock() - since < patience:
            return None
        return WorkerReport(None, message=shorten(trouble or _UNKNOWN_TROUBLE))


def attach_cluster(context: str, namespace: str, template: WorkerTemplate) -> KubernetesCluster:
    """Connect to a cluster.

    Args:
        context: As for ``connect``.
        namespace: As for ``connect``.
        template: What all workers have in common.

    Raises:
        InvalidInputError: As ``connect``.
    """
    return KubernetesCluster(connect(context, namespace), template)


def _report(pods: Sequence[PodObject]) -> WorkerReport:
    """Return what the pod of a Job that is over says."""
    if not pods:
        return WorkerReport(None, message="its pod was deleted")
    status = pods[0].status
    ends = [one.state.terminated for one in status.container_statuses if one.state.terminated is not None]
    if status.phase != "Succeeded" or not ends:
        messages = "; ".join(end.message if end.reason == "Error" else f"{end.reason}: {end.message}" for end in ends)
        evicted = f"{status.reason}: {status.message}".strip(": ")
        code = next((end.exit_code for end in ends if end.exit_code), None)
        return WorkerReport(code, message=shorten(evicted or messages) or "its pod failed")
    try:
        answer = msgspec.json.decode(ends[0].message, type=WorkerAnswer)
    except msgspec.DecodeError:
        return WorkerReport(None, message="not a worker of benchlock: invalid termination message")
    return WorkerReport(0, answer.machine, answer.jobs)


def _read_size(job: JobObject) -> NodeSize:
    counts = [job.metadata.annotations.get(name, "") for name in (CPUS, GPUS)]
    return NodeSize(*(int(text) if text.isdecimal() else 0 for text in counts))


def _fits(size: NodeSize, node: NodeObject) -> bool:
    return node.resources.millicpus >= size.cpus * 1000 and node.resources.gpus >= size.gpus
