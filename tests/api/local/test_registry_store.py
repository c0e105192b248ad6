"""Registries whose blobs are in an OCI repository or a bucket, by commands as users give them."""

import base64
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from benchlock.api.local.registry_store import open_store, read_store_decision
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import RefusedError
from benchlock.artifacts.user_output import SILENT
from tests.support.api.commands import Commands
from tests.support.api.terminal import show_on_terminal
from tests.support.api.warm import Warm
from tests.support.registry import tiny
from tests.support.registry.digits import GRAPH, request, written
from tests.support.resolution.locked import flip
from tests.support.servers.object_server import ObjectServer
from tests.support.servers.registry_server import RegistryServer, free_port, serving

GRAPH_DIGEST = digest_bytes(GRAPH.read_bytes())


OCI = pytest.mark.parametrize("store", ["oci"], indirect=True)
EVERY = pytest.mark.parametrize("store", ["oci", "s3", "az"], indirect=True)


@pytest.fixture(params=["oci", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place that no other test has; the credentials of a bucket are in the environment."""
    name = tmp_path.name.lower().replace("_", "-")
    if request.param != "oci":
        kind = "azure" if request.param == "az" else "object"
        server: ObjectServer = request.getfixturevalue(f"{kind}_server")
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        return str(server.location(f"commands-{name}"))
    repository: RegistryServer = request.getfixturevalue("registry_server")
    return str(repository.repository(f"commands/{name}"))


@pytest.fixture
def published(store: str, tmp_path: Path) -> Commands:
    """A registry made with the variable set; the commands come without."""
    made = Warm(tmp_path / "registry", variables={"BENCHLOCK_STORE": store})
    made.done("publish", *tiny.author(tmp_path / "manifests"))
    return replace(made, variables={})


def local_blobs(commands: Commands) -> set[Path]:
    return {path for path in (commands.registry / "blobs" / "sha256").rglob("*") if path.is_file()}


def test_the_decision_holds_without_the_variable(published: Commands, store: str, tmp_path: Path) -> None:
    assert [artifact["name"] for artifact in published.done("list", "model")["artifacts"]] == ["digits-onnx"]
    assert store in published.done("doctor")["store"]
    same = replace(published, variables={"BENCHLOCK_STORE": store})
    assert same.done("verify").items() >= {"blobs": 15, "damaged": []}.items()
    shutil.rmtree(published.registry / "blobs")
    published.done("get", "model/digits-onnx", "-o", tmp_path / "got")
    assert (tmp_path / "got" / "digits.onnx").read_bytes() == GRAPH.read_bytes()
    locked = published.done(
        "lock", written(tmp_path / "request.yaml", request("digits-onnx")), "-o", tmp_path / "it.lock"
    )
    assert published.done("verify", locked["lock"])["damaged"] == []
    assert published.done("verify", "--remote")["damaged"] == []
    assert published.done("gc")["blobs"] == 0


def test_another_store_than_the_decided_is_refused(published: Commands, store: str, tmp_path: Path) -> None:
    for other in ("oci://registry.example.org/other", f"{store}-other"):
        error = replace(published, variables={"BENCHLOCK_STORE": other}).error(2, "list")
        assert error["message"].endswith(f"has its blobs in {store}")
        assert "unset BENCHLOCK_STORE" in error["next"]
    local = Warm(tmp_path / "local")
    local.done("db", "create")
    error = replace(local, variables={"BENCHLOCK_STORE": store}).error(2, "list")
    assert error["message"].endswith("has its blobs in its own folder")
    assert not (tmp_path / "local" / "store.json").exists()


def test_a_repository_is_one_registry_s(published: Commands, store: str, tmp_path: Path) -> None:
    other = Warm(tmp_path / "other", variables={"BENCHLOCK_STORE": store})
    error = other.error(1, "db", "create")
    assert "belongs to another registry of benchlock" in error["message"]
    undecided = replace(other, variables={})
    assert undecided.error(2, "list")["message"] == "no registry found"
    undecided.done("db", "create")  # nothing was decided
    assert not (other.registry / "store.json").exists()
    assert published.done("verify")["damaged"] == []


@pytest.mark.usefixtures("published")
def test_a_kill_before_the_claim_skips_no_claim(store: str, tmp_path: Path) -> None:
    """What a kill right after the decision leaves is the decision alone."""
    other = Warm(tmp_path / "other")
    other.registry.mkdir()
    left = {"store": store, "owner": "0" * 32}
    (other.registry / "store.json").write_text(json.dumps(left))
    assert "belongs to another registry of benchlock" in other.error(1, "db", "create")["message"]
    assert json.loads((other.registry / "store.json").read_text()) == left  # another process may count on it
    (other.registry / "store.json").write_text(json.dumps(left | {"store": f"{store}-free"}))
    other.done("db", "create")
    third = Warm(tmp_path / "third", variables={"BENCHLOCK_STORE": f"{store}-free"})
    assert f"({'0' * 32})" in third.error(1, "db", "create")["message"]


def test_many_that_make_one_registry_decide_once(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHLOCK_STORE", store)

    def opened(home: Path) -> str:
        home.mkdir(exist_ok=True)
        try:
            open_store(home, SILENT, lambda _: None, is_new=True)
        except RefusedError:
            return "refused"
        decision = read_store_decision(home)
        return decision.owner if decision else "lost"

    with ThreadPoolExecutor(6) as pool:
        (owner,) = set(pool.map(opened, [tmp_path / "one"] * 6))
        assert set(pool.map(opened, [tmp_path / "two"] * 6)) == {"refused"}
    assert owner not in ("refused", "lost")
    assert read_store_decision(tmp_path / "two") is None


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/x",
        "oci://example.org/x:latest",
        "oci+http://example.org/x",
        "s3://",
        "s3://b/../c",
        "gs://b c",
        "s3:/acme/x",
        "S3://acme",
    ],
)
def test_what_is_no_repository_is_refused(text: str, tmp_path: Path) -> None:
    Warm(tmp_path / "registry", variables={"BENCHLOCK_STORE": text}).error(2, "db", "create")
    assert not (tmp_path / "registry" / "store.json").exists()


@pytest.mark.parametrize("scheme", ["oci", "s3"])
def test_a_server_that_is_not_there(scheme: str, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    variables = {
        "oci": {"BENCHLOCK_STORE": f"oci+http://{address}/x"},
        "s3": ObjectServer(f"http://{address}").environment | {"BENCHLOCK_STORE": "s3://bucket/x"},
    }[scheme]
    error = Warm(tmp_path / "registry", variables=variables).error(5, "db", "create")
    assert "cannot be" in error["message"]
    assert address in str(error)
    assert not (tmp_path / "registry" / "store.json").exists()


def test_a_bucket_that_cannot_be_opened_is_no_decision(tmp_path: Path) -> None:
    """Azure's library refuses it for want of an account, before any request."""
    folder = tmp_path / "registry"
    error = Warm(folder, variables={"BENCHLOCK_STORE": "az://container"}).error(2, "db", "create")
    assert "cannot be opened" in error["message"]
    assert not (folder / "store.json").exists()
    Warm(folder).done("db", "create")


def test_a_decision_that_was_tampered_with_is_named(published: Commands) -> None:
    (published.registry / "store.json").write_text("{}")
    assert published.error(2, "list")["where"].endswith("store.json")


@EVERY
def test_garbage_goes_in_both_places_and_copies_where_asked(
    published: Commands, store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    refused = written(tmp_path / "refused.yaml", json.loads((tmp_path / "manifests" / "model.yaml").read_text()))
    (tmp_path / "other.onnx").write_bytes(GRAPH.read_bytes() + b"\0")
    refused.write_text(refused.read_text().replace(str(GRAPH), "./other.onnx"))
    published.error(2, "publish", refused)  # its version is taken; its file is in the store by now
    assert published.done("gc", "--dry-run")["blobs"] == 1
    assert published.done("gc")["blobs"] == 1
    assert published.done("gc")["blobs"] == 0
    count = len(local_blobs(published))
    assert published.done("gc", "--local", "--dry-run")["local"]["blobs"] == count == len(local_blobs(published))
    assert published.done("gc", "--local")["local"]["blobs"] == count
    assert local_blobs(published) == set()
    if store.startswith("oci"):
        registry: RegistryServer = request.getfixturevalue("registry_server")
        registry.collect_garbage()
    assert published.done("verify").items() >= {"blobs": count, "damaged": []}.items()
    assert len(local_blobs(published)) == count
    local = Warm(tmp_path / "local")
    local.done("db", "create")
    error = local.error(2, "gc", "--local")
    assert "requires a registry with its blobs in an OCI repository" in error["message"]


def test_copies_that_are_damaged_here_are_freed_and_come_again(published: Commands, tmp_path: Path) -> None:
    """Listings too, without which nobody knows what is garbage."""
    published.done("publish", written(tmp_path / "tree.yaml", tiny.tree_of_digits("tree")))
    count = len(local_blobs(published))
    for copy in local_blobs(published):
        flip(copy)
    error = published.error(4, "get", "model/digits-onnx", "-o", tmp_path / "got")
    assert "benchlock gc --local" in error["next"]
    freed = published.done("gc", "--local")
    assert (freed["blobs"], freed["local"]["blobs"]) == (0, count)
    assert published.done("verify").items() >= {"blobs": count, "damaged": []}.items()


@OCI
def test_damage_in_the_repository_is_named(published: Commands, registry_server: RegistryServer) -> None:
    place = registry_server.blob(Digest(GRAPH_DIGEST))
    right = place.read_bytes()
    place.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    try:
        assert published.done("verify")["damaged"] == []  # what is kept here is right
        answer = published.call("verify", "--remote")
        assert answer.code == 4
        (fault,) = answer.document["damaged"]
        assert "model/digits-onnx@1.0.0 digits.onnx" in fault["message"]
        assert f"expected {GRAPH_DIGEST}, found sha256:" in fault["message"]
        assert published.done("gc", "--local")["local"]["kept"] == [GRAPH_DIGEST]
        got = published.registry.parent / "got"
        published.done("get", "model/digits-onnx", "-o", got)
        assert (got / "digits.onnx").read_bytes() == right
        shutil.rmtree(published.registry / "blobs")
        error = published.error(4, "get", "model/digits-onnx", "-o", published.registry.parent / "again")
        assert GRAPH_DIGEST in error["message"]
    finally:
        place.write_bytes(right)


def test_the_password_of_docker_login_is_used(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("author:$2y$04$vjx1geCwmzUrilxPMYEwM.MMlpLdMeEsW5XufTBxQOHD2OQvo3z5.\n")
    with serving(tmp_path, more=f"auth: {{htpasswd: {{realm: tests, path: {tmp_path}/users}}}}") as server:
        variables = {"BENCHLOCK_STORE": str(server.repository("private")), "DOCKER_CONFIG": str(tmp_path / "docker")}
        commands = Warm(tmp_path / "registry", variables=variables)
        assert "docker login" in commands.error(5, "db", "create")["next"]
        (tmp_path / "docker").mkdir()
        login = {"auth": base64.b64encode(b"author:secret").decode()}
        (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {f"127.0.0.1:{server.port}": login}}))
        commands.done("publish", *tiny.author(tmp_path / "manifests"))
        (tmp_path / "docker" / "config.json").write_text("{")
        assert "is not a Docker configuration" in commands.error(2, "db", "create")["message"]


def test_what_is_sent_and_fetched_is_shown(store: str, tmp_path: Path) -> None:
    """On a terminal, with bars that appear at once."""
    shown = ""
    for words in (["publish", *map(str, tiny.author(tmp_path / "manifests"))], ["gc", "--local"], ["verify"]):
        script = f"""
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.main import run
from benchlock.api.cli.output import Bars
Invocation.progress = Bars(delay=0)
raise SystemExit(run({["--registry", str(tmp_path / "registry"), *words]}))
"""
        shown += show_on_terminal(script, 200, BENCHLOCK_STORE=store)
    assert "storing digits.onnx" in shown
    assert f"fetching {GRAPH_DIGEST[:19]}" in shown
