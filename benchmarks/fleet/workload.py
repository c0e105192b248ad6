"""What is simulated: machines, owners, jobs and faults, all of them functions of one seed."""

import math
import random
from dataclasses import dataclass, field
from functools import cache, cached_property

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.evaluator.queue.job_matching import JobRequirements, MachineFacts, RequiredPlatform
from benchlock.evaluator.queue.queue_types import MachineId
from benchlock.registry.requests.hardware_requirements import HostFacts
from benchmarks.fleet.files import Files

_CPU = RequiredPlatform("linux", "amd64", "cpu", layered=False, finished=False)
_MEDIAN, _SIGMA, _LONGEST = 60.0, math.log(30) / 2.326, 7200.0
"""Seconds of jobs: log-normal, the 99th percentile is 30 minutes, and none takes longer than two hours."""
_WEIGHTS = (0.5, 1.0, 2.0, 4.0)
_RARE = (1, 2, 5)
"""Machines that can run the jobs of the rare classes; each of these jobs names one of them."""
RACK = 0.04
"""The share of the machines that are in the rack."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong.

    Hours of deaths and hangs are machine-hours between two of them; those of pauses of the database and restarts of the
    service are hours. ``skew`` is the most seconds by which the clock of a machine is wrong. Shares are probabilities
    of a message or a job.
    """

    death_hours: float = 50.0
    hang_hours: float = 20.0
    pause_hours: float = 3.0
    restart_hours: float = 1.0
    skew: float = 600.0
    lost_replies: float = 0.001
    duplicates: float = 0.01
    failing: float = 0.01
    crashing: float = 0.01
    poison: int = 3
    rack: bool = True

    @classmethod
    def none(cls) -> "Faults":
        """Nothing goes wrong."""
        return cls(math.inf, math.inf, math.inf, math.inf, 0, 0, 0, 0, 0, 0, rack=False)


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job: who submits it, what it requires, how long it takes and how it ends."""

    owner: int
    lock: int
    kind: int
    seconds: float
    priority: int
    end: str
    machine: int | None = None


@dataclass(frozen=True)
class Interval:
    """A lease: its owner, and the seconds of its begin and end; ``counts`` if its run was accepted."""

    owner: int
    begin: float
    end: float
    counts: bool = True


@dataclass(frozen=True)
class Workload:
    """All of them. Owners have the same number of jobs and submit them one after the other, so order shares nothing."""

    seed: int = 1
    machines: int = 50
    jobs: int = 20_000
    owners: int = 20
    kinds: int = 40
    locks: int = 300
    faults: Faults = field(default_factory=Faults)
    files: Files = field(default_factory=Files)

    def weight(self, owner: int) -> float:
        """The weight of an owner, from 0.5 to 4."""
        return _WEIGHTS[owner % len(_WEIGHTS)]

    @cached_property
    def job_list(self) -> tuple[SimulatedJob, ...]:
        """The jobs in the order of their submission."""
        order = random.Random(f"jobs {self.seed}")  # noqa: S311 - no secret
        chosen = [number * self.owners // self.jobs for number in range(self.jobs)]
        poison = set(order.sample(range(self.jobs), self.faults.poison))
        return tuple(self._job(order, owner, is_poison=number in poison) for number, owner in enumerate(chosen))

    @cache  # noqa: B019 - there are few workloads
    def wants(self, kind: int, machine: int | None) -> JobRequirements:
        """What jobs require: their kind is the number of CPUs, and some have a machine of their own."""
        name = None if machine is None else self.name(machine)
        return JobRequirements((_CPU,), {"cpus": 1}, cpus=1 + kind, machine=name)

    def may_run(self, machine: int, job: SimulatedJob) -> bool:
        """Whether the machine can run the job."""
        return job.machine == machine if job.machine is not None else job.kind < self.cpus(machine)

    def cpus(self, machine: int) -> int:
        """The CPUs of a machine: the last quarter of the machines can run half of the kinds."""
        return self.kinds // 2 if machine >= self.machines * 3 // 4 else self.kinds

    def facts(self, machine: int) -> MachineFacts:
        """The facts of a machine."""
        host = HostFacts("linux", "amd64", self.cpus(machine), 1 << 38, (), "none")
        return MachineFacts(host, None, "A CPU", "Linux", None, processes=True)

    @staticmethod
    def name(machine: int) -> MachineId:
        """The name of a machine."""
        return MachineId(f"m{machine:04}")

    @cached_property
    def lock_ids(self) -> tuple[Digest, ...]:
        """The locks that the jobs run."""
        return tuple(digest_bytes(f"lock {number}".encode()) for number in range(self.locks))

    def _job(self, order: random.Random, owner: int, *, is_poison: bool) -> SimulatedJob:
        seconds = min(_LONGEST, order.lognormvariate(math.log(_MEDIAN), _SIGMA))
        kind, machine = order.randrange(self.kinds), None
        if order.random() < sum(_RARE) / self.machines / 2:  # half of the time of these machines
            machine = order.randrange(sum(_RARE))
        chance = order.random()
        end = "failing" if chance < self.faults.failing else "done"
        if self.faults.failing <= chance < self.faults.failing + self.faults.crashing:
            end = "crashing"
        priority = order.choices((-1, 0, 1), (5, 90, 5))[0]
        lock = order.randrange(self.locks)
        if is_poison:  # it needs several machines, or the one that it names would be held back for hours
            return SimulatedJob(owner, lock, kind, seconds, priority, "poison")
        return SimulatedJob(owner, lock, kind, seconds, priority, end, machine)
