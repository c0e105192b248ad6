"""Bundles as an air-gapped reviewer uses them: one file, two commands, no network; and what a kill leaves."""

import json
import random
import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchlock.api.local.local_registry import open_registry
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.publishing.garbage_collection import collect_garbage
from tests.support.api.commands import Commands
from tests.support.api.warm import Warm
from tests.support.artifacts.bundled import Files, packed, root_of, unpacked, with_root
from tests.support.registry import tiny as tiny_registry
from tests.support.registry.digits import locked, model, request, written
from tests.support.resolution.locked import flip, named, place
from tests.support.system.interrupting import cut
from tests.support.system.offline import offline
from tests.support.system.remains import remains

KILLS = 4


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A tiny registry with a lock and a run of it, which failed."""
    folder = tmp_path_factory.mktemp("tiny")
    commands = tiny_registry.publish(folder)
    commands.call("run", locked(commands, folder, request("digits-onnx")))
    return commands


@pytest.fixture(scope="module")
def lock(tiny: Commands) -> Path:
    return tiny.registry.parent / "digits-onnx.lock"


@pytest.fixture(scope="module")
def run(tiny: Commands) -> str:
    (found,) = tiny.done("runs")["runs"]
    return str(found["run"])


@pytest.fixture(scope="module")
def bundle(tiny: Commands, run: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "run.tar"
    tiny.done("bundle", "create", run, "-o", path)
    return path


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A registry that nothing was done to yet."""
    commands = Warm(tmp_path_factory.mktemp("empty") / "registry")
    commands.done("db", "create")
    return commands


@pytest.fixture
def fresh(tmp_path: Path) -> Commands:
    """A registry that is not there yet."""
    return Warm(tmp_path / "fresh")


def rows(commands: Commands) -> list[str]:
    """Everything that the database holds, as SQL, but for the audit log and its chain: collecting garbage is in it."""
    with closing(sqlite3.connect(commands.registry / "registry.sqlite")) as connection:
        logged = ('INSERT INTO "actions"', 'INSERT INTO "record_chain"')
        return [line for line in connection.iterdump() if not line.startswith(logged)]


def blobs(commands: Commands) -> list[Digest]:
    return list(LocalStore(commands.registry / "blobs").list())


def contents(commands: Commands) -> tuple[list[Any], list[Any]]:
    return (
        [artifact | {"published_at": ""} for artifact in commands.done("list")["artifacts"]],
        [run | {"imported_at": ""} for run in commands.done("runs")["runs"]],
    )


def test_the_same_lock_gives_the_same_file(tiny: Commands, lock: Path, tmp_path: Path) -> None:
    identity = json.loads(json.dumps(tiny.done("bundle", "create", lock, "-o", tmp_path / "one")))["lock"]
    elsewhere = replace(tiny, registry=tmp_path / "copy")
    shutil.copytree(tiny.registry, elsewhere.registry)
    for path in elsewhere.registry.rglob("*"):
        path.touch()
    elsewhere.done("bundle", "create", identity, "-o", tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_a_bundle_is_an_image_layout_that_tar_and_jq_read(bundle: Path, lock: Path, run: str) -> None:
    files = unpacked(bundle)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    assert root_of(files, 0).decode() == lock.read_text()
    assert json.loads(root_of(files, 1))["id"] == run
    listing = subprocess.run(["tar", "-tvf", bundle], check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(listing) == len(files)
    assert all(line.startswith("-rw-r--r-- 0/0 ") for line in listing)


def test_what_came_can_be_looked_at_and_asked(
    tiny: Commands, bundle: Path, run: str, lock: Path, fresh: Commands
) -> None:
    found = fresh.done("bundle", "import", bundle)
    assert (found["changed"], found["runs"], found["kept_out"]) == (True, [{"run": run, "changed": True}], [])
    assert contents(fresh) == contents(tiny)
    assert fresh.done("show", run)["imported_at"] is not None
    assert tiny.done("show", run)["imported_at"] is None
    shutil.copy(lock.with_name("digits-onnx.request.yaml"), fresh.registry.parent / "asked.yaml")
    assert fresh.done("lock", "--check", fresh.registry.parent / "asked.yaml", "-o", lock)["fresh"]
    assert fresh.done("verify")["damaged"] == []
    assert fresh.done("gc")["blobs"] == 0


def test_importing_again_changes_nothing(bundle: Path, fresh: Commands) -> None:
    fresh.done("bundle", "import", bundle)
    before = rows(fresh), blobs(fresh)
    again = fresh.done("bundle", "import", bundle)
    assert (again["changed"], [run["changed"] for run in again["runs"]]) == (False, [False])
    assert (rows(fresh), blobs(fresh)) == before


def test_a_bundle_is_not_made_of_damaged_bytes(tiny: Commands, lock: Path, tmp_path: Path) -> None:
    harmed = replace(tiny, registry=tmp_path / "copy")
    shutil.copytree(tiny.registry, harmed.registry)
    name, digest = named(harmed, lock)["file in a tree"]
    found = flip(place(harmed, digest))
    error = harmed.error(4, "bundle", "create", lock, "-o", tmp_path / "bundle.tar")
    assert [part for part in (name, digest, found) if part not in error["message"]] == []
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def edited(files: Files) -> Files:
    return with_root(files, 0, root_of(files, 0).replace(b"seed = 7", b"seed = 8"))


@pytest.mark.parametrize(
    ("name", "code"),
    [("an edited lock", 4), ("a name that leads out", 2), ("a file cut short", 4), ("no bundle", 2), ("nothing", 2)],
)
def test_a_bad_bundle_is_one_message_and_changes_nothing(
    name: str, code: int, bundle: Path, empty: Commands, fresh: Commands, tmp_path: Path
) -> None:
    files, bad = unpacked(bundle), tmp_path / "bad.tar"
    if name == "an edited lock":
        packed(bad, edited(files))
    elif name == "a name that leads out":
        packed(bad, files | {"blobs/sha256/../../../../outside": b"here"})
    elif name == "a file cut short":
        bad.write_bytes(bundle.read_bytes()[:-2000])
    elif name == "no bundle":
        bad.write_text("no bundle\n" * 100)
    shutil.copytree(empty.registry, fresh.registry)
    before = rows(fresh)
    assert fresh.error(code, "bundle", "import", bad)["next"]
    assert rows(fresh) == before
    assert list(tmp_path.rglob("outside*")) == []
    assert remains(fresh) == []


def test_a_lock_alone_has_nothing_to_compare_with(tiny: Commands, lock: Path, fresh: Commands, tmp_path: Path) -> None:
    tiny.done("bundle", "create", lock, "-o", tmp_path / "lock.tar")
    found = fresh.done("bundle", "import", tmp_path / "lock.tar")
    assert found["runs"] == []
    assert "no completed run of" in fresh.error(2, "rerun", found["lock"])["message"]


def test_options_that_name_nothing(tiny: Commands, lock: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.tar"
    assert "platform" in tiny.error(2, "bundle", "create", lock, "-o", out, "--platform", "linux/riscv/cpu")["where"]
    tiny.error(2, "bundle", "create", "run/01m7yzmhg00000000000000000", "-o", out)
    tiny.error(5, "bundle", "create", lock, "-o", tmp_path / "nowhere" / "x.tar")
    assert list(tmp_path.iterdir()) == []


# kill -9


def test_a_killed_import_leaves_nothing_visible(empty: Commands, fresh: Commands, tmp_path: Path) -> None:
    commands = tiny_registry.publish(tmp_path / "many")
    for number in range(150):
        (tmp_path / "many" / "data" / f"{number:03}").parent.mkdir(exist_ok=True)
        (tmp_path / "many" / "data" / f"{number:03}").write_bytes(b"%d" % number * 3000)
    document = tiny_registry.tree_of_digits("many")
    document["files"].append({"path": "more/", "source": str(tmp_path / "many" / "data")})
    commands.done("publish", written(tmp_path / "many.yaml", document))
    lock = locked(commands, tmp_path, request("digits-onnx", "many"))
    commands.done("bundle", "create", lock, "-o", tmp_path / "many.tar")
    shutil.copytree(empty.registry, fresh.registry)
    untouched, numbers, left = rows(fresh), random.Random(4), set[int]()
    for _ in range(KILLS):
        known = len(blobs(fresh))
        code = cut(
            fresh, "bundle", "import", tmp_path / "many.tar",
            when=lambda: len(blobs(fresh)) > known,  # noqa: B023 - called at once
            after=numbers.uniform(0, 0.3),
        )  # fmt: skip
        if code == 0:
            break
        assert rows(fresh) == untouched
        left.add(len(blobs(fresh)))
        registry = open_registry(str(fresh.registry), print)
        collect_garbage(registry.store, registry.catalogue, registry.records.live_digests)
        assert (blobs(fresh), remains(fresh)) == ([], [])
    assert any(left)
    fresh.done("bundle", "import", tmp_path / "many.tar")
    assert fresh.done("verify")["damaged"] == []
    assert len(contents(fresh)[0]) == 4


# Without a network


@pytest.mark.engine
@pytest.mark.image
def test_a_run_is_reproduced_without_a_network(registry: Commands, engine_url: str, tmp_path: Path) -> None:
    """In an empty home, from the one file alone: also the engine has nothing of the image any more."""
    documents = {"model": model("digits"), "dataset": tiny_registry.tree_of_digits("digits-tree")}
    registry.done("publish", *(written(tmp_path / f"{kind}.yaml", one) for kind, one in documents.items()))
    lock = locked(registry, tmp_path, request("digits", "digits-tree"))
    original = registry.done("run", lock, "--isolation", "container")
    assert original["end"]["outcome"] == "done"
    registry.done("bundle", "create", original["run"], "-o", tmp_path / "run.tar")
    forget = ["docker", f"--host={engine_url}", "image", "rm", "--force", original["start"]["image_id"]]
    subprocess.run(forget, check=True, capture_output=True)
    reviewer = offline(tmp_path / "home", engine_url)
    reviewer.done("bundle", "import", tmp_path / "run.tar")
    before = registry.done("show", original["run"])
    for isolation in ("container", "process"):
        verdict = reviewer.done("rerun", original["run"], "--isolation", isolation)
        assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict
        again = reviewer.done("show", verdict["run"])
        assert (again["start"]["isolation"], again["start"]["lock"]) == (isolation, before["start"]["lock"])
        assert again["end"]["packages"] == before["end"]["packages"]
        assert again["end"]["blobs"]["predictions"] == before["end"]["blobs"]["predictions"]
        assert again["start"]["image_id"] == (before["start"]["image_id"] if isolation == "container" else None)
    assert reviewer.done("verify")["damaged"] == []
    assert remains(reviewer) == []
