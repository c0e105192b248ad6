"""Reading and insertion of versions and locks as database rows."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET
from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table, and_, bindparam, select

from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Digest, from_hex
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.registry.artifact_names import Kind, Name, Reference
from benchlock.registry.auth.audit_log import action_record
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.catalogue.catalogue_protocol import Entry, Key, Provenance, PublishResult, version_taken_error
from benchlock.registry.catalogue.resolver_snapshot import CatalogueSnapshot
from benchlock.registry.database.engine import fetch_first
from benchlock.registry.database.record_chain import Record, insert_record, insert_records
from benchlock.registry.database.registry_schema import (
    VERSION,
    environments,
    files,
    imported_platforms,
    lock_blobs,
    locks,
    manifests,
    platforms,
    requirements,
    versions,
    yanks,
)
from benchlock.registry.lock.lockfile import Lock, LockedPlatform, dump, list_blob_references
from benchlock.registry.manifests import File, Image, Manifest, Model, files_of
from benchlock.registry.manifests.manifest_content import content, manifest_digest, reference_of
from benchlock.registry.resolution.conflicts import find_nearest_name
from benchlock.registry.resolution.resolver_types import EVERY, Population
from benchlock.registry.versions.semantic_version import key, parse_version

Values = dict[str, Any]


def key_of(reference: Reference) -> Values:
    """Return the key columns of a version; versions that differ only in build metadata have the same key."""
    return {"kind": reference.kind, "name": reference.name, "precedence": key(reference.version)}


def rows_of_version(manifest: Manifest) -> tuple[Values, Iterable[tuple[Table, list[Values]]]]:
    """Return the row of a version and the rows that belong to it, all without the columns of the version's key."""
    provides: Values = {"framework": None, "framework_version": None}
    if isinstance(manifest, Image):
        provides = {"framework": manifest.provides.framework, "framework_version": manifest.provides.version}
    parts = (
        (files, [_file(file) for file in files_of(manifest)]),
        (requirements, _requirements(manifest)),
        (platforms, _platforms(manifest)),
        (environments, _environments(manifest)),
    )
    return {"version": manifest.version} | provides, parts


def rows_of_lock(lock: Lock) -> tuple[Values, list[Values]]:
    """Return the row of a lock without text and time, and a row without the lock's id for each blob it references."""
    row: dict[str, Any] = {"id": lock.id, "request": lock.request.get("name", "")}
    # A lock of an operator or a recipe has no model: its columns are empty, and so may be those of the dataset.
    row |= dict.fromkeys(("model", "model_version", "dataset", "dataset_version"), "")
    for kind, artifact in lock.artifacts().items():
        if kind not in ("operator", "recipe"):
            row |= {kind: artifact.name, f"{kind}_version": artifact.version}
    trees: dict[Digest, bool] = {}
    for blob in list_blob_references(lock):
        trees[blob.digest] = trees.get(blob.digest, False) or blob.sort == "tree"
    return row, [{"digest": digest, "tree": tree} for digest, tree in sorted(trees.items())]


def _file(file: File) -> Values:
    if file.sha256 is UNSET or file.size is UNSET:
        raise InvalidInputError(f"{file.path} has no digest", next_step="publish it from its source")
    return {
        "path": file.path,
        "digest": from_hex(file.sha256),
        "size": file.size,
        "tree": file.path.endswith("/"),
    }


def _requirements(manifest: Manifest) -> list[Values]:
    if not isinstance(manifest, Model):
        return []
    framework = manifest.framework
    return [{"required_kind": "framework", "required_name": framework.name, "range": framework.version}]


def _platforms(manifest: Manifest) -> list[Values]:
    if not isinstance(manifest, Image):
        return []
    return [
        {
            "os": platform.os,
            "arch": platform.arch,
            "device": platform.device,
            "python": platform.python,
            "layered": platform.layers is not UNSET or platform.reference is not UNSET,
        }
        for platform in manifest.platforms
    ]


def _environments(manifest: Manifest) -> list[Values]:
    if not isinstance(manifest, Image):
        return []
    provided = manifest.provides
    framework = {"framework": provided.framework, "framework_precedence": key(parse_version(provided.version))}
    places = dict.fromkeys((platform.os, platform.arch, platform.device) for platform in manifest.platforms)
    return [{"os": os, "arch": arch, "device": device} | framework for os, arch, device in places]


SHOWN_VERSIONS = 5
PLACE = ("os", "arch", "device", "python")
"""The columns that identify a platform within a lock."""


def _entry() -> Select[Any]:
    """Select a version with its last yank row by its key. Built once: building takes longer than executing."""
    later = yanks.alias("later")
    latest = select(later.c.position).where(_same(later, versions)).order_by(later.c.position.desc()).limit(1)
    last = and_(_same(yanks, versions), yanks.c.position == latest.correlate(versions).scalar_subquery())
    columns = (versions.c.version, versions.c.digest, versions.c.published_at, yanks.c.yanked, yanks.c.reason)
    conditions = (versions.c[column] == bindparam(column) for column in VERSION)
    return select(*columns).select_from(versions.outerjoin(yanks, last)).where(*conditions)


def _read() -> Select[Any]:
    """Extend ``_entry`` by the text and the sources of the manifest."""
    return _entry().add_columns(manifests.c.content, manifests.c.sources).where(_same(manifests, versions))


def _same(left: FromClause, right: FromClause) -> ColumnElement[bool]:
    return and_(*(left.c[column] == right.c[column] for column in VERSION))


def _text() -> Select[Any]:
    condition = and_(versions.c.digest == bindparam("digest"), _same(manifests, versions))
    return select(manifests.c.content).select_from(versions.join(manifests, condition))


ENTRY = _entry()
READ = _read()
_PUBLISHED: Final = (
    "SELECT version, digest FROM versions WHERE kind = :kind AND name = :name AND precedence = :precedence"
)
TEXT = _text()
"""Selects the text of the manifest with a digest; at most one version has it."""


def of_version(table: Table, reference: Reference) -> ColumnElement[bool]:
    """Return the condition that a row of ``table`` belongs to a version."""
    return and_(*(table.c[column] == value for column, value in key_of(reference).items()))


def entries(connection: Connection, kind: Kind | None = None, name: str | None = None) -> tuple[Entry, ...]:
    """Return the published versions, optionally of one kind and name, by kind, name and version."""
    values = {"kind": kind, "name": name}
    filters = {column: value for column, value in values.items() if value is not None}
    rows = connection.execute(select(versions).filter_by(**filters).order_by(*versions.primary_key.columns))
    yanked = yank_reasons(connection, filters)
    return tuple(
        Entry(
            Reference(row.kind, Name(row.name), parse_version(row.version)),
            Digest(row.digest),
            row.published_at,
            yanked.get((row.kind, row.name, row.precedence)),
        )
        for row in rows
    )


def entry(connection: Connection, reference: Reference) -> Entry:
    """Return the entry of a version.

    Raises:
        UnknownNameError: The version is not published. The message suggests similar names and versions.
    """
    row = connection.execute(ENTRY, key_of(reference)).first()
    if row is None:
        raise unknown_version(connection, reference)
    return entry_of(reference, row)


def entry_of(reference: Reference, row: Sequence[Any]) -> Entry:
    """Build the entry of a version from a row of ``ENTRY``."""
    version, digest, published_at, yanked, reason = row
    published_reference = Reference(reference.kind, reference.name, parse_version(version))
    return Entry(published_reference, Digest(digest), published_at, reason if yanked else None)


def yank_reasons(connection: Connection, filters: Mapping[str, str]) -> Mapping[Key, str]:
    """Return the reasons of all yanked versions by key, among rows that match the ``filters``."""
    query = select(yanks).filter_by(**filters).order_by(*yanks.primary_key.columns)
    last_rows = {(row.kind, row.name, row.precedence): row for row in connection.execute(query)}
    return {key: row.reason for key, row in last_rows.items() if row.yanked}


def platforms_here(connection: Connection, lock: Lock) -> tuple[LockedPlatform, ...]:
    """Return the platforms of a lock whose blobs should be in the store.

    These are the platforms that bundles brought, or all platforms if the lock came in no bundle.
    """
    columns = [imported_platforms.c[name] for name in PLACE]
    imported = {tuple(row) for row in connection.execute(select(*columns).where(imported_platforms.c.lock == lock.id))}
    return tuple(platform for platform in lock.image.platforms if not imported or place_of(platform) in imported)


def place_of(platform: LockedPlatform) -> tuple[str, ...]:
    """Return the values of the columns ``PLACE``."""
    return tuple(getattr(platform, name) for name in PLACE)


def unknown_name(connection: Connection, kind: Kind, name: str) -> UnknownNameError:
    """Return the error for a name without published versions; it suggests the nearest published name."""
    near = find_nearest_name(CatalogueSnapshot(connection, None), kind, name)
    step = f"did you mean {kind}/{near}?" if near else f"list the {kind}s"
    return UnknownNameError(f"unknown {kind} {name!r}", where=f"{kind}/{name}", next_step=step)


def unknown_version(connection: Connection, reference: Reference) -> UnknownNameError:
    """Return the error for a version that is not published; it lists the newest versions or the nearest name."""
    everything = Population(reference.kind, reference.name, EVERY)
    newest_versions = CatalogueSnapshot(connection, None).newest(everything, SHOWN_VERSIONS)
    if not newest_versions:
        return unknown_name(connection, reference.kind, reference.name)
    newest = ", ".join(map(str, newest_versions))
    return UnknownNameError(
        f"{reference} is not published", where=str(reference), next_step=f"published, newest first: {newest}"
    )


def insert_version(connection: Connection, manifest: Manifest, provenance: Provenance, at: datetime) -> PublishResult:
    """Insert a version; inserting the same content again changes nothing.

    Args:
        connection: A connection in a transaction of ``write_transaction``.
        manifest: The manifest with the digest of every file.
        provenance: The author's text and the sources of the files.
        at: The time of publication.

    Raises:
        ForbiddenError: The actor may not publish versions of this name.
        VersionTakenError: The version is published with other content.
    """
    reference, digest = reference_of(manifest), manifest_digest(manifest)
    if is_published(connection, reference, digest):
        return PublishResult(reference, digest, changed=False)
    get_actor().require_publishing(reference.name)
    key_row, version, parts = key_of(reference), *rows_of_version(manifest)
    sources = json.dumps(dict(provenance.sources))
    text = {"content": content(manifest).decode(), "authored": provenance.authored, "sources": sources}
    for name, part in text.items():
        size_limits.check_text(part, size_limits.MANIFEST, name)
    dependent_rows = [(table, [key_row | row for row in rows]) for table, rows in parts]
    row = key_row | version | {"digest": digest, "published_at": at}
    record = Record(versions, row, [(manifests, [key_row | text]), *dependent_rows])
    insert_records(connection, (record, action_record("version.publish", f"{reference} {digest}", at)))
    return PublishResult(reference, digest, changed=True)


def is_published(connection: Connection, reference: Reference, digest: Digest) -> bool:
    """Return whether a version is published with this digest.

    Raises:
        VersionTakenError: The version is published with other content.
    """
    row = fetch_first(connection, _PUBLISHED, key_of(reference))
    if row is None:
        return False
    version, published = row
    if published != digest:
        raise version_taken_error(reference, version, published, digest)
    return True


def insert_lock(connection: Connection, lock: Lock, at: datetime) -> bool:
    """Store a lock under its id; return ``False`` if it is stored already."""
    return bool(insert_locks(connection, [lock], at))


def insert_locks(connection: Connection, stored: Sequence[Lock], at: datetime) -> int:
    """Store locks under their ids, each once; return the number of new ones."""
    new = {lock.id: lock for lock in stored}
    known = set(connection.execute(select(locks.c.id).where(locks.c.id.in_(new))).scalars())
    records = [record for id_, lock in new.items() if id_ not in known for record in _records_of_lock(lock, at)]
    if records:
        insert_records(connection, records)
    return len(new) - len(known)


def _records_of_lock(lock: Lock, at: datetime) -> tuple[Record, Record]:
    """Return the record of a lock, and that of the action in the audit log."""
    row, blobs = rows_of_lock(lock)
    text = dump(lock)
    size_limits.check_text(text, size_limits.LOCK, "lock")
    size_limits.check_text(row["request"], size_limits.WORD, "request: name")
    blob_rows = [{"lock": lock.id} | blob for blob in blobs]
    record = Record(locks, row | {"text": text, "created_at": at}, [(lock_blobs, blob_rows)])
    return record, action_record("lock.keep", f"{lock.id} {row['request']}", at)


def insert_imported_lock(
    connection: Connection, lock: Lock, platforms: Collection[LockedPlatform], at: datetime
) -> bool:
    """Store a lock from a bundle with some or all of its platforms; return ``False`` if it is stored already.

    A lock that was created in this registry keeps all of its platforms.
    """
    is_new = insert_lock(connection, lock, at)
    known_platforms = () if is_new else platforms_here(connection, lock)
    places = {place_of(platform) for platform in platforms if platform not in known_platforms}
    for place in sorted(places):
        row = {"lock": lock.id, "at": at} | dict(zip(PLACE, place, strict=True))
        insert_record(connection, imported_platforms, row)
    return is_new
