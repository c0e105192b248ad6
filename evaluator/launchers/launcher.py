"""The loop of a launcher: which nodes of a cluster get a worker, and which nodes the engine should add.

Everything it knows can be lost: jobs, leases and results are in the queue, and nodes and tasks in the engine. After a
restart it starts a worker on each node once, to learn the machine of the node.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, UnavailableError
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.launchers.node_worker import WorkerReport
from benchlock.evaluator.queue.job_matching import JobRequirements
from benchlock.evaluator.queue.queue_types import Explanation, Job, JobId, MachineId, Queue
from benchlock.registry.auth.permissions import ForbiddenError, UnauthorizedError

_ROUND: Final = 2.0
"""Seconds between two rounds, unless a worker ends."""
_MAX_FACTS_AGE: Final = 600.0
"""Seconds after which a node gets a worker even if no job fits its machine: its facts may have changed."""
_QUEUED_SECONDS: Final = 20.0
"""Seconds for which a job is queued before the engine is asked for a node: a worker may be starting for it."""
_REQUEST_PAUSE: Final = 60.0
"""Seconds between a node that the engine added and the next request for one of its size."""
_USELESS_NODE_PAUSE: Final = 600.0
"""The same if the new node ran no job, or no node arrived that may run workers."""
_MAX_RETRY: Final = 300.0
_MAX_DOUBLINGS: Final = 10
"""More exceed ``_MAX_RETRY``, and at last the range of floats."""
_MAX_LISTED_JOBS: Final = 10_000
"""The maximum number of queued jobs whose sizes are compared with the cluster, as many as a token may have."""
_LIST_INTERVAL: Final = 10.0
"""Seconds between two lists of the queued jobs."""
_MAX_EXPLAINED_JOBS: Final = 20
"""The maximum number of jobs of a list that the queue explains anew; the others follow with the next lists."""
_EXPLAIN_INTERVAL: Final = 60.0
"""Seconds before a job that needed no node is explained again."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster.

    Attributes:
        id: Its id in the engine.
        name: Its name in messages.
        machine: The name that its worker shall use; empty for a name that the worker derives from its host.
        cpus: All its CPUs.
        gpus: All its GPUs.
    """

    id: str
    name: str
    machine: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True, order=True)
class NodeSize:
    """What a node must have at least, in the engine's units."""

    cpus: int
    gpus: int

    def __str__(self) -> str:
        """Return the size in words."""
        gpus = f" and {format_count(self.gpus, 'GPU')}" if self.gpus else ""
        return format_count(self.cpus, "CPU") + gpus


class Cluster(Protocol):
    """A cluster engine."""

    def nodes(self) -> Sequence[Node]:
        """List the nodes that are alive and may run tasks."""

    def start(self, node: Node) -> None:
        """Start a worker on a node; the engine waits until the node is free."""

    def wait(self, seconds: float) -> Mapping[Node, WorkerReport]:
        """Wait until a worker ends, ``seconds`` at most; return each that ended, and how."""

    def request(self, sizes: frozenset[NodeSize]) -> Mapping[NodeSize, str]:
        """Show the engine a demand for one more node of each size, and for no other.

        Returns:
            The sizes whose demand ended since the last call, which are no longer requested, each with the id of the
            new node; the id is empty if no node arrived that may run workers.
        """


@dataclass(slots=True)
class _Memory:
    """What the launcher remembers of a node.

    Attributes:
        machine: The machine that its last worker enrolled; empty if that is unknown.
        amounts: The CPUs and GPUs that the node had then.
        until: When the facts of the machine are too old.
        failures: How many workers failed in a row.
        retry_at: When the node is tried again after a failure.
    """

    machine: str = ""
    amounts: tuple[float, float] = (0.0, 0.0)
    until: float = 0.0
    failures: int = 0
    retry_at: float = 0.0


@dataclass(slots=True)
class Launcher:
    """Keeps one worker on each node that fits a queued job.

    Args:
        queue: The queue.
        cluster: The cluster.
        may_run: Returns whether workers of this launcher may run a job of these requirements, on a node that fits.
        say: Prints a message.
        clock: Returns seconds.
    """

    queue: Queue
    cluster: Cluster
    may_run: Callable[[JobRequirements], bool]
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _nodes: dict[str, _Memory] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _jobs: Sequence[Job] = ()
    _list_at: float = 0.0
    _since: dict[JobId, float] = field(default_factory=dict)
    _explain_at: dict[JobId, float] = field(default_factory=dict)
    _unexplained: set[Digest] = field(default_factory=set)
    _needs: dict[NodeSize, Explanation] = field(default_factory=dict)
    _paused_until: dict[NodeSize, float] = field(default_factory=dict)
    _arrivals: dict[str, NodeSize] = field(default_factory=dict)
    _requested: frozenset[NodeSize] = frozenset()
    _last_message: str = ""

    def run(self) -> None:
        """Launch workers until a signal ends the process; wait for a queue that is unavailable.

        Raises:
            BenchlockError: The queue refuses the token.
        """
        while True:
            try:
                self.run_round()
            except UnavailableError as error:
                self._tell(str(error))
            self.record_reports(self.cluster.wait(_ROUND))

    def record_reports(self, ended: Mapping[Node, WorkerReport]) -> None:
        """Learn from workers that ended."""
        now = self.clock()
        for node, report in ended.items():
            self._busy.discard(node.id)
            memory = self._nodes.setdefault(node.id, _Memory(node.machine))
            if report.code == 0:
                self._nodes[node.id] = _Memory(report.machine, (node.cpus, node.gpus), now + _MAX_FACTS_AGE)
            else:
                memory.failures += 1
                memory.retry_at = now + min(2.0 ** min(memory.failures, _MAX_DOUBLINGS), _MAX_RETRY)
                prefix = "" if report.code is None else f"its worker failed (exit code {report.code}): "
                self.say(f"{node.name}: {prefix}{report.message}")
            size = self._arrivals.pop(node.id, None)
            if size is not None and not report.jobs:
                self._paused_until[size] = now + _USELESS_NODE_PAUSE
                self._tell(f"{node.name}: the new node with {size} ran no job; the next request for one waits")

    def run_round(self) -> None:
        """Start workers for queued jobs, and show the engine which nodes are missing."""
        now = self.clock()
        is_new = self._list_jobs(now)
        if self._jobs:
            self._start_workers(now)
        if is_new:
            self._needs = self._find_needs(now)
        self._request(now)

    def _start_workers(self, now: float) -> None:
        """Start a worker on each node that fits a queued job and has none."""
        nodes = self.cluster.nodes()
        alive = {node.id for node in nodes}
        self._nodes = {id_: memory for id_, memory in self._nodes.items() if id_ in alive}
        for node in nodes:
            if node.id not in self._busy and self._fits(node, now):
                self.cluster.start(node)
                self._busy.add(node.id)
                self._tell(f"{node.name}: starting a worker")

    def _list_jobs(self, now: float) -> bool:
        """List the queued jobs if it is time, else see whether there are any; return whether the list is new."""
        if now < self._list_at:
            newest = self.queue.jobs(state="queued", limit=1)
            if self._jobs and newest:
                return False
            self._jobs = newest
        else:
            self._jobs = self.queue.jobs(state="queued", limit=_MAX_LISTED_JOBS)
            self._list_at = now + _LIST_INTERVAL
        self._since = {job.id: self._since.get(job.id, now) for job in self._jobs}
        self._explain_at = {
            id_: self._explain_at.get(id_, since + _QUEUED_SECONDS) for id_, since in self._since.items()
        }
        self._unexplained &= {job.lock for job in self._jobs}
        return True

    def _fits(self, node: Node, now: float) -> bool:
        """Return whether a queued job may fit a node; it may if the machine of the node is unknown."""
        memory = self._nodes.setdefault(node.id, _Memory(node.machine))
        if now < memory.retry_at:
            return False
        if not memory.machine or now >= memory.until or memory.amounts != (node.cpus, node.gpus):
            return True
        try:
            return self.queue.wait_for_job(MachineId(memory.machine), 0)
        except ForbiddenError as error:
            memory.retry_at = now + _MAX_RETRY
            self.say(
                f"{node.name}: {error.what}; give its worker the token of the launcher, or the launcher an admin's"
            )
            return False

    def _request(self, now: float) -> None:
        """Ask for one node of each size that jobs need."""
        wanted = frozenset(size for size in self._needs if now >= self._paused_until.get(size, 0.0))
        for size in sorted(wanted - self._requested):
            need = self._needs[size]
            self._tell(f"asking the cluster for a node with {size}: {need.job.id}: {need.sentence}")
        self._requested = wanted
        for size, node in self.cluster.request(wanted).items():
            self._requested -= {size}
            if node:
                self._paused_until[size] = now + _REQUEST_PAUSE
                self._arrivals[node] = size
            else:
                self._paused_until[size] = now + _USELESS_NODE_PAUSE
                self._tell(f"no node with {size} arrived that may run workers; the next request for one waits")

    def _find_needs(self, now: float) -> dict[NodeSize, Explanation]:
        """Return the sizes of the nodes that jobs need, each with a job that needs it; explain only a few jobs."""
        needs: dict[NodeSize, Explanation] = {}
        for job in self._choose_jobs(now):
            self._explain_at[job.id] = now + _EXPLAIN_INTERVAL
            explanation = self._explain(job)
            if explanation is None or explanation.requirements is None or not explanation.needs_machine:
                continue
            if self.may_run(explanation.requirements) and not self._may_take(explanation):
                needs.setdefault(find_node_size(explanation.requirements), explanation)
        return needs

    def _choose_jobs(self, now: float) -> Sequence[Job]:
        """Return the jobs that needed a node, then those that were not explained for longest, the oldest first."""
        known = {need.job.id for need in self._needs.values()}
        due = [job for job in reversed(self._jobs) if job.id in known or now >= self._explain_at[job.id]]
        due.sort(key=lambda job: (job.id not in known, self._explain_at[job.id]))
        return due[: len(known) + _MAX_EXPLAINED_JOBS]

    def _may_take(self, explanation: Explanation) -> bool:
        """Return whether a machine fits whose worker was started: until it is ready, the queue takes it for gone."""
        busy = {memory.machine for id_, memory in self._nodes.items() if id_ in self._busy}
        return any(match.machine in busy for match in explanation.machines if not match.lacks)

    def _explain(self, job: Job) -> Explanation | None:
        """Explain a job; None, now and later for all jobs of its lock, if the queue cannot, which is reported once.

        Raises:
            UnavailableError: The queue does not answer.
            ForbiddenError: The token may not read.
            UnauthorizedError: The queue refuses the token.
        """
        if job.lock in self._unexplained:
            return None
        try:
            return self.queue.explain(job.id)
        except (UnavailableError, ForbiddenError, UnauthorizedError):
            raise
        except BenchlockError as error:
            self._unexplained.add(job.lock)
            self.say(f"{job.id}: no node is requested for jobs of its lock: {error.what}")
            return None

    def _tell(self, message: str) -> None:
        """Print a message, unless it equals the last one."""
        if message != self._last_message:
            self.say(message)
            self._last_message = message


def find_node_size(wants: JobRequirements) -> NodeSize:
    """Return the size of a node that may run a job of these requirements."""
    if any(platform.device == "cpu" for platform in wants.platforms):
        return NodeSize(wants.cpus, 0)
    accelerator = wants.conditions.accelerator
    return NodeSize(wants.cpus, 1 if accelerator is None else accelerator.count)
