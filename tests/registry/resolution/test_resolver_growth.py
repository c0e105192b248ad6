"""How the effort of a resolution grows, in calls of functions: seconds would measure the machine."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from benchlock.registry.resolution.conflicts import LISTED, ConflictError, group_versions
from benchlock.registry.resolution.resolver import resolve
from benchlock.registry.resolution.resolver_types import EVERY, Need, Population
from benchlock.registry.versions.semantic_version import Version, parse_version
from benchlock.registry.versions.version_ranges import Range
from tests.support.resolution.universe import Universe, candidates, question

SMALL, LARGE = 250, 2000
MAX_GROWTH = 1.5 * LARGE / SMALL
"""What eight times as many may cost, as n log n does; n² would be 64 times as much."""


def catalogue(count: int, requirement: Callable[[int], str], *, models: int = 1) -> Universe:
    """So many versions of each model, each with its own requirement, and ten frameworks in images."""
    index: dict[str, dict[str, dict[str, Any]]] = {
        "dataset/digits": {"1.0.0": {}},
        "framework/onnxruntime": {f"1.{number}.0": {} for number in range(10)},
        "image/ort": {
            f"1.{number}.0": {"provides": f"onnxruntime 1.{number}.0", "platforms": ["linux/amd64/cpu"]}
            for number in range(10)
        },
    }
    for model in range(models):
        index[f"model/m{model}"] = {
            f"1.{number}.0": {"requires": {"framework/onnxruntime": requirement(number)}} for number in range(count)
        }
    return Universe(candidates(index))


def steps(universe: Universe, asked: dict[str, str]) -> int:
    """The calls of functions that one resolution makes, or one explanation with its proposals."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        del frame, argument
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        resolve(question(asked), universe, {})
    except ConflictError:
        pass
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize(
    ("requirement", "asked", "most"),
    [
        pytest.param(lambda n: f">=1.0.0,<1.{100 + n}.0", {}, 100, id="all fit"),
        pytest.param(lambda n: f">=2.{n}.0,<3.{n}.0", {}, 200, id="none fits"),
        pytest.param(lambda n: f">=1.0.0,<1.{100 + n}.0", {"framework": ">=2.0.0"}, 200, id="the request excludes all"),
        pytest.param(lambda n: f">=1.0.0,<1.{100 + n}.0", {"hardware": "linux/arm64/cpu"}, 200, id="no image for it"),
        pytest.param(lambda n: f"==2.{n}.0", {}, 480, id="each pins one that is not there"),
        pytest.param(lambda n: f"^2.{n}.0-rc.1", {}, 480, id="pre-releases are named"),
    ],
)
def test_versions_with_requirements_of_their_own(
    requirement: Callable[[int], str], asked: dict[str, str], most: int
) -> None:
    """The calls grow as n log n, and each version costs at most so many."""
    small, large = (
        steps(catalogue(count, requirement), {"model": "m0 *", "dataset": "digits *"} | asked)
        for count in (SMALL, LARGE)
    )
    assert large < MAX_GROWTH * small, (small, large)
    assert large < most * LARGE, large / LARGE


def test_an_explanation_of_many_pins_spells_a_few_and_asks_few_questions() -> None:
    """A catalogue is not asked for each of many intervals, and no line has the text of all of them."""

    class Counting(Universe):
        asked = 0

        def newest(self, wanted: Population, most: int) -> Sequence[Version]:
            self.asked += 1
            return super().newest(wanted, most)

    rows = Counting(catalogue(400, lambda number: f"==2.{number}.0").rows)
    with pytest.raises(ConflictError) as caught:
        resolve(question({"model": "m0 *", "dataset": "digits *"}), rows, {})
    assert rows.asked < 100
    assert len(str(caught.value)) < 2000
    assert "2.0.0 || 2.1.0 || 2.2.0 || … || 2.399.0, in 400 different ways" in str(caught.value)


def test_proposals_read_the_requirements_of_the_same_versions_once() -> None:
    """Any version and all from the oldest on are the same versions, whatever the request lets in beyond them."""

    class Counting(Universe):
        asked = 0

        def needed(self, wanted: Population) -> Sequence[tuple[Need, str]]:
            self.asked += 1
            return super().needed(wanted)

    rows = Counting(catalogue(10, lambda number: f">=1.0.0,<1.{100 + number}.0").rows)
    with pytest.raises(ConflictError):
        resolve(question({"model": "m0 ^1", "dataset": "digits *", "framework": ">=2.0.0"}), rows, {})
    assert rows.asked == 1


@pytest.mark.parametrize("published", [range(300), range(0, 300, 7), range(1, 300, 2), range(0)])
def test_a_crowd_of_many_intervals_is_what_lies_in_them(published: Sequence[int]) -> None:
    rows = candidates({"framework/f": {f"1.{number}.0": {} for number in published}})
    versions = Range.union(Range.exactly(parse_version(f"1.{number}.0")) for number in range(20, 200, 2))
    inside = [one for one in reversed(published) if one in range(20, 200, 2)]
    one = group_versions(Universe(rows), Population("framework", "f", EVERY), versions)
    if not inside:
        assert one is None
        return
    assert one is not None
    assert (one.count, str(one.oldest)) == (len(inside), f"1.{inside[-1]}.0")
    assert one.texts == tuple(f"1.{number}.0" for number in inside[:LISTED])


def test_models_with_requirements_of_their_own() -> None:
    small, large = (
        steps(catalogue(1, lambda _: ">=2.0.0,<3.0.0", models=count), {"model": "m0 *", "dataset": "digits *"})
        for count in (SMALL, LARGE)
    )
    assert large < MAX_GROWTH * small, (small, large)
