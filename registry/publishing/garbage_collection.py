"""Garbage collection: deletion of blobs that no version and no lock references."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from benchlock.artifacts.atomic_files import RemovedFiles
from benchlock.artifacts.blob_store import BlobNotFoundError, BlobStore
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.trees import iterate_listing
from benchlock.registry.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class CollectionResult:
    """What was removed, or with a dry run would be: the blobs' digests, and their bytes together; unfinished files."""

    digests: tuple[Digest, ...]
    size: int
    leftovers: RemovedFiles = field(default_factory=RemovedFiles)


def collect_garbage(
    store: BlobStore,
    catalogue: Catalogue,
    more: Callable[[], Iterable[Digest]],
    *,
    dry_run: bool = False,
    forget: Callable[[], None] = lambda: None,
) -> CollectionResult:
    """Remove every blob that nothing names. ``more`` gives what others than the catalogue name: runs, say.

    What killed writers and interrupted fetches left goes too. Nothing is written meanwhile, and what is named is asked
    only then: a draft that is being published is safe. A dry run changes nothing. ``forget`` is
    called at the end, while still nothing is written: it forgets what kept blobs for a while.

    Raises:
        IntegrityError: the listing of a tree is damaged, so that nobody knows what it names; nothing was removed.
    """
    with store.collecting():
        live = set(_live(store, catalogue, more))
        garbage = tuple(digest for digest in store.list() if digest not in live)
        size = sum(_size(store, digest) for digest in garbage)
        leftovers = store.sweep(dry_run=True)
        if not dry_run:
            if garbage or leftovers.files:
                unfinished = f", {leftovers.files} unfinished files, {leftovers.size} bytes" if leftovers.files else ""
                catalogue.note("store.collect", f"{len(garbage)} blobs, {size} bytes{unfinished}")
            store.sweep()
            for digest in garbage:
                store.delete(digest)
            forget()
    return CollectionResult(garbage, size, leftovers)


def find_named(
    digests: Collection[Digest], store: BlobStore, catalogue: Catalogue, more: Callable[[], Iterable[Digest]]
) -> Collection[Digest]:
    """Return those of ``digests`` that are named as ``collect`` sees it.

    Raises:
        IntegrityError: The listing of a tree is damaged.
    """
    wanted = frozenset(digests)
    return wanted.intersection(_live(store, catalogue, more)) if wanted else wanted


def _live(store: BlobStore, catalogue: Catalogue, more: Callable[[], Iterable[Digest]]) -> Iterator[Digest]:
    """Yield every digest that is named, some several times."""
    yield from catalogue.live_digests()
    yield from more()
    for tree in catalogue.live_trees():
        yield from (entry.digest for entry in iterate_listing(store, tree, name=tree))


def _size(store: BlobStore, digest: Digest) -> int:
    """Bytes that go with a blob: none with one that is named and was lost."""
    try:
        return store.stat(digest).size
    except BlobNotFoundError:
        return 0
