"""init: a manifest outlined from a file, with a TODO line for all that the file does not say."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchlock.api.cli import output
from benchlock.api.cli.invocation import Invocation
from benchlock.api.cli.todos import todo_lines
from benchlock.artifacts.errors import InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from benchlock.registry.outlining.outlined import Outlined

MANIFEST = "manifest.yaml"


@click.command()
@click.argument("kind", metavar="KIND", help="model, dataset, framework or image.")
@click.argument(
    "file", metavar="[FILE]", required=False, type=click.Path(path_type=Path), help="What it is of, a file or folder."
)
@click.option(
    "-o",
    "--output",
    "out",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Where to; default: manifest.yaml beside FILE.",
)
@click.pass_obj
def init(invocation: Invocation, kind: str, file: Path | None, out: Path | None) -> None:
    """Write a commented manifest from what can be read in a file."""
    from benchlock.registry.names import parse_kind  # noqa: PLC0415
    from benchlock.registry.outlining.outlined import outlined  # noqa: PLC0415

    wanted, given = parse_kind(kind), None if file is None else file.absolute()
    target = _target(given, out)
    found = outlined(wanted, given, target.parent)
    _write(target, found.text)
    if invocation.as_json:
        findings = [finding.document() for finding in found.findings]
        output.print_json({"manifest": str(target), "kind": kind, "todos": found.todos, "findings": findings})
    else:
        _print(target, found)


def _target(given: Path | None, out: Path | None) -> Path:
    if out is not None:
        return (out / MANIFEST if out.is_dir() else out).absolute()
    return (Path.cwd() if given is None else given.parent) / MANIFEST


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError as error:
        raise InvalidInputError(
            f"{target} is there already; nothing was written",
            where=str(target),
            next_step="write elsewhere with -o PATH",
        ) from error
    except OSError as error:
        raise UnavailableError(
            f"{target} cannot be written: {error.strerror}", where=str(target), next_step="write elsewhere with -o PATH"
        ) from error


def _print(target: Path, found: "Outlined") -> None:
    output.echo(f"wrote {target}")
    for finding in found.findings:
        mark = "TODO" if finding.todo else "    "
        output.echo(f"  {mark} {finding.path}: {finding.what}; {finding.done}")
    output.echo(f"{todo_lines(found.todos)} to finish; then benchlock publish --dry-run {target}")
