"""A registry for versions of random bytes, that several processes publish and collect, and whether all is in order."""

import random
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from artifacts.progress import SILENT
from artifacts.store import BlobStore
from evaluator.inventory import Inventory, damage
from evaluator.records.records import Records
from registry.catalogue.catalogue import Catalogue
from registry.collection import collect
from tests.support.forking import Place, open_place, open_remote

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

    def assert_clean(self) -> None:
        """Every blob that there is is whole; the collection leaves those of the visible versions, and them alone.

        So it is in the repository behind the folder, too, where there is one.
        """
        stores = [self.store, *([open_remote(self.place)] if self.place.repository else [])]
        inventories = [Inventory(store, self.catalogue, self.records) for store in stores]
        assert damaged(inventories[0]) == []
        collect(self.store, self.catalogue, tuple)
        for inventory in inventories:
            references = [entry.reference for entry in self.catalogue.list()]
            live = {blob for reference in references for blob in inventory.of_version(reference)}
            assert set(inventory.store.list()) == live
            assert damaged(inventory) == []


def damaged(inventory: Inventory) -> list[str]:
    """What ``verify`` of everything says."""
    return [str(fault) for fault in damage(inventory.store, inventory.everything(), SILENT)]


def open_bench(place: Place, database: Engine, folder: Path) -> Bench:
    """A view of the registry through ``database``; drafts are written below ``folder``."""
    store, catalogue = open_place(place, database)
    return Bench(place, store, catalogue, Records(database), folder)
