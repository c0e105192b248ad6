"""A disk that fills up anywhere in a publication: all of the version is visible or none, and nothing else is lost."""

import shutil
from collections import Counter
from pathlib import Path

from benchlock.artifacts.errors import UnavailableError
from benchlock.registry.database.engine import open_engine
from benchlock.registry.publishing.publication import Draft, publish
from tests.support.registry.authored import read_authored
from tests.support.registry.noise import open_bench
from tests.support.system.disks import filled, mounted
from tests.support.system.forking import Place

KIB = 1 << 10


def test_publishing_on_a_disk_with_ever_more_space(schema: Path, tmp_path: Path) -> None:
    found = Counter[bool]()
    with mounted(tmp_path / "disk", 16 << 20) as disk:
        shutil.copy(schema, disk / "registry.db")
        database = open_engine(disk / "registry.db")
        bench = open_bench(Place(disk / "registry.db", disk / "blobs"), database, tmp_path / "drafts")
        others = set[int]()
        for version in range(40):
            manifest = bench.draft(version, pictures=12, large=250_000)
            text = manifest.read_text()
            draft = Draft(read_authored(text, str(manifest)), text, manifest)
            if version % 2:
                database.dispose()  # the next connection needs space of its own
            with filled(disk, version * 16 * KIB):
                try:
                    publish(draft, bench.store, bench.catalogue)
                    others.add(version)
                except UnavailableError as error:
                    assert "full" in str(error) or "No space left" in str(error), error  # noqa: PT017 - either is fine
            found[version in others] += 1
            assert bench.visible() == others
            bench.assert_clean()
            assert not [*disk.glob("blobs/incoming/*")]
        database.dispose()
    assert found[False] > 5
    assert found[True] > 5
