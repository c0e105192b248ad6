"""The command group ``benchlock``: global options, commands loaded lazily, and the opened registry."""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from benchlock.api.cli.output import (
    FORMATS,
    QUIET,
    VERBOSE,
    Bars,
    echo,
    echo_lines,
    print_json,
    print_version,
    say,
    settings,
)
from benchlock.api.settings import find_misspelt_variables, locate_registry
from benchlock.artifacts.errors import InvalidInputError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from benchlock.api.local.local_registry import LocalRegistry as Folder
    from benchlock.api.schemas.registry_protocol import Registry


CREATING_COMMANDS = frozenset(
    {"publish", "run", "eval", "image build", "bundle import", "db create", "token create", "serve", "worker"}
)
"""The commands that create a registry if there is none."""


@dataclass(frozen=True)
class Invocation:
    """One call of ``benchlock``: the output format, and the registry of its option or variable, empty without both."""

    location: str
    as_json: bool
    progress: ClassVar = Bars()

    @cached_property
    def registry(self) -> str:
        """Return the folder or URL of the registry; errors as ``locate_registry``."""
        return self.location or locate_registry()

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
        "init": ("manifest_commands.init", "Generate a commented manifest from a file, or a request."),
        "promote": ("publish_command.promote", "Publish the model that a run trained."),
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
        "why": ("lock_commands.why", "Explain a version in a lock, or how a model was trained."),
    },
    "Runs": {
        "eval": ("eval_command.evaluate", "Evaluate a model on a dataset: publish, lock and run."),
        "run": ("run_commands.run", "Run a lock and record the run."),
        "rerun": ("run_commands.rerun", "Run a lock again and compare with an earlier run."),
        "compare": ("compare_command.compare", "Compare runs, or run locks interleaved and compare them."),
        "inspect": ("inspect_command.inspect", "Show layers, kernels and the cost of tracing of a run."),
        "trace": ("inspect_command.trace", "Export traces of runs to viewers."),
        "gate": ("gate_command.gate", "Fail if a lock is proven worse than a baseline."),
        "runs": ("run_history_commands.runs", "List runs, newest first."),
        "hide": ("run_history_commands.hide", "Hide a run from lists, comparisons and verdicts."),
        "export": ("export_command.export", "Export a verified run for other tools."),
        "report": ("report_command.report", "Write a report on verified runs as a web page with charts."),
        "bundle": ("bundle_commands.bundle", "Export and import locks and runs as single files."),
    },
    "Queue": {
        "worker": ("queue.worker_command.worker", "Run jobs from the queue on this machine."),
        "jobs": ("queue.job_commands.jobs", "List jobs, newest first, or show one."),
        "cancel": ("queue.job_commands.cancel", "Cancel a job."),
        "explain": ("queue.job_commands.explain", "Explain the state of a job and what each machine lacks."),
        "matrix": ("queue.matrix_commands.matrix_group", "Submit matrices of evaluations, and read their tables."),
        "machines": ("queue.machine_commands.machines", "List machines, or drain or resume one."),
        "shares": ("queue.machine_commands.shares", "List the shares of machine time of tokens, or set one."),
        "cluster": ("queue.cluster_commands.cluster", "Let a cluster engine start workers."),
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
        "completion": ("command_group.completion", "Print or install the completion script of a shell."),
    },
}
"""The commands by the heading of the help text.

Each has its module below this folder, its name there and its summary, so that the help text loads no module.
"""
COMMANDS = {name: place for group in COMMAND_GROUPS.values() for name, (place, _) in group.items()}
_NAMES_WIDTH = max(map(len, COMMANDS))


TABLE_COMMANDS = frozenset(
    {"list", "runs", "compare", "inspect", "jobs", "matrix table", "machines", "shares", "token list", "log"}
)
"""The commands whose result is a table."""
_SETTINGS = {"as_json": ("format", "json"), "quiet": ("verbosity", QUIET), "verbose": ("verbosity", VERBOSE)}


def _apply_global_option(context: click.Context, parameter: click.Parameter, value: str | bool | None) -> None:
    """Print the version, or apply an option to the settings of the output; the last one on the command line wins.

    Raises:
        InvalidInputError: The format is for tables, and the command prints none.
    """
    if value and parameter.name == "version":
        print_version()
        context.exit()
    if value:
        name, setting = _SETTINGS.get(str(parameter.name), ("format", value))
        setattr(settings, name, setting)
        if isinstance(context.obj, Invocation):
            context.obj = replace(context.obj, as_json=settings.format == "json")
    path = context.command_path.removeprefix("benchlock ")
    is_group = isinstance(context.command, click.Group)
    if settings.format in ("csv", "md") and not is_group and path not in TABLE_COMMANDS:
        raise InvalidInputError(
            f"`{path}` prints no table",
            where=f"--format {settings.format}",
            next_step="use --format json, or omit --format",
        )


def _show_help(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Print the help text of a command."""
    if value:
        echo_lines(context.get_help())
        context.exit()


# Eager: parsed before any argument that opens the registry.
_GLOBAL: dict[str, Any] = {"expose_value": False, "is_eager": True, "callback": _apply_global_option}
# Not --output, which names a file or folder in several commands.
_FORMAT = ["--format", "output_format"]
FORMAT_OPTION = click.Option(_FORMAT, type=click.Choice(FORMATS[:2]), help="Format of the result.", **_GLOBAL)
TABLE_FORMAT_OPTION = click.Option(_FORMAT, type=click.Choice(FORMATS), help="Format of the result.", **_GLOBAL)
SHARED_OPTIONS = [
    click.Option(["--json", "as_json"], is_flag=True, help="Same as --format json.", **_GLOBAL),
    click.Option(["-q", "--quiet"], is_flag=True, help="Print results and errors only.", **_GLOBAL),
    click.Option(["-v", "--verbose"], is_flag=True, help="Print durations, and tracebacks of errors.", **_GLOBAL),
    click.Option(
        ["-h", "--help"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_show_help,
        help="Show this message and exit.",
    ),
]
"""The options that every command accepts, before and after its name, beside its ``--format``."""


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
        module, _, name = COMMANDS[cmd_name].rpartition(".")
        command = getattr(import_module(f"benchlock.api.cli.{module}"), name)
        assert isinstance(command, click.Command)
        parts = {f"{cmd_name} {name}": part for name, part in getattr(command, "commands", {}).items()}
        for path, part in {cmd_name: command, **parts}.items():
            part.add_help_option = False
            shared = [TABLE_FORMAT_OPTION if path in TABLE_COMMANDS else FORMAT_OPTION, *SHARED_OPTIONS]
            own = {name for parameter in part.params for name in parameter.opts}
            part.params += [option for option in shared if own.isdisjoint(option.opts)]
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """Suggest commands and global options, without loading any module of a command."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - used by completion only

        summaries = {name: summary for group in COMMAND_GROUPS.values() for name, (_, summary) in group.items()}
        names = [CompletionItem(name, help=text) for name, text in summaries.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command of ``args``; an unknown one raises with similar names, without loading any module."""
        if args[0] not in COMMANDS:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)


@click.command(cls=CommandGroup, add_help_option=False)
@click.option(
    "--registry",
    envvar="BENCHLOCK_REGISTRY",
    show_envvar=True,
    metavar="DIR|URL",
    default="",
    help="Folder of a registry, or URL of a server (token in BENCHLOCK_TOKEN).",
)
@click.option("-V", "--version", is_flag=True, help="Print the version, the commit and the schema revision.", **_GLOBAL)
@click.pass_context
def benchlock(context: click.Context, registry: str) -> None:
    """A reproducible artifact registry and evaluation store for deep learning."""  # noqa: D401 - the help text of the program
    for name, known in find_misspelt_variables(os.environ):
        say(f"warning: unknown environment variable {name}; did you mean {known}?")
    context.obj = Invocation(registry, as_json=settings.format == "json")


benchlock.params += [TABLE_FORMAT_OPTION, *SHARED_OPTIONS]


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(("bash", "zsh", "fish")), help="bash, zsh or fish.")
@click.option("--install", is_flag=True, help="Write the script to the folder where the shell looks for it.")
@click.pass_obj
def completion(invocation: Invocation, shell: str, *, install: bool) -> None:
    """Print or install the completion script of a shell.

    It completes commands, options, kinds, artifacts, runs and files.

    Example: benchlock completion bash --install
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - as above

    shell_class = get_completion_class(shell)
    assert shell_class is not None
    script = shell_class(benchlock, {}, "benchlock", "_BENCHLOCK_COMPLETE").source()
    path, step = _completion_file(shell)
    if install:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script, encoding="utf-8")
    if invocation.as_json:
        print_json({"shell": shell, "path": str(path)} if install else {"shell": shell, "script": script})
    elif install:
        echo(f"wrote {path}")
        echo(step)
    else:
        echo_lines(script.rstrip())


def _completion_file(shell: str) -> tuple[Path, str]:
    """Return the user's file for the completion script of a shell, and what else is needed."""
    if shell == "bash":
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        folder = Path(os.environ.get("BASH_COMPLETION_USER_DIR") or Path(data) / "bash-completion") / "completions"
        path = folder / "benchlock"
        return path, f"new shells load it with the package bash-completion; without it, source {path} in ~/.bashrc"
    if shell == "zsh":
        folder = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zfunc"
        step = f"new shells load it if .zshrc has: fpath+=({folder}); autoload -Uz compinit; compinit"
        return folder / "_benchlock", step
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "fish" / "completions"
    return folder / "benchlock.fish", "new shells load it"
