"""What is moved: one large file, or many small ones, of random bytes that no store can share or compress."""

import random
from dataclasses import dataclass
from pathlib import Path

from benchmarks.transferring.contestants import INDEX

MIB = 1 << 20
SMALL = 10 << 10


@dataclass(frozen=True, slots=True)
class Load:
    """A file or folder to be moved. ``bytes`` and ``files`` are what figures are divided by."""

    name: str
    title: str
    source: Path
    bytes: int
    files: int

    @property
    def speed(self) -> tuple[float, str]:
        """What one second is divided into, and the unit: bytes where they count, files where there are many."""
        return (self.bytes / MIB, "MiB/s") if self.files == 1 else (self.files, "files/s")


def large(folder: Path, mebibytes: int) -> Load:
    """One file, and beside it the small folder that benchlock's manifest of a dataset needs."""
    many(folder, 1, name="small")
    source, numbers = folder / "large.bin", random.Random(7)  # noqa: S311 - bytes to move
    with source.open("wb") as file:
        for _ in range(mebibytes):
            file.write(numbers.randbytes(MIB))
    return Load("large", f"One file of {mebibytes:,} MiB", source, mebibytes * MIB, 1)


def many(folder: Path, files: int, *, name: str = "many") -> Load:
    """A folder of pictures by their names, and their index."""
    source, numbers = folder / name, random.Random(8)  # noqa: S311 - bytes to move
    source.mkdir()
    names = [f"{number:05}.png" for number in range(files)]
    for one in names:
        (source / one).write_bytes(numbers.randbytes(SMALL))
    (source / INDEX).write_text("path,label\n" + "".join(f"{one},0\n" for one in names), encoding="utf-8")
    return Load("small", f"{files:,} files of {SMALL // 1024} KiB", source, files * SMALL, files)
