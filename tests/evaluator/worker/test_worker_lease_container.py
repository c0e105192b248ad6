"""The container's name is the host's lock: one has it, and it is taken from nobody whose lease holds."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.queue.queue_types import Fence, Queue
from benchlock.evaluator.runner.container_engine import Confinement, Engine
from benchlock.evaluator.worker.lease_heartbeats import CONTAINER, host_lock, make_labels, remove_stale_container
from tests.support.system.python_image import PythonImage

pytestmark = pytest.mark.engine


@dataclass
class Asked:
    """A queue that knows which leases hold, and what it was asked."""

    holding: set[int]
    asked: list[int] = field(default_factory=list)

    def name(self) -> str:
        return "this queue"

    def holds(self, fence: Fence) -> bool:
        self.asked.append(fence)
        return fence in self.holding


def started(engine: Engine, image: PythonImage, run: str, told: dict[str, str], seconds: float = 600) -> Any:  # noqa: ANN401
    confinement = Confinement(
        run=run,
        image=engine.load(image.archive()).id,
        command=(
            f"python{sys.version_info.major}.{sys.version_info.minor}",
            "-c",
            f"import time; time.sleep({seconds})",
        ),
        mounts=(),
        environment={},
        user="65534:65534",
        memory=64 << 20,
        scratch=1 << 20,
        processes=16,
        cpus=(0,),
        name=CONTAINER,
        labels=told,
    )
    return engine.start(confinement, lambda _out, _error: None)


@pytest.fixture
def clean(engine: Engine) -> Iterator[Engine]:
    yield engine
    engine.remove("run/one")


def test_a_second_measurement_finds_the_name_taken(clean: Engine, python_image: PythonImage) -> None:
    started(clean, python_image, "run/one", make_labels("this queue", 7))
    with pytest.raises(UnavailableError, match="already measuring on this host: container benchlock-measure-0"):
        started(clean, python_image, "run/two", make_labels("this queue", 8))
    found = clean.find_container(CONTAINER)
    assert found is not None
    assert (found.lives, found.labels["benchlock.fence"], found.labels["benchlock.run"]) == (True, "7", "run/one")


@pytest.mark.parametrize(
    ("told", "holding", "why"),
    [
        (make_labels("this queue", 7), {7}, "this host is measuring run/one, whose lease is still valid"),
        (make_labels("this queue", 7), set(), None),
        (make_labels("another queue", 7), set(), "this host is measuring run/one, which belongs to another queue"),
        ({}, set(), "this host is measuring run/one, which belongs to another queue"),
    ],
)
def test_a_container_whose_lease_is_over_is_removed_and_no_other(
    clean: Engine, python_image: PythonImage, told: dict[str, str], holding: set[int], why: str | None
) -> None:
    started(clean, python_image, "run/one", told)
    assert remove_stale_container(clean, cast("Queue", Asked(holding))) == why
    assert (clean.find_container(CONTAINER) is None) == (why is None)


def test_a_container_that_has_ended_is_removed_whosever_it_was(clean: Engine, python_image: PythonImage) -> None:
    container = started(clean, python_image, "run/one", make_labels("another queue", 7), seconds=0)
    assert container.wait(60) is not None
    queue = Asked(set())
    assert remove_stale_container(clean, cast("Queue", queue)) is None
    assert (clean.find_container(CONTAINER), queue.asked) == (None, [])


def test_the_host_s_file_is_locked_once(tmp_path: Path) -> None:
    with host_lock(tmp_path / "lock") as first:
        assert first is not None
        with host_lock(tmp_path / "lock") as second:
            assert second is None
    with host_lock(tmp_path / "lock") as again:
        assert again is not None
