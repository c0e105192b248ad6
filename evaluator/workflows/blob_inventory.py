"""Every blob that a version, a lock or a run refers to, and export of a run's blobs."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore, copy_blob, verify
from benchlock.artifacts.digest import Descriptor, Digest, from_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.file_trees import iterate_listing, iterate_tree
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.records.evidence_status import RUN_AGAIN
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.runner.run_outcome import FILES
from benchlock.registry.artifact_names import Reference
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.lock.lockfile import Lock, list_blob_references
from benchlock.registry.manifests import files_of

Names = dict[Digest, str]


@dataclass(frozen=True, slots=True)
class Inventory:
    """The blobs that a registry's rows refer to, each with a name for messages."""

    store: BlobStore
    catalogue: Catalogue
    records: Records

    def of_version(self, reference: Reference) -> Names:
        """Return the manifest, its files, and the files of its trees; an unreadable tree counts as one blob."""
        names: Names = {self.catalogue.get(reference).digest: f"{reference} manifest"}
        for file in files_of(self.catalogue.manifest(reference)):
            assert file.sha256 is not UNSET
            assert file.size is not UNSET
            blob = Descriptor(from_hex(file.sha256), file.size)
            names |= self._expand_tree(f"{reference} {file.path}", blob, tree=file.path.endswith("/"))
        return names

    def of_lock(self, lock: Lock) -> Names:
        """Return the blobs of the lock for all platforms except those that a bundle left out."""
        names: Names = {}
        platforms = (None, *self.catalogue.platforms_here(lock))
        for reference in list_blob_references(lock):
            if reference.platform in platforms:
                names |= self._expand_tree(
                    reference.name, Descriptor(reference.digest, reference.size or 0), tree=reference.sort == "tree"
                )
        return names

    def of_run(self, run: Run) -> Names:
        """Return the blobs of the run."""
        blobs = {} if run.end is None else run.end.blobs
        return {blob.digest: f"{run.id} {role}" for role, blob in blobs.items()}

    def everything(self) -> Names:
        """Return all blobs of all rows and of the store, without platforms that a bundle left out."""
        names: Names = {digest: f"blob {digest}" for digest in self.store.list()}
        referenced = {*self.catalogue.live_digests(), *self.records.live_digests()}
        names |= {digest: f"blob {digest}" for digest in referenced - self._list_left_out()}
        for run in self.records.ids():
            names |= self.of_run(self.records.as_recorded(run))
        for entry in self.catalogue.list():
            names |= self.of_version(entry.reference)
        return names

    def needed(self) -> set[Digest]:
        """Return the digests that garbage collection keeps, without platforms that a bundle left out."""
        others = self._list_left_out()
        digests = {*self.catalogue.live_digests(), *self.records.live_digests()} - others
        for tree in set(self.catalogue.live_trees()) - others:
            with suppress(IntegrityError, InvalidInputError):  # reading such a tree reports the error
                digests.update([entry.digest for entry in iterate_listing(self.store, tree, name=tree)])
        return digests

    def _list_left_out(self) -> set[Digest]:
        """Return the digests that stored locks need only for platforms that a bundle left out."""
        needed: set[Digest] = set()
        others: set[Digest] = set()
        for lock in self.catalogue.locks():
            platforms = (None, *self.catalogue.platforms_here(lock))
            for reference in list_blob_references(lock):
                (needed if reference.platform in platforms else others).add(reference.digest)
        return others - needed

    def _expand_tree(self, name: str, blob: Descriptor, *, tree: bool) -> Names:
        if not tree:
            return {blob.digest: name}
        try:
            inside = {entry.digest: f"{name}{entry.path}" for entry in iterate_tree(self.store, blob, name=name)}
        except (IntegrityError, InvalidInputError):
            return {blob.digest: name}
        return {blob.digest: name} | inside


def list_damage(store: BlobStore, blobs: Names, progress: Progress) -> Iterator[IntegrityError]:
    """Verify ``blobs`` completely and yield an error for each damaged one."""
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
    """Write every blob of ``run`` to ``folder`` and return their number.

    A file of the harness gets its path in the output folder, any other the name of its role.

    Raises:
        InvalidInputError: The run has not ended, or the folder is not empty.
        IntegrityError: A blob does not match its digest.
    """
    if run.end is None:
        raise InvalidInputError(f"{run.start.id} has not ended", next_step="wait until it has ended")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(f"{folder} is not empty", next_step="choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for role, blob in run.end.blobs.items():
        # An imported record may have any roles; two of the known ones have files of the same name.
        path = FILES.get(role) or Path(f"{role}.txt").name
        try:
            copy_blob(store, blob, folder / path, name=f"{run.start.id} {role}")
        except IntegrityError as error:
            error.next_step = RUN_AGAIN
            raise
    return len(run.end.blobs)
