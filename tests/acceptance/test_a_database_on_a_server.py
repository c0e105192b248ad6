"""A registry whose database is on a server: published, locked, run, run again, bundled and collected by commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api.commands import Commands, link_environments
from tests.support.api.warm import Warm
from tests.support.registry.digits import locked, model, request, written
from tests.support.registry.tiny import tree_of_digits
from tests.support.servers.postgresql import EMPTY, PostgresServer

pytestmark = pytest.mark.image


@pytest.fixture
def address(postgresql: PostgresServer) -> Iterator[str]:
    with postgresql.database(EMPTY) as address:
        yield address


def test_a_run_is_reproduced_bundled_and_kept(
    address: str, postgresql: PostgresServer, built_once: Commands, tmp_path: Path
) -> None:
    commands = Warm(tmp_path / "registry", variables={"BENCHLOCK_DATABASE": address})
    link_environments(built_once.registry, commands.registry)
    commands.done("image", "build", "onnxruntime==1.31.1", "--no-layers")
    documents = {"model": model("digits"), "dataset": tree_of_digits("digits-tree")}
    commands.done("publish", *(written(tmp_path / f"{kind}.yaml", document) for kind, document in documents.items()))
    lock = locked(commands, tmp_path, request("digits", "digits-tree"))
    run = commands.done("run", lock, "--isolation", "process")
    assert run["end"]["outcome"] == "done"
    verdict = commands.done("rerun", lock, "--against", run["run"])
    assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict
    assert len(commands.done("runs")["runs"]) == 2
    commands.done("yank", "model/digits@1.0.0", "--reason", "a mistake")
    assert commands.done("gc")["blobs"] == 0
    commands.done("bundle", "create", run["run"], "-o", tmp_path / "run.tar")

    with postgresql.database(EMPTY) as other:
        fresh = Warm(tmp_path / "fresh", variables={"BENCHLOCK_DATABASE": other})
        assert fresh.done("bundle", "import", tmp_path / "run.tar")["lock"] == run["lock"]
        assert fresh.done("show", run["run"])["lock"] == run["lock"]
        assert fresh.done("gc")["blobs"] == 0
        assert fresh.done("verify")["damaged"] == []
