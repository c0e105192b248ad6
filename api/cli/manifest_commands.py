"""Commands that write manifests: init from a file, and import from other formats."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import todo_lines
from benchlock.api.cli.run_options import suggest_kinds
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.registry.artifact_names import Kind, parse_kind
from benchlock.registry.scaffold.manifest_scaffold import ManifestScaffold, scaffold_manifest
from benchlock.registry.scaffold.mlmodelscope.mlmodelscope_import import ImportedManifest, ImportFailure, import_all

Results = dict[Path, ImportedManifest | ImportFailure]

MANIFEST = "manifest.yaml"
REQUEST = "request"


@click.command()
@click.argument(
    "kind",
    metavar="KIND",
    shell_complete=suggest_kinds,
    help="model, dataset, framework, image, operator, recipe or request.",
)
@click.argument(
    "files",
    metavar="[FILE|hf:ORG/NAME@REVISION]...",
    nargs=-1,
    type=click.Path(),
    help="File or folder that the manifest describes, or a model on the Hugging Face Hub; for a request, a model and "
    "a dataset: published names or manifests.",
)
@click.option(
    "-o",
    "--output",
    "out",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Output file; default: manifest.yaml beside FILE, or in this folder; request.yaml for a request.",
)
@click.pass_obj
def init(invocation: Invocation, kind: str, files: tuple[str, ...], out: Path | None) -> None:
    """Generate a commented manifest from a file, or a request.

    Writes every value that the file, or metadata beside it, determines, and prints why. A TODO line marks what is
    missing.

    Example: benchlock init model digits.onnx
    """
    if len(files) > (most := 2 if kind == REQUEST else 1):
        raise InvalidInputError(f"{len(files)} arguments after {kind}", where=files[most], next_step="omit the last")
    if kind == REQUEST:
        target = _choose_target(None, out, f"{REQUEST}.yaml")
        scaffold = _scaffold_request(invocation, files)
        step = f"benchlock lock {target}"
    else:
        target, scaffold = _scaffold(invocation, parse_kind(kind), files[0] if files else None, out)
        step = f"benchlock publish --dry-run {target}"
    _write_scaffold(target, scaffold)
    if invocation.as_json:
        findings = [finding.document() for finding in scaffold.findings]
        document = {"manifest": str(target), "kind": kind, "todos": scaffold.todos, "findings": findings}
        output.print_json(document | {"files": [str(target.parent / name) for name in scaffold.files]})
    else:
        _print_manifest_todos(target, scaffold, step)


def _scaffold(invocation: Invocation, kind: Kind, file: str | None, out: Path | None) -> tuple[Path, ManifestScaffold]:
    """Generate the manifest of a file, a folder or a model on the Hub; with the path to write it to."""
    if file is not None and file.startswith("hf:"):
        from benchlock.api.evaluation.evaluation_files import scaffold_hub  # noqa: PLC0415 - network code; local files need none

        target = _choose_target(None, out)
        registry = None if "://" in invocation.registry else invocation.find_registry()
        store = None if registry is None else registry.trial_store
        return target, scaffold_hub(kind, file, target.parent, lambda: store, invocation.progress)
    source = None if file is None else Path(file).absolute()
    target = _choose_target(source, out)
    return target, scaffold_manifest(kind, source, target.parent)


def _scaffold_request(invocation: Invocation, files: tuple[str, ...]) -> ManifestScaffold:
    """Generate a request for a model and a dataset; what is not given becomes a TODO line."""
    from benchlock.api.evaluation.evaluation_files import FileCollector  # noqa: PLC0415 - publishing code; a manifest needs none
    from benchlock.api.evaluation.scaffold_completion import AnswerSource  # noqa: PLC0415 - as above

    source = AnswerSource(ask=lambda _: {}, show=lambda *_: None)
    model, dataset = (*files, None, None)[:2]
    return FileCollector(lambda: invocation.opened, source).scaffold_request(model, dataset)


def _choose_target(source: Path | None, out: Path | None, name: str = MANIFEST) -> Path:
    if out is not None:
        return (out / name if out.is_dir() else out).absolute()
    return (Path.cwd() if source is None else source.parent) / name


def _write_scaffold(target: Path, scaffold: ManifestScaffold) -> None:
    """Write a manifest and the files beside it, or none of them if one exists with another text."""
    texts = {target.parent / name: text for name, text in scaffold.files.items()}
    texts = {path: text for path, text in texts.items() if not _has_text(path, text)} | {target: scaffold.text}
    for path in texts:
        if path.exists() or path.is_symlink():
            what = f"{path} already exists; nothing was written"
            raise InvalidInputError(what, where=str(path), next_step="choose another path with -o PATH")
    for path, text in texts.items():
        try:
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except OSError as error:
            what = f"cannot write {path}: {error.strerror}"
            raise UnavailableError(what, where=str(path), next_step="choose another path with -o PATH") from error


def _has_text(path: Path, text: str) -> bool:
    """Return whether a file has exactly this text."""
    content = text.encode()
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def _print_manifest_todos(target: Path, scaffold: ManifestScaffold, step: str) -> None:
    for path in (*(target.parent / name for name in scaffold.files), target):
        output.echo(f"wrote {path}")
    for finding in scaffold.findings:
        mark = "TODO" if finding.todo else "    "
        output.echo(f"  {mark} {finding.path}: {finding.what}; {finding.done}")
    output.echo(f"{todo_lines(scaffold.todos)} to complete; then run {step}" if scaffold.todos else f"next: {step}")


ENDINGS = (".yml", ".yaml")
SUFFIX = ".benchlock.yaml"
"""The suffix of a native manifest beside its original."""

LARGEST = 1 << 20
"""Maximum bytes of an original."""


@click.group("import", no_args_is_help=False)
def import_group() -> None:
    """Import manifests of other tools."""


@import_group.command()
@click.argument(
    "path", metavar="FILE|FOLDER", type=click.Path(path_type=Path), help="Manifest, or folder of manifests."
)
@click.option(
    "-o",
    "--output",
    "out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Output folder; default: beside each original.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.pass_obj
def mlmodelscope(invocation: Invocation, path: Path, out: Path | None, *, force: bool) -> None:
    """Convert MLModelScope manifests.

    Lists for each file what its author must complete.

    Example: benchlock import mlmodelscope models/ -o converted/
    """
    files = [path] if not path.is_dir() else list(_find_originals(path))
    called = {(file.relative_to(path) if path.is_dir() else Path(file.name)).as_posix(): file for file in files}
    texts = {name: _read_original(file) for name, file in called.items()}
    imports = import_all({name: text for name, text in texts.items() if isinstance(text, bytes)})
    failures = {name: ImportFailure(text, broken=True) for name, text in texts.items() if not isinstance(text, bytes)}
    results = {file: imports.get(name) or failures[name] for name, file in called.items()}
    manifests = {file: result for file, result in results.items() if isinstance(result, ImportedManifest)}
    if not manifests:
        raise _nothing_written_error(path, results)
    targets = _choose_targets(manifests, out)
    _write_imported({targets[file]: result.text for file, result in manifests.items()}, force=force)
    if invocation.as_json:
        output.print_json(_import_document(results, targets))
    else:
        _print_import_results(results, targets)


def _find_originals(folder: Path) -> Iterator[Path]:
    """Iterate over the YAML files in a folder by path, except those that an import wrote."""
    files = (file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
    return iter(sorted((file for file in files if not file.name.endswith(SUFFIX)), key=lambda file: file.as_posix()))


def _read_original(file: Path) -> bytes | InvalidInputError:
    """Read a file; return an error if it cannot be read or is too large."""
    ask = "give a manifest or a folder of manifests"
    try:
        with file.open("rb") as stream:
            text = stream.read(LARGEST + 1)
    except OSError as error:
        what = f"cannot read {file}: {error.strerror or error}"
        return InvalidInputError(what, where=str(file), next_step=ask)
    if len(text) > LARGEST:
        return InvalidInputError(f"{file} has more than {LARGEST} bytes", where=str(file), next_step=ask)
    return text


def _nothing_written_error(path: Path, results: Results) -> InvalidInputError:
    """Return the error of the only file, or the number of files in the folder that are not manifests."""
    errors = [result.error for result in results.values() if isinstance(result, ImportFailure)]
    if len(errors) == 1 and not path.is_dir():
        return errors[0]
    what = f"none of the {len(errors)} YAML files in {path} is a readable MLModelScope model manifest"
    first = f"{errors[0].what} ({errors[0].where})" if errors else "no .yml or .yaml file"
    return InvalidInputError(what, where=str(path), next_step=f"choose another folder; first error: {first}")


def _choose_targets(manifests: dict[Path, ImportedManifest], out: Path | None) -> dict[Path, Path]:
    """Choose the path of each native manifest; equal names get a number."""
    targets: dict[Path, Path] = {}
    used_paths: set[str] = set()
    for file, manifest in manifests.items():
        folder, stem, suffix = file.parent, file.stem, SUFFIX
        if out is not None:
            folder, stem, suffix = out, (manifest.name or file.stem).replace("/", "-"), ".yaml"
        target, number = folder / f"{stem}{suffix}", 1
        while str(target).casefold() in used_paths:
            number += 1
            target = folder / f"{stem}-{number}{suffix}"
        used_paths.add(str(target).casefold())
        targets[file] = target
    return targets


def _write_imported(texts: dict[Path, str], *, force: bool) -> None:
    """Write all files, or none if one exists already.

    Raises:
        InvalidInputError: A file exists, and ``force`` is false.
    """
    present = [target for target in texts if target.exists() or target.is_symlink()]
    if present and not force:
        more = f", and {len(present) - 1} others" if len(present) > 1 else ""
        raise InvalidInputError(
            f"{present[0]} already exists{more}; nothing was written",
            where=str(present[0]),
            next_step="choose another folder with -o DIR, or overwrite with --force",
        )
    for target, text in texts.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")


def _import_outcome(result: ImportedManifest | ImportFailure) -> str:
    if isinstance(result, ImportedManifest):
        return "written"
    return "unreadable" if result.broken else "not a manifest"


def _import_document(results: Results, targets: dict[Path, Path]) -> dict[str, Any]:
    outcomes = [_import_outcome(result) for result in results.values()]
    files = []
    for file, result in results.items():
        entry: dict[str, Any] = {"source": str(file), "outcome": _import_outcome(result)}
        if isinstance(result, ImportedManifest):
            entry |= {"output": str(targets[file]), "name": result.name, "todos": result.todos}
            entry["findings"] = [finding.document() for finding in result.findings]
        else:
            error = result.error
            entry["error"] = {"message": error.what, "where": error.where, "next": error.next_step}
        files.append(entry)
    return {
        "files": files,
        "counts": {kind: outcomes.count(kind) for kind in ("written", "not a manifest", "unreadable")},
    }


def _print_import_results(results: Results, targets: dict[Path, Path]) -> None:
    outcomes = [_import_outcome(result) for result in results.values()]
    for file, result in results.items():
        if not isinstance(result, ImportedManifest):
            output.echo(f"{file}: {_import_outcome(result)}")
            output.echo(f"  {result.error.what} ({result.error.where})")
            output.echo()
            continue
        output.echo(f"{file} -> {targets[file]}")
        for finding in result.findings:
            mark = "TODO" if finding.todo else "    "
            output.echo(f"  {mark} {finding.path or 'the file'}: {finding.what}; {finding.done}")
        output.echo()
    counts = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in dict.fromkeys(outcomes))
    todos = sum(result.todos for result in results.values() if isinstance(result, ImportedManifest))
    output.echo(f"{counts}; {todo_lines(todos)} to complete before publishing")
