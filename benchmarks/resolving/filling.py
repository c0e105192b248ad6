"""A registry that holds a universe, written through the project's own tables and row functions, many rows at once."""

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, insert

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.migrations import upgrade
from benchlock.registry.catalogue.version_rows import key_of, rows_of_version
from benchlock.registry.database.engine import open_engine, write_transaction
from benchlock.registry.database.registry_schema import manifests, versions
from benchlock.registry.manifests import Manifest, parse_published
from benchlock.registry.manifests.manifest_content import content as content_of
from benchlock.registry.manifests.manifest_content import reference_of
from benchmarks.resolving.documents import FILES, content
from benchmarks.resolving.universes import Release, Universe

DATABASE = "registry.sqlite"
PUBLISHED_AT = datetime(2026, 1, 1, tzinfo=UTC)
_BATCH = 5_000
_CHECKED = 1_000
_CACHE = "PRAGMA cache_size=-1000000"  # KiB: the index of digests is written in no order

_decoder = msgspec.json.Decoder(Manifest)


def fill(universe: Universe, home: Path, more: Iterable[Release] = ()) -> None:
    """Make the registry in the folder ``home``: schema, blobs, every version of the universe, and ``more``.

    The rows are those that publishing writes, in its order: what belongs to a version before the version's own row,
    which seals it. One manifest in a thousand is read and written again as publishing does, and must come out the same.
    """
    home.mkdir(parents=True)
    store = LocalStore(home / "blobs")
    for files in FILES.values():
        for _, held in files.values():
            store.put(io.BytesIO(held))
    engine = open_engine(home / DATABASE)
    upgrade(engine)
    releases = chain(universe.releases(), more)
    while batch := list(islice(releases, _BATCH)):
        with write_transaction(engine) as connection:
            connection.exec_driver_sql(_CACHE)
            _write(connection, batch)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()


def _write(connection: Connection, releases: Sequence[Release]) -> None:
    rows: defaultdict[Table, list[dict[str, Any]]] = defaultdict(list)
    for table, row in _rows(releases):
        rows[table].append(row)
    sealing = rows.pop(versions)
    for table, parts in rows.items():
        connection.execute(insert(table), parts)
    connection.execute(insert(versions), sealing)


def _rows(releases: Sequence[Release]) -> Iterator[tuple[Table, dict[str, Any]]]:
    for release in releases:
        text = content(release)
        manifest: Manifest = _decoder.decode(text)
        if release.number % _CHECKED == 0:
            assert content_of(parse_published(text)) == text
        key, version, parts = key_of(reference_of(manifest)), *rows_of_version(manifest)
        yield manifests, key | {"content": text.decode(), "authored": "", "sources": "{}"}
        for table, of_version in parts:
            for row in of_version:
                yield table, key | row
        yield versions, key | version | {"digest": digest_bytes(text), "published_at": PUBLISHED_AT}
