"""The ``golden`` command: make or check the golden tensors of a model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET

from benchlock.api.cli import output
from benchlock.api.cli.artifact_commands import find_artifact
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.run_options import ALLOW_CODE, ISOLATION
from benchlock.api.cli.run_tables import golden_lines, golden_summary
from benchlock.api.client.draft_publication import read_draft
from benchlock.api.local.golden_runs import (
    GoldenRequest,
    find_split,
    golden_source,
    remove_golden,
    require_model,
    try_golden,
)
from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.errors import InvalidInputError, RefusedError, UnavailableError
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.records.run_types import parse_isolation
from benchlock.evaluator.runner.run_stages import GoldenTask, Trial
from benchlock.evaluator.workflows.golden_decisions import (
    AnswerCount,
    count_answers,
    explain_doubt,
    list_claimed_top1,
    suggest_tolerance,
)
from benchlock.registry.lock.lock_creation import is_labelled
from benchlock.registry.manifests import Model

GOLDEN = "golden.npz"
_SAMPLES = 4
_SCORED_SAMPLES = 64
_MAX_LISTED = 5


@click.command()
@click.argument(
    "manifest", metavar="MANIFEST", type=click.Path(path_type=Path), help="Manifest of a model, published or not."
)
@click.option(
    "--sample",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Sample file: a picture, audio, text or tensor (.npy).",
)
@click.option(
    "--from",
    "dataset",
    metavar="NAME[@CONSTRAINT]",
    default="",
    help="Published dataset to take samples from; default: that of the first claim.",
)
@click.option("--split", default="", help="Split of the dataset; default: its only split.")
@click.option(
    "--samples", "count", type=click.IntRange(1, 256), default=_SAMPLES, show_default=True, help="Number of samples."
)
@click.option("--index", "numbers", type=click.IntRange(0), multiple=True, help="Number of a sample in the split.")
@click.option(
    "-o",
    "--output",
    "out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Output file; default: the golden file of the manifest.",
)
@click.option("--check", is_flag=True, help="Check the golden file of the manifest; write nothing.")
@click.option("--force", is_flag=True, help="Overwrite the file; write even if the model is no better than chance.")
@click.option(
    "--image", default="", metavar="NAME[@CONSTRAINT]", help="Image to run in; default: as a lock would choose."
)
@click.option("--device", default="cpu", show_default=True, help="Device to run the model on.")
@click.option("--memory", default="4GiB", show_default=True, help="The limit of the trial.")
@click.option("--time", default="10m", show_default=True, help="The limit of the trial.")
@ISOLATION
@ALLOW_CODE
@click.pass_obj
def golden(
    invocation: Invocation,
    /,
    manifest: Path,
    files: tuple[Path, ...],
    out: Path | None,
    **options: Any,  # noqa: ANN401 - of several types
) -> None:
    """Create or check the golden tensors of a model.

    Example: benchlock golden models/digits/manifest.yaml --from digits
    """
    draft = read_draft(manifest)
    require_model(draft)
    request = GoldenRequest(
        draft,
        files=files,
        image=options["image"],
        device=options["device"],
        memory=options["memory"],
        time=options["time"],
        isolation=parse_isolation(options["isolation"]),
        allow_code=options["allow_code"],
    )
    source = golden_source(draft)
    if files and options["dataset"]:
        raise InvalidInputError("--sample and --from exclude each other", next_step="omit --sample or --from")
    if not options["dataset"] and (options["split"] or options["numbers"]):
        raise InvalidInputError("--split and --index need a dataset", next_step="give the dataset with --from")
    if not (files or options["dataset"] or options["check"] or (source is not None and _is_there(draft.path, source))):
        options |= _claim_options(require_model(draft))
    if not files and not options["dataset"]:
        _check(invocation, request, source)
    elif options["check"]:
        raise InvalidInputError(
            "--check reads the existing golden file and takes no samples", next_step="omit --sample and --from"
        )
    else:
        _make(invocation, request, out, options)


def _is_there(manifest: Path, source: str) -> bool:
    """Check whether a local golden file exists; for a remote one, assume so, since fetching it reports errors."""
    return ":" in source.removeprefix("file:") or (manifest.parent / source.removeprefix("file:")).is_file()


def _claim_options(model: Model) -> dict[str, str]:
    """Return the dataset and split of the model's first claim as options, none if it has no claims."""
    for claim in () if model.claims is UNSET else model.claims:
        return {"dataset": f"{claim.dataset.name}@{claim.dataset.version}", "split": claim.dataset.split}
    return {}


def _check(invocation: Invocation, request: GoldenRequest, source: str | None) -> None:
    path = request.draft.path
    if source is None or not _is_there(path, source):
        datasets = sorted({str(entry.reference.name) for entry in invocation.opened.catalogue.list("dataset")})
        published = f" (published: {', '.join(datasets[:_MAX_LISTED])})" if datasets else ""
        raise InvalidInputError(
            f"{path} lists no golden file" if source is None else f"the golden file {source} does not exist",
            where=f"files ({path})",
            next_step=f"create it: benchlock golden {path} --from DATASET{published}, or --sample FILE",
        )
    trial = try_golden(invocation.opened, request, None, invocation.progress, output.say)
    _refuse_failed(trial, path)
    if invocation.as_json:
        output.print_json({"manifest": str(path), "golden": source, "ok": True, **trial.report})
        return

    output.echo(f"{source}: {golden_summary(trial.report)}")
    for line in golden_lines(trial.report):
        output.echo(f"  {line}")


def _make(invocation: Invocation, request: GoldenRequest, out: Path | None, options: Mapping[str, Any]) -> None:
    draft, force = request.draft, options["force"]
    model, claims = require_model(draft), tuple[float, ...]()
    target = _target(draft.path, golden_source(draft), out)
    if target.exists() and not force:
        step = f"check it with benchlock golden {draft.path}, or overwrite it with --force"
        raise InvalidInputError(f"{target} already exists", where=str(target), next_step=step)
    making = GoldenTask(len(request.files) or options["count"], options["numbers"], _SCORED_SAMPLES)
    of = f"{len(request.files)} files"
    if options["dataset"]:
        entry = find_artifact(invocation, f"dataset/{options['dataset'].removeprefix('dataset/')}")
        dataset, split = find_split(invocation.opened, entry.reference, options["split"])
        claims, of = list_claimed_top1(model, dataset, split), f"{entry.reference} {split}"
        classifies = model.task.endswith("-classification")
        labelled = classifies and is_labelled(dataset, split, "top1", invocation.opened.store)
        request = replace(request, dataset=entry.reference, split=split, labelled=labelled)
    request = replace(request, draft=remove_golden(draft))
    trial = try_golden(invocation.opened, request, making, invocation.progress, output.say)
    _refuse_failed(trial, draft.path)
    answers = count_answers(model, trial.report, trial.quality)
    why = None if answers is None else explain_doubt(answers, claims)
    if why and not force:
        raise RefusedError(
            f"{why}; nothing was written",
            where=str(draft.path),
            next_step="check the steps (scale, color, layout, crop), the labels and label_offset, or use --force",
        )
    _write(target, trial.golden or b"")
    if why:
        output.say(f"warning: {why}")
    _print_made(invocation, (draft.path, target, of), model, trial, answers)


def _target(manifest: Path, source: str | None, out: Path | None) -> Path:
    """Choose the file to write: ``out``, else the golden file of the manifest, else one beside the manifest."""
    if out is not None:
        return out.absolute()
    if source is not None and ":" in source.removeprefix("file:"):
        raise InvalidInputError(
            f"the golden file of the manifest is not local: {source}",
            where=str(manifest),
            next_step="choose an output file with -o FILE",
        )
    return manifest.parent / (source or GOLDEN).removeprefix("file:")


def _write(target: Path, content: bytes) -> None:
    try:
        with create_file(target) as file:
            file.write(content)
    except OSError as error:
        raise UnavailableError(
            f"cannot write {target}: {error.strerror}", where=str(target), next_step="choose another file with -o FILE"
        ) from error


def _refuse_failed(trial: Trial, path: Path) -> None:
    if trial.failure is not None:
        step = "correct the manifest, or create the golden file again if its values are wrong"
        raise RefusedError(
            f"{trial.failure.kind}: {trial.failure.message}",
            where=str(path),
            next_step=step if trial.failure.kind == "golden" else None,
        )


def _print_made(
    invocation: Invocation,
    places: tuple[Path, Path, str],
    model: Model,
    trial: Trial,
    count: AnswerCount | None,
) -> None:
    manifest, target, of = places
    lacking = {
        f"{kind}s[{index}]": suggest_tolerance(port, trial.report[f"{kind}s"][port.name])
        for kind, ports in (("input", model.inputs), ("output", model.outputs))
        for index, port in enumerate(ports)
        if port.name in trial.report[f"{kind}s"] and port.tolerance is UNSET
    }
    is_listed = any(file.role == "golden" for file in model.files)
    if invocation.as_json:
        right = None if count is None else {"right": count.right, "n": count.n}
        document = {"manifest": str(manifest), "golden": str(target), "answered": right, "tolerances": lacking}
        output.print_json({**document, "listed": is_listed, **trial.report})
        return
    numbers = ", ".join(map(str, trial.report["numbers"]))
    output.echo(f"wrote {target}: {format_count(trial.report['samples'], 'sample')} of {of} ({numbers})")
    for kind in ("input", "output"):
        for name, summary in trial.report[f"{kind}s"].items():
            output.echo(f"  {kind} {name}: {summary['dtype']} {summary['shape']}, up to {summary['largest']:.6g}")
    if count is not None:
        output.echo(
            f"  {count.right} of {format_count(count.n, 'sample')} {'is' if count.n == 1 else 'are'} answered right"
        )
    for word in trial.report["unnoticed"]:
        output.echo(f"  no sample can detect an error in {word}")
    if lacking or not is_listed:
        output.echo(f"add to {manifest} after checking the values:")
    if not is_listed:
        output.echo(f"  files: {{path: {GOLDEN}, role: golden, source: ./{target.name}}}")
    for place, tolerance in lacking.items():
        output.echo(
            f"  {place}: tolerance: {{absolute: {tolerance['absolute']:g}, relative: {tolerance['relative']:g}}}"
        )
