"""What protects blobs between processes that share a PostgreSQL database and not a kernel: a lock, and holds."""

import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from benchlock.api.local.local_registry import now
from benchlock.artifacts.atomic_files import LOCK_TIMEOUT
from benchlock.artifacts.blob_store import verify
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.uploads.gc_holds import BLOCK_BYTES
from benchlock.artifacts.uploads.resumable_uploads import Uploads
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Provenance, PublishResult
from benchlock.registry.database.engine import open_server, write_transaction
from benchlock.registry.database.postgresql import STORE_KEY
from benchlock.registry.database.postgresql_gc_holds import DatabaseHolds, DatabaseStoreLock
from benchlock.registry.manifests import Manifest
from benchlock.registry.publishing.garbage_collection import collect_garbage
from benchlock.registry.publishing.publication import publish
from tests.registry.conftest import Author
from tests.registry.publishing.test_garbage_collection import DATASET, FILES
from tests.support.servers.postgresql import PostgresServer

HOLDS = """
import sys, time
from benchlock.registry.database.engine import open_server
from benchlock.registry.database.postgresql_gc_holds import DatabaseStoreLock
lock = DatabaseStoreLock(lambda: open_server(sys.argv[1]))
with lock.held(alone=sys.argv[2] == "alone"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def address(postgresql: PostgresServer) -> Iterator[str]:
    with postgresql.database() as address:
        yield address


@pytest.fixture
def engine(address: str) -> Iterator[Engine]:
    engine = open_server(address)
    yield engine
    engine.dispose()


@pytest.fixture
def others(address: str) -> Iterator[DatabaseStoreLock]:
    """The lock, as another process has it."""
    engine = open_server(address)
    yield DatabaseStoreLock(lambda: engine)
    engine.dispose()


def lock_of(engine: Engine) -> DatabaseStoreLock:
    return DatabaseStoreLock(lambda: engine)


@pytest.fixture
def patient() -> Iterator[None]:
    """Whoever waits does so for half a second."""
    token = LOCK_TIMEOUT.set(0.5)
    yield
    LOCK_TIMEOUT.reset(token)


@pytest.mark.usefixtures("patient")
def test_writers_share_it_and_a_collection_has_it_alone(engine: Engine, others: DatabaseStoreLock) -> None:
    own = DatabaseStoreLock(lambda: engine)
    with own.held(alone=False), others.held(alone=False), own.held(alone=False):
        for lock in (own, others):
            with pytest.raises(UnavailableError, match="has been locked"), lock.held(alone=True):
                pass
    with others.held(alone=True):
        for alone in (True, False):
            with pytest.raises(UnavailableError, match="has been locked"), own.held(alone=alone):
                pass
    with own.held(alone=True), pytest.raises(UnavailableError), others.held(alone=False):
        pass
    with others.held(alone=False):
        pass


@pytest.mark.usefixtures("patient")
def test_a_nested_writer_does_not_wait_for_a_collection_that_waits_for_it(
    engine: Engine, others: DatabaseStoreLock
) -> None:
    own = DatabaseStoreLock(lambda: engine)
    collected = threading.Event()

    def collect_alone() -> None:
        LOCK_TIMEOUT.set(60)
        with others.held(alone=True):
            collected.set()

    with own.held(alone=False):
        thread = threading.Thread(target=collect_alone)
        thread.start()
        assert not collected.wait(0.3)
        with own.held(alone=False), own.held(alone=False):
            pass
    assert collected.wait(60)
    thread.join()


@pytest.mark.parametrize("how", ["alone", "together"])
def test_a_killed_holder_leaves_nothing(engine: Engine, address: str, how: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, address, how], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    holder.kill()
    holder.communicate()
    with DatabaseStoreLock(lambda: engine).held(alone=True):
        pass


def test_a_session_that_the_server_ended_is_replaced(engine: Engine, others: DatabaseStoreLock) -> None:
    own = DatabaseStoreLock(lambda: engine)
    with own.held(alone=False):
        pass
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        )
    token = LOCK_TIMEOUT.set(0.5)
    with own.held(alone=False), pytest.raises(UnavailableError, match="has been locked"), others.held(alone=True):
        pass
    LOCK_TIMEOUT.reset(token)


@pytest.mark.usefixtures("patient")
def test_a_writer_that_joins_others_takes_the_lock_again_that_was_lost(
    engine: Engine, others: DatabaseStoreLock
) -> None:
    own = lock_of(engine)
    with own.held(alone=False):
        with engine.connect() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
            )
        with own.held(alone=False), pytest.raises(UnavailableError, match="has been locked"), others.held(alone=True):
            pass
    with others.held(alone=True):
        pass


def test_a_collection_whose_session_has_ended_deletes_nothing(engine: Engine, address: str, tmp_path: Path) -> None:
    catalogue = Catalogue(engine, now)
    store = LocalStore(tmp_path, DatabaseStoreLock(lambda: engine))
    garbage = store.put(io.BytesIO(b"garbage")).digest

    def end_the_session() -> list[Digest]:
        admin = open_server(address)
        with admin.connect() as connection:
            ended = connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks"
                    " WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
                    " AND ((classid::bigint << 32) | objid::bigint) = :key"
                ),
                {"key": STORE_KEY},
            ).all()
        admin.dispose()
        assert ended
        return list[Digest]()

    with pytest.raises(UnavailableError):
        collect_garbage(store, catalogue, end_the_session)
    assert store.exists(garbage)
    assert set(collect_garbage(store, catalogue, list).digests) == {garbage}


class OtherHost(LocalStore):
    """The store as another host has it, which sees the same files and not the file locks of this one."""

    @contextmanager
    def _hold_lock(self, *, alone: bool) -> Iterator[None]:
        assert self._beside is not None
        with self._beside.held(alone=alone):
            yield

    writing = partialmethod(_hold_lock, alone=False)
    collecting = partialmethod(_hold_lock, alone=True)


def end_writers(address: str) -> None:
    """End every session that holds the lock of the store for writers."""
    query = text(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"
        " AND ((classid::bigint << 32) | objid::bigint) = :key"
    )
    admin = open_server(address)
    with admin.connect() as connection:
        assert connection.execute(query, {"key": STORE_KEY}).all()
    admin.dispose()


def end_session_locks(address: str) -> None:
    """End the sessions that hold the lock outside of a transaction."""
    query = text(
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = :key AND xact_start IS NULL"
    )
    admin = open_server(address)
    with admin.connect() as connection:
        assert connection.execute(query, {"key": STORE_KEY}).all()
    admin.dispose()


@dataclass
class Losing:
    """A store and a catalogue of one process; on another host, a collection runs as soon as its session is lost."""

    address: str
    engine: Engine
    store: LocalStore
    joined: bool = False

    def lose(self) -> tuple[Digest, ...]:
        """End the session of this process and collect garbage on the other host; return what was removed."""
        end_writers(self.address)
        other = open_server(self.address)
        try:
            stores = OtherHost(self.store._root, lock_of(other))
            collected = Context().run(collect_garbage, stores, Catalogue(other, now), list)
        finally:
            other.dispose()
        if self.joined:  # another writer of this process takes the lock anew, which protects nothing of the first one
            self.store.put(io.BytesIO(b"of another writer"))
        return collected.digests


@pytest.fixture
def losing(engine: Engine, address: str, tmp_path: Path) -> Losing:
    return Losing(address, engine, LocalStore(tmp_path / "blobs", lock_of(engine)))


@pytest.mark.parametrize("joined", [False, True])
def test_a_version_whose_writer_lost_its_lock_is_not_published(losing: Losing, author: Author, joined: bool) -> None:
    losing.joined = joined
    removed = list[Digest]()

    class LosingCatalogue(Catalogue):
        def publish(self, manifest: Manifest, provenance: Provenance) -> PublishResult:
            if not removed:
                removed.extend(losing.lose())
            return super().publish(manifest, provenance)

    catalogue, draft = LosingCatalogue(losing.engine, now), author(DATASET, FILES)
    with pytest.raises(UnavailableError, match="the lock that protects stored blobs from garbage collection was lost"):
        publish(draft, losing.store, catalogue)
    assert removed
    assert list(catalogue.live_digests()) == []
    published = publish(draft, losing.store, catalogue)
    assert published.changed
    for digest in catalogue.live_digests():
        verify(losing.store, digest, name=digest)


def test_no_transaction_of_a_writer_that_lost_its_lock_is_committed(losing: Losing) -> None:
    with losing.store.writing():
        with write_transaction(losing.engine):
            pass
        losing.lose()
        with pytest.raises(UnavailableError, match="was lost"), write_transaction(losing.engine):
            pass
        with (
            losing.store.writing(),
            pytest.raises(UnavailableError, match="was lost"),
            write_transaction(losing.engine),
        ):
            pass
    with losing.store.writing(), write_transaction(losing.engine):
        pass


@pytest.mark.usefixtures("patient")
def test_no_collection_begins_between_the_check_and_the_commit(
    losing: Losing, others: DatabaseStoreLock, address: str
) -> None:
    with losing.store.writing(), write_transaction(losing.engine):
        end_session_locks(address)
        with pytest.raises(UnavailableError, match="has been locked"), others.held(alone=True):
            pass
    with others.held(alone=True):
        pass


def test_what_one_process_took_in_another_s_collection_keeps(address: str, tmp_path: Path) -> None:
    """The folders of their uploads differ, the store is the same: only the database tells of the holds."""
    with ExitStack() as stack:
        engines = [open_server(address) for _ in range(2)]
        for engine in engines:
            stack.callback(engine.dispose)
        stores = [LocalStore(tmp_path / "blobs", lock_of(engine)) for engine in engines]
        uploads = [
            Uploads(tmp_path / f"uploads-{number}", store, holds=DatabaseHolds(engine))
            for number, (store, engine) in enumerate(zip(stores, engines, strict=True))
        ]
        upload = uploads[0].begin("client")
        piece = uploads[0].open("client", upload)
        piece.write(b"weights")
        sent = uploads[0].finish(piece, digest_bytes(b"weights")).digest
        uploads[0].close(piece)
        asked_for, garbage = (stores[0].put(io.BytesIO(content)).digest for content in (b"asked for", b"garbage"))
        assert uploads[0].has(asked_for)
        found = collect_garbage(stores[1], Catalogue(engines[1], now), uploads[1].held)
        assert set(found.digests) == {garbage}
        assert stores[0].exists(sent)


def test_a_hold_ends_and_is_renewed(engine: Engine) -> None:
    one, other = digest_bytes(b"one"), digest_bytes(b"other")
    over = DatabaseHolds(engine, seconds=-1)
    over.hold(one)
    over.hold(other)
    holds = DatabaseHolds(engine)
    holds.hold(one)
    assert list(holds.held()) == [one]
    holds.hold(one)
    assert list(holds.held()) == [one]


def test_held_bytes_count_in_all_processes_until_the_blobs_are_named_or_collected(engine: Engine, address: str) -> None:
    one, other, last = (digest_bytes(text) for text in (b"one", b"other", b"last"))
    holds = DatabaseHolds(engine)
    DatabaseHolds(engine, seconds=-1).hold(one, "token/me", 3)
    holds.hold(other, "token/me", 5 << 32)
    holds.hold(other, "token/you", 5 << 32)
    holds.hold(last, "token/me", 4)
    elsewhere = open_server(address)
    try:
        others = DatabaseHolds(elsewhere)
        assert others.count_bytes("token/me") == 2 * BLOCK_BYTES + (5 << 32)
        assert set(others.owned("token/me")) == {one, other, last}
        assert set(others.held()) == {other, last}
        others.release("token/me", [other])
        assert holds.count_bytes("token/me") == 2 * BLOCK_BYTES
        others.forget_expired()
        assert holds.count_bytes("token/me") == BLOCK_BYTES
        assert set(holds.held()) == {other, last}
    finally:
        elsewhere.dispose()
