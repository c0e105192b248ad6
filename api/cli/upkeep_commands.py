"""verify, gc, doctor: whether what is kept is what it was, what can go, and what this machine lacks."""

import platform
import shutil
from typing import TYPE_CHECKING, Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.invocation import Invocation
from benchlock.api.cli.run_names import complete_run_ids
from benchlock.api.faults import EXIT_INTEGRITY
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.plurals import count_of

if TYPE_CHECKING:
    from benchlock.api.client.registry import Json
    from benchlock.evaluator.runner.host import Host
    from benchlock.registry.hosts import HostFacts
    from benchlock.registry.lockfile import Lock

_NO_ENGINE = (
    "none answers (start Docker, or set DOCKER_HOST): `run` runs processes, `worker` takes jobs with --processes alone"
)


@click.command()
@click.argument(
    "targets",
    metavar="[TARGET]...",
    nargs=-1,
    callback=complete_run_ids,
    help="KIND/NAME[@CONSTRAINT], run/ID or LOCK; default: everything.",
)
@click.option("--remote", is_flag=True, help="Read the blobs from the OCI repository, not from the local copies.")
@click.option(
    "--head", metavar="SEQ:DIGEST", help="Require that the chain of records contains this head, noted earlier."
)
@click.pass_obj
def verify(invocation: Invocation, targets: tuple[str, ...], *, remote: bool, head: str | None) -> None:
    """Verify blob checksums, the figures of runs and the database.

    The figures of runs are recomputed from their blobs. The database is checked if no TARGET is given.

    The last line is the head of the chain of records. Note it elsewhere: `benchlock verify --head 1204:sha256:…`
    detects records that were rewritten since.

    Example: benchlock verify run/01kam1v3mz4w0q3d5g7h9j2k4m
    """
    if head is not None and targets:
        raise click.UsageError("--head checks the whole database; leave out the targets")
    wanted = [_named(invocation, target) for target in targets]
    found = invocation.opened.verify(wanted, invocation.progress, remote=remote, head=head)
    if invocation.as_json:
        document: dict[str, Any] = {"blobs": found.blobs, "damaged": list(found.damaged)}
        document |= {"runs": found.runs, "contradictions": list(found.contradictions)}
        output.print_json(document if targets else document | {"records": found.records, "head": found.head})
    else:
        for fault in (*found.damaged, *found.contradictions):
            output.say_error(IntegrityError(fault["message"], where=fault["where"], next_step=fault["next"]))
        records = "" if found.records is None else f" and {count_of(found.records, 'record')}"
        output.echo(f"{count_of(found.blobs, 'blob')}{records} verified, {len(found.damaged)} damaged")
        if found.runs:
            differing = len(found.contradictions)
            output.echo(f"{count_of(found.runs, 'run')} compared with the evidence, {differing} not verified")
        if found.head is not None:
            output.echo(f"head of the chain of records: {found.head}")
    if found.damaged or found.contradictions:
        raise click.exceptions.Exit(EXIT_INTEGRITY)


def _named(invocation: Invocation, target: str) -> "str | Lock":
    """A lock that is a file here, or that the registry has; anything else by its name."""
    from benchlock.api.cli.artifacts_commands import RUN_PREFIX  # noqa: PLC0415
    from benchlock.api.cli.lock_commands import read_lock  # noqa: PLC0415
    from benchlock.registry.names import KINDS  # noqa: PLC0415

    is_named = target.startswith(RUN_PREFIX) or target.partition("/")[0] in KINDS
    return target if is_named else read_lock(invocation, target)


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be freed, free nothing.")
@click.option("--local", is_flag=True, help="Free also what is kept here of blobs that the OCI repository has intact.")
@click.pass_obj
def gc(invocation: Invocation, *, dry_run: bool, local: bool) -> None:
    """Free the blobs that no version, no lock and no run names.

    What was sent to a service within the last day stays: whoever sent it may have still to publish it. Unfinished
    files of commands that were killed, and of interrupted downloads, are removed too.
    """
    freed = invocation.opened.collect(dry_run=dry_run, local=local)
    if invocation.as_json:
        leftovers = {"files": freed.leftovers.files, "bytes": freed.leftovers.size}
        document: dict[str, Any] = {
            "blobs": freed.blobs,
            "bytes": freed.size,
            "dry_run": dry_run,
            "leftovers": leftovers,
        }
        output.print_json(document if freed.local is None else document | {"local": freed.local})
        return
    verb = "would free" if dry_run else "freed"
    output.echo(f"{verb} {count_of(freed.blobs, 'blob')}, {output.byte_count(freed.size)}")
    if (unfinished := freed.leftovers).files:
        removed = "would remove" if dry_run else "removed"
        output.echo(f"{removed} {count_of(unfinished.files, 'unfinished file')}, {output.byte_count(unfinished.size)}")
    if (gone := freed.local) is not None:
        output.echo(
            f"{verb} what is kept here of {count_of(gone['blobs'], 'blob')}, {output.byte_count(gone['bytes'])}"
        )
        if gone["kept"]:
            output.say(
                f"warning: the repository lost or damaged {len(gone['kept'])} blobs, which stay: verify --remote"
            )


@click.command()
@click.pass_obj
def doctor(invocation: Invocation) -> None:
    """Say what this machine has and lacks."""
    from benchlock.api.build import this_build  # noqa: PLC0415
    from benchlock.api.wiring import connect_engine  # noqa: PLC0415
    from benchlock.evaluator.runner.host import this_host  # noqa: PLC0415

    registry = invocation.find_registry()
    described = _describe_missing(invocation.registry) if registry is None else registry.describe()
    engine = connect_engine()
    host = this_host()
    build = this_build()
    document = {
        **described,
        "benchlock": build.version,
        "commit": build.commit,
        "python": platform.python_version(),
        "engine": None if engine is None else engine.version,
        "mmdebstrap": shutil.which("mmdebstrap"),
        "host": host.fingerprint(None if engine is None else engine.version),
    }
    if invocation.as_json:
        output.print_json(document)
    else:
        _print_machine(described, document, host)
    if described.get("damaged"):
        raise click.exceptions.Exit(EXIT_INTEGRITY)


def _describe_missing(registry: str) -> "Json":
    from benchlock.api.wiring import folder_of  # noqa: PLC0415

    return {"registry": f"none in {folder_of(registry)} yet: `benchlock db create` makes one"}


def _print_machine(described: "Json", document: dict[str, Any], host: "Host") -> None:
    for fault in described.get("damaged", ()):
        output.say(f"error: {fault}")
    output.print_fields(
        {
            **{name: value for name, value in described.items() if name != "damaged"},
            "benchlock": f"{document['benchlock']} (commit {document['commit']})",
            "python": document["python"],
            "engine": document["engine"] or _NO_ENGINE,
            "mmdebstrap": document["mmdebstrap"] or "missing: `image build` needs --base or --no-layers",
            "platform": host.facts.platform,
            "cpu": f"{host.cpu_model}, {len(host.cpus)} cores",
            "memory": output.byte_count(host.memory),
            "accelerators": _accelerators(host.facts),
        }
    )


def _accelerators(host: "HostFacts") -> str:
    if not host.accelerators:
        return f"none found: {host.without}"
    return ", ".join(f"{one}, driver {one.driver}" for one in host.accelerators)
