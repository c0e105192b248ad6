"""What the global options of one command say, and the registry that they name, opened when first needed."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import click

from benchlock.api.cli.output import Bars, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchlock.api.client.access import Access
    from benchlock.api.client.registry import Registry
    from benchlock.api.wiring import Registry as Folder


CREATING = frozenset({"publish", "run", "image build", "bundle import", "db create", "token create", "serve", "worker"})
"""The commands that create a registry where there is none."""


def _command_name() -> str:
    """Return the name of the command that runs, with that of its group, and without that of the program."""
    context = click.get_current_context(silent=True)
    names = []
    while context is not None and context.parent is not None:
        names.append(context.info_name or "")
        context = context.parent
    return " ".join(reversed(names))


@dataclass(frozen=True)
class Invocation:
    """One call of ``benchlock``: where the registry is, and how to answer."""

    registry: str
    as_json: bool

    @cached_property
    def opened(self) -> "Registry":
        """The registry, opened; where it is a folder, abandoned runs are recorded."""
        if "://" in self.registry:
            from benchlock.api.client.opening import open_remote  # noqa: PLC0415 - most registries are folders

            return open_remote(self.registry, say, self.progress)
        from benchlock.api.client.embedded import EmbeddedRegistry  # noqa: PLC0415 - SQL costs more than the start may

        return EmbeddedRegistry(self.folder)

    def find_registry(self) -> "Registry | None":
        """Open the registry, and create none; None where its folder has none."""
        if "://" in self.registry:
            return self.opened
        from benchlock.api.client.embedded import EmbeddedRegistry  # noqa: PLC0415 - see above
        from benchlock.api.databases import RegistryNotFoundError  # noqa: PLC0415 - see above
        from benchlock.api.wiring import open_registry  # noqa: PLC0415 - see above

        try:
            return EmbeddedRegistry(open_registry(self.registry, say, self.progress, create=False))
        except RegistryNotFoundError:
            return None

    @cached_property
    def folder(self) -> "Folder":
        """The registry, which must be a folder of this machine; messages go to standard error.

        Raises:
            UnknownNameError: The folder has no registry, and the command is not one of ``CREATING``.
        """
        return self.open_folder(say)

    def open_folder(self, tell: "Callable[[str], None]") -> "Folder":
        """Open the registry as ``folder`` does, with messages to ``tell``.

        Raises:
            UnknownNameError: As for ``folder``.
        """
        from benchlock.api.wiring import open_registry  # noqa: PLC0415 - see above

        return open_registry(self.registry, tell, self.progress, create=_command_name() in CREATING)

    @cached_property
    def access(self) -> "Access":
        """Who may do what in the registry, and who did what."""
        from benchlock.api.client.access import EmbeddedAccess, RemoteAccess  # noqa: PLC0415 - most commands ask for none
        from benchlock.api.client.remote import RemoteRegistry  # noqa: PLC0415

        if "://" not in self.registry:
            return EmbeddedAccess(self.folder)
        assert isinstance(self.opened, RemoteRegistry)
        return RemoteAccess(self.opened.talk)

    @property
    def progress(self) -> Bars:
        return Bars()
