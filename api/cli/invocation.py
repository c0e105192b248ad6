"""What the global options of one command say, and the registry that they name, opened when first needed."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from api.cli.output import Bars, say
from artifacts.errors import UnknownNameError

if TYPE_CHECKING:
    from api.client.access import Access
    from api.client.registry import Registry
    from api.wiring import Registry as Folder


CREATING = frozenset({"publish", "run", "image build", "bundle import", "token create", "serve", "worker"})
"""The commands that create a registry in a folder that has other files."""
_OWN_FILES = ("blobs", "store.json")
"""What a folder of a registry may have before its database."""


def _command_name() -> str:
    """Return the name of the command that runs, with that of its group, and without that of the program."""
    context = click.get_current_context(silent=True)
    names = []
    while context is not None and context.parent is not None:
        names.append(context.info_name or "")
        context = context.parent
    return " ".join(reversed(names))


def _is_foreign(home: Path) -> bool:
    """Return whether a folder has files, and none of them is of a registry."""
    from api.databases import is_new  # noqa: PLC0415 - a registry on a server needs no SQL here

    if not is_new(home) or not home.is_dir() or any((home / name).exists() for name in _OWN_FILES):
        return False
    return next(home.iterdir(), None) is not None


@dataclass(frozen=True)
class Invocation:
    """One call of ``benchlock``: where the registry is, and how to answer."""

    registry: str
    as_json: bool

    @cached_property
    def opened(self) -> "Registry":
        """The registry, opened; where it is a folder, abandoned runs are recorded."""
        if "://" in self.registry:
            from api.client.opening import open_remote  # noqa: PLC0415 - most registries are folders

            return open_remote(self.registry, say, self.progress)
        from api.client.embedded import EmbeddedRegistry  # noqa: PLC0415 - SQL costs more than the start may

        return EmbeddedRegistry(self.folder)

    @cached_property
    def folder(self) -> "Folder":
        """The registry, which must be a folder of this machine.

        Raises:
            UnknownNameError: The folder has files of others and no registry, and the command is not one of
                ``CREATING``.
        """
        from api.wiring import folder_of, open_registry  # noqa: PLC0415 - see above

        home = folder_of(self.registry)
        if _command_name() not in CREATING and _is_foreign(home):
            raise UnknownNameError(
                "no registry found: the folder has other files",
                where=str(home),
                next_step="name its folder with --registry or BENCHLOCK_REGISTRY; `benchlock publish` creates one",
            )
        return open_registry(self.registry, say, self.progress)

    @cached_property
    def access(self) -> "Access":
        """Who may do what in the registry, and who did what."""
        from api.client.access import EmbeddedAccess, RemoteAccess  # noqa: PLC0415 - most commands ask for none
        from api.client.remote import RemoteRegistry  # noqa: PLC0415

        if "://" not in self.registry:
            return EmbeddedAccess(self.folder)
        assert isinstance(self.opened, RemoteRegistry)
        return RemoteAccess(self.opened.talk)

    @property
    def progress(self) -> Bars:
        return Bars()
