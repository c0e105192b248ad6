"""Every field of a record is forged, one at a time: whatever its blobs tell is caught, the rest is marked as reported.

Through every way by which a record comes: a bundle, HTTP in the hands of a client and of a worker, the database.
"""

import io
import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from msgspec import Struct
from msgspec.structs import fields
from sqlalchemy import Engine, Table, delete

from benchlock.artifacts.digest import Descriptor
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence import run_examination
from benchlock.evaluator.evidence.run_examination import ExaminedRecords, Examiner
from benchlock.evaluator.records.evidence_status import HOST_FAILURES, REPORTED_FIELDS
from benchlock.evaluator.records.run_document import decode_run, encode_run
from benchlock.evaluator.records.run_store import end_record, start_record
from benchlock.evaluator.records.run_types import Run, RunEnd, RunStart
from benchlock.evaluator.records.runs_schema import (
    run_batch_metrics,
    run_blobs,
    run_ends,
    run_metrics,
    run_packages,
    runs,
)
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.record_chain import insert_records
from benchlock.registry.lock.lockfile import Lock, dump
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.forged_records import Document, forge, is_reported, leaves, name_of, run_from
from tests.support.evaluator.recorded import NOON
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

REPORTED = {
    "end.details.cpus.0",
    "end.details.verified.bytes",
    "end.details.verified.files",
    "end.ended_at",
    "end.timings.job",
    "end.timings.run",
    "end.timings.start",
    "end.timings.verification",
    "end.timings.watching_cpu",
    "start.attempt",
    "start.host.accelerator",
    "start.host.cores",
    "start.host.cpu_flags.0",
    "start.host.cpu_flags.1",
    "start.host.cpu_model",
    "start.host.driver",
    "start.host.engine",
    "start.host.governor",
    "start.host.kernel",
    "start.host.memory",
    "start.id",
    "start.process.born",
    "start.process.pid",
    "start.started_at",
}
"""The leaves of the record below that nothing tells but the record itself."""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


@pytest.fixture
def lock(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> Lock:
    made = variant({"lock": CURRENT, "files": IDX, "request": {"metrics": ["top1", "top5", "latency", "throughput"]}})
    for manifest in made.manifests.values():
        for blob in (content(manifest), *made.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    release(monkeypatch, made.lock.harness)
    return made.lock


@pytest.fixture(params=["process", "container"])
def run(request: pytest.FixtureRequest, lock: Lock, store: LocalStore) -> Run:
    return make_run(lock, store, isolation=request.param)


@pytest.fixture
def document(run: Run) -> Document:
    found: Document = json.loads(encode_run(run))
    return found


@pytest.fixture
def examiner(store: LocalStore, lock: Lock, tmp_path: Path) -> Examiner:
    texts = {lock.id: dump(lock)}
    return Examiner(store, tmp_path, lambda id_: texts[id_])


def uncaught(document: Document, is_refused: Callable[[Document], bool]) -> set[str]:
    """Return the names of the leaves whose forgery nothing catches."""
    return {name_of(path, document) for path in leaves(document) if not is_refused(forge(document, path))}


def test_the_record_itself_is_verified(run: Run, examiner: Examiner) -> None:
    examined = examiner.examine(run)
    assert examined.evidence is not None
    assert (examined.evidence.state, examined.evidence.reasons) == ("verified", ())
    assert examined == run


def test_every_leaf_that_blobs_tell_is_caught_and_the_rest_is_reported(document: Document, examiner: Examiner) -> None:
    def is_refused(forged: Document) -> bool:
        try:
            status = examiner.compare(run_from(forged))
        except (BenchlockError, ValueError, KeyError, TypeError):
            return True
        return status.state != "verified"

    found = uncaught(document, is_refused)
    assert found == REPORTED
    assert all(is_reported(name, REPORTED_FIELDS) for name in found)


def test_a_leaf_that_is_left_out_is_caught(document: Document, examiner: Examiner) -> None:
    """Of metrics, packages, blobs that figures are made of, timings of the harness and details."""
    for part in ("metrics", "packages", "blobs", "timings", "details"):
        fields: Any = document["end"][part]
        for key in list(range(len(fields)) if isinstance(fields, list) else fields):
            forged = json.loads(json.dumps(document))
            name = name_of(("end", part, key), document)
            del forged["end"][part][key]
            if not is_reported(name, REPORTED_FIELDS) and key != "loadgen-summary":
                assert examiner.compare(run_from(forged)).state == "contradicted", name


def test_the_reason_names_the_field_and_both_values(document: Document, examiner: Examiner) -> None:
    for metric in document["end"]["metrics"]:
        if metric["name"] == "top1":
            metric["value"], metric["ci"] = 1.0, [0.9, 1.0]
    forged = examiner.examine(run_from(document))
    assert forged.evidence is not None
    assert forged.evidence.state == "contradicted"
    assert "metrics.top1.value is recorded as 1.0 and recomputed as 0.5" in forged.evidence.reasons
    assert forged.end is not None
    assert (forged.end.metrics, forged.end.details) == ((), {})


@pytest.mark.parametrize("role", ["predictions", "samples", "loadgen-detail", "result"])
def test_a_missing_blob_is_said_and_nothing_is_shown(
    run: Run, examiner: Examiner, store: LocalStore, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.end is not None
    store.delete(run.end.blobs[role].digest)
    monkeypatch.setattr(run_examination, "recent_recomputations", OrderedDict())  # as another process
    examined = examiner.examine(run)
    assert examined.evidence is not None
    assert examined.evidence.state == "unverified"
    assert "is missing" in examined.evidence.reasons[0]
    assert role in examined.evidence.reasons[0]
    assert examined.end is not None
    assert examined.end.metrics == ()


@pytest.mark.parametrize("role", ["predictions", "samples"])
def test_what_agreed_is_forgotten_once_a_blob_was_found_damaged(
    run: Run, examiner: Examiner, store: LocalStore, role: str
) -> None:
    assert examiner.compare(run).state == "verified"
    assert run.end is not None
    path = store.path(run.end.blobs[role].digest)
    path.chmod(0o644)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert examiner.compare(run, again=True).state == "unverified"
    examined = examiner.examine(run)
    assert examined.evidence is not None
    assert examined.evidence.state == "unverified"
    assert examined.end is not None
    assert examined.end.metrics == ()


def test_what_agreed_is_remembered_for_the_same_record_alone(
    run: Run, document: Document, examiner: Examiner, store: LocalStore
) -> None:
    assert examiner.examine(run).evidence is not None
    assert run.end is not None
    for blob in run.end.blobs.values():
        store.delete(blob.digest)
    remembered = examiner.examine(run).evidence
    assert remembered is not None
    assert remembered.state == "verified"
    forged = examiner.examine(run_from(forge(document, ("end", "metrics", 0, "value")))).evidence
    assert forged is not None
    assert forged.state != "verified"


def test_every_forged_row_of_the_database_is_withheld(
    document: Document,
    lock: Lock,
    store: LocalStore,
    database: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where whoever forged it made the digests of its rows anew."""
    monkeypatch.setattr("benchlock.evaluator.records.run_store.check_records", lambda *_: None)
    catalogue = Catalogue(database, lambda: NOON)
    catalogue.put_lock(lock)
    records = ExaminedRecords(database, Examiner(store, tmp_path, catalogue.get_lock))
    with database.begin() as connection:
        names = connection.execute(sqlalchemy.text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars()
        for name in names.all():
            connection.execute(sqlalchemy.text(f'DROP TRIGGER "{name}"'))

    def is_refused(forged: Document) -> bool:
        try:
            run = run_from(forged)
            with write_transaction(database) as connection:
                connection.execute(sqlalchemy.text("PRAGMA defer_foreign_keys = ON"))
                for table in (run_metrics, run_batch_metrics, run_packages, run_blobs, run_ends):
                    connection.execute(delete(table))
                connection.execute(delete(runs))
                connection.execute(sqlalchemy.text("DELETE FROM record_chain WHERE kind NOT LIKE 'lock%'"))
                assert run.end is not None
                insert_records(connection, (start_record(run.start), end_record(run.id, run.end)))
        except (BenchlockError, ValueError, KeyError, TypeError, sqlalchemy.exc.SQLAlchemyError):
            return True
        (listed,) = records.list()
        read = records.get(run.id)
        assert listed.evidence == read.evidence is not None
        assert read.evidence is not None
        assert (read.evidence.state == "verified") == (read.end is not None and read.end.metrics != ())
        return read.evidence.state != "verified"

    assert not is_refused(document)
    assert uncaught(document, is_refused) <= REPORTED


def test_a_failed_run_says_what_its_evidence_says(document: Document, examiner: Examiner) -> None:
    metrics = document["end"]["metrics"]
    document["end"] |= {"outcome": "failed", "failure_class": "crash", "failure_message": "it fell", "metrics": []}
    for part in ("calls", "classes"):
        document["end"]["details"].pop(part)
    for kind in (*HOST_FAILURES, "crash"):
        document["end"]["failure_class"] = kind
        status = examiner.compare(run_from(document))
        assert (status.state, status.reasons) == ("verified", ())
        assert {"end.outcome", "end.failure_class", "end.failure_message"} <= set(status.reported)
    document["end"]["metrics"] = metrics
    status = examiner.compare(run_from(document))
    assert status.state == "contradicted"
    assert any(reason.startswith("metrics.top1 is recorded as") for reason in status.reasons)


def test_a_document_is_decoded_as_it_was(document: Document) -> None:
    assert json.loads(encode_run(decode_run(encode_canonical(document), "here"))) == document


def test_every_field_of_the_schema_is_forged(document: Document) -> None:
    """A field that is added to a record, to what travels, or to a table is forged by the tests above, or named here."""
    end = document["end"]
    metric, blob = end["metrics"][0], next(iter(end["blobs"].values()))
    forged = {"start": set(document), "end": set(end), "metric": set(metric), "blob": set(blob)}
    schema = {
        "start": names_of(RunStart) | columns_of(runs),
        "end": names_of(RunEnd) | columns_of(run_ends),
        "metric": names_of(Metric) | columns_of(run_metrics),
        "blob": names_of(Descriptor) | columns_of(run_blobs),
    }
    assert {part: names - forged[part] for part, names in schema.items()} == {
        "start": set(),
        # The row's own key.
        "end": {"run"},
        # Columns of the interval, which is `ci`; a batch is of a sweep, a case of an operator; the mark follows
        # from the details.
        "metric": {"run", "ci_low", "ci_high", "batch", "case", "self_reported"},
        "blob": {"run", "role"},
    }


def names_of(kind: type[Struct]) -> set[str]:
    return {one.name for one in fields(kind)}


def columns_of(table: Table) -> set[str]:
    return {column.name for column in table.columns}
