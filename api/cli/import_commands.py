"""import: the manifests of others, written in the native form beside a list of what they leave unsaid."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.invocation import Invocation
from benchlock.api.cli.todos import todo_lines
from benchlock.artifacts.errors import InvalidInputError

if TYPE_CHECKING:
    from benchlock.registry.importing.mlmodelscope import Imported, NotImported

    Results = dict[Path, Imported | NotImported]

ENDINGS = (".yml", ".yaml")
SUFFIX = ".benchlock.yaml"
"""How the native manifest is called beside its original."""

LARGEST = 1 << 20
"""Bytes of the largest original that is read."""


@click.group("import", no_args_is_help=False)
def importing() -> None:
    """Write the manifests of others in the native form."""


@importing.command()
@click.argument("path", metavar="FILE|FOLDER", type=click.Path(path_type=Path), help="A manifest, or a folder of them.")
@click.option(
    "-o",
    "--output",
    "out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where to; default: beside each original.",
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.pass_obj
def mlmodelscope(invocation: Invocation, path: Path, out: Path | None, *, force: bool) -> None:
    """Write MLModelScope manifests in the native form, and list per file what an author must finish."""
    from benchlock.registry.importing.mlmodelscope import Imported, NotImported, import_all  # noqa: PLC0415

    files = [path] if not path.is_dir() else list(_files(path))
    called = {(file.relative_to(path) if path.is_dir() else Path(file.name)).as_posix(): file for file in files}
    texts = {name: _bytes(file) for name, file in called.items()}
    read = import_all({name: text for name, text in texts.items() if isinstance(text, bytes)})
    refused = {name: NotImported(text, broken=True) for name, text in texts.items() if not isinstance(text, bytes)}
    results = {file: read.get(name) or refused[name] for name, file in called.items()}
    written = {file: found for file, found in results.items() if isinstance(found, Imported)}
    if not written:
        raise _nothing(path, results)
    targets = _targets(written, out)
    _write({targets[file]: found.text for file, found in written.items()}, force=force)
    if invocation.as_json:
        output.print_json(_document(results, targets))
    else:
        _print(results, targets)


def _files(folder: Path) -> Iterator[Path]:
    """Every YAML file in a folder, in the order of their paths; without those that an import wrote."""
    found = (file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
    return iter(sorted((file for file in found if not file.name.endswith(SUFFIX)), key=lambda file: file.as_posix()))


def _bytes(file: Path) -> bytes | InvalidInputError:
    """What the file holds; an error where it cannot be read or is far too large."""
    ask = "name a manifest, or a folder of manifests"
    try:
        with file.open("rb") as stream:
            text = stream.read(LARGEST + 1)
    except OSError as error:
        what = f"{file} cannot be read: {error.strerror or error}"
        return InvalidInputError(what, where=str(file), next_step=ask)
    if len(text) > LARGEST:
        return InvalidInputError(f"{file} has more than {LARGEST} bytes", where=str(file), next_step=ask)
    return text


def _nothing(path: Path, results: "Results") -> InvalidInputError:
    """Why nothing was written: what is wrong with the one file, or how many of a folder are no manifests."""
    from benchlock.registry.importing.mlmodelscope import NotImported  # noqa: PLC0415

    errors = [found.error for found in results.values() if isinstance(found, NotImported)]
    if len(errors) == 1 and not path.is_dir():
        return errors[0]
    what = f"none of the {len(errors)} YAML files in {path} is a readable model manifest of MLModelScope's"
    first = f"{errors[0].what} ({errors[0].where})" if errors else "there is no .yml or .yaml file"
    return InvalidInputError(what, where=str(path), next_step=f"name another folder; the first: {first}")


def _targets(written: "dict[Path, Imported]", out: Path | None) -> dict[Path, Path]:
    """Where each native manifest goes; equal names are told apart by a number."""
    targets: dict[Path, Path] = {}
    taken: set[str] = set()
    for file, found in written.items():
        folder, stem, suffix = file.parent, file.stem, SUFFIX
        if out is not None:
            folder, stem, suffix = out, (found.name or file.stem).replace("/", "-"), ".yaml"
        target, number = folder / f"{stem}{suffix}", 1
        while str(target).casefold() in taken:
            number += 1
            target = folder / f"{stem}-{number}{suffix}"
        taken.add(str(target).casefold())
        targets[file] = target
    return targets


def _write(texts: dict[Path, str], *, force: bool) -> None:
    """All of the files, or, where one is there already, none.

    Raises:
        InvalidInputError: a file is there, and ``force`` was not asked for.
    """
    present = [target for target in texts if target.exists() or target.is_symlink()]
    if present and not force:
        more = f", and {len(present) - 1} others" if len(present) > 1 else ""
        raise InvalidInputError(
            f"{present[0]} is there already{more}; nothing was written",
            where=str(present[0]),
            next_step="write elsewhere with -o DIR, or replace what is there with --force",
        )
    for target, text in texts.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")


def _outcome(found: "Imported | NotImported") -> str:
    from benchlock.registry.importing.mlmodelscope import Imported  # noqa: PLC0415

    if isinstance(found, Imported):
        return "written"
    return "unreadable" if found.broken else "not a manifest"


def _document(results: "Results", targets: dict[Path, Path]) -> dict[str, Any]:
    from benchlock.registry.importing.mlmodelscope import Imported  # noqa: PLC0415

    outcomes = [_outcome(found) for found in results.values()]
    files = []
    for file, found in results.items():
        entry: dict[str, Any] = {"source": str(file), "outcome": _outcome(found)}
        if isinstance(found, Imported):
            entry |= {"output": str(targets[file]), "name": found.name, "todos": found.todos}
            entry["findings"] = [finding.document() for finding in found.findings]
        else:
            error = found.error
            entry["error"] = {"message": error.what, "where": error.where, "next": error.next_step}
        files.append(entry)
    return {
        "files": files,
        "counts": {kind: outcomes.count(kind) for kind in ("written", "not a manifest", "unreadable")},
    }


def _print(results: "Results", targets: dict[Path, Path]) -> None:
    from benchlock.registry.importing.mlmodelscope import Imported  # noqa: PLC0415

    outcomes = [_outcome(found) for found in results.values()]
    for file, found in results.items():
        if not isinstance(found, Imported):
            output.echo(f"{file}: {_outcome(found)}")
            output.echo(f"  {found.error.what} ({found.error.where})")
            output.echo()
            continue
        output.echo(f"{file} -> {targets[file]}")
        for finding in found.findings:
            mark = "TODO" if finding.todo else "    "
            output.echo(f"  {mark} {finding.path or 'the file'}: {finding.what}; {finding.done}")
        output.echo()
    counted = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in dict.fromkeys(outcomes))
    todos = sum(found.todos for found in results.values() if isinstance(found, Imported))
    output.echo(f"{counted}; {todo_lines(todos)} to finish before publishing")
