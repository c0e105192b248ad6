"""Commands that let a cluster engine start workers."""

import signal
import sys
from types import FrameType

import click

from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.client.worker_setup import connect_queue, is_remote
from benchlock.api.error_codes import EXIT_INVALID, EXIT_REFUSED, EXIT_TOKEN_REFUSED
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.launchers.launcher import Launcher
from benchlock.evaluator.launchers.node_worker import WorkerOrder
from benchlock.evaluator.launchers.ray_connection import Supervision
from benchlock.registry.lock.lockfile import load

_FINAL = frozenset({0, EXIT_REFUSED, EXIT_INVALID, EXIT_TOKEN_REFUSED})


@click.group("cluster")
def cluster() -> None:
    """Let a cluster engine start workers.

    Example: benchlock --registry https://bench.example cluster ray --address 10.0.0.1:6379
    """


@cluster.command("ray")
@click.option("--address", metavar="HOST:PORT", required=True, help="Address of the cluster's head.")
@click.option("--token-file", metavar="PATH", default="", help="File on every node with the token of its worker.")
@click.option("--processes", is_flag=True, help="Also run jobs as processes: as Ray's user, without isolation.")
@click.option("--allow-code", is_flag=True, help="Also run code of models in those processes.")
@click.option("--attached", is_flag=True, hidden=True)
@click.pass_obj
def ray(
    invocation: Invocation, address: str, token_file: str, *, processes: bool, allow_code: bool, attached: bool
) -> None:
    """Start workers on the nodes of a Ray cluster, one a node, while jobs are queued.

    Run it on a node of the cluster. SIGTERM stops its workers, which return their jobs.

    Example: benchlock --registry https://bench.example cluster ray --address 10.0.0.1:6379
    """
    if not is_remote(invocation.registry):
        raise InvalidInputError(
            "the nodes of a cluster reach only a registry on a server",
            where=f"--registry {invocation.registry}",
            next_step="serve the folder with `benchlock serve`, and give the URL of the server",
        )
    if allow_code and not processes:
        raise InvalidInputError(
            "--allow-code needs --processes", where="cluster ray", next_step="use --processes as well, or omit it"
        )
    if attached:
        _launch(address, WorkerOrder(invocation.registry, "", token_file, processes, allow_code))
        return
    command = [sys.executable, "-m", "benchlock.api.cli.main", "--registry", invocation.registry]
    options = [word for word in ("--processes", "--allow-code") if {"--processes": processes}.get(word, allow_code)]
    paths = ["--token-file", token_file] if token_file else []
    words = [*command, "cluster", "ray", "--attached", "--address", address, *paths, *options]
    code = Supervision(address, words, _FINAL, _say).run()
    if code:
        raise click.exceptions.Exit(code)


def _launch(address: str, order: WorkerOrder) -> None:
    """Attach this process to the cluster, and launch workers until SIGTERM or SIGINT."""
    from benchlock.evaluator.launchers.ray_cluster import attach_cluster  # noqa: PLC0415 - Ray, which is an extra

    queue = connect_queue(order.registry)
    with attach_cluster(address, order) as attached:
        for number in (signal.SIGTERM, signal.SIGINT):  # Ray has set its own
            signal.signal(number, _interrupt)
        say(f"attached to the Ray cluster at {address}; SIGTERM stops the workers", repeat=True)
        try:
            Launcher(queue, attached, lambda lock: load(queue.lock_text(lock), lock), _say).run()
        except KeyboardInterrupt:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    say(text, repeat=True)
