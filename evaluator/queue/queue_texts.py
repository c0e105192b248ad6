"""Jobs and machines in words."""

from typing import Final

from benchlock.artifacts.user_output import escape_line, format_count
from benchlock.evaluator.queue.queue_types import Job, Machine, ProgressLine

_SKEW_SHOWN: Final = 5.0
"""Minimum difference of clocks in seconds that a description mentions."""


def describe_machine(machine: Machine) -> str:
    """Describe the platform of a machine, and what its worker runs outside of containers."""
    facts = machine.facts
    more = [word for word, allowed in (("processes", facts.processes), ("models' code", facts.code)) if allowed]
    if machine.skew is not None and abs(machine.skew) >= _SKEW_SHOWN:
        word = "ahead of" if machine.skew > 0 else "behind"
        more.append(f"its clock is {describe_seconds(abs(machine.skew))} {word} the queue's")
    return ", ".join([facts.host.platform, format_count(facts.host.cpus, "CPU"), *more])


def find_machine_trouble(machine: Machine) -> str:
    """Return the reason why a machine gets no jobs, empty if it gets some."""
    hold = None
    if machine.held is not None:
        when = (
            f"for another {describe_seconds(machine.held_for)}" if machine.held_for else "until a job ends well there"
        )
        hold = f"held back {when}: {machine.held}"
    return machine.gone_because or machine.draining or hold or ""


def describe_seconds(seconds: float) -> str:
    """Describe a duration in its two largest units."""
    whole = round(seconds)
    for name, size, rest, small in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // small} {rest}"
    return f"{whole} s"


def describe_line(line: ProgressLine) -> str:
    """Describe a line of progress in printable characters."""
    return f"{escape_line(line.task)}: {line.done:,}" + ("" if line.total is None else f" of {line.total:,}")


def machine_state(machine: Machine) -> str:
    """Return the state of a machine in a word."""
    if machine.gone:
        return "gone"
    if machine.draining is not None:
        return "draining"
    if machine.held_for:
        return "held back"
    return "free" if machine.job is None else "busy"


def job_state(job: Job) -> str:
    """Return the state of a job, with the phase of a leased one."""
    return f"{job.state} ({job.phase})" if job.phase else "queued" if job.state == "delayed" else job.state
