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
            from benchlock.api.client.remote_registry import open_remote  # noqa: PLC0415 - the module of a server's registry

            return open_remote(self.registry, say, self.progress)
        from benchlock.api.client.embedded_registry import EmbeddedRegistry  # noqa: PLC0415 - SQL code, 150 ms; a server's registry needs none

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


COMMAND_GROUPS = {
    "Artifacts": {
        "publish": ("publish_command.publish", "Publish artifacts to the registry."),
        "init": ("manifest_commands.init", "Generate a commented manifest from a file."),
        "golden": ("golden_command.golden", "Create or check the golden tensors of a model."),
        "list": ("artifact_commands.list_artifacts", "List published artifacts."),
        "show": ("artifact_commands.show", "Show an artifact or a run."),
        "get": ("artifact_commands.get", "Write the files of an artifact or a run to a folder."),
        "yank": ("artifact_commands.yank", "Exclude a version from new resolutions."),
        "image": ("image_commands.image", "Build images: the environments of frameworks."),
        "import": ("manifest_commands.import_group", "Import manifests of other tools."),
    },
    "Locks": {
        "resolve": ("lock_commands.resolve", "Show the versions that satisfy a request."),
        "lock": ("lock_commands.lock", "Resolve a request and write a lockfile."),
        "diff": ("lock_commands.diff", "Show the differences between two locks."),
        "why": ("lock_commands.why", "Explain why a lock has this version of an artifact."),
    },
    "Runs": {
        "run": ("run_commands.run", "Run a lock and record the run."),
        "rerun": ("run_commands.rerun", "Run a lock again and compare with an earlier run."),
        "compare": ("compare_command.compare", "Compare runs, or run locks interleaved and compare them."),
        "gate": ("gate_command.gate", "Fail if a lock is proven worse than a baseline."),
        "runs": ("run_history_commands.runs", "List runs, newest first."),
        "hide": ("run_history_commands.hide", "Hide a run from lists, comparisons and verdicts."),
        "export": ("export_command.export", "Export a verified run for other tools."),
        "bundle": ("bundle_commands.bundle", "Export and import locks and runs as single files."),
    },
    "Queue": {
        "worker": ("queue_commands.worker", "Run jobs from the queue on this machine."),
        "jobs": ("queue_commands.jobs", "List jobs, newest first, or show one."),
        "cancel": ("queue_commands.cancel", "Cancel a job."),
        "explain": ("queue_commands.explain", "Explain the state of a job and what each machine lacks."),
        "machines": ("queue_commands.machines", "List machines, or drain or resume one."),
    },
    "Administration": {
        "db": ("maintenance_commands.db", "Create a registry; show, check and upgrade its schema."),
        "backup": ("maintenance_commands.backup", "Back up the database and all blobs that it references."),
        "restore": ("maintenance_commands.restore", "Restore a registry from a backup."),
        "verify": ("maintenance_commands.verify", "Verify blob checksums, metrics of runs and the database."),
        "gc": ("maintenance_commands.gc", "Delete unreferenced blobs."),
        "serve": ("server_commands.serve", "Serve the registry over HTTP."),
        "token": ("server_commands.token", "Manage the access tokens of a served registry."),
        "log": ("server_commands.log", "Show the audit log, newest first."),
        "doctor": ("maintenance_commands.doctor", "Check the local environment."),
    },
}
"""The commands by the heading of the help text.

Each has its module in this folder, its name there and its summary, so that the help text loads no module.
"""
COMMANDS = {name: place for group in COMMAND_GROUPS.values() for name, (place, _) in group.items()}
_NAMES_WIDTH = max(map(len, COMMANDS))


class CommandGroup(click.Group):
    """The group of ``COMMANDS``, which loads a module only for its command."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """List the names of all commands in the order of the help text."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write one section of the help text per group of commands."""
        for heading, commands in COMMAND_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(_NAMES_WIDTH), summary) for name, (_, summary) in commands.items()])

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
