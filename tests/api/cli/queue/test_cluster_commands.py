"""`cluster kubernetes` and `cluster ray` refuse what cannot work before a worker is started."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchlock.api.cli.main import run
from tests.support.api.commands import Commands

DIGEST = f"sha256:{'a' * 64}"
SERVER = ("--registry", "http://127.0.0.1:9")


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run([*words]) == 2
    return capsys.readouterr().err


def test_a_registry_in_a_folder_an_image_without_a_digest_and_no_cluster_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    command = ("cluster", "kubernetes", "--image")
    assert "reach only a registry on a server" in error_of(
        capsys, "--registry", str(tmp_path / "registry"), *command, f"benchlock@{DIGEST}"
    )
    assert "has no digest" in error_of(capsys, *SERVER, *command, "benchlock:latest")
    assert "cannot find a Kubernetes cluster" in error_of(capsys, *SERVER, *command, f"benchlock@{DIGEST}")
    assert not (tmp_path / "registry").exists()


def test_the_attached_process_alone_checks_the_ray_cluster_and_its_error_is_that_of_the_command(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_here(_address: str) -> None:
        raise AssertionError("the cluster is checked twice")

    monkeypatch.setattr("signal.signal", lambda *_: None)
    for module in ("api.cli.queue.cluster_commands", "evaluator.launchers.ray_connection"):
        monkeypatch.setattr(f"benchlock.{module}.check_cluster", check_here)
    assert run(["--json", *SERVER, "cluster", "ray", "--address", "head"]) == 2
    assert json.loads(capfd.readouterr().out)["error"]["message"] == "invalid address 'head'"


@pytest.mark.parametrize("flag", ["--quiet", "--verbose"])
def test_the_attached_process_prints_as_much_as_the_command(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Sequence[str]] = []

    class Recorder:
        def __init__(self, words: Sequence[str], *_: object) -> None:
            started.append(words)

        def run(self) -> int:
            return 0

    monkeypatch.setattr("benchlock.api.cli.queue.cluster_commands.Supervision", Recorder)
    assert run([flag, *SERVER, "cluster", "ray", "--address", "head:1"]) == 0
    (words,) = started
    assert flag in words


def test_a_selector_of_nodes_is_a_label_each(capsys: pytest.CaptureFixture[str]) -> None:
    command = (*SERVER, "cluster", "kubernetes", "--image", f"benchlock@{DIGEST}", "--node-selector")
    for text in ("pool", "=bench", "pool=bench,zone=a", "pool,zone=a"):
        assert f"invalid label '{text}'" in error_of(capsys, *command, text)


def test_a_taint_is_named_by_its_key_and_a_prefix_begins_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    command = (*SERVER, "cluster", "kubernetes", "--image", f"benchlock@{DIGEST}")
    for text in ("bench=:NoSchedule", "", "bench:NoSchedule"):
        assert f"invalid key of a taint '{text}'" in error_of(capsys, *command, "--toleration", text)
    for text in ("_lab-", "lab/", "l" * 33):
        assert f"invalid prefix of machine names '{text}'" in error_of(capsys, *command, "--machine-prefix", text)


def test_a_worker_enrols_the_cpus_that_it_may_use(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "registry")
    commands.done("worker", "--once", "--until-idle", "--processes", "--machine", "m1", "--cpus", "1")
    (machine,) = commands.done("machines")["machines"]
    assert machine["facts"]["host"]["cpus"] == 1


def test_the_extra_that_is_missing_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.startswith("benchlock.evaluator.launchers.kubernetes_")]:
        monkeypatch.delitem(sys.modules, name)

    class Hidden:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "kubernetes":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [one for one in sys.modules if one.split(".")[0] == "kubernetes"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Hidden(), *sys.meta_path])
    message = error_of(capsys, *SERVER, "cluster", "kubernetes", "--image", f"benchlock@{DIGEST}")
    assert "pip install 'benchlock[kubernetes]'" in message
