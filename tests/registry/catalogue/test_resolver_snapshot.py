"""The resolver's questions seek in indexes: no statement scans a table, and none reads all versions of a name."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from benchlock.registry.artifact_names import Kind
from benchlock.registry.catalogue.resolver_snapshot import CatalogueSnapshot
from benchlock.registry.database.engine import open_engine, open_server, read_transaction, write_transaction
from benchlock.registry.resolution.resolver_types import (
    STATUSES,
    Candidate,
    Environments,
    Need,
    Population,
    Snapshot,
    Status,
)
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Range
from tests.support.registry.plans import nodes
from tests.support.registry.publishing import fill
from tests.support.resolution.universe import candidates
from tests.support.servers.postgresql import PostgresServer

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CPU, CUDA = ("linux", "amd64", "cpu"), ("linux", "amd64", "cuda")
(EVERY,) = Range.ALL.intervals
(ONE,) = Range.parse("=1.7.0").intervals
NEED: Need = ("framework", "f", "^1")
NAMED: tuple[tuple[Kind, str], ...] = (("model", "m"), ("dataset", "d"), ("framework", "f"), ("image", "i"))
EVERY_STATUS: tuple[Status | None, ...] = (None, *STATUSES)
POPULATIONS = [
    Population(kind, name, EVERY, status, need)
    for (kind, name), status in product(NAMED, EVERY_STATUS)
    for need in ((None, NEED) if kind == "model" else (None,))
]
Asking = Callable[[Snapshot], object]


def provided(status: Status = "release", images: Status = "release", image: str | None = None) -> Environments:
    return Environments("f", EVERY, status, CPU, image, EVERY, images)


def providers(status: Status = "release", images: Status = "release", image: str | None = None) -> Environments:
    return Environments("f", ONE, status, CPU, image, EVERY, images)


FEW: dict[str, Asking] = {
    "names": lambda snapshot: snapshot.names("model", "m", 500),
    "needs": lambda snapshot: snapshot.needs("m"),
    "needed": lambda snapshot: [
        snapshot.needed(one) for one in POPULATIONS if one.kind == "model" and one.need is None
    ],
    "platforms": lambda snapshot: snapshot.platforms("f"),
    "images": lambda snapshot: snapshot.images("f"),
    "candidates": lambda snapshot: [snapshot.candidates(*named, (parse_version("1.7.0"),)) for named in NAMED],
    "newest": lambda snapshot: [snapshot.newest(population, 1) for population in POPULATIONS],
    "oldest": lambda snapshot: [snapshot.oldest(population, 1) for population in POPULATIONS],
    "provided": lambda snapshot: [
        snapshot.provided(wanted)
        for wanted in (provided(), provided(image="i"), provided("pre-release"), provided("release", "pre-release"))
    ],
    "provided by one": lambda snapshot: snapshot.provided(
        Environments("f", EVERY, "release", CPU, "i", ONE, "release")
    ),
    "providers": lambda snapshot: [snapshot.providers(wanted) for wanted in (providers(), providers(image="i"))],
    "provided by all": lambda snapshot: snapshot.provided(
        Environments("g", EVERY, "release", CPU, None, EVERY, "release")
    ),
    "providers of one": lambda snapshot: snapshot.providers(
        Environments("g", ONE, "release", CPU, None, EVERY, "release")
    ),
}
"""Questions whose answers are few, however many versions there are."""

MANY: dict[str, Asking] = {
    "extent": lambda snapshot: [snapshot.extent(population) for population in POPULATIONS],
    "provided": lambda snapshot: [snapshot.provided(provided(*both)) for both in product(STATUSES, STATUSES)],
    "providers": lambda snapshot: [snapshot.providers(providers(*both)) for both in product(STATUSES, STATUSES)],
}
"""Questions for which part of an index may have to be read."""


def rows(count: int) -> list[Candidate]:
    """``count`` versions of a name of each kind, and an image of which all versions provide one framework.

    There are pre-releases of a framework, and no images with them.
    """
    texts = [f"1.{number}.0" for number in range(count)]
    offers = ["linux/amd64/cpu", "linux/amd64/cuda"]
    return candidates(
        {
            "model/m": {
                text: {"requires": {"framework/f": ("^1", "*")[index % 2]}} for index, text in enumerate(texts)
            },
            "dataset/d": {text: {} for text in texts},
            "framework/f": {version: {} for text in texts for version in (text, f"{text}-rc.1")},
            "framework/g": {"1.7.0": {}},
            "image/i": {text: {"provides": f"f {text}", "platforms": offers} for text in texts},
            "image/j": {text: {"provides": "g 1.7.0", "platforms": offers} for text in texts},
        }
    )


@contextmanager
def catalogue(engine: Engine, count: int) -> Iterator[Connection]:
    with write_transaction(engine) as connection:
        fill(connection, rows(count), NOON)
    with read_transaction(engine) as connection:
        yield connection
    engine.dispose()


def effort(connection: Connection, asking: Asking) -> int:
    """How many tens of steps SQLite takes to answer, or how many rows PostgreSQL looks at."""
    raw: Any = connection.connection.driver_connection
    if not isinstance(raw, sqlite3.Connection):
        return sum(map(looked_at, plans(connection, asking, "ANALYZE, FORMAT JSON")))
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    raw.set_progress_handler(step, 10)
    asking(CatalogueSnapshot(connection, None))
    raw.set_progress_handler(None, 0)
    return steps


def plans(connection: Connection, asking: Asking, options: str) -> list[Any]:
    """How PostgreSQL answers each statement."""
    found = []
    for statement, parameters in statements(connection, asking):
        ((plan,),) = connection.exec_driver_sql(f"EXPLAIN ({options}) {statement}", parameters)
        found.append(plan[0]["Plan"])
    return found


def looked_at(plan: dict[str, Any]) -> int:
    return sum(
        round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes(plan)
    )


def statements(connection: Connection, asking: Asking) -> list[tuple[str, Any]]:
    """What is asked of the database, but for its settings."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:  # noqa: ANN401
        asked.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    asking(CatalogueSnapshot(connection, NOON))
    event.remove(connection, "before_cursor_execute", note)
    return [(statement, parameters) for statement, parameters in asked if "set_config" not in statement]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def sizes(
    request: pytest.FixtureRequest, schema: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Connection, Connection]]:
    """A small catalogue, and one whose names have twenty times as many versions."""
    folder = tmp_path_factory.mktemp("sizes")
    with ExitStack() as stack:
        engines = []
        for name in ("small", "large"):
            if request.param == "sqlite":
                engines.append(open_engine(Path(shutil.copy(schema, folder / f"{name}.db"))))
            else:
                server: PostgresServer = request.getfixturevalue("postgresql")
                engines.append(open_server(stack.enter_context(server.database())))
        small, large = engines
        yield stack.enter_context(catalogue(small, 20)), stack.enter_context(catalogue(large, 400))


@pytest.mark.parametrize("asking", FEW.values(), ids=FEW)
def test_the_effort_does_not_grow_with_the_number_of_versions(
    sizes: tuple[Connection, Connection], asking: Asking
) -> None:
    small, large = (effort(connection, asking) for connection in sizes)
    assert 0 < large < small * 1.5 + 10


ASKING = pytest.mark.parametrize(
    "asking", [*FEW.values(), *MANY.values()], ids=[*FEW, *(f"{name} of all" for name in MANY)]
)


@ASKING
def test_every_statement_seeks_in_an_index(database: Engine, asking: Asking) -> None:
    with write_transaction(database) as connection:
        fill(connection, rows(2), NOON)
    with read_transaction(database) as connection:
        asked = statements(connection, asking)
        for statement, parameters in asked:
            plan = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            assert any("SEARCH" in step for step in plan)
            for step in plan:
                assert "TEMP" not in step, (statement, plan)
                assert "AUTOMATIC" not in step, (statement, plan)
                assert not step.startswith("SCAN") or step in (
                    "SCAN found",
                    "SCAN offered",
                    "SCAN needed",
                    "SCAN CONSTANT ROW",
                    "SCAN counted",
                ), (statement, plan)
    assert asked


@ASKING
@pytest.mark.parametrize("analyzed", [False, True], ids=["unknown tables", "known tables"])
def test_every_statement_seeks_in_an_index_on_a_server(served: Engine, asking: Asking, analyzed: bool) -> None:
    with write_transaction(served) as connection:
        if analyzed:
            connection.exec_driver_sql("ANALYZE")
        found = plans(connection, asking, "FORMAT JSON")
        connection.rollback()
    assert found
    for node in chain.from_iterable(map(nodes, found)):
        kind = node["Node Type"]
        assert kind in SEEKING, (kind, node)
        assert "Index Cond" in node or "Index" not in kind, node


SEEKING = {
    "Aggregate", "CTE Scan", "Index Only Scan", "Index Scan", "Limit", "Recursive Union", "Result", "Subquery Scan",
    "WorkTable Scan",
}  # fmt: skip


@pytest.fixture(scope="module")
def served(postgresql: PostgresServer) -> Iterator[Engine]:
    """A small catalogue on a server."""
    with postgresql.database() as address:
        engine = open_server(address)
        with write_transaction(engine) as connection:
            fill(connection, rows(2), NOON)
        yield engine
        engine.dispose()
