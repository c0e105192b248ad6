"""The evaluation of a model on a dataset in one go: written, published, locked and run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import UNSET

from benchlock.api.client.draft_publication import Publisher
from benchlock.api.client.user_files import default_lock_path, load_lock, write_text
from benchlock.api.evaluation.evaluation_files import EvaluationFiles
from benchlock.api.evaluation.image_building import ImageRequirement, build_image, find_image
from benchlock.api.local.run_setup import connect_engine
from benchlock.api.schemas.registry_protocol import Registry
from benchlock.artifacts.errors import BenchlockError, RefusedError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.images.build import BuildOptions
from benchlock.evaluator.records.run_types import Isolation
from benchlock.evaluator.runner.host_platform import this_platform
from benchlock.registry.artifact_names import Kind, Name
from benchlock.registry.catalogue.catalogue_protocol import PublishResult, VersionTakenError
from benchlock.registry.lock.lock_assembly import preferences_of
from benchlock.registry.lock.lockfile import Lock, dump
from benchlock.registry.manifests import Model
from benchlock.registry.publishing.drafts import Draft
from benchlock.registry.requests.evaluation_request import Request
from benchlock.registry.versions.version_ranges import Constraint


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What an evaluation wrote and published, before its run."""

    written: tuple[Path, ...]
    published: tuple[PublishResult, ...]
    lock: Lock
    lock_path: Path


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Takes the files of an evaluation to a lock that can run on this machine.

    Attributes:
        registry: The registry.
        options: How an image is built if none fits; its device and its layers are those of the run.
        isolation: The requested isolation of the run; None for the default.
        say: Gets messages for people.
        warn: Gets messages about oddities.
        steps: Shows the steps of the build of an image.
        transfers: Shows transfers of files.
    """

    registry: Registry
    options: BuildOptions
    isolation: Isolation | None
    say: Callable[[str], None]
    warn: Callable[[str], None]
    steps: Progress
    transfers: Progress

    def prepare(self, files: EvaluationFiles) -> EvaluationResult:
        """Write what was generated, publish the drafts, build an image if none fits, and lock the request.

        Raises:
            RefusedError: The lock has another version of the model or the dataset than the drafts.
            BenchlockError: As publishing, building and locking.
        """
        for generated in files.generated:
            generated.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(generated.path, generated.text)
            self.say(f"wrote {generated.path}")
        publisher = Publisher(self.registry.catalogue, self.registry.store, self.transfers, self.say, self.warn)
        try:
            published = publisher.publish(files.drafts, dry_run=False) if files.drafts else ()
        except BenchlockError as error:
            for problem in error.problems or (error,):
                _point_to_manifest(problem, files.drafts)
            raise
        for result in published:
            self.say(f"{'published' if result.changed else 'already published:'} {result.reference}")
        assert isinstance(files.model.manifest, Model)
        built = self._provide_image(files.model.manifest, files.request)
        lock, path = self._lock(files, published)
        return EvaluationResult(tuple(file.path for file in files.generated), (*published, *built), lock, path)

    def _provide_image(self, model: Model, request: Request) -> tuple[PublishResult, ...]:
        """Build an image for a run on this machine, unless one is published or the request names one."""
        if request.content.image is not UNSET:
            return ()
        need = _find_requirement(model, request, layers=self.isolation != "process" and connect_engine() is not None)
        entry = find_image(self.registry, need)
        if entry is not None:
            self.say(f"image: {entry.reference} (published)")
            return ()
        requirement = need.requirement()
        reason = f"none is published for {need.framework} {model.framework.version}"
        self.say(f"image: building {requirement} for {'containers' if need.layers else 'processes'}: {reason}")
        options = replace(self.options, device=need.platform[2], layers=need.layers)
        image = build_image(
            self.registry, requirement, options, steps=self.steps, transfers=self.transfers, admits=need.admits
        )
        self.say(f"newest release that fits: {image.framework}")
        return image.results

    def _lock(self, files: EvaluationFiles, published: tuple[PublishResult, ...]) -> tuple[Lock, Path]:
        """Lock the request beside it; an existing lock keeps its framework and image, and its published versions."""
        path = default_lock_path(files.request_path, files.request)
        moved: list[tuple[Kind, str]] = [(result.reference.kind, result.reference.name) for result in published]
        preferences = preferences_of(load_lock(self.registry.catalogue, str(path)), moved) if path.exists() else {}
        with self.transfers.task("resolving versions"):
            result = self.registry.lock(files.request, preferences)
        for warning in result.warnings:
            self.warn(warning)
        for reference, digest in ((result.reference, result.digest) for result in published):
            locked = result.lock.artifacts()[reference.kind]
            if locked.digest != digest:
                raise RefusedError(
                    f"the request admits {reference.kind}/{locked.name}@{locked.version}, not {reference}",
                    where=str(files.request_path),
                    next_step=f"change the version of the {reference.kind} in the request, or in its manifest",
                )
        write_text(path, dump(result.lock))
        self.say(f"locked {path}  {result.lock.id}")
        return result.lock, path


def _point_to_manifest(problem: BenchlockError, drafts: Sequence[Draft]) -> None:
    """Name the file whose version has to be raised in the error for a version that is published already."""
    for draft in drafts:
        manifest = draft.manifest
        if (
            isinstance(problem, VersionTakenError)
            and problem.where == f"{manifest.kind}/{manifest.name}@{manifest.version}"
        ):
            problem.next_step = f"raise `version` in {draft.path}; of another {manifest.kind}, change its `name`"


def _find_requirement(model: Model, request: Request, *, layers: bool) -> ImageRequirement:
    """Return the environment that a request needs; a platform that it leaves open is that of this machine."""
    constraints = [Constraint.parse(model.framework.version)]
    if request.content.framework is not UNSET:
        constraints.append(Constraint.parse(request.content.framework.version))
    pairs = zip(request.hardware.keys, this_platform().values(), strict=True)
    system, arch, device = (own if allowed is None or own in allowed else allowed[0] for allowed, own in pairs)
    return ImageRequirement(Name(model.framework.name), tuple(constraints), (system, arch, device), layers)
