"""The resolver on small catalogues, one file a case: what is chosen, or the explanation, word by word."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.errors import BenchlockError, UnknownNameError
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver import resolve
from tests.support.resolution.universe import Universe, candidates, preferences, question

CASES = sorted((Path(__file__).resolve().parents[2] / "cases" / "resolve").glob("*.json"))


def answer(case: dict[str, Any], order: random.Random | None = None) -> dict[str, Any]:
    """The case's answer in the form of its file; ``order`` shuffles the rows of its catalogue."""
    rows = candidates(case["index"])
    if order is not None:
        order.shuffle(rows)
    try:
        found = resolve(question(case["request"]), Universe(rows), preferences(case.get("preferences", {})))
    except ConflictError as error:
        return {"conflict": {"prose": str(error).split("\n"), "json": error.conflict}}
    except UnknownNameError as error:
        return {"unknown": str(error).split("\n")}
    return {
        "resolved": {kind: f"{one.name} {one.version}" for kind, one in found.chosen().items()},
        "platforms": ["/".join(offer[:3]) for offer in found.platforms],
    }


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_answer_is_that_of_the_case_in_any_order_of_rows(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    expected = {key: case[key] for key in ("resolved", "platforms", "conflict", "unknown") if key in case}
    assert answer(case) == expected
    for seed in range(5):
        assert answer(case, random.Random(seed)) == expected


def test_there_are_cases_of_each_outcome() -> None:
    outcomes = [json.loads(path.read_text(encoding="utf-8")) for path in CASES]
    assert sum("resolved" in case for case in outcomes) >= 20
    assert sum("conflict" in case for case in outcomes) >= 15
    assert sum("unknown" in case for case in outcomes) >= 3


def test_a_conflict_is_another_error_than_an_unknown_name() -> None:
    assert ConflictError.code == "conflict"
    assert UnknownNameError.code == "unknown-name"
    assert not issubclass(ConflictError, UnknownNameError)
    assert issubclass(ConflictError, BenchlockError)


def test_another_image_is_proposed_where_leaving_it_out_would_not_do() -> None:
    """The other image is yanked, so that only its name and version let it in."""
    provided = {"provides": "onnxruntime 1.0.0"}
    universe = Universe(
        candidates(
            {
                "model/m": {"1.0.0": {"requires": {"framework/onnxruntime": "^1.0"}}},
                "dataset/d": {"1.0.0": {}},
                "framework/onnxruntime": {"1.0.0": {}},
                "image/asked": {"1.0.0": provided | {"platforms": ["linux/arm64/cpu"]}},
                "image/other": {"1.0.0": provided | {"platforms": ["linux/amd64/cpu"], "yanked": "slow"}},
            }
        )
    )
    with pytest.raises(ConflictError) as caught:
        resolve(question({"model": "m *", "dataset": "d *", "image": "asked *"}), universe, {})
    assert {"image": {"name": "other", "version": "1.0.0"}} in [
        one["changes"] for one in caught.value.conflict["fixes"]
    ]
