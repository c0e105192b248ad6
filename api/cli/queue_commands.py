"""Commands for the job queue: worker, jobs, cancel, explain, machines, shares and cluster."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

import click
import msgspec
from msgspec import UNSET

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.lock_commands import read_question
from benchlock.api.cli.output import append_commands, say
from benchlock.api.cli.run_options import complete_id
from benchlock.api.client.id_prefixes import Candidates, describe_model, describe_moment
from benchlock.api.client.remote_queue import RemoteQueue
from benchlock.api.client.worker_setup import (
    WorkerPermissions,
    build_remote_agent,
    connect_queue,
    is_remote,
)
from benchlock.api.error_codes import EXIT_INVALID, EXIT_REFUSED, EXIT_TOKEN_REFUSED
from benchlock.artifacts.errors import InvalidInputError, SchemaRevisionError, UnavailableError
from benchlock.evaluator.launchers.launcher import Cluster, Launcher
from benchlock.evaluator.launchers.node_worker import WorkerOrder
from benchlock.evaluator.launchers.pod_manifests import WorkerTemplate
from benchlock.evaluator.launchers.ray_connection import Supervision, check_cluster
from benchlock.evaluator.queue.job_matching import JobRequirements, is_isolation_possible
from benchlock.evaluator.queue.queue_texts import (
    describe_machine,
    describe_seconds,
    find_machine_trouble,
    job_state,
    machine_state,
)
from benchlock.evaluator.queue.queue_types import TERMINAL, Job, JobState, Machine, MachineId, Queue, parse_job_id
from benchlock.evaluator.records.run_types import Isolation
from benchlock.evaluator.runner.host_platform import limit_cpus
from benchlock.registry.requests.evaluation_request import Request

_T = TypeVar("_T")
_WAIT_SECONDS: Final = 1.0
"""Seconds between two reads of what a command waits for."""
_FINAL: Final = frozenset({0, EXIT_REFUSED, EXIT_INVALID, EXIT_TOKEN_REFUSED})
"""Exit codes of a launcher that is not started again."""
STATES = ("queued", "leased", "done", "failed", "quarantined", "cancelled")


def _find_jobs(invocation: Invocation, prefix: str, limit: int) -> Candidates:
    return [
        (job.id, f"{describe_moment(job.submitted_at)}, {job.state}, {describe_model(invocation.opened, job.lock)}")
        for job in open_queue(invocation).jobs(prefix=prefix, limit=limit)
    ]


complete_job_id = complete_id("job", _find_jobs)
JOB = click.argument("job", metavar="JOB", callback=complete_job_id, help="Job id, as listed by `jobs`.")


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
        agent = build_remote_agent(invocation.registry, machine, permits, invocation.progress, _say_step)
    else:
        from benchlock.api.client.embedded_queue import build_agent  # noqa: PLC0415 - as below

        agent = build_agent(invocation.folder, machine, permits, invocation.progress, _say_step)
    count = agent.work(once=once, until_idle=until_idle)
    answer = {"machine": agent.machine, "jobs": count}
    if report is not None:
        report.write_bytes(msgspec.json.encode(answer))
    if invocation.as_json:
        output.print_json(answer)


def _say_step(text: str) -> None:
    """Print a message of the worker, with the commands for its next step."""
    say(append_commands(text), repeat=True)


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
    code = Supervision(words, _FINAL, _say_step).run()
    if code:
        raise click.exceptions.Exit(code)


def _launch(address: str, order: WorkerOrder) -> None:
    """Attach this process to the cluster, and launch workers until SIGTERM or SIGINT."""
    from benchlock.evaluator.launchers.ray_cluster import attach_cluster  # noqa: PLC0415 - Ray, which is an extra

    with attach_cluster(address, order) as attached:
        say(f"attached to the Ray cluster at {address}; SIGTERM stops the workers", repeat=True)
        may_run = partial(is_isolation_possible, engine=True, processes=order.processes, code=order.allow_code)
        _run_launcher(connect_queue(order.registry), attached, may_run)


def _parse_labels(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs = [text.partition("=") for text in texts]
    for key, equals, value in pairs:
        if not equals or not _LABEL_KEY.fullmatch(key) or "," in value:
            raise InvalidInputError(
                f"invalid label {key + equals + value!r}",
                where="--node-selector",
                next_step="write KEY=VALUE, and the option again for another label",
            )
    return tuple((key, value) for key, _, value in pairs)


_LABEL_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_-]*")
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


def _check_taint_keys(_context: click.Context, _parameter: click.Parameter, keys: tuple[str, ...]) -> tuple[str, ...]:
    for key in keys:
        if not _LABEL_KEY.fullmatch(key):
            raise InvalidInputError(
                f"invalid key of a taint {key!r}",
                where="--toleration",
                next_step="write the key alone, without value and effect, such as nvidia.com/gpu",
            )
    return keys


def _check_prefix(_context: click.Context, _parameter: click.Parameter, prefix: str) -> str:
    if prefix and not _PREFIX.fullmatch(prefix):
        raise InvalidInputError(
            f"invalid prefix of machine names {prefix!r}",
            where="--machine-prefix",
            next_step="write 1 to 32 letters, digits, '.', '_' and '-', the first a letter or a digit",
        )
    return prefix


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
    "--machine-prefix", metavar="TEXT", default="", callback=_check_prefix, help="Prefix of the nodes' machine names."
)
@click.option(
    "--node-selector",
    "labels",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_parse_labels,
    help="Only nodes with this label; repeatable.",
)
@click.option(
    "--toleration",
    "tolerations",
    metavar="KEY",
    multiple=True,
    callback=_check_taint_keys,
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
        Launcher(queue, engine, may_run, _say_step).run()
    except KeyboardInterrupt:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def submit(
    invocation: Invocation, target: str, isolation: Isolation | None, *, allow_code: bool, priority: int
) -> None:
    """Queue a lock or a request, and print at once if no machine can take the job.

    Args:
        invocation: The call of the command.
        target: A lockfile, a lock's id or a request file.
        isolation: The requested isolation; None for the default.
        allow_code: Whether code of the model may run in a process.
        priority: The priority among the jobs of the token.
    """
    question = read_question(invocation, target)
    explanation = invocation.opened.submit_job(question, isolation, allow_code=allow_code, priority=priority)
    if invocation.as_json:
        output.print_json(explanation)
        return
    output.echo(explanation.job.id)
    if isinstance(question, Request):
        say(f"lock: {explanation.job.lock}")
    say(f"warning: {explanation.sentence}" if explanation.blocked else explanation.sentence)


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
    if is_remote(invocation.registry):
        return connect_queue(invocation.registry)
    from benchlock.api.client import embedded_queue  # noqa: PLC0415 - SQL code, which a worker of a server does not load

    return embedded_queue.open_queue(invocation.folder)


def machine_document(machine: Machine) -> dict[str, Any]:
    """Return the JSON document of a machine: the machine as over HTTP, and its state in a word."""
    return {**msgspec.to_builtins(machine), "state": machine_state(machine)}
