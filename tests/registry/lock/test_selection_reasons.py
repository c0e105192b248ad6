"""Why a lock has this version and no newer one, on small catalogues: one file a case, word by word."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.registry.artifact_names import Kind, parse_target
from benchlock.registry.lock.lockfile import LockedArtifact
from benchlock.registry.lock.selection_reasons import SelectionReason, explain_selection
from benchlock.registry.resolution.version_search import Search
from tests.support.resolution.universe import Universe, candidates, question

CASES = sorted((Path(__file__).resolve().parents[2] / "cases" / "why").glob("*.json"))


def answer(case: dict[str, Any], target: str | None = None) -> SelectionReason:
    """The case's answer; ``target`` asks for another artifact."""
    kind, name, _ = parse_target(target or case["why"])
    locked: dict[Kind, LockedArtifact] = {}
    for one, chosen in case["lock"].items():
        named, _, version = chosen.partition(" ")
        locked[one] = LockedArtifact(name=named, version=version, digest=digest_bytes(chosen.encode()))
    return explain_selection(
        locked, kind, name, Search.of(question(case["request"]), Universe(candidates(case["index"])), {})
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_answer_is_that_of_the_case(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    found = answer(case)
    assert found.prose().split("\n") == case["prose"]
    assert found.as_json() == case["json"]


def test_there_is_a_case_of_every_reason() -> None:
    cases = [json.loads(path.read_text(encoding="utf-8")) for path in CASES]
    reasons = {line["reason"] for case in cases for line in case["json"]["newer"]}
    assert reasons == {"outside", "pre-release", "yanked", "conflict", "order", "kept"}
    assert any(not case["json"]["newer"] for case in cases)


def test_what_the_lock_does_not_have_is_refused_with_what_is_near() -> None:
    case = json.loads(CASES[0].read_text(encoding="utf-8"))
    with pytest.raises(InvalidInputError, match="did you mean model/resnet"):
        answer(case, "model/resnt")


def test_a_catalogue_without_the_locks_model_cannot_say_what_it_asks() -> None:
    case = json.loads(CASES[0].read_text(encoding="utf-8"))
    del case["index"]["model/resnet"]
    with pytest.raises(UnknownNameError, match="in which the lock was created"):
        answer(case, "framework/onnxruntime")
