"""The command ``benchlock``: its global options, and its commands by name, each imported when it is asked for."""

import os
from importlib import import_module
from pathlib import Path

import click

from benchlock.api.cli.invocation import Invocation

COMMANDS = {
    "publish": "artifacts_commands.publish",
    "init": "init_command.init",
    "golden": "golden_command.golden",
    "list": "artifacts_commands.list_artifacts",
    "show": "artifacts_commands.show",
    "runs": "runs_commands.runs",
    "hide": "runs_commands.hide",
    "get": "artifacts_commands.get",
    "yank": "artifacts_commands.yank",
    "resolve": "lock_commands.resolve",
    "lock": "lock_commands.lock",
    "diff": "lock_commands.diff",
    "why": "why_command.why",
    "run": "run_commands.run",
    "rerun": "run_commands.rerun",
    "compare": "compare_command.compare",
    "worker": "queue_commands.worker",
    "jobs": "queue_commands.jobs",
    "cancel": "queue_commands.cancel",
    "explain": "queue_commands.explain",
    "machines": "queue_commands.machines",
    "image": "image_commands.image",
    "bundle": "bundle_commands.bundle",
    "import": "import_commands.importing",
    "backup": "backup_commands.backup",
    "restore": "backup_commands.restore",
    "db": "database_commands.db",
    "verify": "upkeep_commands.verify",
    "gc": "upkeep_commands.gc",
    "token": "access_commands.token",
    "log": "access_commands.log",
    "doctor": "upkeep_commands.doctor",
    "serve": "serve_command.serve",
}
"""The module in this folder that has the command, and its name there; in the order of the help text."""


class Commands(click.Group):
    """The group of ``COMMANDS``: one command loads one module, and only the help text all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(".")
        command = getattr(import_module(f"benchlock.api.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)


@click.command(cls=Commands)
@click.option(
    "--registry",
    envvar="BENCHLOCK_REGISTRY",
    show_envvar=True,
    metavar="DIR|URL",
    default="",
    help="A registry's folder, or the URL of a server; its token is in BENCHLOCK_TOKEN.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document to standard output.")
@click.pass_context
def benchlock(context: click.Context, registry: str, *, as_json: bool) -> None:
    """A reproducible artifact registry and evaluation store for deep learning."""
    context.obj = Invocation(registry=registry or str(default_registry()), as_json=as_json)


def default_registry() -> Path:
    """``~/.local/share/benchlock``, or where XDG_DATA_HOME says."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "benchlock"
