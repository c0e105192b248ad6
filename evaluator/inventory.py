"""Every byte that a version, a lock or a run names, by digest and with the name that messages use."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from msgspec import UNSET

from artifacts.digest import Descriptor, Digest, from_hex
from artifacts.errors import IntegrityError, InvalidInputError
from artifacts.progress import Progress
from artifacts.store import BlobStore, verify
from artifacts.trees import read_tree
from evaluator.records.records import Records
from evaluator.records.runs import Run
from registry.catalogue.catalogue import Catalogue
from registry.lockfile import Lock, LockedPlatform
from registry.manifests import files_of
from registry.named import named
from registry.names import Reference

Names = dict[Digest, str]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a registry's rows say that its store must hold."""

    store: BlobStore
    catalogue: Catalogue
    records: Records

    def of_version(self, reference: Reference) -> Names:
        """The manifest, its files, and the files of its trees; a tree that cannot be read counts as one blob."""
        names: Names = {self.catalogue.get(reference).digest: f"{reference} manifest"}
        for file in files_of(self.catalogue.manifest(reference)):
            assert file.sha256 is not UNSET
            assert file.size is not UNSET
            blob = Descriptor(from_hex(file.sha256), file.size)
            names |= self._expanded(f"{reference} {file.path}", blob, tree=file.path.endswith("/"))
        return names

    def of_lock(self, lock: Lock) -> Names:
        """What the lock names for all of its platforms, but those of which no bundle brought anything."""
        names: Names = {}
        brought = _brought(lock, self.store.exists)
        for one in named(lock):
            if not brought[one.digest]:
                continue
            names |= self._expanded(one.name, Descriptor(one.digest, one.size or 0), tree=one.sort == "tree")
        return names

    def of_run(self, run: Run) -> Names:
        blobs = {} if run.end is None else run.end.blobs
        return {blob.digest: f"{run.id} {role}" for role, blob in blobs.items()}

    def everything(self) -> Names:
        """All of it, and every other blob of the store besides; but not the platforms that no bundle brought."""
        names: Names = {digest: f"blob {digest}" for digest in self.store.list()}
        wanted = {*self.catalogue.live_digests(), *self.records.live_digests()}
        names |= {digest: f"blob {digest}" for digest in wanted - self._unbrought(names.keys())}
        for entry in self.catalogue.list():
            names |= self.of_version(entry.reference)
        return names

    def _unbrought(self, present: Collection[Digest]) -> set[Digest]:
        """What stored locks name for platforms alone that no bundle brought."""
        needed: set[Digest] = set()
        others: set[Digest] = set()
        for lock in self.catalogue.locks():
            for digest, is_brought in _brought(lock, present.__contains__).items():
                (needed if is_brought else others).add(digest)
        return others - needed

    def _expanded(self, name: str, blob: Descriptor, *, tree: bool) -> Names:
        if not tree:
            return {blob.digest: name}
        try:
            entries = read_tree(self.store, blob, name=name)
        except (IntegrityError, InvalidInputError):
            return {blob.digest: name}
        return {blob.digest: name} | {entry.digest: f"{name}{entry.path}" for entry in entries}


def _brought(lock: Lock, exists: Callable[[Digest], bool]) -> dict[Digest, bool]:
    """Of each blob that the lock names, whether it should be here.

    A bundle may bring some of the lock's platforms. One of which nothing is here, that is its alone, did not come, if
    another one did; where anything of it is here, the rest of it is missing.
    """
    users: defaultdict[Digest, set[LockedPlatform | None]] = defaultdict(set)
    for one in named(lock):
        users[one.digest].add(one.platform)
    own: defaultdict[LockedPlatform, set[Digest]] = defaultdict(set)
    for digest, (platform, *more) in users.items():
        if platform is not None and not more:
            own[platform].add(digest)
    absent = {platform for platform, digests in own.items() if not any(map(exists, digests))}
    if len(absent) == len(lock.image.platforms):
        absent = set()
    return {digest: not platforms <= absent for digest, platforms in users.items()}


def damage(store: BlobStore, blobs: Names, progress: Progress) -> Iterator[IntegrityError]:
    """What is wrong with ``blobs``, one error each; all are read whole."""
    sizes = [store.stat(digest).size for digest in blobs if store.exists(digest)]
    with progress.task("verifying", sum(sizes)) as advance:
        for digest, name in blobs.items():
            try:
                verify(store, digest, name=name, advance=advance)
            except IntegrityError as error:
                yield error
