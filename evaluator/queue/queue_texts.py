"""Jobs and machines in words."""

from collections.abc import Mapping
from typing import Final

from benchlock.artifacts.user_output import escape_line, format_bytes, format_count
from benchlock.evaluator.queue.queue_types import Job, JobState, Machine, Phase, ProgressLine

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


_UNITS: Final = {
    **dict.fromkeys(("golden", "accuracy", "score", "prepare"), "samples"),
    **dict.fromkeys(("performance", "pipeline"), "calls"),
    **dict.fromkeys(("reference", "operator"), "cases"),
    "peak": "probes",
    "trace": "processes",
    "train-": "epochs",
    "evaluate": "repeats",
    "installing wheels": "wheels",
    "compiling byte code": "files",
    "unpacking the base": "layers",
}
"""What tasks count, by the beginning of their names."""
_BYTES: Final = ("verifying", "fetching", "loading", "pulling", "storing", "unlabel")
"""The beginnings of the names of tasks that count bytes."""


def describe_line(line: ProgressLine) -> str:
    """Describe a line of progress in printable characters, with the unit of its counts."""
    task, counts = escape_line(line.task), [line.done, *([] if line.total is None else [line.total])]
    if line.total is None and not line.done:
        return task
    if task.startswith(_BYTES):
        return f"{task}: {' of '.join(map(format_bytes, counts))}"
    unit = next((unit for name, unit in _UNITS.items() if task.startswith(name)), "steps")
    return f"{task}: {' of '.join(f'{count:,}' for count in counts)} {unit}"


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
    """Return the state of a job in words: who has taken it and what happens, or when it is tried again."""
    if job.state == "leased":
        cancelling = ", cancellation requested" if job.cancel_asked else ""
        return f"taken by worker {job.machine}, {PHASES[job.phase or 'preparing']}{cancelling}"
    if job.state == "delayed":
        return "queued again" + (f", next try in {describe_seconds(job.due)}" if job.due else "")
    return job.state


PHASES: Final[Mapping[Phase, str]] = {
    "preparing": "preparing: fetching files and building the environment",
    "measuring": "measuring",
    "storing": "storing the results",
}
"""The phases of a run by a worker, in words."""
STATES: Final[Mapping[JobState, str]] = {"leased": "taken by a worker", "delayed": "queued again after a failure"}
"""The states whose name does not say it, in words."""
