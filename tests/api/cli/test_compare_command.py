"""The arguments of ``compare``: a lock against itself under another seed."""

from pathlib import Path

import pytest

from benchlock.api.cli.compare_command import vary_seed
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.run_comparison import question_differences
from benchlock.registry.lock.lockfile import Lock, dump
from tests.support.api.warm import Warm
from tests.support.resolution.locks import request, shelf

MARGIN = {"latency_p90": 0.05}


@pytest.fixture(scope="module")
def lock() -> Lock:
    return shelf().lock(request())


def test_the_other_lock_differs_in_the_seed_alone_and_is_comparable(
    lock: Lock, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = vary_seed([lock], 11, MARGIN)
    assert first is lock
    assert (other.request["seed"], other.model, other.image) == (11, lock.model, lock.image)
    assert other.scenario["seeds"] != lock.scenario["seeds"]
    assert question_differences(first, other) == ()
    assert f"{other.id} differs from {lock.id} in the seed: 11, {lock.request['seed']}" in capsys.readouterr().err


def test_another_seed_needs_one_lock_a_new_seed_and_a_margin(lock: Lock) -> None:
    for locks, seed, margins, reason in (
        ([lock, lock], 11, MARGIN, "needs one lock"),
        ([lock], lock.request["seed"], MARGIN, "a seed that differs"),
        ([lock], 11, {}, "needs a margin"),
    ):
        with pytest.raises(InvalidInputError, match=reason) as caught:
            vary_seed(locks, seed, margins)
        assert caught.value.next_step


def test_another_seed_is_for_new_runs_only(lock: Lock, tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_text(dump(lock))
    commands = Warm(tmp_path / "registry")
    assert "--other-seed" in str(commands.error(2, "compare", path, "--other-seed", "11"))
    assert "needs a margin" in str(commands.error(2, "compare", "--interleave", path, "--other-seed", "11"))
