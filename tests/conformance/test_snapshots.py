"""The catalogue's snapshot answers every question as the plain list of what was published and yanked does."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from benchlock.registry.artifact_names import KINDS, Kind, Name, Reference
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.catalogue.resolver_snapshot import CatalogueSnapshot
from benchlock.registry.database.engine import open_engine, read_transaction
from benchlock.registry.resolution.resolver_types import (
    STATUSES,
    Candidate,
    Environments,
    Need,
    Population,
    Snapshot,
    Status,
)
from benchlock.registry.versions.semantic_version import key, parse_version
from benchlock.registry.versions.version_ranges import Range
from tests.support.registry.publishing import manifest
from tests.support.resolution.random_universes import DEVICES, TEXTS, VERSIONS, universes
from tests.support.resolution.universe import Universe, candidates

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
EVERY_STATUS: tuple[Status | None, ...] = (None, *STATUSES)
INTERVALS = [Range.parse(text).intervals[0] for text in ("*", ">=1.1.0 <2.0.0", ">=1.2.0-rc.1", "1.2.0-rc.1", "1.1.0")]
EVERY = INTERVALS[0]
NAMED: list[tuple[Kind, str]] = [
    ("model", "m"), ("dataset", "d"), ("framework", "f"), ("image", "i"), ("image", "j"), ("model", "none"),
]  # fmt: skip
NEEDS: list[Need | None] = [None, *(("framework", framework, text) for framework in ("f", "g") for text in TEXTS)]
POPULATIONS = [
    Population(kind, name, interval, status, need)
    for (kind, name), interval, status in product(NAMED, INTERVALS, EVERY_STATUS)
    for need in (NEEDS if kind == "model" else NEEDS[:1])
]
PLATFORMS = [("linux", "amd64", device) for device in DEVICES]
NAMES = [None, "i", "j"]
PLAIN = [
    Environments(framework, EVERY, status, platform, None, EVERY, images)
    for framework, status, platform, images in product(["f", "g"], STATUSES, PLATFORMS, STATUSES)
]
ENVIRONMENTS = [
    Environments(framework, interval, status, platform, name, images, "release")
    for framework, interval, status, platform, name, images in product(
        ["f", "g"], INTERVALS, STATUSES, PLATFORMS, NAMES, INTERVALS
    )
]
ASKED = 40  # populations, and environments, that are chosen for each time
PASTS: list[list[str | None]] = [[], [], ["a mistake"], ["a mistake", None], ["first", "second", None]]


class History:
    """What happens to a catalogue, one event a second from noon: all is published, then some yanked, some back."""

    def __init__(self, engine: Engine) -> None:
        self.catalogue = Catalogue(engine, lambda: self.time(len(self.states)))
        self.states: list[list[Candidate]] = [[]]

    def time(self, second: int) -> datetime:
        return NOON + timedelta(seconds=second)

    def publish(self, row: Candidate) -> None:
        published = self.catalogue.publish(manifest(row), Provenance("", {}))
        self.states.append([*self.states[-1], replace(row, digest=published.digest, yanked=None)])

    def yank(self, row: Candidate, reason: str | None) -> None:
        reference = Reference(row.kind, Name(row.name), row.version)
        assert self.catalogue.yank(reference, reason) if reason else self.catalogue.unyank(reference)
        place = (row.kind, row.name, key(row.version))
        self.states.append(
            [
                replace(one, yanked=reason) if (one.kind, one.name, key(one.version)) == place else one
                for one in self.states[-1]
            ]
        )


def history(rows: list[Candidate], engine: Engine, order: random.Random) -> History:
    """``rows`` come true: their versions have build metadata here and there, and yanks a past."""
    made = History(engine)
    rows = [replace(row, version=row.version.replace(build=order.choice([None, "b1"]))) for row in rows]
    order.shuffle(rows)
    for row in rows:
        made.publish(row)
    for row in rows:
        past = order.choice(PASTS)
        for reason in past:
            made.yank(row, reason)
        if row.yanked != (past[-1] if past else None):
            made.yank(row, row.yanked)
    return made


def answers(snapshot: Snapshot, order: random.Random) -> Iterator[object]:
    """What ``snapshot`` says to questions that ``order`` chooses; lists, whatever it has."""
    nears = ("", "f", "i", "m", "none", "~")
    yield from ((kind, list(snapshot.names(kind, near, most))) for kind in KINDS for near in nears for most in (1, 9))
    yield from ((model, list(snapshot.needs(model))) for model in ("m", "none"))
    yield from ((framework, list(snapshot.platforms(framework))) for framework in ("f", "g", "none"))
    yield from ((framework, list(snapshot.images(framework))) for framework in ("f", "g", "none"))
    versions = tuple(order.sample([parse_version(version) for version in VERSIONS], 5))
    yield from ((name, list(snapshot.candidates(kind, name, versions))) for kind, name in NAMED)
    for population in order.sample(POPULATIONS, ASKED):
        for most in (1, 2):
            yield population, list(snapshot.newest(population, most)), list(snapshot.oldest(population, most))
        yield population, snapshot.extent(population)
        if population.kind == "model" and population.need is None:
            yield population, list(snapshot.needed(population))
    for wanted in (*PLAIN, *order.sample(ENVIRONMENTS, ASKED)):
        yield wanted, snapshot.provided(wanted), list(snapshot.providers(wanted))


def agree(made: History, second: int | None, seed: int) -> None:
    """The catalogue and the list say the same of what was there after ``second`` seconds; without it, of now."""
    time, state = (None, -1) if second is None else (made.time(second), second)
    with made.catalogue.snapshot(time) as snapshot:
        found = list(map(repr, answers(snapshot, random.Random(seed))))
    assert found == list(map(repr, answers(Universe(made.states[state]), random.Random(seed))))


@settings(max_examples=25, deadline=None)
@given(universes, st.integers(0))
def test_it_answers_as_the_plain_list_does_now_and_earlier(schema: Path, rows: list[Candidate], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(Path(shutil.copy(schema, folder)))
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF").close())
        made = history(rows, engine, random.Random(seed))
        for second in (None, random.Random(seed).randrange(len(made.states))):
            agree(made, second, seed)
        engine.dispose()


def test_images_and_frameworks_are_seen_from_their_publication_on(database: Engine) -> None:
    images = {f"1.{minor}.0": {"provides": f"f 1.{minor}.0", "platforms": ["linux/amd64/cpu"]} for minor in range(3)}
    made = History(database)
    rows = candidates({"image/i": images, "framework/f": {f"1.{minor}.0": {} for minor in range(3)}})
    for row in (*rows[1:4], rows[0], *rows[4:]):
        made.publish(row)
    made.yank(rows[2], "a mistake")
    made.yank(rows[2], None)
    for second in range(len(made.states)):
        agree(made, second, second)


def test_a_name_that_begins_another_hides_none(database: Engine) -> None:
    names = ["a", "a-b", "a.b", "a/b", "a0", "ab"]
    rows = candidates({f"dataset/{name}": {"1.0.0": {}} for name in names})
    history(rows, database, random.Random(0))
    with read_transaction(database) as connection:
        snapshot = CatalogueSnapshot(connection, None)
        for near in (*names, "", "a-", "~"):
            assert snapshot.names("dataset", near, 9) == sorted(names)
        assert snapshot.names("dataset", "a.", 1) == ["a-b", "a.b"]


def test_a_framework_that_is_not_published_is_not_provided(database: Engine) -> None:
    images = {f"1.{minor}.0": {"provides": f"f 1.{minor}.0", "platforms": ["linux/amd64/cpu"]} for minor in range(6)}
    made = History(database)
    for row in candidates({"image/i": images, "framework/f": {"1.1.0": {}, "1.3.0": {}, "1.7.0": {}}}):
        made.publish(row)
    wanted = Environments("f", EVERY, "release", ("linux", "amd64", "cpu"), None, EVERY, "release")
    with made.catalogue.snapshot() as snapshot:
        assert str(snapshot.provided(wanted)) == "1.3.0"
    made.yank(candidates({"framework/f": {"1.3.0": {}}})[0], "bad")
    with made.catalogue.snapshot() as snapshot:
        assert str(snapshot.provided(wanted)) == "1.1.0"
        assert snapshot.provided(replace(wanted, image="i", images=Range.parse("1.4.0").intervals[0])) is None
