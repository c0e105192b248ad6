"""The command ``worker``, which runs jobs from the queue on this machine."""

from pathlib import Path

import click
import msgspec

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say_step
from benchlock.api.client.worker_setup import WorkerPermissions, build_remote_agent, is_remote
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.runner.host_platform import limit_cpus


@click.command()
@click.option(
    "--machine", metavar="NAME", default="", help="Name of this machine; default: derived from its system id."
)
@click.option("--once", is_flag=True, help="Exit after one job.")
@click.option("--until-idle", is_flag=True, help="Exit when no queued job fits this machine.")
@click.option("--cpus", type=click.IntRange(min=1), help="Maximum number of CPUs; default: all of this process.")
@click.option("--processes", is_flag=True, help="Also run jobs as processes: as your user, without isolation.")
@click.option("--allow-code", is_flag=True, help="Also run code of models in those processes.")
@click.option(
    "--report", type=click.Path(path_type=Path), help="File for the machine and the number of jobs, at the end."
)
@click.pass_obj
def worker(  # noqa: PLR0913 - one for each option
    invocation: Invocation,
    machine: str,
    cpus: int | None,
    report: Path | None,
    *,
    once: bool,
    until_idle: bool,
    processes: bool,
    allow_code: bool,
) -> None:
    """Run jobs from the queue on this machine.

    Jobs run one at a time, in containers.

    Example: benchlock --registry https://bench.example worker
    """
    if allow_code and not processes:
        raise InvalidInputError(
            "--allow-code needs --processes",
            where="worker",
            next_step="use --processes as well, or omit --allow-code: containers always allow code",
        )
    if cpus is not None:
        limit_cpus(cpus)  # before any thread
    permits = WorkerPermissions(processes, allow_code)
    if is_remote(invocation.registry):
        agent = build_remote_agent(invocation.registry, machine, permits, invocation.progress, say_step)
    else:
        # SQL code, which a worker of a server does not load
        from benchlock.api.client.embedded_queue import build_agent  # noqa: PLC0415

        agent = build_agent(invocation.folder, machine, permits, invocation.progress, say_step)
    count = agent.work(once=once, until_idle=until_idle)
    answer = {"machine": agent.machine, "jobs": count}
    if report is not None:
        report.write_bytes(msgspec.json.encode(answer))
    if invocation.as_json:
        output.print_json(answer)
