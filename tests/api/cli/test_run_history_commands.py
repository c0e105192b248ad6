"""The command runs: which runs it lists."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchlock.api.cli.main import run
from benchlock.api.local.local_registry import open_registry
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from tests.registry.lock.test_operator_locks import ask, operators
from tests.support.evaluator.recorded import DONE, recorded

DIGEST = digest_bytes(b"a log")


def test_runs_are_listed_by_operator_and_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registry, gemm = open_registry(str(tmp_path / "registry"), print), operators()
    registry.catalogue.publish(gemm.chosen.all()[0], Provenance("", {}))
    lock = gemm.lock(ask())
    registry.catalogue.put_lock(lock)
    begun = recorded(None, lock=lock.id)
    registry.records.start(begun.start)

    def listed(*options: str) -> list[str]:
        capsys.readouterr()
        assert run(["--registry", str(tmp_path / "registry"), "runs", "--json", *options]) == 0
        return [document["run"] for document in json.loads(capsys.readouterr().out)["runs"]]

    assert listed() == listed("--operator", "gemm") == listed("--operator", "gemm@^1.0") == [begun.id]
    assert listed("--operator", "gemm@^2") == listed("--recipe", "gemm") == []
    assert run(["--registry", str(tmp_path / "registry"), "runs", "--recipe", "gemm@"]) == 2
    assert "write NAME or NAME@CONSTRAINT" in capsys.readouterr().err


def test_runs_are_listed_by_their_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registry, gemm = open_registry(str(tmp_path / "registry"), print), operators()
    lock = gemm.lock(ask())
    registry.catalogue.put_lock(lock)
    calls = ({"n": 100, "preempted": preempted, "scope": "thread"} for preempted in (50, 0))
    end = replace(DONE, packages={"onnxruntime": "1"}, blobs={"log": Descriptor(DIGEST, 1)}, timings={"load": 0.1})
    busy, calm = (recorded(replace(end, details={"calls": each}), lock=lock.id) for each in calls)
    for each in (busy, calm):
        registry.records.start(each.start)
        assert each.end is not None
        registry.records.finish(each.id, each.end)

    def listed(*options: str) -> list[str]:
        capsys.readouterr()
        assert run(["--registry", str(tmp_path / "registry"), "runs", "--json", *options]) == 0
        return sorted(document["run"] for document in json.loads(capsys.readouterr().out)["runs"])

    assert listed() == sorted((busy.id, calm.id))
    assert (listed("--flagged"), listed("--not-flagged")) == ([busy.id], [calm.id])
