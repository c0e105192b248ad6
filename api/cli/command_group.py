"""The command group ``benchlock``: global options, commands loaded lazily, and the opened registry."""

import os
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from benchlock.api.cli.output import Bars, say

if TYPE_CHECKING:
    from benchlock.api.client.token_admin import Access
    from benchlock.api.local.local_registry import LocalRegistry as Folder
    from benchlock.api.schemas.registry_protocol import Registry


CREATING_COMMANDS = frozenset(
    {"publish", "run", "image build", "bundle import", "db create", "token create", "serve", "worker"}
)
"""The commands that create a registry if there is none."""


@dataclass(frozen=True)
class Invocation:
    """One call of ``benchlock``: the registry's location and the output format."""

    registry: str
    as_json: bool
    progress: ClassVar = Bars()

    @cached_property
    def opened(self) -> "Registry":
        """Return the registry, opened once; in a folder, abandoned runs are recorded first."""
        if "://" in self.registry:
            from benchlock.api.client.remote_registry import open_remote  # noqa: PLC0415 - used by remote registries only

            return open_remote(self.registry, say, self.progress)
        from benchlock.api.client.embedded_registry import EmbeddedRegistry  # noqa: PLC0415 - imports SQL code

        return EmbeddedRegistry(self.folder)

    def find_registry(self) -> "Registry | None":
        """Open the registry without creating one; return None if its folder has none."""
        if "://" in self.registry:
            return self.opened
        from benchlock.api.client.embedded_registry import EmbeddedRegistry  # noqa: PLC0415 - as above
        from benchlock.api.local.local_registry import open_registry  # noqa: PLC0415 - as above
        from benchlock.api.local.registry_database import RegistryNotFoundError  # noqa: PLC0415 - as above

        try:
            return EmbeddedRegistry(open_registry(self.registry, say, self.progress, create=False))
        except RegistryNotFoundError:
            return None

    @cached_property
    def folder(self) -> "Folder":
        """Return the registry, which must be a folder of this machine; messages go to standard error.

        Raises:
            UnknownNameError: The folder has no registry, and the command is not one of ``CREATING_COMMANDS``.
        """
        from benchlock.api.local.local_registry import open_registry  # noqa: PLC0415 - as above

        context = click.get_current_context(silent=True)
        creates = context is not None and context.command_path.removeprefix("benchlock ") in CREATING_COMMANDS
        return open_registry(self.registry, say, self.progress, create=creates)

    @cached_property
    def access(self) -> "Access":
        """Return the access control of the registry: tokens and the audit log."""
        from benchlock.api.client.remote_registry import RemoteRegistry  # noqa: PLC0415
        from benchlock.api.client.token_admin import EmbeddedAccess, RemoteAccess  # noqa: PLC0415 - used by few commands

        if "://" not in self.registry:
            return EmbeddedAccess(self.folder)
        assert isinstance(self.opened, RemoteRegistry)
        return RemoteAccess(self.opened.client)


COMMAND_GROUPS = {
    "Artifacts": {
        "publish": "artifact_commands.publish",
        "init": "manifest_commands.init",
        "golden": "golden_command.golden",
        "list": "artifact_commands.list_artifacts",
        "show": "artifact_commands.show",
        "get": "artifact_commands.get",
        "yank": "artifact_commands.yank",
        "image": "image_commands.image",
        "import": "manifest_commands.import_group",
    },
    "Locks": {
        "resolve": "lock_commands.resolve",
        "lock": "lock_commands.lock",
        "diff": "lock_commands.diff",
        "why": "lock_commands.why",
    },
    "Runs": {
        "run": "run_commands.run",
        "rerun": "run_commands.rerun",
        "compare": "compare_command.compare",
        "runs": "run_history_commands.runs",
        "hide": "run_history_commands.hide",
        "bundle": "bundle_commands.bundle",
    },
    "Queue": {
        "worker": "queue_commands.worker",
        "jobs": "queue_commands.jobs",
        "cancel": "queue_commands.cancel",
        "explain": "queue_commands.explain",
        "machines": "queue_commands.machines",
    },
    "Administration": {
        "db": "maintenance_commands.db",
        "backup": "maintenance_commands.backup",
        "restore": "maintenance_commands.restore",
        "verify": "maintenance_commands.verify",
        "gc": "maintenance_commands.gc",
        "serve": "server_commands.serve",
        "token": "server_commands.token",
        "log": "server_commands.log",
        "doctor": "maintenance_commands.doctor",
    },
}
"""The commands by the heading of the help text: each with its module in this folder and its name there."""
COMMANDS = {name: place for group in COMMAND_GROUPS.values() for name, place in group.items()}
MAX_SUMMARY = 60
"""The maximum length of a command's summary, so that it fits its line of the help text."""
_NAMES_WIDTH = max(map(len, COMMANDS))


class CommandGroup(click.Group):
    """The group of ``COMMANDS``, which loads a module only for its command; the help text loads all."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """List the names of all commands in the order of the help text."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section of the help text per group of commands."""
        for heading, names in COMMAND_GROUPS.items():
            commands = {name.ljust(_NAMES_WIDTH): self.get_command(ctx, name) for name in names}
            with formatter.section(heading):
                formatter.write_dl([(name, c.get_short_help_str(MAX_SUMMARY)) for name, c in commands.items() if c])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command called ``cmd_name``, None if it is unknown."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(".")
        command = getattr(import_module(f"benchlock.api.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command of ``args``; an unknown one raises with similar names, without loading any module."""
        if args[0] not in COMMANDS:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)


@click.command(cls=CommandGroup)
@click.option(
    "--registry",
    envvar="BENCHLOCK_REGISTRY",
    show_envvar=True,
    metavar="DIR|URL",
    default="",
    help="Folder of a registry, or URL of a server (token in BENCHLOCK_TOKEN).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.pass_context
def benchlock(context: click.Context, registry: str, *, as_json: bool) -> None:
    """A reproducible artifact registry and evaluation store for deep learning."""  # noqa: D401 - the help text of the program
    context.obj = Invocation(registry=registry or str(default_registry()), as_json=as_json)


def default_registry() -> Path:
    """Return the default folder of the registry, in XDG_DATA_HOME or ``~/.local/share``."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "benchlock"
