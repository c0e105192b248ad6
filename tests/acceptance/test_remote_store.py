"""A registry whose blobs are elsewhere: published, locked, run, and run again with no copy at hand."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.api.commands import Commands
from tests.support.registry.digits import locked, model, written
from tests.support.registry.digits import request as evaluation
from tests.support.registry.tiny import tree_of_digits
from tests.support.servers.object_server import ObjectServer
from tests.support.servers.registry_server import RegistryServer

pytestmark = [pytest.mark.engine, pytest.mark.image]


@pytest.fixture(scope="module", params=["oci", "s3"])
def elsewhere(
    small_images: Commands, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Commands, Path]:
    """Such a registry, with a lock."""
    folder = tmp_path_factory.mktemp("elsewhere")
    if request.param == "s3":
        bucket: ObjectServer = request.getfixturevalue("object_server")
        store, credentials = str(bucket.location("runs")), bucket.environment
    else:
        server: RegistryServer = request.getfixturevalue("registry_server")
        store, credentials = str(server.repository("runs")), {}
    made = replace(small_images, registry=folder / "registry", variables=credentials | {"BENCHLOCK_STORE": store})
    for name in ("framework/onnxruntime", "image/onnxruntime-cpu"):
        small_images.done("get", name, "-o", folder / name)
        made.done("publish", folder / name)
    documents = {"model": model("digits"), "dataset": tree_of_digits("digits-tree")}
    commands = replace(made, variables=credentials)
    commands.done("publish", *(written(folder / f"{kind}.yaml", document) for kind, document in documents.items()))
    return commands, locked(commands, folder, evaluation("digits", "digits-tree"))


def test_a_run_is_reproduced_from_the_repository_alone(elsewhere: tuple[Commands, Path]) -> None:
    commands, lock = elsewhere
    run = commands.done("run", lock, "--isolation", "container")
    assert run["end"]["outcome"] == "done"
    assert commands.done("gc", "--local")["blobs"] == 0
    assert not [path for path in (commands.registry / "blobs" / "sha256").rglob("*") if path.is_file()]
    shutil.rmtree(commands.registry / "environments", ignore_errors=True)

    verdict = commands.done("rerun", lock, "--against", run["run"])

    assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict
    assert commands.done("verify", "--remote")["damaged"] == []
