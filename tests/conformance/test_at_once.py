"""Sixteen publish, yank and read at once, each by connections of its own: nobody fails, and nothing is lost."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier, Event

import pytest
from sqlalchemy import Engine

from benchlock.registry.artifact_names import Name, Reference
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Entry, Provenance, VersionTakenError
from benchlock.registry.database.engine import database_location
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.manifest_content import reference_of
from benchlock.registry.resolution.resolver_types import EVERY, Population
from benchlock.registry.versions.semantic_version import parse_version
from tests.support.registry.publishing import manifest
from tests.support.resolution.universe import candidates
from tests.support.servers.postgresql import open_any

pytestmark = pytest.mark.databases
PUBLISHERS, READERS, VERSIONS = 8, 8, 10
NOTHING = Provenance("", {})


class Crowd:
    """All of them, on one database."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.manifests = {  # made before: msgspec must not look at a type for the first time in several threads
            number: [
                *(of(f"model/m{number}", f"1.{version}.0", number) for version in range(VERSIONS)),
                of("dataset/same", "1.0.0"),
                of("model/other", "1.0.0", number),
            ]
            for number in range(PUBLISHERS)
        }
        self.start, self.ended = Barrier(PUBLISHERS + READERS), Event()

    def publish(self, number: int) -> tuple[int, int]:
        """Versions of a name of one's own, one after another, each yanked at once; then one that all publish.

        How many of those were new, and whether its version of the other one that all publish was the first.
        """
        engine = open_any(self.place)
        catalogue = Catalogue(engine, lambda: datetime.now(UTC))
        *own, same, other = self.manifests[number]
        self.start.wait()
        for one in own:
            assert catalogue.publish(one, NOTHING).changed
            assert catalogue.yank(reference_of(one), "superseded")
        new = catalogue.publish(same, NOTHING).changed
        try:
            won = catalogue.publish(other, NOTHING).changed
        except VersionTakenError:
            won = False
        engine.dispose()
        return new, won

    def read(self, number: int) -> int:
        """Look at what one publishes until all is there: never less than before, and nothing half done."""
        engine = open_any(self.place)
        catalogue = Catalogue(engine, lambda: datetime.now(UTC))
        name, seen, looked = f"m{number}", 0, 0
        self.start.wait()
        while not self.ended.is_set() or not looked:
            with catalogue.snapshot() as snapshot:
                everything = Population("model", name, EVERY)
                versions = [str(version) for version in snapshot.newest(everything, VERSIONS)]
                assert versions == [f"1.{version}.0" for version in reversed(range(len(versions)))]
                assert len(versions) >= seen
                needs = snapshot.needs(name)
                assert list(needs) == ([("framework", "onnxruntime", f"^{number}")] if versions else [])
                extent = snapshot.extent(everything)
                assert (extent.count if extent else 0) == len(versions)
            seen, looked = len(versions), looked + 1
        engine.dispose()
        return looked


def of(name: str, version: str, needs: int | None = None) -> Manifest:
    described = {} if needs is None else {"requires": {"framework/onnxruntime": f"^{needs}"}}
    (row,) = candidates({name: {version: described}})
    return manifest(row)


def test_sixteen_at_once_lose_nothing(database: Engine) -> None:
    crowd = Crowd(database_location(database))
    with ThreadPoolExecutor(PUBLISHERS + READERS) as pool:
        reading = [pool.submit(crowd.read, number) for number in range(READERS)]
        publishing = [pool.submit(crowd.publish, number) for number in range(PUBLISHERS)]
        try:
            told = [future.result() for future in publishing]
        finally:
            crowd.ended.set()
        assert all(future.result() for future in reading)
    assert [sum(new) for new in zip(*told, strict=True)] == [1, 1]
    catalogue = Catalogue(database, lambda: datetime.now(UTC))
    for number in range(PUBLISHERS):
        found = catalogue.versions("model", Name(f"m{number}"))
        assert [(str(one.reference.version), one.yanked) for one in found] == [
            (f"1.{version}.0", "superseded") for version in range(VERSIONS)
        ]
        assert all(intact(catalogue, one) for one in found)
    assert catalogue.get(Reference("dataset", Name("same"), parse_version("1.0.0"))).yanked is None
    assert len(catalogue.list()) == PUBLISHERS * VERSIONS + 2


def intact(catalogue: Catalogue, entry: Entry) -> bool:
    return catalogue.manifest(entry.reference).version == str(entry.reference.version)
