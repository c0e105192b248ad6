"""The queue as plain values: what the implementations in SQL must do, one step after another."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from benchlock.evaluator.queue.job_leases import classify_lease_end
from benchlock.evaluator.queue.job_matching import MachineFacts, list_lacks
from benchlock.evaluator.queue.lease_times import Times
from benchlock.evaluator.queue.queue_types import (
    NEUTRAL,
    OWN_FAULTS,
    Beat,
    Fence,
    JobId,
    JobRequest,
    JobState,
    LeaseEnd,
    MachineId,
    NextState,
    Tally,
    decide_next_state,
)
from benchlock.evaluator.queue.worker_machines import MAX_FAULTS, MAX_FREE_PROBES
from benchlock.evaluator.records.run_types import RunEnd, RunId


@dataclass
class ModelJob:
    """A job; ``fence`` is that of its lease as long as it is leased."""

    wish: JobRequest
    state: JobState = "queued"
    tally: Tally = field(default_factory=Tally)
    fence: Fence | None = None
    until: float = 0.0
    not_before: float = 0.0
    cancel_asked: bool = False
    avoided: set[MachineId] = field(default_factory=set)
    result: RunId | None = None
    failed_on: list[MachineId] = field(default_factory=list)


@dataclass
class ModelMachine:
    """A machine, and when it was heard of."""

    facts: MachineFacts
    seen: float
    draining: bool = False
    faults: set[str] = field(default_factory=set)
    held_until: float | None = None
    holds: int = 0

    def forget(self) -> None:
        """Give it jobs as any other."""
        self.faults, self.held_until, self.holds = set(), None, 0


@dataclass
class ModelLease:
    """A lease that was given once; ``holds`` until it ended."""

    job: JobId
    machine: MachineId
    run: RunId | None = None
    end: RunEnd | None = None
    holds: bool = True


@dataclass
class QueueModel:
    """All of it. ``now`` is set by the test."""

    times: Times
    now: float = 1000.0
    jobs: dict[JobId, ModelJob] = field(default_factory=dict)
    machines: dict[MachineId, ModelMachine] = field(default_factory=dict)
    leases: dict[Fence, ModelLease] = field(default_factory=dict)

    def submit(self, wish: JobRequest) -> None:
        self.jobs.setdefault(wish.id, ModelJob(wish))

    def enrol(self, machine: MachineId, facts: MachineFacts) -> None:
        if machine in self.machines:
            self.machines[machine].facts, self.machines[machine].seen = facts, self.now
        else:
            self.machines[machine] = ModelMachine(facts, self.now)

    def drain(self, machine: MachineId, *, draining: bool) -> None:
        self.machines[machine].draining = draining
        self.machines[machine].forget()

    def cancel(self, job: JobId) -> None:
        found = self.jobs[job]
        if found.state in ("queued", "delayed"):
            found.state = "cancelled"
        elif found.state == "leased":
            found.cancel_asked = True

    def settle(self) -> None:
        for job in self.jobs.values():
            if job.state == "leased" and job.until < self.now:
                assert job.fence is not None
                self._end(job.fence, "lost", None)
            if job.state == "delayed" and job.not_before <= self.now:
                job.state = "queued"

    def next_for(self, machine: MachineId) -> JobId | None:
        """What the machine gets; nothing changes."""
        if (
            self.machines[machine].draining
            or self.is_held(machine)
            or any(one.machine == machine for one in self.live())
        ):
            return None
        return next((id_ for id_, job in self.jobs.items() if self._may(job, machine)), None)

    def is_held(self, machine: MachineId) -> bool:
        """Whether it is held back, and not probed yet."""
        until = self.machines[machine].held_until
        return until is not None and self.now < until

    def leased(self, machine: MachineId, job: JobId, fence: Fence) -> None:
        assert fence not in self.leases
        assert all(fence > older for older in self.leases)
        found = self.jobs[job]
        found.state, found.fence, found.until = "leased", fence, self.now + self.times.lease
        self.leases[fence] = ModelLease(job, machine)

    def begin(self, fence: Fence, run: RunId) -> bool:
        lease = self.leases[fence]
        if not lease.holds or lease.run not in (None, run):
            return False
        lease.run = run
        return True

    def beat(self, fence: Fence) -> Beat:
        lease = self.leases[fence]
        if not lease.holds:
            return "lost"
        job = self.jobs[lease.job]
        job.until, self.machines[lease.machine].seen = self.now + self.times.lease, self.now
        return "cancel" if job.cancel_asked else "keep"

    def commit(self, fence: Fence, end: RunEnd) -> bool:
        """False where it is fenced, or ended otherwise."""
        lease = self.leases[fence]
        if lease.holds:
            self._end(fence, classify_lease_end(end), end)
            return True
        return lease.end == end

    def release(self, fence: Fence, ended: LeaseEnd) -> None:
        if self.leases[fence].holds:
            self._end(fence, ended, None)

    def live(self) -> Iterator[ModelLease]:
        return (one for one in self.leases.values() if one.holds)

    def _may(self, job: ModelJob, machine: MachineId) -> bool:
        fits = not list_lacks(job.wish.wants, self.machines[machine].facts, machine)
        return job.state == "queued" and machine not in job.avoided and fits

    def _end(self, fence: Fence, ended: LeaseEnd, end: RunEnd | None) -> None:
        lease = self.leases[fence]
        job, machine = self.jobs[lease.job], self.machines[lease.machine]
        is_own = ended in OWN_FAULTS
        spared = len(job.failed_on) - job.tally.lost - job.tally.engine < MAX_FREE_PROBES
        probe = is_own and machine.held_until is not None and spared
        found: NextState = decide_next_state(ended, job.tally, cancel_asked=job.cancel_asked, is_probe=probe)
        job.failed_on += [lease.machine] if is_own else []
        lease.holds = False
        lease.end = end
        if end is not None and found.state in ("done", "failed"):
            job.result = lease.run
        job.state, job.tally, job.fence = found.state, found.tally, None
        job.not_before = self.now + found.delay * self.times.wait
        if found.elsewhere and self._others(job, lease.machine):
            job.avoided.add(lease.machine)
        self._count_fault(lease, ended)
        if is_own and found.state in ("failed", "quarantined"):
            self._discount(job)

    def _count_fault(self, lease: ModelLease, ended: LeaseEnd) -> None:
        machine, job = self.machines[lease.machine], self.jobs[lease.job]
        if ended in NEUTRAL:
            return
        if ended not in OWN_FAULTS:
            machine.forget()
            return
        fault = job.wish.lock if ended == "integrity" else job.wish.id
        machine.faults = set(sorted(machine.faults | {fault})[: MAX_FAULTS + 1])
        if len(machine.faults) >= MAX_FAULTS:
            machine.held_until = self.now + self.times.unseen * min(2**machine.holds, 8)
            machine.holds += 1

    def _discount(self, job: ModelJob) -> None:
        on = set(job.failed_on)
        for machine in [self.machines[one] for one in on] if len(on) > 1 else []:
            left = machine.faults - {job.wish.id, job.wish.lock}
            if left and (len(left) == len(machine.faults) or len(left) >= MAX_FAULTS):
                machine.faults = left
            elif left:
                machine.faults, machine.held_until, machine.holds = left, None, 0
            else:
                machine.forget()

    def _others(self, job: ModelJob, machine: MachineId) -> bool:
        return any(
            id_ != machine
            and not one.draining
            and one.held_until is None
            and one.seen >= self.now - self.times.unseen
            and id_ not in job.avoided
            and not list_lacks(job.wish.wants, one.facts, id_)
            for id_, one in self.machines.items()
        )
