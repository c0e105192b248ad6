"""A queue of many jobs, written by the database itself."""

from datetime import UTC, datetime

from sqlalchemy import insert, text

from benchlock.evaluator.queue.job_matching import JobRequirements, RequiredPlatform
from benchlock.evaluator.queue.worker_machines import store_class
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.registry_schema import locks
from benchmarks.queueing.places import Place

LOCK = "sha256:" + "1" * 64
_SERIES = {
    "postgresql": "SELECT generate_series(1, :rows) AS n",
    "sqlite": "WITH RECURSIVE one(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM one WHERE n < :rows) SELECT n FROM one",
}


def fill(place: Place, rows: int, classes: int, owners: int = 1) -> None:
    """``rows`` queued jobs, of each class and of each owner as many, mixed."""
    engine = place.open()
    platform = RequiredPlatform("linux", "amd64", "cpu", layered=False, finished=False)
    with write_transaction(engine) as connection:
        at = datetime.now(UTC)
        values = {column.name: "x" for column in locks.columns} | {"id": LOCK, "created_at": at}
        connection.execute(insert(locks), values)
        ids = [
            store_class(connection, JobRequirements((platform,), {"cpus": 1}, cpus=1 + number))
            for number in range(classes)
        ]
        connection.execute(text("CREATE TEMPORARY TABLE kinds (number INTEGER, id TEXT)"))
        connection.execute(
            text("INSERT INTO kinds VALUES (:number, :id)"),
            [{"number": number, "id": id_} for number, id_ in enumerate(ids)],
        )
        boolean = "false" if engine.dialect.name == "postgresql" else "0"
        owner = f"'owner' || (n / {classes} % {owners})"
        number = "lpad(n::text, 26, '0')" if engine.dialect.name == "postgresql" else "printf('%026d', n)"
        series = f"({_SERIES[engine.dialect.name]}) AS made"
        connection.execute(
            text(
                "INSERT INTO jobs (id, lock, class, allow_code, state, cancel_asked, lost, engine, crash, owner, since, submitted_at) "  # noqa: S608, E501 - our own words
                f"SELECT 'job/' || {number}, '{LOCK}', kinds.id, {boolean}, 'queued', {boolean}, 0, 0, 0, {owner}, "
                f"n, '2026-11-21T12:00:00.000000Z' FROM {series} JOIN kinds ON kinds.number = n % {classes}"
            ),
            {"rows": rows},
        )
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()
