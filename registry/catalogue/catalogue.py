"""The catalogue in SQL: published versions, yanked versions, and their locks.

The rows of a published version never change, and a yank inserts a further row. Triggers of the database enforce this.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Engine, func, select

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.artifacts.json_codec import decode_untyped
from benchlock.artifacts.size_limits import REASON, check_text
from benchlock.registry.artifact_names import Kind, Name, Reference
from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.catalogue.catalogue_protocol import (
    ANY_CONTENT,
    ContentFilter,
    Entry,
    Key,
    ListedVersion,
    Provenance,
    PublishResult,
)
from benchlock.registry.catalogue.resolver_snapshot import CatalogueSnapshot
from benchlock.registry.catalogue.version_lists import (
    EXAMINED,
    SearchPage,
    VersionFilter,
    entry_of_listed,
    find_newest,
    find_newest_versions,
    read_names,
    read_version_page,
    search_versions,
)
from benchlock.registry.catalogue.version_rows import (
    READ,
    TEXT,
    entries,
    entry,
    entry_of,
    insert_lock,
    insert_locks,
    insert_version,
    is_published,
    key_of,
    of_version,
    platforms_here,
    unknown_name,
    unknown_version,
)
from benchlock.registry.catalogue.version_uses import (
    DependentPage,
    ListedLock,
    LockPage,
    YankChange,
    read_dependents,
    read_locks,
    read_locks_with,
    read_yank_changes,
)
from benchlock.registry.database.column_types import begins_with
from benchlock.registry.database.engine import damage_error, read_transaction, write_transaction
from benchlock.registry.database.group_commit import GroupCommit
from benchlock.registry.database.ids_and_timestamps import (
    SHORTEST_PREFIX,
    SHOWN_CANDIDATES,
    ambiguous_prefix_error,
)
from benchlock.registry.database.record_chain import check_all_stored, check_stored, insert_record, record_kind
from benchlock.registry.database.registry_schema import files, lock_blobs, locks, manifests, versions, yanks
from benchlock.registry.lock.lockfile import Lock, LockedPlatform, load
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.manifest_content import manifest_digest, parse_published, reference_of
from benchlock.registry.versions.semantic_version import Version
from benchlock.registry.versions.version_ranges import Constraint

Clock = Callable[[], datetime]

_VERSIONS, _LOCKS = record_kind(versions), record_kind(locks)
_LOCK_ID = re.compile(rf"sha256:[0-9a-f]{{{SHORTEST_PREFIX},64}}")


class Catalogue:
    """Published manifests and stored locks in a SQL database.

    Args:
        engine: The database, with the schema that this build needs.
        clock: Returns the current time with its time zone. It is called inside the transaction.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        """Open the catalogue in the database ``engine``."""
        self._engine = engine
        self._clock = clock
        self._together = GroupCommit(engine)

    def publish(self, manifest: Manifest, provenance: Provenance) -> PublishResult:
        """Publish a version in one transaction; publishing the same content again changes nothing.

        ``manifest`` has the digest of every file. The caller has stored every blob, and keeps garbage collection out
        until this method returns. The caller must store the manifest as well, unless the store reads manifests by
        ``text_of``.

        Raises:
            ForbiddenError: The actor may not publish versions of this name.
            VersionTakenError: The version is published with other content.
        """
        return self._together.do(
            lambda connection: insert_version(connection, manifest, provenance, self._clock()),
        )

    def would_change(self, manifest: Manifest) -> PublishResult:
        """Return the result that ``publish`` would have, and change nothing.

        Raises:
            VersionTakenError: The version is published with other content.
        """
        reference, digest = reference_of(manifest), manifest_digest(manifest)
        with read_transaction(self._engine) as connection:
            return PublishResult(reference, digest, changed=not is_published(connection, reference, digest))

    def get(self, reference: Reference) -> Entry:
        """Return the entry of a version.

        Raises:
            UnknownNameError: The version is not published. The message suggests similar names and versions.
        """
        with read_transaction(self._engine) as connection:
            return entry(connection, reference)

    def read(self, reference: Reference) -> tuple[Entry, str, Mapping[str, str]]:
        """Return the entry of a version, the text of its manifest as published, and the sources of its files.

        The text is checked against the digest of the version. Raise as ``get``.
        """
        with read_transaction(self._engine) as connection:
            row = connection.execute(READ, key_of(reference)).first()
            if row is None:
                raise unknown_version(connection, reference)
            *entry_columns, text, sources = row
            version_entry, actual = entry_of(reference, entry_columns), digest_bytes(text.encode())
            if actual != version_entry.digest:
                raise damage_error(
                    f"the manifest of {reference} has the digest {actual}, but was published with "
                    f"{version_entry.digest}"
                )
            return version_entry, text, json.loads(sources)

    def manifest(self, reference: Reference) -> Manifest:
        """Return the manifest as published. Raise as ``get``."""
        return parse_published(self.content(reference)[0].encode())

    def provenance(self, reference: Reference) -> Provenance:
        """Return the author's text of a version and the sources of its files. Raise as ``get``."""
        with read_transaction(self._engine) as connection:
            entry(connection, reference)
            check_stored(connection, _VERSIONS, key_of(reference))
            row = connection.execute(
                select(manifests.c.authored, manifests.c.sources).where(of_version(manifests, reference))
            )
            authored, sources = row.one()
            return Provenance(authored, json.loads(sources))

    def versions(self, kind: Kind, name: Name) -> tuple[Entry, ...]:
        """Return every version of a name in SemVer order, yanked versions included.

        Raises:
            UnknownNameError: No version of this name is published.
        """
        with read_transaction(self._engine) as connection:
            published_entries = entries(connection, kind, name)
            if not published_entries:
                raise unknown_name(connection, kind, name)
            return published_entries

    def list(self, kind: Kind | None = None, content: ContentFilter = ANY_CONTENT) -> tuple[Entry, ...]:
        """Return every published version, or those of one ``kind``, by kind, name and version."""
        if content == ANY_CONTENT:
            with read_transaction(self._engine) as connection:
                return entries(connection, kind)
        matching: list[Entry] = []
        listing: VersionFilter | None = VersionFilter(kind, content=content)
        while listing is not None:
            page = self.search(listing, EXAMINED)
            matching += map(entry_of_listed, page.versions)
            listing = None if page.after is None else replace(listing, after=page.after)
        return tuple(matching)

    def search(self, listing: VersionFilter, limit: int) -> SearchPage:
        """Return at most ``limit`` versions that match ``listing`` and its content, by kind, name and version."""
        with read_transaction(self._engine) as connection:
            return search_versions(connection, listing, limit)

    def page(self, listing: VersionFilter, limit: int) -> tuple[ListedVersion, ...]:
        """Return at most ``limit`` versions that match ``listing``, by kind, name and version."""
        with read_transaction(self._engine) as connection:
            return read_version_page(connection, listing, limit)

    def names(self, listing: VersionFilter, limit: int) -> tuple[tuple[Kind, Name], ...]:
        """Return at most ``limit`` kinds and names of ``listing``, in their order; its content does not count."""
        with read_transaction(self._engine) as connection:
            return read_names(connection, listing, limit)

    def newest_versions(
        self, kind: Kind, name: Name, below: Version | None, limit: int, within: Constraint | None = None
    ) -> tuple[Entry, ...]:
        """Return at most ``limit`` versions of a name, newest first.

        Args:
            kind: The kind.
            name: The name.
            below: Only versions below this one.
            limit: The maximum number of versions.
            within: Only releases and pre-releases that this constraint admits, and yanked versions in its range.
        """
        with read_transaction(self._engine) as connection:
            found = find_newest_versions(connection, kind, name, below, limit, within)
            return tuple(entry(connection, reference) for reference in found)

    def newest(self, kind: Kind, name: Name, constraint: Constraint | None) -> Entry:
        """Return the newest version that ``constraint`` admits.

        Without a constraint, this is the newest version that is neither yanked nor a pre-release, or else the newest of
        all. A constraint that pins a version exactly also admits a yanked version.

        Raises:
            UnknownNameError: No version of this name is published, or ``constraint`` admits none.
        """
        with read_transaction(self._engine) as connection:
            return entry(connection, find_newest(connection, kind, name, constraint))

    def manifest_document(self, reference: Reference) -> Mapping[str, object]:
        """Return the manifest as published, as plain values. Raise as ``get``."""
        document: Mapping[str, object] = decode_untyped(self.content(reference)[0].encode())
        return document

    def content(self, reference: Reference) -> tuple[str, Mapping[str, str]]:
        """Return the text of a manifest as published, and the sources of its files, as ``read``."""
        return self.read(reference)[1:]

    def check(self, reference: Reference) -> None:
        """Compare everything stored of a version with the digest recorded when it was published.

        Raises:
            DamagedDatabaseError: A stored row differs, or is missing.
        """
        with read_transaction(self._engine) as connection:
            check_stored(connection, _VERSIONS, key_of(reference))

    def text_of(self, digest: Digest) -> str | None:
        """Return the text of the published manifest with this digest, or ``None``."""
        with read_transaction(self._engine) as connection:
            text: str | None = connection.execute(TEXT, {"digest": digest}).scalar()
            return text

    def yank(self, reference: Reference, reason: str) -> bool:
        """Hide a version from new resolutions; return ``False`` if it is already yanked for the same reason.

        Raises:
            ForbiddenError: The actor may not yank versions of this name.
            UnknownNameError: The version is not published.
            InvalidInputError: The reason is empty, too long, or not text.
        """
        if not reason.strip():
            raise InvalidInputError("a yank needs a reason", where=str(reference), next_step="add the reason")
        check_text(reason, REASON, "reason")
        if "\0" in reason:  # SQLite stores it, PostgreSQL does not
            raise InvalidInputError("the reason contains a NUL character", where=str(reference), next_step="remove it")
        return self._mark(reference, yanked=True, reason=reason)

    def unyank(self, reference: Reference) -> bool:
        """Undo a yank; return ``False`` if the version is not yanked. Raise as ``yank``."""
        return self._mark(reference, yanked=False, reason="")

    @contextmanager
    def snapshot(self, as_of: datetime | None = None) -> Iterator[CatalogueSnapshot]:
        """Open the resolver's view of the catalogue: as it is now, or as it was at ``as_of``.

        Versions and yanks that are inserted while the context is open are not visible.
        """
        with read_transaction(self._engine) as connection:
            yield CatalogueSnapshot(connection, as_of)

    def put_lock(self, lock: Lock) -> bool:
        """Store a lock under its id; return ``False`` if it is stored already."""
        with write_transaction(self._engine) as connection:
            return insert_lock(connection, lock, self._clock())

    def put_locks(self, stored: Sequence[Lock]) -> None:
        """Store several locks as ``put_lock`` does, in one transaction."""
        with write_transaction(self._engine) as connection:
            insert_locks(connection, stored, self._clock())

    def get_lock(self, lock: Digest) -> str:
        """Return the text of a stored lock.

        Raises:
            UnknownNameError: No lock has this id.
            DamagedDatabaseError: The stored lock differs from what was recorded.
        """
        with read_transaction(self._engine) as connection:
            check_stored(connection, _LOCKS, {"id": lock})
            text: str | None = connection.execute(select(locks.c.text).where(locks.c.id == lock)).scalar()
        if text is None:
            raise _unknown_lock(lock)
        return text

    def get_locks(self, ids: Collection[Digest]) -> dict[Digest, str]:
        """Return the texts of several stored locks by id, without those that no lock has; raise as ``get_lock``."""
        with read_transaction(self._engine) as connection:
            check_all_stored(connection, _LOCKS, ids)
            found = connection.execute(select(locks.c.id, locks.c.text).where(locks.c.id.in_(ids)))
            return {row.id: row.text for row in found}

    def platforms_here(self, lock: Lock) -> tuple[LockedPlatform, ...]:
        """Return the platforms of a lock whose blobs should be in the store.

        These are the platforms that bundles brought, or all platforms if the lock came in no bundle.
        """
        with read_transaction(self._engine) as connection:
            return platforms_here(connection, lock)

    def locks(self) -> Iterator[Lock]:
        """Yield every stored lock."""
        with read_transaction(self._engine) as connection:
            for id_, text in connection.execute(select(locks.c.id, locks.c.text).order_by(locks.c.id)):
                yield load(text, id_)

    def list_locks(self, prefix: str, limit: int) -> tuple[ListedLock, ...]:
        """Return at most ``limit`` locks whose ids begin with a text, by id."""
        with read_transaction(self._engine) as connection:
            return read_locks(connection, prefix, limit)

    def list_locks_with(self, reference: Reference, limit: int, after: tuple[datetime, str] | None = None) -> LockPage:
        """Return at most ``limit`` locks with a version, newest first, behind the key ``after``."""
        with read_transaction(self._engine) as connection:
            return read_locks_with(connection, reference, limit, after)

    def list_dependents(self, reference: Reference, limit: int, after: Key | None = None) -> DependentPage:
        """Return at most ``limit`` versions that need a version, by kind, name and version, behind ``after``."""
        with read_transaction(self._engine) as connection:
            return read_dependents(connection, reference, limit, after)

    def list_yank_changes(self, reference: Reference, limit: int) -> tuple[YankChange, ...]:
        """Return at most ``limit`` yanks of a version and their undoings, newest first."""
        with read_transaction(self._engine) as connection:
            return read_yank_changes(connection, reference, limit)

    def find_lock(self, text: str) -> Digest:
        """Return the id of the only stored lock whose id is ``text`` or begins with it.

        Args:
            text: ``sha256:`` and at least 4 hex digits.

        Raises:
            InvalidInputError: The text has another form, or several ids begin with it.
            UnknownNameError: No id begins with it.
        """
        if not _LOCK_ID.fullmatch(text):
            raise InvalidInputError(
                f"invalid lock id {text!r}",
                next_step=f"write sha256: and its 64 lower-case hex digits, or at least the first {SHORTEST_PREFIX}",
            )
        query = select(locks.c.id, locks.c.created_at, locks.c.model, locks.c.model_version)
        query = query.where(begins_with(locks.c.id, text)).order_by(locks.c.id).limit(SHOWN_CANDIDATES + 1)
        with read_transaction(self._engine) as connection:
            rows = connection.execute(query).all()
        if not rows:
            raise _unknown_lock(text)
        if len(rows) > 1:
            candidates = [(row.id, f"{row.created_at:%Y-%m-%d %H:%M}, {row.model} {row.model_version}") for row in rows]
            raise ambiguous_prefix_error(text, candidates)
        return Digest(rows[0].id)

    def note(self, action: str, target: str) -> None:
        """Record in the audit log an action that is about to be done outside of the database."""
        with write_transaction(self._engine) as connection:
            record_action(connection, action, target, self._clock())

    def live_digests(self) -> Iterator[Digest]:
        """Yield every digest that a version or a lock references, which garbage collection must keep.

        Digests inside trees are not among them.
        """
        queries = (select(versions.c.digest), select(files.c.digest), select(lock_blobs.c.digest))
        with read_transaction(self._engine) as connection:
            for query in queries:
                for digest in connection.execute(query.distinct()).scalars():
                    yield Digest(digest)

    def live_trees(self) -> Iterator[Digest]:
        """Yield those of ``live_digests`` that are tree listings, whose entries must be kept as well."""
        with read_transaction(self._engine) as connection:
            for table in (files, lock_blobs):
                for digest in connection.execute(select(table.c.digest).where(table.c.tree).distinct()).scalars():
                    yield Digest(digest)

    def _mark(self, reference: Reference, *, yanked: bool, reason: str) -> bool:
        get_actor().require_publishing(reference.name)
        with write_transaction(self._engine) as connection:
            new_reason = reason if yanked else None
            if entry(connection, reference).yanked == new_reason:
                return False
            last = connection.execute(select(func.max(yanks.c.position)).where(of_version(yanks, reference))).scalar()
            at = self._clock()
            row = {"position": (last or 0) + 1, "yanked": yanked, "reason": reason, "at": at}
            insert_record(connection, yanks, key_of(reference) | row)
            record_action(
                connection, "version.yank" if yanked else "version.unyank", f"{reference} {reason}".rstrip(), at
            )
        return True


def _unknown_lock(text: str) -> UnknownNameError:
    return UnknownNameError(f"unknown lock {text}", next_step="use the lockfile")
