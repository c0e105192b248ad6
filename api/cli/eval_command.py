"""The command eval: from files to metrics, with answers from options or from the terminal."""

import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from msgspec import UNSET

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say, say_question
from benchlock.api.cli.publish_command import published_document
from benchlock.api.cli.run_commands import report_run
from benchlock.api.cli.run_options import ALLOW_CODE, ISOLATION
from benchlock.api.client.lock_runs import LockRunner
from benchlock.api.client.user_files import read_text
from benchlock.api.evaluation.evaluation_files import FileCollector
from benchlock.api.evaluation.model_evaluation import Evaluation
from benchlock.api.evaluation.scaffold_completion import AnswerSource, OpenValue
from benchlock.api.local.container_registry_access import connect_repository
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.evaluator.images.base_image import parse_base
from benchlock.evaluator.images.build import BuildOptions
from benchlock.evaluator.images.wheels import IndexOptions
from benchlock.evaluator.records.run_types import parse_isolation
from benchlock.evaluator.runner.wall_clock import WallClock, process_start
from benchlock.registry.scaffold.scaffold_answers import CONFIRMED, parse_answer
from benchlock.registry.text.collected_problems import Finding, Problems
from benchlock.registry.text.yaml import format_flow, read_yaml

STEPS_HINT: Final = (
    "for pictures such as [{decode: {color: RGB, exif: ignore}}, {resize: {shorter: 256, rounding: down, "
    "method: bilinear, antialias: true}}, {center_crop: {size: [224, 224], offset: half_even}}, "
    "{cast: {dtype: float32}}, {normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}}, "
    "{transpose: {layout: NCHW}}], which is torchvision's preprocessing for ImageNet; "
    "the page Steps of the documentation describes every step"
)
"""An example, since the steps are the longest answer."""
SUBJECTS: Final = ("model", "dataset", "request")


@dataclass(frozen=True, slots=True)
class _EvalOptions:
    """The arguments and options of the command by name."""

    model: str
    dataset: str
    assignments: tuple[str, ...]
    answers: Path | None
    split: str | None
    labels: Path | None
    code: str | None
    directory: Path | None
    isolation: str
    find_links: tuple[str, ...]
    index_url: str | None
    base: str | None
    yes: bool
    allow_code: bool


@click.command("eval")
@click.argument(
    "model",
    metavar="MODEL",
    type=click.Path(),
    help="Model file or folder, hf:ORG/NAME@REVISION, manifest, or published NAME[@CONSTRAINT].",
)
@click.argument(
    "dataset",
    metavar="DATASET",
    type=click.Path(),
    help="Dataset file or folder, manifest, or published NAME[@CONSTRAINT].",
)
@click.option(
    "--set",
    "assignments",
    metavar="PATH=VALUE",
    multiple=True,
    help="Value of a manifest or the request, such as model.task=regression; may be repeated.",
)
@click.option(
    "--answers",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="YAML file with a mapping of PATH: VALUE, as for --set, which has precedence.",
)
@click.option("--split", metavar="NAME", help="Split of the dataset; same as --set request.dataset.split=NAME.")
@click.option(
    "--labels",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Names of the model's classes, one per line, for its first output.",
)
@click.option("--code", metavar="FILE:FUNCTION", help="Function that builds the network of a state dict.")
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for written files; default: beside the model.",
)
@click.option("-y", "--yes", is_flag=True, help="Accept what was inferred, and ask nothing.")
@ISOLATION
@ALLOW_CODE
@click.option("--find-links", metavar="DIR", multiple=True, help="Folder of wheels for an image; may be repeated.")
@click.option("--index-url", metavar="URL", help="Package index for an image, instead of pip's default.")
@click.option("--base", metavar="TAR|IMAGE", help="Base of an image, as for `image build`; default: Debian.")
@click.pass_obj
def evaluate(invocation: Invocation, /, **options: Any) -> None:  # noqa: ANN401 - the fields of _EvalOptions
    """Evaluate a model on a dataset: publish, lock and run.

    Writes manifests, a request and a lockfile beside the model; existing ones are used as they are. On a terminal,
    asks for what no file states; elsewhere, options must give it.

    Example: benchlock eval models/digits/manifest.yaml digits@^1.0 --split test
    """
    clock = WallClock(process_start())
    clock.begin("startup")
    settings = _EvalOptions(**options)
    isolation, build_options = parse_isolation(settings.isolation), _read_build_options(settings)
    is_dialogue = sys.stdin.isatty() and sys.stderr.isatty() and not settings.yes
    given: dict[str, Any] = {}
    source = _open_answers(settings, given, is_dialogue=is_dialogue)
    written: list[Path] = []
    with (
        clock.part("setup"),
        _shown_if_lost(given, written, partial(repeat_command, click.get_current_context(), given), settings.answers),
    ):
        collected = FileCollector(
            lambda: invocation.opened, source, settings.directory, invocation.progress, cache(invocation.find_registry)
        ).collect(settings.model, settings.dataset)
        if collected.generated and is_dialogue:
            _confirm()
        written += [generated.path for generated in collected.generated]
        steps, warnings = output.Bars(lines=True), list[str]()
        evaluation = Evaluation(
            invocation.opened, build_options, isolation, _notify, warnings.append, steps, invocation.progress
        )
        result = evaluation.prepare(collected)
    for warning in warnings:
        say(f"warning: {warning}")
    runner = LockRunner(invocation.opened, invocation.progress, say, isolation, settings.allow_code)
    run = runner.run(result.lock, clock=clock)
    details = {
        "request": str(collected.request_path),
        "lock_path": str(result.lock_path),
        "written": [str(path) for path in result.written],
        "published": [published_document(published) for published in result.published],
    }
    report_run(invocation, result.lock, run, clock, details)


def _read_build_options(settings: _EvalOptions) -> BuildOptions:
    """Return the options of an image that may have to be built."""
    index = IndexOptions(find_links=settings.find_links, index_url=settings.index_url)
    base = None if settings.base is None else parse_base(settings.base, connect_repository)
    return BuildOptions(index=index, base=base)


def _open_answers(settings: _EvalOptions, given: dict[str, Any], *, is_dialogue: bool) -> AnswerSource:
    """Return where answers come from.

    Args:
        settings: The options of the command.
        given: Receives the answers that the options do not give.
        is_dialogue: Whether the user is asked.
    """
    ask = _accept_defaults if settings.yes else _ask_on_terminal if is_dialogue else _refuse
    revise = partial(_remember, _revise_on_terminal, given) if is_dialogue else None
    values, files = _read_values(settings), _describe_files(settings)
    return AnswerSource(partial(_remember, ask, given), _show_findings, values, files, revise)


def _read_values(settings: _EvalOptions) -> dict[str, Any]:
    """Return the values that the options give, by path."""
    values = _read_answers(settings.answers) | dict(map(_parse_assignment, settings.assignments))
    if settings.split is not None:
        values["request.dataset.split"] = settings.split
    if settings.labels is not None:
        values["model.outputs[0].labels"] = settings.labels.name
    if settings.code is not None:
        path, _, function = settings.code.partition(":")
        values["model.code"] = {"file": path.rpartition("/")[2], "function": function}
    return values


def _describe_files(settings: _EvalOptions) -> tuple[dict[str, str], ...]:
    """Return the entries of the files that --labels and --code add to the model."""
    code = None if settings.code is None else Path(settings.code.partition(":")[0])
    paths = {"labels": settings.labels, "code": code}
    return tuple(_describe_file(path, role) for role, path in paths.items() if path is not None)


def _confirm() -> None:
    """Raise unless the user confirms that files are written."""
    if not click.confirm("Write these files, publish and run?", default=True, err=True):
        raise click.Abort("nothing was written, published or run")


def _remember(ask: Callable[..., Mapping[str, Any]], given: dict[str, Any], *questions: object) -> Mapping[str, Any]:
    """Return ``ask(*questions)``, and add these answers to ``given``."""
    answers = ask(*questions)
    given.update(answers)
    return answers


def repeat_command(context: click.Context, given: Collection[str]) -> str:
    """Return the command as it was called, without --answers, and without --set for the paths in ``given``."""
    words = [context.params["model"], context.params["dataset"]]
    for option in context.command.params:
        name = option.name or ""
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not isinstance(option, click.Option) or not is_given or name == "answers":
            continue
        value = context.params[name]
        for text in value if option.multiple else (value,):
            if name == "assignments" and text.partition("=")[0] in given:
                continue  # the user has changed this answer since
            words += option.opts[-1:] if option.is_flag else [option.opts[-1], str(text)]
    return f"benchlock eval {shlex.join(words)}"


@contextmanager
def _shown_if_lost(
    given: Mapping[str, Any], files: Sequence[Path], repeat: Callable[[], str], answers: Path | None
) -> Iterator[None]:
    """Print the answers, or the files that have them, if the user breaks off or something fails.

    Args:
        given: The answers of the user by path.
        files: The files to write; some of them may be written.
        repeat: Returns the command to go on with.
        answers: The file of answers that the user gave.
    """
    try:
        yield
    except (click.Abort, KeyboardInterrupt, BenchlockError):
        lines = [f"{path}: {format_flow(answer)}" for path, answer in given.items() if answer is not CONFIRMED]
        if written := [str(path) for path in files if path.exists()]:
            say_question("")
            say_question(f"Written, with your answers: {', '.join(written)}")
            say_question(f"Edit them if needed; to go on: {repeat()}")
        elif lines:
            say_question("")
            target = "a file that --answers reads" if answers is None else str(answers)
            say_question(f"Your answers, for {target}:")
            for line in lines:
                say_question(line)
            say_question(f"To go on with them: {repeat()} --answers {shlex.quote(str(answers or 'FILE'))}")
        raise


def _notify(message: str) -> None:
    say(message, repeat=True)


def _show_findings(heading: str, findings: Sequence[Finding]) -> None:
    """Print what was inferred, each value with its reason."""
    _notify(heading)
    for finding in findings:
        if not finding.todo:
            _notify(f"  {finding.path}: {finding.what}; {finding.done}")


def _describe_file(path: Path, role: str) -> dict[str, str]:
    """Return the entry of a further file of the model."""
    if not path.is_file():
        raise InvalidInputError(f"{path} not found", where=f"--{role}", next_step="give an existing file")
    return {"path": path.name, "role": role, "source": os.fspath(path.absolute())}


def _read_answers(path: Path | None) -> dict[str, Any]:
    """Read a file of answers."""
    if path is None:
        return {}
    document = read_yaml(read_text(path, next_step="give a file of answers"), str(path))
    if not isinstance(document.value, dict):
        raise InvalidInputError("not a mapping of paths", where=str(path), next_step="write PATH: VALUE on each line")
    for key in document.value:
        _check_path(key, document.where(key))
    return document.value


def _parse_assignment(text: str) -> tuple[str, Any]:
    """Parse ``PATH=VALUE``."""
    path, equals, value = text.partition("=")
    if not equals:
        raise InvalidInputError(f"no value in {text!r}", where=f"--set {text}", next_step=f"write --set {text}=VALUE")
    _check_path(path, f"--set {text}")
    return path, parse_answer(value, f"--set {path}")


def _check_path(path: str, where: str) -> None:
    if path.partition(".")[0] not in SUBJECTS or "." not in path:
        step = "begin it with model., dataset. or request., such as model.task"
        raise InvalidInputError(f"unknown path {path!r}", where=where, next_step=step)


def _refuse(values: Sequence[OpenValue], *, accepts: bool = False) -> Mapping[str, Any]:
    """Raise an error that names the option for each missing answer.

    Args:
        values: The open values.
        accepts: Whether the user accepts defaults.
    """
    problems = Problems()
    for value in values:
        if accepts and value.default is not UNSET:
            continue
        option = f"--set {shlex.quote(f'{value.path}=VALUE')}"
        step = f"use {option}: {_explain(value)}"
        if value.is_confirmation:
            step = f"use --yes if that is right, otherwise {option}"
        elif value.default is not UNSET:
            step = f"use --yes for {value.default}, or {option}: {_explain(value)}"
        problems.add(InvalidInputError(f"{value.path} is missing: {value.finding.what}", next_step=step))
    problems.refuse()
    return {}


def _accept_defaults(values: Sequence[OpenValue]) -> Mapping[str, Any]:
    """Return the defaults; raise if a value has none."""
    _refuse(values, accepts=True)
    for value in values:
        _notify(f"  {value.path}: {value.finding.what}; accepted {_format_default(value)}")
    return {value.path: value.default for value in values}


def _format_default(value: OpenValue) -> str:
    return "the generated value" if value.default is CONFIRMED else format_flow(value.default)


def _explain(value: OpenValue) -> str:
    """Return how to answer; the steps, for which most answers are long, with an example."""
    return f"{value.finding.done}; {STEPS_HINT}" if value.path.endswith(".steps") else value.finding.done


def _ask_on_terminal(values: Sequence[OpenValue]) -> Mapping[str, Any]:
    """Ask for the first value until it has an answer without problems; the next ones may depend on it."""
    return {values[0].path: _ask_for(values[0])}


def _revise_on_terminal(problems: Sequence[BenchlockError], values: Sequence[OpenValue]) -> Mapping[str, Any]:
    """Print what does not fit together, and ask again for the answers that it is about."""
    say_question("")
    say_question("These answers do not fit together:")
    for problem in problems:
        for line in str(problem).splitlines():
            say_question(f"  {line}")
    say_question("Correct them, or press Enter to keep an answer. A single step is added to the end of the steps.")
    return {value.path: _ask_for(value) for value in values}


def _ask_for(value: OpenValue) -> Any:  # noqa: ANN401 - any YAML value
    """Ask for one value; a rejected default is asked for by its path."""
    say_question("")
    say_question(f"{value.path}: {value.finding.what}")
    if value.is_confirmation and click.confirm("  Is that right?", default=True, err=True):
        return CONFIRMED
    say_question(f"  {'write the right value' if value.is_confirmation else _explain(value)}")
    default = None if value.default in (UNSET, CONFIRMED) else format_flow(value.default)
    return click.prompt(f"  {value.path}", default=default, value_proc=_parser(value), err=True)


def _parser(value: OpenValue) -> Callable[[str], Any]:
    """Return a parser of answers, which rejects an answer with a problem."""

    def parse(text: str) -> Any:  # noqa: ANN401 - any YAML value
        problems: Sequence[BenchlockError]
        try:
            answer = parse_answer(text, value.path)
            if isinstance(answer, dict) and isinstance(value.default, list):
                answer = [*value.default, answer]
            problems = value.check(answer)
        except InvalidInputError as error:
            answer, problems = None, (error,)
        if problems:
            raise click.UsageError("\n".join(_describe_problem(problem, value) for problem in problems))
        return answer

    return parse


def _describe_problem(problem: BenchlockError, value: OpenValue) -> str:
    """Return where in the answer for a value a problem is, the problem and the next step."""
    place = str(problem.where or "").partition(" (")[0]
    what = problem.what if place in ("", value.finding.path) else f"{value.subject}.{place}: {problem.what}"
    return f"{what}; {problem.next_step}" if problem.next_step else what
