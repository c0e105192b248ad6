"""Layers: a folder tree as a tar whose bytes follow from the files alone."""

import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from stat import S_IXUSR

from benchlock.artifacts.digest import CHUNK, Descriptor, describe
from benchlock.evaluator.images.files import files_below

_TIME = 315_532_800
"""1980-01-01, the first moment that a zip can name."""


def write_layer(tree: Path, layer: Path) -> Descriptor:
    """Write ``tree`` to the uncompressed tar ``layer``; its digest is the layer's diff id.

    Entries are sorted by their paths' UTF-8 bytes, belong to user and group 0, are of one fixed time, and have the mode
    0644 or 0755.
    """
    files = dict(files_below(tree))
    folders = {folder for path in files for folder in _parents(path)}
    with tarfile.TarFile(layer, "w", format=tarfile.PAX_FORMAT, copybufsize=CHUNK) as archive:
        for path in sorted(folders | files.keys(), key=lambda path: path.encode()):
            if path in files:
                _add_file(archive, path, files[path])
            else:
                archive.addfile(_entry(path, tarfile.DIRTYPE, 0o755))
    with layer.open("rb") as stream:
        return describe(stream)


def _add_file(archive: tarfile.TarFile, path: str, source: Path) -> None:
    status = source.stat()
    entry = _entry(path, tarfile.REGTYPE, 0o755 if status.st_mode & S_IXUSR else 0o644)
    entry.size = status.st_size
    with source.open("rb") as stream:
        archive.addfile(entry, stream)


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.mtime = kind, mode, _TIME
    return entry


def _parents(path: str) -> Iterator[str]:
    return (str(folder) for folder in PurePosixPath(path).parents if folder.name)
