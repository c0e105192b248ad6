"""However a bundle is changed, importing it either gives exactly what it held or one of our errors and nothing else."""

import json
import shutil
import sqlite3
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.records.run_document import encode_run
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.workflows.bundles import import_bundle
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import open_engine
from benchlock.registry.lock.lockfile import lock_id
from benchlock.registry.publishing.garbage_collection import collect_garbage
from benchlock.registry.text import toml
from tests.support.artifacts.bundled import Files, bundled, name_of, packed, unpacked
from tests.support.artifacts.memory_store import MemoryStore

NOW = datetime(2026, 11, 21, 13, tzinfo=UTC)
FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=25)
BLOCK = 512

Rows = tuple[str, ...]


@dataclass(frozen=True)
class Desk:
    """A bundle, an empty registry's database, and what it holds once the bundle was imported."""

    folder: Path
    whole: bytes
    files: Files
    schema: Path
    imported: tuple[Rows, frozenset[str]]

    def outcome(self, content: bytes | Files, record: bytes = b"", *, other: bool = False) -> None:
        """Import it, and compare: all of it, or one of our errors and nothing visible. Nothing else is written.

        ``record`` is that of the run, where it is another one: what it says is then recorded. With ``other`` the
        content may be another.
        """
        path = self.folder / "fuzzed.tar"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            packed(path, content)
        database, store = self.folder / "registry.db", MemoryStore()
        shutil.copy(self.schema, database)
        empty, engine = rows(database), open_engine(database)
        try:
            import_bundle(path, store, engine, lambda: NOW, SILENT)
        except BenchlockError:
            assert rows(database) == empty
            assert freed(engine, store) == []
        else:
            if other:
                return
            assert frozenset(store.list()) == self.imported[1]
            if record:
                (run,) = Records(engine).list()
                assert encode_run(Records(engine).get(run.id)) == record
            else:
                assert rows(database) == self.imported[0]
        finally:
            engine.dispose()
        names = {one.name for one in self.folder.iterdir()}
        assert names <= {
            "authored",
            "maker.db",
            "whole.tar",
            "fuzzed.tar",
            "schema.db",
            "registry.db",
            "registry.db-wal",
            "registry.db-shm",
        }


LOGGED = ('INSERT INTO "actions"', 'INSERT INTO "record_chain"')


def rows(database: Path) -> Rows:
    """Everything that the database holds, but for the audit log and the chain that it is in."""
    with closing(sqlite3.connect(database)) as connection:
        return tuple(line for line in connection.iterdump() if not line.startswith(LOGGED))


def freed(engine: Engine, store: MemoryStore) -> list[str]:
    """What is left in the store after a collection of garbage."""
    collect_garbage(store, Catalogue(engine, lambda: NOW), Records(engine).live_digests)
    return list(store.list())


@pytest.fixture(scope="module")
def desk(schema: Path) -> Iterator[Desk]:
    """In memory where the system has such a folder: hundreds of imports wait for no disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        yield laid_out(schema, Path(place))


def laid_out(schema: Path, folder: Path) -> Desk:
    whole = bundled(MemoryStore(), folder, schema).create(folder / "whole.tar")
    store, database = MemoryStore(), folder / "registry.db"
    shutil.copy(schema, folder / "schema.db")
    shutil.copy(schema, database)
    engine = open_engine(database)
    import_bundle(whole, store, engine, lambda: NOW, SILENT)
    engine.dispose()
    held = rows(database), frozenset(store.list())
    return Desk(folder, whole.read_bytes(), unpacked(whole), folder / "schema.db", held)


def test_what_was_not_changed_is_imported(desk: Desk) -> None:
    desk.outcome(desk.whole)
    desk.outcome(desk.files)


@FUZZ
@given(data=st.data())
def test_bytes_that_were_changed(desk: Desk, data: st.DataObject) -> None:
    content = bytearray(desk.whole)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    desk.outcome(bytes(content))


@FUZZ
@given(data=st.data())
def test_headers_that_were_changed_and_summed_again(desk: Desk, data: st.DataObject) -> None:
    """A header whose checksum is right says anything: names, sizes, kinds of files."""
    content = bytearray(desk.whole)
    header = data.draw(
        st.sampled_from(
            [place for place in range(0, len(content), BLOCK) if content[place + 257 : place + 262] == b"ustar"]
        )
    )
    field = data.draw(
        st.sampled_from([(0, 100), (100, 8), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8), (345, 155)])
    )
    start = header + field[0]
    length = data.draw(st.integers(1, field[1]))
    content[start : start + length] = data.draw(
        st.binary(min_size=length, max_size=length)
        | st.sampled_from("01234567Lxg5SK").map(lambda c: c.encode() * length)
    )
    content[header + 148 : header + 156] = b" " * 8
    content[header + 148 : header + 156] = b"%06o\0 " % sum(content[header : header + BLOCK])
    desk.outcome(bytes(content))


@FUZZ
@given(data=st.data())
def test_a_tar_that_was_cut_grown_or_shuffled(desk: Desk, data: st.DataObject) -> None:
    blocks = [desk.whole[place : place + BLOCK] for place in range(0, len(desk.whole), BLOCK)]
    where, other = (data.draw(st.integers(0, len(blocks) - 1)) for _ in range(2))
    change = data.draw(st.sampled_from(["cut", "drop", "repeat", "swap", "zero", "move"]))
    if change == "cut":
        del blocks[where:]
    elif change == "drop":
        del blocks[where]
    elif change == "repeat":
        blocks[other:other] = [blocks[where]]
    elif change == "swap":
        blocks[where], blocks[other] = blocks[other], blocks[where]
    elif change == "zero":
        blocks[where] = bytes(BLOCK)
    else:
        blocks.insert(other, blocks.pop(where))
    desk.outcome(b"".join(blocks))


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from(["sha256:" + "0" * 64, "../x", "", "1.0", "2.0", -1, 1 << 60]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=4,
)


@FUZZ
@given(data=st.data())
def test_documents_that_say_anything_under_right_digests(desk: Desk, data: st.DataObject) -> None:
    """A value anywhere in the index, a manifest or the record is another, or gone; all above it is made to fit."""
    files = dict(desk.files)
    index = json.loads(files["index.json"])
    which = data.draw(st.sampled_from(["index", "lock's manifest", "run's manifest", "record"]))
    if which == "index":
        mutate(index, data)
        desk.outcome(files | {"index.json": text_of(index)})
        return
    text = b""
    listed = index["manifests"][0 if which == "lock's manifest" else 1]
    manifest = json.loads(files.pop(name_of(listed["digest"])))
    if which == "record":
        record = json.loads(files.pop(name_of(manifest["config"]["digest"])))
        mutate(record, data)
        text = text_of(record)
        files |= described(manifest["config"], text)
    else:
        mutate(manifest, data)
    files |= described(listed, text_of(manifest))
    desk.outcome(files | {"index.json": text_of(index)}, text)


def described(descriptor: dict[str, object], text: bytes) -> Files:
    descriptor |= {"digest": digest_bytes(text), "size": len(text)}
    return {name_of(digest_bytes(text)): text}


def text_of(document: object) -> bytes:
    """Canonical where it can be."""
    try:
        return encode_canonical(document)
    except BenchlockError:
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def mutate(document: object, data: st.DataObject) -> None:
    """Replace or remove one value, somewhere inside."""
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))  # type: ignore[arg-type]
        key = data.draw(st.sampled_from(keys))
        inner = place[key]  # type: ignore[index]
        if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
            place = inner
            continue
        if data.draw(st.booleans()):
            place[key] = data.draw(JSON_VALUES)  # type: ignore[index]
        else:
            del place[key]  # type: ignore[attr-defined]
        return


@FUZZ
@given(data=st.data())
def test_locks_that_say_anything_under_right_digests(desk: Desk, data: st.DataObject) -> None:
    """Bytes of the lock's text are others: it is refused for its id, whatever it says."""
    files, index = dict(desk.files), json.loads(desk.files["index.json"])
    listed = index["manifests"][0]
    manifest = json.loads(files.pop(name_of(listed["digest"])))
    text = bytearray(files.pop(name_of(manifest["config"]["digest"])))
    start = data.draw(st.integers(0, len(text)))
    text[start : start + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=30))
    files |= described(manifest["config"], bytes(text))
    desk.outcome(files | described(listed, text_of(manifest)) | {"index.json": text_of(index)})


@FUZZ
@given(data=st.data())
def test_locks_and_manifests_that_say_anything_under_right_ids(desk: Desk, data: st.DataObject) -> None:
    """A value in the lock, in a manifest or in the listing of a tree is another, or gone; no digest gives it away."""
    files, index = dict(desk.files), json.loads(desk.files["index.json"])
    index["manifests"].pop()
    listed = index["manifests"][0]
    manifest = json.loads(files.pop(name_of(listed["digest"])))
    lock = tomllib.loads(files.pop(name_of(manifest["config"]["digest"])).decode())
    del lock["id"]
    which = data.draw(st.sampled_from(["lock", "model", "dataset", "framework", "image", "tree"]))
    if which == "lock":
        mutate(lock, data)
    else:
        row = lock["dataset"]["files"][-1] if which == "tree" else lock[which]
        old = row["sha256"] if which == "tree" else row["digest"].removeprefix("sha256:")
        document = json.loads(files.pop(f"blobs/sha256/{old}"))
        mutate(document, data)
        text = text_of(document)
        new = digest_bytes(text).removeprefix("sha256:")
        row |= {"sha256": new} if which == "tree" else {"digest": f"sha256:{new}"}
        layer = next(one for one in manifest["layers"] if one["digest"].endswith(old))
        files |= described(layer, text)
    try:
        text = toml.dumps({"id": lock_id(lock), **lock}, (), ("files", "platforms")).encode()
    except (TypeError, BenchlockError, UnicodeEncodeError):  # no lock can say it
        return
    files |= described(manifest["config"], text)
    record = json.loads(desk.files["index.json"])["manifests"][1]
    of_run = json.loads(files.pop(name_of(record["digest"])))
    for one in (of_run["config"], *of_run["layers"]):
        files.pop(name_of(one["digest"]), None)
    desk.outcome(files | described(listed, text_of(manifest)) | {"index.json": text_of(index)}, other=True)
