"""Writing a version or a lock, in a transaction that its caller holds: alone, or together with what came with it."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from benchlock.artifacts import limits
from benchlock.artifacts.digest import Digest
from benchlock.registry.access.actors import acting
from benchlock.registry.access.log import note
from benchlock.registry.catalogue.chain import insert_record
from benchlock.registry.catalogue.direct import Lookup
from benchlock.registry.catalogue.entries import Provenance, Published, taken
from benchlock.registry.catalogue.queries import PLACE, PUBLISHED, place_of, platforms_here
from benchlock.registry.catalogue.rows import key_of, rows_of_lock, rows_of_version
from benchlock.registry.catalogue.tables import imported_platforms, lock_blobs, locks, manifests, versions
from benchlock.registry.lockfile import Lock, LockedPlatform, dump
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.identity import content, manifest_digest, reference_of
from benchlock.registry.names import Reference

_PUBLISHED = Lookup(PUBLISHED)


def insert_version(connection: Connection, manifest: Manifest, provenance: Provenance, at: datetime) -> Published:
    """Make a version visible; the same content again changes nothing.

    Raises:
        ForbiddenError: who is acting may not publish versions of that name.
        VersionTakenError: the version is published with other content.
    """
    reference, digest = reference_of(manifest), manifest_digest(manifest)
    if is_published(connection, reference, digest):
        return Published(reference, digest, changed=False)
    acting().require_publishing(reference.name)
    key_row, version, parts = key_of(reference), *rows_of_version(manifest)
    sources = json.dumps(dict(provenance.sources))
    text = {"content": content(manifest).decode(), "authored": provenance.authored, "sources": sources}
    for name, part in text.items():
        limits.check_text(part, limits.MANIFEST, name)
    belonging = [(table, [key_row | row for row in rows]) for table, rows in parts]
    row = key_row | version | {"digest": digest, "published_at": at}
    insert_record(connection, versions, row, [(manifests, [key_row | text]), *belonging])
    note(connection, "version.publish", f"{reference} {digest}", at)
    return Published(reference, digest, changed=True)


def is_published(connection: Connection, reference: Reference, digest: Digest) -> bool:
    """Whether the version is there with that content.

    Raises:
        VersionTakenError: it is there with other content.
    """
    return is_same(reference, digest, _PUBLISHED.within(connection, key_of(reference)))


def is_same(reference: Reference, digest: Digest, found: Sequence[Any] | None) -> bool:
    """Whether a row of ``PUBLISHED`` has that content. Raises as ``is_published``."""
    if found is None:
        return False
    version, there = found
    if there == digest:
        return True
    raise taken(reference, version, there, digest)


def insert_lock(connection: Connection, lock: Lock, at: datetime) -> bool:
    """Keep a lock under its id; false where it is kept already."""
    row, blobs = rows_of_lock(lock)
    if connection.execute(select(locks.c.id).where(locks.c.id == lock.id)).first():
        return False
    text = dump(lock)
    limits.check_text(text, limits.LOCK, "lock")
    limits.check_text(row["request"], limits.WORD, "request: name")
    named = [{"lock": lock.id} | blob for blob in blobs]
    insert_record(connection, locks, row | {"text": text, "created_at": at}, [(lock_blobs, named)])
    note(connection, "lock.keep", f"{lock.id} {row['request']}", at)
    return True


def insert_imported_lock(
    connection: Connection, lock: Lock, platforms: Collection[LockedPlatform], at: datetime
) -> bool:
    """Keep a lock that came in a bundle with some of its platforms, or all; false where it is kept already.

    One that was made here stays one that was made here, with all of them.
    """
    is_new = insert_lock(connection, lock, at)
    here = () if is_new else platforms_here(connection, lock)
    places = {place_of(one) for one in platforms if one not in here}
    for place in sorted(places):
        row = {"lock": lock.id, "at": at} | dict(zip(PLACE, place, strict=True))
        insert_record(connection, imported_platforms, row)
    return is_new
