"""Commands for machines and the shares of their time: machines and shares."""

from typing import Any

import click
import msgspec
from msgspec import UNSET

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.queue.job_commands import open_queue
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.queue.queue_texts import (
    describe_machine,
    describe_seconds,
    find_machine_trouble,
    machine_state,
)
from benchlock.evaluator.queue.queue_types import Machine, MachineId


@click.command()
@click.argument("machine", metavar="[MACHINE]", default="", help="Machine to drain or to resume.")
@click.option("--drain", metavar="WHY", default="", help="Stop giving jobs to the machine.")
@click.option("--resume", is_flag=True, help="Give jobs to the machine again.")
@click.pass_obj
def machines(invocation: Invocation, machine: str, drain: str, *, resume: bool) -> None:
    """List machines, or drain or resume one.

    Example: benchlock machines m1 --drain "new GPU"
    """
    queue = open_queue(invocation)
    if bool(machine) != (bool(drain) != resume):
        raise InvalidInputError("give a machine with --drain or --resume, or none of the three", where="machines")
    if machine:
        queue.drain(MachineId(machine), drain or None)
    machine_list = [entry for entry in queue.machines() if machine in ("", entry.id)]
    if invocation.as_json:
        output.print_json({"machines": [machine_document(entry) for entry in machine_list]})
        return
    rows = [
        [entry.id, machine_state(entry), describe_machine(entry), find_machine_trouble(entry)] for entry in machine_list
    ]
    output.print_table(["machine", "state", "hardware", "why no jobs"], rows)


@click.command()
@click.argument("owner", metavar="[OWNER]", default="", help="Token id, as listed by `token list`; default: list all.")
@click.option("--weight", type=click.FloatRange(0.01, 100), default=None, help="Part of the machine time; default: 1.")
@click.option("--max-running", metavar="N", type=click.IntRange(0, 1_000_000), help="Maximum number of running jobs.")
@click.option("--no-max-running", "is_unlimited", is_flag=True, help="Remove that maximum.")
@click.pass_obj
def shares(
    invocation: Invocation, owner: str, weight: float | None, max_running: int | None, *, is_unlimited: bool
) -> None:
    """List the shares of machine time of tokens, or set one.

    Machines serve the owner with the least machine time for its weight first.

    Example: benchlock shares token/01kam1v3mz4w0q3d5g7h9j2k4m --weight 4 --max-running 8
    """
    queue = open_queue(invocation)
    is_change = weight is not None or max_running is not None or is_unlimited
    if bool(owner) != is_change:
        raise InvalidInputError(
            "an owner and a change of its share need each other",
            where="shares",
            next_step="use `benchlock shares OWNER --weight W` to set a share, or `benchlock shares` to list all",
        )
    if is_unlimited and max_running is not None:
        raise InvalidInputError(
            "--max-running contradicts --no-max-running", where="shares", next_step="use one of them"
        )
    if owner:
        limit = None if is_unlimited else UNSET if max_running is None else max_running
        queue.set_share(owner, UNSET if weight is None else weight, limit)
    listed = [share for share in queue.shares() if owner in ("", share.owner)]
    if invocation.as_json:
        output.print_json({"shares": listed})
        return
    rows = [
        [
            share.owner,
            f"{share.weight:g}",
            f"{share.running} of {'any' if share.max_running is None else share.max_running}",
            "yes" if share.is_waiting else "no",
            describe_seconds(share.seconds),
            describe_seconds(share.used),
        ]
        for share in listed
    ]
    output.print_table(["owner", "weight", "running jobs", "queued jobs", "machine time", "time by weight"], rows)


def machine_document(machine: Machine) -> dict[str, Any]:
    """Return the JSON document of a machine: the machine as over HTTP, and its state in a word."""
    return {**msgspec.to_builtins(machine), "state": machine_state(machine)}
