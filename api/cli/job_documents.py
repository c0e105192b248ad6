"""Jobs and machines as JSON and as lines."""

from typing import Any

from evaluator.dispatch.queue import Explanation, Job, JobId, Machine, parse_job_id
from registry.ids import is_id


def job_named(text: str) -> JobId:
    """The job that somebody means, who may leave out what every job's id begins with.

    Raises:
        InvalidInputError: it is none.
    """
    return parse_job_id(f"job/{text}" if is_id(text) else text)


def job_document(job: Job) -> dict[str, Any]:
    """A job as it is."""
    return {
        "job": job.id,
        "lock": job.lock,
        "state": "queued" if job.state == "delayed" else job.state,
        "phase": job.phase,
        "machine": job.machine,
        "run": job.run,
        "failure": job.failure,
        "reason": job.reason,
        "again_in": job.due,
        "cancel_asked": job.cancel_asked,
        "lost": job.tally.lost,
        "submitted_at": job.submitted_at.isoformat(),
    }


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """A job, and what stands between it and each machine."""
    return job_document(explanation.job) | {
        "blocked": explanation.blocked,
        "why": explanation.sentence,
        "ahead": explanation.ahead,
        "machines": [
            {"machine": one.machine, "lacks": list(one.lacks), "obstacle": one.obstacle} for one in explanation.machines
        ],
    }


def machine_document(machine: Machine) -> dict[str, Any]:
    """A machine as known."""
    return {
        "machine": machine.id,
        "state": machine_state(machine),
        "job": machine.job,
        "draining": machine.draining,
        "gone_because": machine.gone_because,
        "unseen": round(machine.unseen, 1),
        "facts": machine.facts.document(),
    }


def machine_words(machine: Machine) -> str:
    """What it is, and what its worker runs beside containers."""
    facts = machine.facts
    more = [word for word, allowed in (("processes", facts.processes), ("models' code", facts.code)) if allowed]
    return ", ".join([facts.host.platform, f"{facts.host.cpus} CPUs", *more])


def machine_state(machine: Machine) -> str:
    """One word for it."""
    if machine.gone:
        return "gone"
    if machine.draining is not None:
        return "draining"
    return "free" if machine.job is None else "busy"


def job_state(job: Job) -> str:
    """The state and, of one that is leased, what is being done."""
    return f"{job.state} ({job.phase})" if job.phase else "queued" if job.state == "delayed" else job.state
