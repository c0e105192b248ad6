"""A catalogue and a store, and drafts to publish into them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.publishing.publication import Draft
from tests.support.registry.authored import read_authored

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
Author = Callable[..., Draft]


class Clock:
    """A clock that goes on by a second each time it is looked at, from noon."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalogue(database: Engine, clock: Clock) -> Catalogue:
    return Catalogue(database, clock)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


@pytest.fixture
def author(tmp_path: Path) -> Author:
    """Writes a manifest and its files, and gives the draft: ``author(text, {"path": bytes})``."""

    def write(text: str, files: dict[str, bytes] | None = None) -> Draft:
        folder = tmp_path / "authored"
        for path, content in (files or {}).items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        folder.mkdir(exist_ok=True)
        manifest = folder / "manifest.yaml"
        manifest.write_text(text)
        return Draft(read_authored(text, "manifest.yaml"), text, manifest)

    return write
