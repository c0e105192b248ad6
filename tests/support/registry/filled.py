"""A registry's database with records of every kind, written by the code that writes them in use."""

from datetime import UTC, datetime, timedelta
from io import BytesIO

from msgspec.structs import replace
from sqlalchemy import Connection, Engine

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.evaluator.queue.queue_schema import classes, job_results, jobs, leases, machines
from benchlock.evaluator.records.run_store import Records, keep_imported
from benchlock.evaluator.records.run_types import Run, RunEnd, new_run_id
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.tokens import Tokens
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.catalogue.version_rows import insert_imported_lock
from benchlock.registry.database.database_checks import claim_database
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.record_chain import insert_record
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.manifest_content import reference_of
from tests.support.evaluator.recorded import NOON, recorded
from tests.support.resolution.locks import DATASET, FILES, FRAMEWORK, IMAGE, MODEL, request, shelf
from tests.support.resolution.locks import published as published_manifest

TEMPLATES = {"model": MODEL, "dataset": DATASET, "framework": FRAMEWORK, "image": IMAGE}
BLOB = Descriptor(digest_bytes(b"blob"), 4)


class Clock:
    """A clock that goes on by a second each time it is read."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 22, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def fill(database: Engine, versions: int = 3, runs: int = 3) -> list[Run]:
    """Write records of every kind.

    Args:
        database: An empty registry's database.
        versions: The number of versions of each kind.
        runs: The number of runs that ended; one more is running, another one came in a bundle.

    Returns:
        The runs as they were written.
    """
    clock, lock = Clock(), shelf().lock(request())
    catalogue, records = Catalogue(database, clock), Records(database)
    claim_database(database, "registry", clock())
    published = [_manifest(kind, number) for number in range(versions) for kind in TEMPLATES]
    published.append(published_manifest(FRAMEWORK, {}, version="1.31.1"))  # which the lock names
    for one in published:
        catalogue.publish(one, Provenance(f"# {one.name}\n" * 40, {"net.onnx": "net.onnx"}))
    for one in published[: 2 * versions : 2]:
        catalogue.yank(reference_of(one), f"the labels of {one.version} were swapped")
    catalogue.unyank(reference_of(published[0]))
    tokens = Tokens(database, clock)
    tokens.create("reader", Scopes(frozenset({"read"})))
    revoked, _ = tokens.create("worker", Scopes(frozenset({"read", "run"})))
    tokens.rotate(revoked.id)
    tokens.revoke(revoked.id)
    written = [_run(lock.id, number) for number in range(runs)]
    with write_transaction(database) as connection:
        insert_imported_lock(connection, lock, lock.image.platforms[:1], clock())
    for run in written:
        records.start(run.start)
        assert run.end is not None
        records.finish(run.id, run.end)
    records.start(_run(lock.id, runs).start)
    imported = _run(lock.id, runs + 1)
    with write_transaction(database) as connection:
        keep_imported(connection, imported, clock())
        _give_result(connection, lock, written[0])
    records.hide(imported.id, "it ran on host 7")
    records.unhide(imported.id)
    return [*written, imported]


def store_blobs(store: BlobStore) -> None:
    """Store the blobs that the records name."""
    files = [content for kind in shelf().files.values() for content in kind.values()]
    for content in [b"blob", b"harness", *files]:
        store.put(BytesIO(content), digest_bytes(content), name="blob")


def _manifest(kind: str, number: int) -> Manifest:
    offset = {"offset": 0} if kind == "model" else {}
    return published_manifest(TEMPLATES[kind], FILES[kind], version=f"1.{number}.0", **offset)


def _run(lock: Digest, number: int) -> Run:
    at = NOON + timedelta(minutes=number)
    value = 0.001 * (number + 1)
    end = RunEnd(
        outcome="done",
        ended_at=at + timedelta(seconds=30),
        metrics=(
            Metric("latency_p50", value, "s", "lower", 1000, Interval(value * 0.9, value * 1.1), 1),
            Metric("throughput", 7652.97 + number % 48, "samples/s", "higher", 1000, Interval(7600.5, 7701.25), 1),
            Metric("top1", 0.9972, "fraction", "higher", 359, Interval(0.98, 0.9995), 1),
            Metric("latency_p50", value * 4, "s", "lower", 500, Interval(None, None), 1, 8),
        ),
        packages={"numpy": "2.3.5", "onnxruntime": "1.31.1"},
        blobs={"predictions": BLOB, "result": BLOB},
        timings={"prepare": 1.5, "measure": 20.25},
        details={"batches": [1, 8], "warm_up": 10},
    )
    run = recorded(end, lock=lock)
    start = replace(run.start, id=new_run_id(at), attempt=number + 1, started_at=at)
    return Run(start, end)


def _give_result(connection: Connection, lock: Lock, run: Run) -> None:
    """Write the result of a job, with the rows of the queue that it names."""
    job, digest = f"job/{run.id.removeprefix('run/')}", digest_bytes(b"class")
    machine = {"id": "m1", "boot": "b", "facts": {}, "digest": digest, "faults": 0, "seen": 0.0}
    counts = dict.fromkeys(("lost", "engine", "crash"), 0)
    queued = {"id": job, "lock": lock.id, "class": digest, "allow_code": False, "state": "done", "cancel_asked": False}
    lease = {"fence": 1, "job": job, "machine": "m1", "boot": "b", "owner": "o", "at": 0.0, "run": run.id}
    connection.execute(classes.insert(), {"id": digest, "wants": {}})
    connection.execute(machines.insert(), machine)
    connection.execute(jobs.insert(), queued | counts | {"owner": "o", "submitted_at": NOON})
    connection.execute(leases.insert(), lease)
    insert_record(connection, job_results, {"job": job, "run": run.id, "fence": 1})
