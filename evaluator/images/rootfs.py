"""The root file system that layers make together, for what has to run in it: files, links and folders, nothing else.

Layers come from strangers. No entry is written through a link, whatever layers below it hold, and so none outside.
"""

import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath

from benchlock.artifacts.digest import CHUNK
from benchlock.artifacts.errors import InvalidInputError

_HIDES = ".wh."
"""What begins the name of an entry that hides another of the layers below (OCI image specification 1.1, layer)."""
_HIDES_ALL = ".wh..wh..opq"
_UNUSED = ("dev", "usr/share", "var")
"""Below these is nothing that an interpreter needs to compile."""


def apply_layer(layer: Path, root: Path) -> None:
    """Lay the entries of the uncompressed tar ``layer`` over what ``root`` holds, as an engine shows them.

    Owners, times, devices and extended attributes are left out; modes are 0755, or 0644 where nobody executes.

    Raises:
        InvalidInputError: it is no tar, or an entry leaves the root.
    """
    try:
        with tarfile.open(layer, "r:") as archive:
            entries = [(entry, _parts(entry.name)) for entry in archive]
            used = [(entry, parts) for entry, parts in entries if parts and not _is_unused(parts)]
            # What the layers below lose comes first: a layer may hide a folder and have one of that name.
            for entry, parts in used:
                _hide(entry, parts, root)
            for entry, parts in used:
                _apply(archive, entry, parts, root)
    except tarfile.TarError as error:
        raise InvalidInputError(f"{layer.name} is no tar: {error}", where=layer.name) from error


def _is_unused(parts: list[str]) -> bool:
    return "/".join(parts).startswith(tuple(f"{folder}/" for folder in _UNUSED))


def _hide(entry: tarfile.TarInfo, parts: list[str], root: Path) -> None:
    *folders, name = parts
    if name == _HIDES_ALL:
        for path in _folder(root, folders).iterdir():
            _remove(path)
    elif name.startswith(_HIDES):
        _remove(_folder(root, folders) / _part(name.removeprefix(_HIDES), entry.name))


def _apply(archive: tarfile.TarFile, entry: tarfile.TarInfo, parts: list[str], root: Path) -> None:
    *folders, name = parts
    if name.startswith(_HIDES):
        return
    parent = _folder(root, folders)
    if entry.isdir():
        _folder(root, parts)
    elif entry.issym():
        _remove(parent / name)
        (parent / name).symlink_to(entry.linkname)
    elif entry.islnk():
        _link(root, entry, parent / name)
    elif entry.isreg():
        _remove(parent / name)
        _write(archive, entry, parent / name)


def _parts(name: str) -> list[str]:
    return [_part(part, name) for part in PurePosixPath(name).parts if part not in ("/", ".")]


def _part(part: str, name: str) -> str:
    if part in ("", ".", "..") or "/" in part or "\0" in part:
        raise InvalidInputError(f"the layer has an entry {name!r}, which leaves the root file system", where=name)
    return part


def _folder(root: Path, parts: list[str]) -> Path:
    """The folder at ``parts``, made; what else stands in its way is replaced, a link too."""
    folder = root
    for part in parts:
        folder /= part
        if folder.is_symlink() or not folder.is_dir():
            _remove(folder)
            folder.mkdir(mode=0o755)
    return folder


def _link(root: Path, entry: tarfile.TarInfo, path: Path) -> None:
    """A hard link to an entry that came before; where that was not needed, neither is the link."""
    source = root.joinpath(*_parts(entry.linkname))
    inside = all(not folder.is_symlink() for folder in source.parents if folder.is_relative_to(root) and folder != root)
    if inside and source != path and (source.is_symlink() or source.is_file()):
        _remove(path)
        os.link(source, path, follow_symlinks=False)


def _write(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    stream = archive.extractfile(entry)
    assert stream is not None
    mode = 0o755 if entry.mode & 0o111 else 0o644
    with stream, os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as written:
        os.fchmod(written.fileno(), mode)
        shutil.copyfileobj(stream, written, CHUNK)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
