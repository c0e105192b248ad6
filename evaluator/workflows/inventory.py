"""Every blob that a version, a lock or a run refers to, and export of a run's blobs."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore, copy_blob, verify
from benchlock.artifacts.digest import Descriptor, Digest, from_hex
from benchlock.artifacts.display import Progress
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.trees import iterate_listing, iterate_tree
from benchlock.evaluator.records.evidence_status import RUN_AGAIN
from benchlock.evaluator.records.run_model import Run
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.runner.outcome import FILES
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.lock.lockfile import Lock, list_blob_references
from benchlock.registry.manifests import files_of
from benchlock.registry.names import Reference

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
        """What the lock names for all of its platforms, but those that did not come with it in a bundle."""
        names: Names = {}
        platforms = (None, *self.catalogue.platforms_here(lock))
        for one in list_blob_references(lock):
            if one.platform in platforms:
                names |= self._expanded(one.name, Descriptor(one.digest, one.size or 0), tree=one.sort == "tree")
        return names

    def of_run(self, run: Run) -> Names:
        blobs = {} if run.end is None else run.end.blobs
        return {blob.digest: f"{run.id} {role}" for role, blob in blobs.items()}

    def everything(self) -> Names:
        """All of it, and every other blob of the store besides; but not the platforms that did not come."""
        names: Names = {digest: f"blob {digest}" for digest in self.store.list()}
        wanted = {*self.catalogue.live_digests(), *self.records.live_digests()}
        names |= {digest: f"blob {digest}" for digest in wanted - self._unbrought()}
        for run in self.records.ids():
            names |= self.of_run(self.records.as_recorded(run))
        for entry in self.catalogue.list():
            names |= self.of_version(entry.reference)
        return names

    def needed(self) -> set[Digest]:
        """What a collection of garbage keeps; but not the platforms that did not come."""
        others = self._unbrought()
        digests = {*self.catalogue.live_digests(), *self.records.live_digests()} - others
        for tree in set(self.catalogue.live_trees()) - others:
            with suppress(IntegrityError, InvalidInputError):  # who reads it is told
                digests.update([entry.digest for entry in iterate_listing(self.store, tree, name=tree)])
        return digests

    def _unbrought(self) -> set[Digest]:
        """What stored locks name for platforms alone that did not come with them in a bundle."""
        needed: set[Digest] = set()
        others: set[Digest] = set()
        for lock in self.catalogue.locks():
            platforms = (None, *self.catalogue.platforms_here(lock))
            for one in list_blob_references(lock):
                (needed if one.platform in platforms else others).add(one.digest)
        return others - needed

    def _expanded(self, name: str, blob: Descriptor, *, tree: bool) -> Names:
        if not tree:
            return {blob.digest: name}
        try:
            inside = {entry.digest: f"{name}{entry.path}" for entry in iterate_tree(self.store, blob, name=name)}
        except (IntegrityError, InvalidInputError):
            return {blob.digest: name}
        return {blob.digest: name} | inside


def list_damage(store: BlobStore, blobs: Names, progress: Progress) -> Iterator[IntegrityError]:
    """What is wrong with ``blobs``, one error each; all are read whole."""
    sizes = [store.stat(digest).size for digest in blobs if store.exists(digest)]
    with progress.task("verifying", sum(sizes)) as advance:
        for digest, name in blobs.items():
            try:
                verify(store, digest, name=name, advance=advance)
            except IntegrityError as error:
                if name.startswith("run/"):
                    error.next_step = RUN_AGAIN
                yield error


def export_run(run: Run, store: BlobStore, folder: Path) -> int:
    """Write every blob of ``run`` to ``folder`` where the harness left it in its own, others by their role; how many.

    Raises:
        InvalidInputError: the run has no end yet, or the folder holds something already.
        IntegrityError: a blob is not what its digest says.
    """
    if run.end is None:
        raise InvalidInputError(f"{run.start.id} has not ended", next_step="wait for its end")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(f"{folder} is not empty", next_step="name another folder with -o")
    folder.mkdir(parents=True, exist_ok=True)
    for role, blob in run.end.blobs.items():
        # A record that was imported names roles as it likes; of those that we know, two have files of the same name.
        path = FILES.get(role) or Path(f"{role}.txt").name
        try:
            copy_blob(store, blob, folder / path, name=f"{run.start.id} {role}")
        except IntegrityError as error:
            error.next_step = RUN_AGAIN
            raise
    return len(run.end.blobs)
