"""Wheels into a folder tree, by ``installer``, wherever the tree will stand in the end."""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.exceptions import InstallerError
from installer.sources import WheelContentElement, WheelFile

from benchlock.artifacts.errors import InvalidInputError

_INSTALLER = {"INSTALLER": b"benchlock\n"}


@dataclass(frozen=True, slots=True)
class Layout:
    """Absolute paths where a wheel's parts will be.

    ``bin``, ``include`` and data files below ``prefix``, modules in ``packages``; scripts start ``interpreter``.
    """

    prefix: str
    packages: str
    interpreter: str


class _Source(WheelFile):
    """A wheel without byte code that somebody put into it: ours is compiled from the sources."""

    def get_contents(self) -> Iterator[WheelContentElement]:
        for record, stream, executable in super().get_contents():
            if "__pycache__" not in record[0].split("/")[:-1]:
                yield record, stream, executable


def install_wheel(wheel: Path, tree: Path, layout: Layout) -> None:
    """Install one wheel below ``tree``, which holds everything at the absolute path that it will have in the end.

    Raises:
        InvalidInputError: the file is no valid wheel.
    """
    folders = {
        "purelib": layout.packages,
        "platlib": layout.packages,
        "scripts": f"{layout.prefix}/bin",
        "headers": f"{layout.prefix}/include",
        "data": layout.prefix,
    }
    destination = SchemeDictionaryDestination(
        folders, interpreter=layout.interpreter, script_kind="posix", destdir=str(tree), overwrite_existing=True
    )
    try:
        with _Source.open(wheel) as source:
            install(source, destination, _INSTALLER)
    except (InstallerError, zipfile.BadZipFile, ValueError, KeyError, AssertionError) as error:
        raise InvalidInputError(
            f"{wheel.name} cannot be installed: {error}", where=wheel.name, next_step="choose another version of it"
        ) from error
