"""Files of a dataset: never outside its folder, packed or not."""

import gzip
from pathlib import Path

_GZIP = b"\x1f\x8b"


def inside(folder: Path, path: str) -> Path:
    """``path`` in ``folder``, never outside it."""
    found = folder / path
    if not found.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path}: leads out of the dataset")
    return found


def unpacked(path: Path) -> bytes:
    """The content of a file, with gzip undone where it begins like it."""
    content = path.read_bytes()
    return gzip.decompress(content) if content.startswith(_GZIP) else content
