"""verify, gc, doctor: whether what is kept is what it was, what can go, and what this machine lacks."""

import platform
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from api.cli import output
from api.cli.invocation import Invocation
from api.faults import EXIT_INTEGRITY
from artifacts.errors import InvalidInputError

if TYPE_CHECKING:
    from api.wiring import Registry
    from artifacts.digest import Digest
    from artifacts.errors import IntegrityError
    from artifacts.mirrored import Evicted
    from artifacts.oci.mirrored import MirroredRepository
    from registry.hosts import HostFacts


@click.command()
@click.argument(
    "targets",
    metavar="[TARGET]...",
    nargs=-1,
    help="KIND/NAME[@CONSTRAINT], run/ID or LOCK; default: everything.",
)
@click.option("--remote", is_flag=True, help="Read them from the OCI repository, not from what is kept of it here.")
@click.pass_obj
def verify(invocation: Invocation, targets: tuple[str, ...], *, remote: bool) -> None:
    """Read the bytes again and compare them with their digests."""
    from evaluator.inventory import Inventory, damage  # noqa: PLC0415

    registry = invocation.opened
    store = mirrored(registry, "--remote").remote if remote else registry.store
    inventory = Inventory(store, registry.catalogue, registry.records)
    if targets:
        blobs = {digest: name for target in targets for digest, name in _blobs(invocation, inventory, target).items()}
    else:
        blobs = inventory.everything()
    faults = [*damage(store, blobs, invocation.progress)]
    if invocation.as_json:
        output.print_json({"blobs": len(blobs), "damaged": [_fault_document(fault) for fault in faults]})
    else:
        for fault in faults:
            output.say(f"error: {fault}")
        output.echo(f"{len(blobs)} blobs verified, {len(faults)} damaged")
    if faults:
        raise click.exceptions.Exit(EXIT_INTEGRITY)


def _blobs(invocation: Invocation, inventory: Any, target: str) -> dict[Any, str]:  # noqa: ANN401 - imported lazily
    """What one target names."""
    from api.cli.artifacts_commands import RUN_PREFIX, find  # noqa: PLC0415
    from api.cli.lock_commands import read_lock  # noqa: PLC0415
    from evaluator.records.runs import parse_run_id  # noqa: PLC0415
    from registry.names import KINDS  # noqa: PLC0415

    if target.startswith(RUN_PREFIX):
        found: dict[Any, str] = inventory.of_run(invocation.opened.records.get(parse_run_id(target)))
    elif target.partition("/")[0] in KINDS:
        found = inventory.of_version(find(invocation, target)[0].reference)
    else:
        found = inventory.of_lock(read_lock(invocation, target))
    return found


def _fault_document(fault: "IntegrityError") -> dict[str, Any]:
    return {"code": fault.code, "message": fault.what, "where": fault.where, "next": fault.next_step}


def mirrored(registry: "Registry", option: str) -> "MirroredRepository":
    """The store of a registry that has a repository behind it, which ``option`` is for."""
    from artifacts.oci.mirrored import MirroredRepository  # noqa: PLC0415

    if not isinstance(registry.store, MirroredRepository):
        raise InvalidInputError(f"{option} is for registries whose blobs are in an OCI repository: this one has none")
    return registry.store


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be freed, free nothing.")
@click.option("--local", is_flag=True, help="Free also what is kept here of blobs that the OCI repository has intact.")
@click.pass_obj
def gc(invocation: Invocation, *, dry_run: bool, local: bool) -> None:
    """Free the blobs that no version, no lock and no run names.

    What was sent to a service within the last day stays: whoever sent it may have still to publish it.
    """
    from api.stores import uploads_folder  # noqa: PLC0415
    from artifacts.uploads import Uploads  # noqa: PLC0415
    from registry.collection import collect  # noqa: PLC0415

    registry = invocation.opened
    store = mirrored(registry, "--local") if local else None
    evicted = None if store is None else store.evict(dry_run=dry_run)  # first: a damaged listing would stop collect
    uploads = Uploads(uploads_folder(registry.home), registry.store)
    if not dry_run:
        uploads.sweep()

    def live() -> Iterator["Digest"]:
        yield from registry.records.live_digests()
        yield from uploads.held()

    freed = collect(registry.store, registry.catalogue, live, dry_run=dry_run)
    if invocation.as_json:
        document: dict[str, Any] = {"blobs": len(freed.digests), "bytes": freed.size, "dry_run": dry_run}
        output.print_json(document if evicted is None else document | {"local": _evicted_document(evicted)})
        return
    verb = "would free" if dry_run else "freed"
    output.echo(f"{verb} {len(freed.digests)} blobs, {output.byte_count(freed.size)}")
    if evicted is not None:
        gone = _evicted_document(evicted)
        output.echo(f"{verb} what is kept here of {gone['blobs']} blobs, {output.byte_count(gone['bytes'])}")
        if evicted.kept:
            output.say(
                f"warning: the repository lost or damaged {len(evicted.kept)} blobs, which stay: verify --remote"
            )


def _evicted_document(evicted: "Evicted") -> dict[str, Any]:
    """What went from the folder, and the digests of what stays since the repository has it no more intact."""
    size = sum(blob.size for blob in evicted.gone)
    return {"blobs": len(evicted.gone), "bytes": size, "kept": list(evicted.kept)}


@click.command()
@click.pass_obj
def doctor(invocation: Invocation) -> None:
    """Say what this machine has and lacks."""
    from api.wiring import connect_engine, describe_store  # noqa: PLC0415
    from evaluator.runner.host import this_host  # noqa: PLC0415

    engine = connect_engine()
    host = this_host()
    document = {
        "registry": str(invocation.opened.home),
        "store": describe_store(invocation.opened),
        "python": platform.python_version(),
        "engine": None if engine is None else engine.version,
        "mmdebstrap": shutil.which("mmdebstrap"),
        "host": host.fingerprint(None if engine is None else engine.version),
    }
    if invocation.as_json:
        output.print_json(document)
        return
    output.print_fields(
        {
            "registry": document["registry"],
            "store": document["store"],
            "python": document["python"],
            "engine": document["engine"] or "none answers: runs are processes (start Docker, or set DOCKER_HOST)",
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
