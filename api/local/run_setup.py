"""The container engine and the runner of this machine; nothing here opens a database."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.runner.wall_clock import WallClock

if TYPE_CHECKING:
    from benchlock.api.schemas.registry_protocol import Registry as AnyRegistry
    from benchlock.evaluator.runner.container_engine import Engine
    from benchlock.evaluator.workflows.run import Runner


def connect_engine() -> "Engine | None":
    """Connect to the Docker engine at DOCKER_HOST, by default the system's own; None if none answers."""
    from benchlock.evaluator.runner.container_engine import Engine  # noqa: PLC0415 - used by few commands

    return Engine.connect(os.environ.get("DOCKER_HOST"))


def import_runner() -> "type[Runner]":
    """Import the runner with what examines runs; a worker does so for its first job, and is smaller until then."""
    from benchlock.evaluator.workflows.run import Runner  # noqa: PLC0415 - as above

    return Runner


def build_runner(
    registry: "AnyRegistry", progress: Progress, say: Callable[[str], None], clock: WallClock | None = None
) -> "Runner":
    """Build the runner of this machine, which uses containers if a Docker engine answers.

    Args:
        registry: Where locks and runs are recorded.
        progress: Shows transfers and stages.
        say: Prints a message.
        clock: Measures how long each phase takes.
    """
    return import_runner()(
        registry.home,
        registry.store,
        registry.records,
        connect_engine(),
        registry.now,
        progress,
        say,
        registry.catalogue.put_lock,
        clock=clock or WallClock(),
    )
