"""Garbage collection: deletion of blobs that no version and no lock references."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from benchlock.artifacts.atomic_files import RemovedFiles
from benchlock.artifacts.blob_store import BlobNotFoundError, BlobStore
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.file_trees import iterate_listing
from benchlock.registry.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class CollectionResult:
    """The removed blobs, or in a dry run the blobs to remove: digests, total bytes, and unfinished files."""

    digests: tuple[Digest, ...]
    size: int
    leftovers: RemovedFiles


def collect_garbage(
    store: BlobStore,
    catalogue: Catalogue,
    more: Callable[[], Iterable[Digest]],
    *,
    dry_run: bool = False,
    forget: Callable[[], None] = lambda: None,
) -> CollectionResult:
    """Delete every unreferenced blob, and the leftovers of killed writers and interrupted downloads.

    Nothing else writes to the store meanwhile, and references are read only after that is ensured. A draft that is
    being published is therefore safe.

    Args:
        store: The store to collect.
        catalogue: The catalogue, whose versions and locks reference blobs.
        more: Returns digests that are referenced elsewhere, such as by runs.
        dry_run: Report what would be deleted, and change nothing.
        forget: Called at the end, before others may write; it deletes expired holds of blobs.

    Raises:
        IntegrityError: A tree listing is damaged, so its references are unknown. Nothing was removed.
    """
    with store.collecting():
        live = set(_live(store, catalogue, more))
        garbage = tuple(digest for digest in store.list() if digest not in live)
        size = sum(_size(store, digest) for digest in garbage)
        leftovers = store.sweep(dry_run=True)
        if not dry_run:
            if garbage or leftovers.files:
                unfinished = f", {leftovers.files} unfinished files, {leftovers.bytes} bytes" if leftovers.files else ""
                catalogue.note("store.collect", f"{len(garbage)} blobs, {size} bytes{unfinished}")
            store.sweep()
            for digest in garbage:
                store.delete(digest)
            forget()
    return CollectionResult(garbage, size, leftovers)


def find_referenced(
    digests: Collection[Digest], store: BlobStore, catalogue: Catalogue, more: Callable[[], Iterable[Digest]]
) -> Collection[Digest]:
    """Return those of ``digests`` that are referenced, by the rules of ``collect_garbage``.

    Raises:
        IntegrityError: A tree listing is damaged.
    """
    requested = frozenset(digests)
    return requested.intersection(_live(store, catalogue, more)) if requested else requested


def _live(store: BlobStore, catalogue: Catalogue, more: Callable[[], Iterable[Digest]]) -> Iterator[Digest]:
    """Yield every referenced digest, some several times."""
    yield from catalogue.live_digests()
    yield from more()
    for tree in catalogue.live_trees():
        yield from (entry.digest for entry in iterate_listing(store, tree, name=tree))


def _size(store: BlobStore, digest: Digest) -> int:
    """Return the size of a blob in bytes; 0 if it is missing."""
    try:
        return store.stat(digest).size
    except BlobNotFoundError:
        return 0
