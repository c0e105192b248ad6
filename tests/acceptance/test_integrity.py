"""Bytes that are not what a lock says stop a run before it starts; what is published stays as it is."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.support.api.commands import Commands
from tests.support.registry import tiny as tiny_registry
from tests.support.registry.digits import GRAPH, locked, model, request, written
from tests.support.resolution.locked import SORTS, flip, flipped, named, place
from tests.support.system.remains import remains

DATABASE = "registry.sqlite"
ISOLATIONS = [*((sort, "container") for sort in SORTS), ("wheel", "process"), ("layer", "process")]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A tiny registry with a lock and a run of it, which failed: a tiny image runs nothing."""
    folder = tmp_path_factory.mktemp("tiny")
    commands = tiny_registry.publish(folder)
    commands.call("run", locked(commands, folder, request("digits-onnx")))
    assert [run["end"]["outcome"] for run in commands.done("runs")["runs"]] == ["failed"]
    return commands


@pytest.fixture
def tiny(original: Commands, tmp_path: Path) -> Commands:
    """A copy of it, with the manifests that it was made of, for one test to harm."""
    shutil.copytree(original.registry.parent, tmp_path / "tiny")
    return replace(original, registry=tmp_path / "tiny" / "registry")


@pytest.fixture
def lock(tiny: Commands) -> Path:
    return tiny.registry.parent / "digits-onnx.lock"


@pytest.fixture
def manifests(tiny: Commands) -> list[Path]:
    return sorted((tiny.registry.parent / "manifests").glob("*.yaml"))


@pytest.fixture(scope="module")
def runnable(registry: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lock of the digits model on a tree of pictures, in a real image."""
    folder = tmp_path_factory.mktemp("runnable")
    documents = {"model": model("digits"), "dataset": tiny_registry.tree_of_digits("digits-tree")}
    registry.done("publish", *(written(folder / f"{kind}.yaml", document) for kind, document in documents.items()))
    return locked(registry, folder, request("digits", "digits-tree"))


LOGGED = ('INSERT INTO "actions"', 'INSERT INTO "record_chain"')


def rows(commands: Commands) -> list[str]:
    """Everything that the database holds, as SQL, but for the audit log and the chain that it is in."""
    with closing(sqlite3.connect(commands.registry / DATABASE)) as connection:
        return [line for line in connection.iterdump() if not line.startswith(LOGGED)]


def blobs(commands: Commands) -> set[str]:
    return {path.name for path in (commands.registry / "blobs" / "sha256").glob("*/*")}


def assert_names(message: str, name: str, expected: str, found: str) -> None:
    assert [part for part in (name, expected, found) if part not in message] == [], message


# Before a run


@pytest.mark.engine
@pytest.mark.image
@pytest.mark.parametrize(("sort", "isolation"), ISOLATIONS)
def test_a_flipped_bit_stops_a_run_before_it_starts(
    registry: Commands, runnable: Path, sort: str, isolation: str
) -> None:
    name, digest = named(registry, runnable)[sort]
    with flipped(place(registry, digest)) as found:
        before = rows(registry)
        error = registry.error(4, "run", runnable, "--isolation", isolation)
        assert rows(registry) == before
    assert error["code"] == "integrity"
    assert_names(error["message"], name, digest, found)
    assert remains(registry) == []


@pytest.mark.engine
@pytest.mark.image
def test_what_was_restored_runs(registry: Commands, runnable: Path) -> None:
    with flipped(place(registry, named(registry, runnable)["layer"][1])):
        registry.error(4, "run", runnable)
    run = registry.done("run", runnable)
    assert (run["end"]["outcome"], run["start"]["isolation"]) == ("done", "container")


def test_the_lost_file_of_a_manifest_is_no_loss_since_the_catalogue_has_it(tiny: Commands, lock: Path) -> None:
    _, digest = named(tiny, lock)["manifest of the image"]
    place(tiny, digest).unlink()
    assert tiny.done("verify")["damaged"] == []


@pytest.mark.parametrize("sort", ["file in a tree", "layer"])
def test_a_missing_file_stops_a_run_before_it_starts(tiny: Commands, lock: Path, sort: str) -> None:
    name, digest = named(tiny, lock)[sort]
    before = rows(tiny)
    place(tiny, digest).unlink()
    error = tiny.error(4, "run", lock)
    assert_names(error["message"], name, digest, "found nothing")
    assert rows(tiny) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seed = 7", "seed = 8"),
        ("seconds = 300.0", "seconds = 3000.0"),
        ('split = "test"\ndigest', 'split = "train"\ndigest'),
        ("top1 = 2", "top1 = 1"),
        ("size = 1024", "size = 1025"),
        ("[harness]", "a_key_of_a_later_minor_version = 1\n\n[harness]"),
        ('id = "sha256:', 'id = "sha256:'),
    ],
)
def test_a_lock_that_was_edited_is_refused(tiny: Commands, lock: Path, old: str, new: str) -> None:
    """The last row writes another id, the others other content."""
    text = lock.read_text()
    assert old in text
    mark = text.index(old)
    stated = text.split('"')[3]
    edited = (
        text.replace(stated, f"sha256:{'0' * 64}", 1) if old == new else text[:mark] + new + text[mark + len(old) :]
    )
    lock.write_text(edited)
    before = rows(tiny)
    error = tiny.error(4, "run", lock)
    assert error["code"] == "integrity"
    assert_names(error["message"], str(lock), edited.split('"')[3], "sha256:")
    assert rows(tiny) == before


@pytest.mark.parametrize("words", ["verify LOCK", "rerun LOCK", "diff LOCK LOCK", "runs --lock LOCK"])
def test_no_command_takes_a_lock_that_was_edited(tiny: Commands, lock: Path, words: str) -> None:
    lock.write_text(lock.read_text().replace("seed = 7", "seed = 8"))
    assert tiny.error(4, *words.replace("LOCK", str(lock)).split())["code"] == "integrity"


def test_a_comment_is_no_content(tiny: Commands, lock: Path) -> None:
    lock.write_text(f"# looked at it\n{lock.read_text()}\n# and found it good\n")
    assert tiny.done("verify", lock)["damaged"] == []


# verify, and repair


def damaged(commands: Commands, *targets: str | Path) -> list[dict[str, Any]]:
    answer = commands.call("verify", *targets)
    found: list[dict[str, Any]] = answer.document["damaged"]
    assert answer.code == (4 if found else 0)
    return found


@pytest.mark.parametrize("whole", ["tree", "file in a tree"])
def test_verify_finds_every_flipped_bit(tiny: Commands, lock: Path, whole: str) -> None:
    """One of the two stays whole: what a damaged tree holds cannot be known."""
    files = {sort: file for sort, file in named(tiny, lock).items() if sort != whole}
    found = {sort: flip(place(tiny, digest)) for sort, (_, digest) in files.items()}
    messages = [fault["message"] for fault in damaged(tiny, lock)]
    assert len(messages) == len(files)
    for sort, (name, digest) in files.items():
        assert any(name in message and digest in message and found[sort] in message for message in messages), sort


def test_publishing_and_locking_again_repairs(tiny: Commands, lock: Path, manifests: list[Path]) -> None:
    broken = {digest for _, digest in named(tiny, lock).values()}
    for digest in broken:
        flip(place(tiny, digest))
    assert len(damaged(tiny)) == len(broken) == len(SORTS)
    before = rows(tiny)
    assert not any(one["changed"] for one in tiny.done("publish", *manifests)["published"])
    locked(tiny, lock.parent, request("digits-onnx"))
    assert damaged(tiny) == []
    assert rows(tiny) == before


# What is published stays


@pytest.mark.parametrize("kind", ["model", "framework"])
def test_other_content_under_a_taken_version_changes_nothing(tiny: Commands, manifests: list[Path], kind: str) -> None:
    manifest = next(path for path in manifests if path.stem == kind)
    before = rows(tiny), blobs(tiny)
    other = manifest.with_name("other.yaml")
    other.write_text(manifest.read_text().replace('"license": "', '"license": "not ', 1))
    for options in ((), ("--dry-run",)):
        assert tiny.error(2, "publish", other, *options)["code"] == "version-taken"
    tiny.done("gc")
    assert (rows(tiny), blobs(tiny)) == before
    assert damaged(tiny) == []


def test_another_file_under_a_taken_version_changes_nothing(tiny: Commands, tmp_path: Path) -> None:
    before = rows(tiny), blobs(tiny)
    graph = tmp_path / "other.onnx"
    other = onnx.load(GRAPH)
    other.doc_string = "other"
    onnx.save(other, graph)
    error = tiny.error(2, "publish", written(tmp_path / "model.yaml", model("digits-onnx", graph=graph)))
    assert error["code"] == "version-taken"
    tiny.done("gc")
    assert (rows(tiny), blobs(tiny)) == before


@pytest.fixture
def raw(tiny: Commands) -> Iterator[sqlite3.Connection]:
    """The database as anybody opens it, without benchlock."""
    with closing(sqlite3.connect(tiny.registry / DATABASE, isolation_level=None)) as connection:
        yield connection


@pytest.mark.parametrize("table", ["versions", "manifests", "files", "yanks", "locks", "runs", "run_ends"])
def test_no_sql_changes_what_is_recorded(tiny: Commands, raw: sqlite3.Connection, table: str) -> None:
    if table == "yanks":
        tiny.done("yank", "model/digits-onnx@1.0.0", "--reason", "the labels were swapped")
    before = rows(tiny)
    (column, *_) = (row[1] for row in raw.execute(f"PRAGMA table_info({table})") if row[5] == 0)
    assert raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] > 0
    for statement in (
        f'UPDATE {table} SET "{column}" = "{column}"',
        f"DELETE FROM {table}",
        f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
        f"REPLACE INTO {table} SELECT * FROM {table}",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="is append-only"):
            raw.execute(statement)
    assert rows(tiny) == before
