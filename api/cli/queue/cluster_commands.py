"""The commands ``cluster``, which let a cluster engine start workers."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Final

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say, say_step
from benchlock.api.cli.queue.kubernetes_options import check_prefix, check_taint_keys, parse_labels
from benchlock.api.client.remote_queue import RemoteQueue
from benchlock.api.client.worker_setup import connect_queue, is_remote
from benchlock.api.error_codes import EXIT_INVALID, EXIT_REFUSED, EXIT_TOKEN_REFUSED
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.launchers.launcher import Cluster, Launcher
from benchlock.evaluator.launchers.node_worker import WorkerOrder
from benchlock.evaluator.launchers.pod_manifests import WorkerTemplate
from benchlock.evaluator.launchers.ray_connection import Supervision, check_cluster
from benchlock.evaluator.queue.job_matching import JobRequirements, is_isolation_possible

_FINAL: Final = frozenset({0, EXIT_REFUSED, EXIT_INVALID, EXIT_TOKEN_REFUSED})
"""Exit codes of a launcher that is not started again."""


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
@click.option("--attached", is_flag=True, help="End when the cluster is lost, instead of attaching again.")
@click.pass_obj
def ray(
    invocation: Invocation, address: str, token_file: str, *, processes: bool, allow_code: bool, attached: bool
) -> None:
    """Start workers on the nodes of a Ray cluster.

    Each node that fits a queued job has one worker. Run it on a node of the cluster. SIGTERM stops its workers, which
    return their jobs.

    Example: benchlock --registry https://bench.example cluster ray --address 10.0.0.1:6379
    """
    _require_server(invocation)
    if allow_code and not processes:
        raise InvalidInputError(
            "--allow-code needs --processes", where="cluster ray", next_step="use --processes as well, or omit it"
        )
    order = WorkerOrder(invocation.registry, "", token_file, processes, allow_code)
    if attached:
        os.environ.update(check_cluster(address))  # before Ray is imported
        _launch(address, order)
        return
    options = ["--registry", invocation.registry, *(["--json"] if invocation.as_json else []), *output.list_flags()]
    command = [sys.executable, "-m", "benchlock.api.cli.main", *options, "cluster", "ray"]
    paths = ["--token-file", token_file] if token_file else []
    words = [*command, "--attached", "--address", address, *paths, *order.flags]
    code = Supervision(words, _FINAL, say_step).run()
    if code:
        raise click.exceptions.Exit(code)


def _launch(address: str, order: WorkerOrder) -> None:
    """Attach this process to the cluster, and launch workers until SIGTERM or SIGINT."""
    from benchlock.evaluator.launchers.ray_cluster import attach_cluster  # noqa: PLC0415 - Ray, which is an extra

    with attach_cluster(address, order) as attached:
        say(f"attached to the Ray cluster at {address}; SIGTERM stops the workers", repeat=True)
        may_run = partial(is_isolation_possible, engine=True, processes=order.processes, code=order.allow_code)
        _run_launcher(connect_queue(order.registry), attached, may_run)


@cluster.command("kubernetes")
@click.option("--image", metavar="REPOSITORY@DIGEST", required=True, help="Image of benchlock, by digest.")
@click.option("--namespace", metavar="NAME", default="", help="Namespace of the workers; default: the current one.")
@click.option(
    "--token-secret", metavar="NAME", default="benchlock-worker", show_default=True, help="Secret with their token."
)
@click.option("--private-ca", is_flag=True, help="The Secret also has the CA of the registry's server, as ca.crt.")
@click.option("--queue", metavar="NAME", default="", help="LocalQueue of Kueue that admits the workers.")
@click.option(
    "--context", metavar="NAME", default="", help="Context of the kubeconfig; default: this pod, or the current."
)
@click.option(
    "--machine-prefix", metavar="TEXT", default="", callback=check_prefix, help="Prefix of the nodes' machine names."
)
@click.option(
    "--node-selector",
    "labels",
    metavar="KEY=VALUE",
    multiple=True,
    callback=parse_labels,
    help="Only nodes with this label; repeatable.",
)
@click.option(
    "--toleration",
    "tolerations",
    metavar="KEY",
    multiple=True,
    callback=check_taint_keys,
    help="Also nodes with a taint of this key; repeatable.",
)
@click.option("--allow-code", is_flag=True, help="Also run code of models.")
@click.pass_obj
def kubernetes(  # noqa: PLR0913 - one for each option
    invocation: Invocation,
    image: str,
    *,
    namespace: str,
    token_secret: str,
    queue: str,
    context: str,
    machine_prefix: str,
    labels: tuple[tuple[str, str], ...],
    tolerations: tuple[str, ...],
    private_ca: bool,
    allow_code: bool,
) -> None:
    """Start workers on the nodes of a Kubernetes cluster.

    Each queued job has a worker of its own, as a Job of Kubernetes. Jobs run as processes in a pod. SIGTERM stops the
    command; workers continue.

    Example: benchlock --registry https://bench.example cluster kubernetes --image benchlock@sha256:…
    """
    _require_server(invocation)
    template = WorkerTemplate(
        invocation.registry,
        image,
        token_secret,
        queue,
        machine_prefix,
        labels,
        tolerations,
        private_ca,
        allow_code,
    )
    try:
        from benchlock.evaluator.launchers.kubernetes_cluster import attach_cluster  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError as error:
        if error.name != "kubernetes":
            raise
        raise InvalidInputError(
            "the client of Kubernetes is not installed",
            where="cluster kubernetes",
            next_step="install it with: pip install 'benchlock[kubernetes]'",
        ) from None
    attached = attach_cluster(context, namespace, template)
    where = f"starting workers in the namespace {attached.namespace}"
    say(f"{where}; SIGTERM stops the command; workers continue", repeat=True)
    may_run = partial(is_isolation_possible, engine=False, processes=True, code=allow_code)
    _run_launcher(connect_queue(invocation.registry), attached, may_run)


def _require_server(invocation: Invocation) -> None:
    if not is_remote(invocation.registry):
        raise InvalidInputError(
            "the nodes of a cluster reach only a registry on a server",
            where=f"--registry {invocation.registry}",
            next_step="serve the folder with `benchlock serve`, and give the URL of the server",
        )


def _run_launcher(queue: RemoteQueue, engine: Cluster, may_run: Callable[[JobRequirements], bool]) -> None:
    """Launch workers until SIGTERM or SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):  # Ray has set its own
        signal.signal(number, _interrupt)
    try:
        Launcher(queue, engine, may_run, say_step).run()
    except KeyboardInterrupt:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
