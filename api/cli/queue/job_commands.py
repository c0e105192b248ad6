"""Commands for queued jobs: jobs, cancel and explain."""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.cli.run_options import complete_id
from benchlock.api.client import embedded_queue
from benchlock.api.client.id_prefixes import Candidates, describe_model, describe_moment
from benchlock.api.client.worker_setup import connect_queue, is_remote
from benchlock.api.error_codes import EXIT_REFUSED
from benchlock.artifacts.errors import InvalidInputError, SchemaRevisionError, UnavailableError
from benchlock.evaluator.queue.queue_texts import job_state
from benchlock.evaluator.queue.queue_types import TERMINAL, Job, JobState, Queue, parse_job_id

_T = TypeVar("_T")
_WAIT_SECONDS: Final = 1.0
"""Seconds between two reads of what a command waits for."""
STATES = ("queued", "leased", "done", "failed", "quarantined", "cancelled")


def _find_jobs(invocation: Invocation, prefix: str, limit: int) -> Candidates:
    return [
        (job.id, f"{describe_moment(job.submitted_at)}, {job.state}, {describe_model(invocation.opened, job.lock)}")
        for job in open_queue(invocation).jobs(prefix=prefix, limit=limit)
    ]


complete_job_id = complete_id("job", _find_jobs)
JOB = click.argument("job", metavar="JOB", callback=complete_job_id, help="Job id, as listed by `jobs`.")


@click.command()
@click.argument(
    "job", metavar="[JOB]", default="", callback=complete_job_id, help="Job id; default: list the newest jobs."
)
@click.option("--state", type=click.Choice(STATES), default=None, help="Only jobs in this state.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of jobs.")
@click.option("--wait", is_flag=True, help="Wait until JOB ends; exit code 1 unless it is done.")
@click.pass_obj
def jobs(invocation: Invocation, job: str, state: JobState | None, limit: int, *, wait: bool) -> None:
    """List jobs, newest first, or show one.

    Example: benchlock jobs --state queued
    """
    queue = open_queue(invocation)
    if wait and not job:
        raise InvalidInputError("--wait needs a job", where="jobs", next_step="give the id that `run --submit` printed")
    if wait:
        ended = wait_until(lambda: queue.job(parse_job_id(job)), lambda found: found.state in TERMINAL)
        job_list: Sequence[Job] = [ended]
    else:
        job_list = [queue.job(parse_job_id(job))] if job else queue.jobs(state=state, limit=limit)
    _print_jobs(invocation, job_list, is_single=bool(job))
    if wait and job_list[0].state != "done":
        raise click.exceptions.Exit(EXIT_REFUSED)


def _print_jobs(invocation: Invocation, job_list: Sequence[Job], *, is_single: bool) -> None:
    if invocation.as_json:
        output.print_json(job_list[0] if is_single else {"jobs": job_list})
        return
    rows = [
        [entry.id, job_state(entry), entry.machine or "-", entry.run or "-", entry.failure or "-", entry.reason or ""]
        for entry in job_list
    ]
    output.print_table(["job", "state", "machine", "run", "failure", "last problem"], rows)


@click.command()
@JOB
@click.pass_obj
def cancel(invocation: Invocation, job: str) -> None:
    """Cancel a job.

    A queued job ends at once, a running one at the next heartbeat of its worker.

    Example: benchlock cancel job/01kam1v3mz4w0q3d5g7h9j2k4m
    """
    result = open_queue(invocation).cancel(parse_job_id(job))
    if invocation.as_json:
        output.print_json(result)
    else:
        output.echo(f"{result.id} {job_state(result)}")
    if result.state not in ("cancelled", "leased"):
        raise click.exceptions.Exit(EXIT_REFUSED)


@click.command()
@JOB
@click.pass_obj
def explain(invocation: Invocation, job: str) -> None:
    """Explain the state of a job and what each machine lacks.

    Example: benchlock explain job/01kam1v3mz4w0q3d5g7h9j2k4m
    """
    explanation = open_queue(invocation).explain(parse_job_id(job))
    if invocation.as_json:
        output.print_json(explanation)
        return
    output.echo(f"{explanation.job.id}: {explanation.sentence}")
    for match in explanation.machines:
        reason = output.append_commands("; ".join(match.lacks) or match.obstacle or "can run it")
        output.echo(f"  {match.machine}: {reason}")


def wait_until(read: Callable[[], _T], is_over: Callable[[_T], bool]) -> _T:
    """Read again and again until it is over; return what was read last.

    After the first read, a registry that is unavailable is waited for.

    Raises:
        BenchlockError: As ``read``.
    """
    found, last = read(), ""
    while not is_over(found):
        time.sleep(_WAIT_SECONDS)
        try:
            found, last = read(), ""
        except SchemaRevisionError:
            raise
        except UnavailableError as error:
            if error.what != last:
                say(f"warning: waiting for the registry: {error.what}")
            last = error.what
    return found


def open_queue(invocation: Invocation) -> Queue:
    """Open the queue of the command's registry."""
    return (
        connect_queue(invocation.registry)
        if is_remote(invocation.registry)
        else embedded_queue.open_queue(invocation.folder)
    )
