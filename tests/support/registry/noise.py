"""A registry for versions of random bytes, that several processes publish and collect, and whether all is in order."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.workflows.blob_inventory import Inventory, list_damage
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.publishing.garbage_collection import collect_garbage
from tests.support.system.forking import Place, open_place, open_remote

MANIFEST = """\
schema: 1
kind: dataset
name: noise
version: {version}.0.0
license: CC0-1.0
format: image-index
splits: {{dev: {{index: pictures/index.csv, samples: {pictures}}}}}
files:
  - {{path: pictures/, source: ./pictures}}
  - {{path: large.bin, source: ./large.bin}}
"""


@dataclass(frozen=True)
class Bench:
    """A registry that other processes write to, and what everyone can see of it."""

    place: Place
    store: BlobStore
    catalogue: Catalogue
    records: Records
    folder: Path
    _whole: tuple[set[Digest], set[Digest]] = field(default_factory=lambda: (set(), set()))

    def draft(self, version: int, *, pictures: int = 6, large: int = 1_000_000) -> Path:
        """The manifest of a version that shares no blob with any other draft."""
        folder = self.folder / f"{version}-{random.randbytes(4).hex()}"
        (folder / "pictures").mkdir(parents=True)
        names = [f"{number:03}.png" for number in range(pictures)]
        for name in names:
            (folder / "pictures" / name).write_bytes(random.randbytes(1500))
        rows = [f"{name},{random.random()}\n" for name in names]
        (folder / "pictures" / "index.csv").write_text("path,label\n" + "".join(rows))
        (folder / "large.bin").write_bytes(random.randbytes(large))
        manifest = folder / "noise.yaml"
        manifest.write_text(MANIFEST.format(version=version, pictures=pictures))
        return manifest

    def visible(self) -> set[int]:
        return {entry.reference.version.major for entry in self.catalogue.list()}

    def assert_clean(self, *, anew: bool = True) -> None:
        """Every blob that there is is whole; the collection leaves those of the visible versions, and them alone.

        So it is in the repository behind the folder, too, where there is one. What was found whole before is read again
        with ``anew``: damage to it stays, so that a last look is enough for that.
        """
        stores = [self.store, *([open_remote(self.place)] if self.place.repository else [])]
        inventories = [Inventory(store, self.catalogue, self.records) for store in stores]
        self._assert_whole(inventories[0], set(self.store.list()), self._whole[0], anew=anew)
        collect_garbage(self.store, self.catalogue, tuple)
        references = [entry.reference for entry in self.catalogue.list()]
        live = {blob for reference in references for blob in inventories[0].of_version(reference)}
        for inventory, whole in zip(inventories, self._whole, strict=False):
            assert set(inventory.store.list()) == live
            self._assert_whole(inventory, live, whole, anew=anew)

    def _assert_whole(self, inventory: Inventory, there: set[Digest], whole: set[Digest], *, anew: bool) -> None:
        blobs = inventory.everything() if anew else {digest: f"blob {digest}" for digest in there - whole}
        assert [str(fault) for fault in list_damage(inventory.store, blobs, SILENT)] == []
        whole.update(blobs)


def open_bench(place: Place, database: Engine, folder: Path) -> Bench:
    """A view of the registry through ``database``; drafts are written below ``folder``."""
    store, catalogue = open_place(place, database)
    return Bench(place, store, catalogue, Records(database), folder)
