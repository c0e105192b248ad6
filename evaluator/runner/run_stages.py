"""The stages of a run, which keep labels from the model, and golden trials that are not recorded.

1. ``unlabel`` has the dataset but no model. It writes the inputs alone, in an order that the lock's id decides.
2. ``predict`` has the model and these inputs. It predicts, and is timed.
3. ``score`` has the dataset and the predictions but no model. It restores the split's order, and compares the
   predictions with the labels. A run without quality metrics keeps the split's order and has no such stage.

All three run the locked harness. Only the second runs code of the model's author, so the model decides its
predictions and nothing else of the quality.
"""

import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.core.job import sample_path
from benchlock.evaluator.runner.job_folder import (
    RunFolders,
    lay_samples,
    make_unwritable_error,
    write_document,
    write_job,
)
from benchlock.evaluator.runner.lock_verification import VerifiedFiles
from benchlock.evaluator.runner.run_outcome import Ending, Failure, failure_of, open_output, read_result
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import is_quality

FIRST_HARNESS = (1, 1)
"""The first version of the harness with stages. Older ones run in one process, with labels beside the model."""

UNLABEL, PREDICT, SCORE = "unlabel", "predict", "score"
_UNLABELLED, _FILES, _ORDER, _PREDICTIONS = (
    "unlabelled.json",
    "files.json",
    "order.safetensors",
    "predictions.safetensors",
)
_NEW_FILES = ("index.csv", "images.idx", "samples.npz", "samples.jsonl", "samples.parquet")
"""The files that the stage ``unlabel`` may write, depending on the format of the dataset."""
_MAX_TABLE, _MAX_FILES = 1 << 20, 1 << 28
_MAX_NAMED = 8
_VERSION = re.compile(r"(\d+)\.(\d+)\.")
_ONE = re.compile(r"\bsample (\d+) \([^()]*\)")
_SEVERAL = re.compile(r"\bsamples (\d+) to (\d+)")


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """The outcome of a run or of a stage.

    Attributes:
        ending: The end of its container or process.
        output: The output folder of the stage that ran the model, or that failed before it.
        scored: The stage that computed the quality; None if there was none.
        translate: Replaces the numbers of samples in a message by those of the split.
        files: The paths of the samples in the order of the model, if they are files.
    """

    ending: Ending
    output: Path
    scored: "StageOutcome | None" = None
    translate: Callable[[str], str] = str
    files: Sequence[str] = ()


def harness_version(lock: Lock) -> tuple[int, int]:
    """Return the major and minor version of the locked harness; zeros if it cannot be read."""
    match = _VERSION.match(lock.harness.version)
    return (0, 0) if match is None else (int(match[1]), int(match[2]))


def has_stages(lock: Lock) -> bool:
    """Return whether the locked harness can keep the labels from the model; only a model has such stages."""
    return lock.model is not UNSET and harness_version(lock) >= FIRST_HARNESS


def choose_order_seed(lock: Lock) -> str:
    """Return the seed of the order of samples: the lock's id if there are quality metrics, else empty."""
    return lock.id if any(map(is_quality, lock.metrics)) else ""


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of one run.

    Attributes:
        lock: The lock.
        verified: Its verified files.
        folders: The folders of the run.
        document: The content of ``job.json``.
        store: The store of the files.
        say: Gets messages for people.
        start: Runs the harness of a stage in the folders to its end.
        order_seed: Decides the order in which the model sees the samples; an empty one keeps that of the split.
    """

    lock: Lock
    verified: VerifiedFiles
    folders: RunFolders
    document: Mapping[str, Any]
    store: FileStore
    say: Callable[[str], None]
    start: Callable[[RunFolders, str], Ending]
    order_seed: str

    def run(self) -> StageOutcome:
        """Run all stages, or those up to the first that fails.

        Raises:
            UnavailableError: The disk is full or cannot be written, or the engine failed.
        """
        clean, model = (replace(self.folders, stage=stage) for stage in ("clean", "model"))
        write_job(
            clean,
            {**self.document, "stage": UNLABEL, "order_seed": self.order_seed},
            self.lock,
            self.verified,
            self.store,
            self.say,
            parts=("dataset",),
        )
        unlabelled = StageOutcome(self.start(clean, UNLABEL), clean.output)
        if self._failed(unlabelled):
            return unlabelled
        try:
            files = self._lay_inputs(clean, model)
        except InvalidInputError as error:
            return replace(unlabelled, ending=replace(unlabelled.ending, fault=error.what))
        except OSError as error:
            raise make_unwritable_error(model, error) from error
        predicted = StageOutcome(
            self.start(model, PREDICT),
            model.output,
            translate=lambda text: _translate(text, clean, files),
            files=files,
        )
        if self._failed(predicted) or not any(map(is_quality, self.lock.metrics)):
            return predicted
        self._lay_predictions(clean, model)
        return replace(predicted, scored=StageOutcome(self.start(clean, SCORE), clean.output))

    def _failed(self, outcome: StageOutcome) -> bool:
        try:
            result, fault = (read_result(outcome.output) or (None,))[0], None
        except InvalidInputError as error:
            result, fault = None, error.what
        return failure_of(outcome.ending, result, fault, self.lock.limits.seconds) is not None

    def _lay_inputs(self, clean: RunFolders, model: RunFolders) -> Sequence[str]:
        """Create the job folder of the model; return the files of the samples in their new order, if any."""
        table = _read_json(clean.output, _UNLABELLED, _MAX_TABLE, dict[str, Any])
        files = None
        if (clean.output / _FILES).exists():
            files = _read_json(clean.output, _FILES, _MAX_FILES, dict[str, list[str]]).get("files", [])
        write_job(
            model,
            {**self.document, "stage": PREDICT, "dataset": table},
            self.lock,
            self.verified,
            self.store,
            self.say,
            parts=("model",),
        )
        (model.job / "dataset").mkdir()
        for name in _NEW_FILES:
            if os.path.lexists(clean.output / "dataset" / name):
                _take(clean.output, f"dataset/{name}", model.job / "dataset" / name)
        samples = {sample_path(number): path for number, path in enumerate(files or ())}
        lay_samples(model, samples, self.lock, self.verified, self.store, self.say)
        return files or ()

    def _lay_predictions(self, clean: RunFolders, model: RunFolders) -> None:
        """Turn the clean job folder into that of the stage ``score``."""
        shown = clean.job / "shown"
        shown.mkdir(mode=0o755)
        _take(clean.output, _ORDER, shown / _ORDER)
        shutil.rmtree(clean.output)
        clean.make_output()
        with suppress(InvalidInputError):  # the stage reports that there are none
            _take(model.output, _PREDICTIONS, shown / _PREDICTIONS)
        write_document(clean, {**self.document, "stage": SCORE})


def _read_json(folder: Path, name: str, limit: int, kind: Any) -> Any:  # noqa: ANN401 - a type, and a value of it
    stream = open_output(folder, name)
    if stream is None:
        raise InvalidInputError(f"the harness did not write {name}")
    with stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise InvalidInputError(f"the harness wrote more than {limit} bytes to {name}")
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise InvalidInputError(f"the harness wrote a malformed {name}: {error}") from error


def _take(folder: Path, name: str, target: Path) -> None:
    """Link a file of the output folder to ``target``, or copy it if a link cannot be made.

    Raises:
        InvalidInputError: It is not a regular file.
    """
    stream = open_output(folder, name)
    if stream is None:
        raise InvalidInputError(f"the harness did not write the file {name}")
    with stream:
        try:
            os.link(folder / name, target, follow_symlinks=False)
        except OSError:
            with target.open("wb") as copy:
                shutil.copyfileobj(stream, copy)
            target.chmod(0o444)
        if not stat.S_ISREG(target.lstat().st_mode):
            raise InvalidInputError(f"the harness did not write the file {name}")


def _translate(text: str, clean: RunFolders, files: Sequence[str]) -> str:
    """Replace the numbers of shuffled samples in a message by those of the split."""
    stream = open_output(clean.output, _ORDER)
    if stream is None:
        return text
    from safetensors.numpy import load  # noqa: PLC0415 - numpy, 100 ms; light commands load this module

    with stream:
        order = load(stream.read())["order"].tolist()

    def translate_one(match: re.Match[str]) -> str:
        number = int(match[1])
        if number >= len(order):
            return match[0]
        return f"sample {order[number]} ({files[number]})" if number < len(files) else f"sample {order[number]}"

    def translate_several(match: re.Match[str]) -> str:
        shown = order[int(match[1]) : int(match[2]) + 1]
        if not shown:
            return match[0]
        more = ", …" if len(shown) > _MAX_NAMED else ""
        return ("sample " if len(shown) == 1 else "samples ") + ", ".join(map(str, shown[:_MAX_NAMED])) + more

    return _SEVERAL.sub(translate_several, _ONE.sub(translate_one, text))


GOLDEN = "golden.npz"
"""The file of the golden tensors that the harness makes."""

_LARGEST = 2 << 30


@dataclass(frozen=True, slots=True)
class GoldenTask:
    """The request for golden tensors of the samples ``numbers``, or of ``count`` samples that the harness chooses.

    ``judged`` is the number of further samples whose predictions are compared with the labels.
    """

    count: int
    numbers: tuple[int, ...] = ()
    judged: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial. ``golden`` has the bytes of the new file; None if none was requested."""

    failure: Failure | None
    report: Mapping[str, Any] = field(default_factory=dict)
    quality: Mapping[str, Any] = field(default_factory=dict)
    golden: bytes | None = None


def read_trial(outcome: StageOutcome, seconds: float) -> Trial:
    """Read the results of a trial.

    Args:
        outcome: The outcome of the trial.
        seconds: The time limit of each stage.
    """
    failure, document = _read(outcome, seconds)
    if failure is not None:
        return Trial(replace(failure, message=outcome.translate(failure.message)))
    report, quality = dict(document.get("golden") or {}), dict[str, Any]()
    names = dict(enumerate(outcome.files))
    if names and all(number in names for number in report.get("numbers", ())):
        report["names"] = [names[number] for number in report["numbers"]]
    if outcome.scored is not None:
        failure, document = _read(outcome.scored, seconds)
        if failure is not None:
            return Trial(failure)
        quality = document.get("quality") or {}
    stream = open_output(outcome.output, GOLDEN)
    content = None
    if stream is not None:
        with stream:
            content = stream.read(_LARGEST + 1)
    if content is not None and len(content) > _LARGEST:
        return Trial(Failure("crash", f"the harness wrote more than {_LARGEST} bytes to {GOLDEN}"))
    return Trial(None, report, quality, content)


def _read(outcome: StageOutcome, seconds: float) -> tuple[Failure | None, Mapping[str, Any]]:
    """Read the result of a stage; return why it failed, or its document."""
    try:
        contents, fault = read_result(outcome.output), None
    except InvalidInputError as error:
        contents, fault = None, error.what
    result, document = contents or (None, dict[str, Any]())
    return failure_of(outcome.ending, result, fault, seconds), document
