"""Assembly of a lock from a resolution, and the check whether a lock is still current."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from msgspec import UNSET, Struct, structs

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.registry.artifact_names import Kind
from benchlock.registry.inspection.file_facts import FileFacts, FileQuestions
from benchlock.registry.inspection.formats.image_documents import Configuration, ListedWheel, parse_configuration
from benchlock.registry.lock.lock_feasibility import (
    Chosen,
    ChosenManifests,
    ChosenOperator,
    ChosenRecipe,
    check_answerable,
    check_index,
    check_labels,
    check_rates,
    find_compared_labels,
    find_required_index,
    list_resampled_files,
)
from benchlock.registry.lock.lockfile import (
    FINISHED_SCHEMA,
    PLAIN_SCHEMA,
    Lock,
    LockContent,
    LockedArtifact,
    LockedDataset,
    LockedDistribution,
    LockedFile,
    LockedHarness,
    LockedImage,
    LockedLayer,
    LockedLimits,
    LockedPlatform,
    LockedTarget,
    from_content,
    read,
)
from benchlock.registry.lock.training_settings import make_environment, resolve_settings
from benchlock.registry.manifests import File, Image, Platform, files_of
from benchlock.registry.manifests.metric_definitions import DEFINITIONS
from benchlock.registry.requests.evaluation_request import (
    Request,
    conditions_of,
    derive_case_seeds,
    derive_repeat_seeds,
    derive_seeds,
)
from benchlock.registry.requests.request_types import (
    DistributedRequestDocument,
    OperatorRequestDocument,
    TrainingRequestDocument,
)
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver import resolve
from benchlock.registry.resolution.resolver_types import Candidate, Need, Question, Requirement, Resolution, Snapshot
from benchlock.registry.resolution.version_search import Preferences
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import ANY, Constraint

Configurations = Mapping[Platform, bytes]
"""The configuration of each finished image, by the platform that references it."""


def question_of(request: Request) -> Question:
    """Return the question of a request to the resolver."""
    content = request.content

    def requirement(kind: Kind, name: str, version: str) -> Requirement:
        return Requirement(kind, name, Constraint.parse(version), "the request")

    image = None if content.image is UNSET else requirement("image", content.image.name, content.image.version)
    if isinstance(content, OperatorRequestDocument):
        subject = requirement("operator", content.operator.name, content.operator.version)
        dataset = None
        need: Need | None = ("framework", content.framework.name, ANY.text)
    elif isinstance(content, TrainingRequestDocument | DistributedRequestDocument):
        subject = requirement("recipe", content.recipe.name, content.recipe.version)
        dataset = requirement("dataset", content.dataset.name, content.dataset.version)
        need = ("framework", content.framework.name, ANY.text)
    else:
        subject = requirement("model", content.model.name, content.model.version)
        dataset, need = requirement("dataset", content.dataset.name, content.dataset.version), None
    return Question(
        model=subject,
        dataset=dataset,
        framework=None if content.framework is UNSET else Constraint.parse(content.framework.version),
        need=need,
        image=image,
        prereleases=request.prereleases,
        hardware=request.hardware,
        accelerated=request.conditions.accelerator is not None,
    )


def preferences_of(lock: Lock, upgrade: Collection[tuple[Kind, str]] = ()) -> Preferences:
    """Return the versions of an old lock that a new lock keeps: all but those to upgrade.

    Raises:
        InvalidInputError: The lock has no artifact with a name to upgrade.
    """
    chosen = {(kind, artifact.name): parse_version(artifact.version) for kind, artifact in lock.artifacts().items()}
    for kind, name in upgrade:
        if (kind, name) not in chosen:
            has = ", ".join(f"{kind}/{name}" for kind, name in chosen)
            raise InvalidInputError(f"the lock has no {kind}/{name}", next_step=f"upgrade one of {has}")
    return {key: version for key, version in chosen.items() if key not in upgrade}


def file_questions(request: Request, chosen: Chosen) -> FileQuestions:
    """Return the questions about files that ``build_lock`` needs answered: labels, indexes and wheels."""
    wheels = [platform.wheels for platform in list_admitted_platforms(request, chosen) if platform.wheels is not UNSET]
    if not isinstance(chosen, ChosenManifests):
        return FileQuestions(wheels=tuple(dict.fromkeys(wheels)))
    return FileQuestions(
        find_required_index(request, chosen),
        tuple(find_compared_labels(request, chosen)),
        tuple(dict.fromkeys(wheels)),
        list_resampled_files(request, chosen),
    )


def list_admitted_platforms(request: Request, chosen: Chosen) -> tuple[Platform, ...]:
    """Return the platforms of the chosen image that the request admits."""
    return tuple(
        platform
        for platform in chosen.image.platforms
        if request.hardware.admits((platform.os, platform.arch, platform.device, platform.python, False))
    )


def check_lockable(request: Request, chosen: Chosen, facts: FileFacts) -> None:
    """Check that the chosen versions can answer the request, also by the contents of their files.

    Raises:
        InvalidInputError: The model, the dataset or this version of benchlock does not support a part of the request.
        ConflictError: Model and dataset name classes in different orders.
    """
    check_answerable(request, chosen)
    if not isinstance(chosen, ChosenManifests):
        return
    check_index(request, chosen, facts)
    check_labels(request, chosen, facts)
    check_rates(chosen, facts)


def build_lock(
    request: Request,
    resolution: Resolution,
    chosen: Chosen,
    facts: FileFacts,
    harness: LockedHarness,
    configurations: Configurations | None = None,
) -> Lock:
    """Build the lock of a resolution.

    Args:
        request: The request that the lock answers.
        resolution: The chosen versions.
        chosen: Their manifests.
        facts: The answers to ``file_questions``.
        harness: The harness to lock.
        configurations: The configuration of each finished image.

    Raises:
        InvalidInputError: The model, the dataset or this version of benchlock does not support a part of the request.
        ConflictError: Model and dataset name classes in different orders.
    """
    check_lockable(request, chosen, facts)
    image = _artifact(resolution.image, ())
    described = configurations or {}
    platforms = [
        _platform(chosen.image, platform, facts)
        if platform.reference is UNSET
        else _lock_finished(platform, described[platform])
        for platform in list_admitted_platforms(request, chosen)
    ]
    has_level = request.content.level is not UNSET
    is_newer = has_level or any(platform.finished for platform in platforms)
    content = LockContent(
        schema=FINISHED_SCHEMA if is_newer else PLAIN_SCHEMA,
        request=request.document,
        **_subject(request, resolution, chosen),
        framework=_artifact(resolution.framework, ()),
        image=LockedImage(**structs.asdict(image), platforms=tuple(sorted(platforms, key=_platform_key))),
        harness=harness,
        limits=LockedLimits(
            seconds=request.limits.time,
            bytes=request.limits.memory,
            cpus=request.limits.cpus,
            processes=request.limits.processes,
        ),
        scenario={"name": request.scenario.name, **request.scenario.settings, "seeds": _seeds(request, chosen)},
        metrics={name: DEFINITIONS[name].version for name in request.metrics},
    )
    return from_content(content)


def _subject(request: Request, resolution: Resolution, chosen: Chosen) -> dict[str, Any]:
    """Return the parts of a lock that depend on its level: what is evaluated, the dataset, and those of a training."""
    if isinstance(chosen, ChosenOperator):
        return {"operator": _artifact(resolution.model, files_of(chosen.operator))}
    assert resolution.dataset is not None
    content = request.content
    assert not isinstance(content, OperatorRequestDocument)
    dataset = _artifact(resolution.dataset, files_of(chosen.dataset))
    locked: dict[str, Any] = {"dataset": LockedDataset(**structs.asdict(dataset), split=content.dataset.split)}
    if isinstance(chosen, ChosenManifests):
        return {**locked, "model": _artifact(resolution.model, files_of(chosen.model))}
    assert isinstance(content, TrainingRequestDocument | DistributedRequestDocument)
    threads = request.limits.cpus
    if isinstance(content, DistributedRequestDocument):
        locked["distribution"] = LockedDistribution(**structs.asdict(content.distribution))
        threads = content.distribution.threads
    else:
        locked["target"] = LockedTarget(**structs.asdict(content.target))
    return {
        **locked,
        "recipe": _artifact(resolution.model, files_of(chosen.recipe)),
        "settings": resolve_settings(chosen.recipe, {} if content.settings is UNSET else content.settings),
        "environment": make_environment(threads, deterministic=content.scenario.deterministic),
    }


def _seeds(request: Request, chosen: Chosen) -> dict[str, int] | list[int]:
    """Return the seeds of LoadGen, of an operator's cases, or of a training's repeats."""
    if isinstance(chosen, ChosenRecipe):
        return derive_repeat_seeds(request.content.seed, request.scenario.settings.get("repeats", 1))
    if isinstance(chosen, ChosenOperator):
        return derive_case_seeds(request.content.seed, (case.name for case in chosen.operator.cases))
    return asdict(request.seeds)


def change_seed(lock: Lock, seed: int) -> Lock:
    """Return the lock of the same request with another ``seed``: it differs in the derived seeds alone."""
    request = {**lock.document["request"], "seed": seed}
    seeds: dict[str, int] | list[int] = asdict(derive_seeds(seed))
    if lock.recipe is not UNSET:
        seeds = derive_repeat_seeds(seed, len(lock.scenario["seeds"]))
    if lock.operator is not UNSET:
        seeds = derive_case_seeds(seed, lock.scenario["seeds"])
    scenario = {**lock.document["scenario"], "seeds": seeds}
    return read({**lock.document, "request": request, "scenario": scenario}, "lock")


def _platform_key(platform: LockedPlatform) -> tuple[str, str, str, str]:
    return (platform.os, platform.arch, platform.device, platform.python)


def _artifact(candidate: Candidate, files: Sequence[File]) -> LockedArtifact:
    locked = tuple(_file(file) for file in sorted(files, key=lambda file: file.path.encode()))
    return LockedArtifact(name=candidate.name, version=str(candidate.version), digest=candidate.digest, files=locked)


def _file(file: File) -> LockedFile:
    assert file.sha256 is not UNSET
    assert file.size is not UNSET
    return LockedFile(path=file.path, sha256=file.sha256, size=file.size)


def _platform(image: Image, platform: Platform, facts: FileFacts) -> LockedPlatform:
    files = {file.path: _file(file) for file in files_of(image)}
    sizes = {f"sha256:{file.sha256}": file.size for file in files.values()}
    path = str(platform.wheels)
    listed = files.get(path)
    if listed is None:
        raise InvalidInputError(
            f"{path} is not listed in the image's files", where=path, next_step="list the file itself, not its folder"
        )
    locked = LockedPlatform(
        os=platform.os,
        arch=platform.arch,
        device=platform.device,
        python=platform.python,
        wheels_lock=listed,
        wheels=find_wheel_files(facts.wheels[path], path, files),
    )
    if platform.config is UNSET or platform.layers is UNSET:
        return locked
    for digest in (platform.config, *platform.layers):
        if digest not in sizes:
            raise InvalidInputError(f"the image references {digest}, but has no such file", where=str(locked))
    layers = tuple(LockedLayer(digest=Digest(digest), size=sizes[digest]) for digest in platform.layers)
    config = Digest(platform.config)
    return structs.replace(locked, image_id=config, config_size=sizes[config], layers=layers)


def _lock_finished(platform: Platform, text: bytes) -> LockedPlatform:
    configuration = parse_configuration(text)
    check_image_platform(platform, configuration)
    return LockedPlatform(
        os=platform.os,
        arch=platform.arch,
        device=platform.device,
        python=platform.python,
        reference=platform.reference,
        image_id=digest_bytes(text),
        config_size=len(text),
        diff_ids=configuration.layers,
    )


def check_image_platform(platform: Platform, configuration: Configuration) -> None:
    """Require that a finished image is built for the platform that references it.

    Raises:
        InvalidInputError: The image is for another OS or architecture.
    """
    actual, declared = ((item.os, item.arch) for item in (configuration, platform))
    if actual != declared:
        raise InvalidInputError(
            f"{platform.reference} is built for {'/'.join(actual)}, but its manifest states {'/'.join(declared)}",
            where=f"{'/'.join(declared)}/{platform.device}",
            next_step="publish a version of the image with the right os and arch",
        )


def find_wheel_files(
    wheels: Iterable[ListedWheel], path: str, files: Mapping[str, LockedFile]
) -> tuple[LockedFile, ...]:
    """Find the files of an image that its wheels lock lists, sorted by path.

    Args:
        wheels: The entries of the wheels lock.
        path: The path of the wheels lock.
        files: The files of the image, by path.

    Raises:
        InvalidInputError: The image lacks a file, or has it with another digest.
    """
    by_path = {wheel.path: _find_wheel_file(wheel, path, files) for wheel in wheels}
    return tuple(by_path[inside] for inside in sorted(by_path))


def _find_wheel_file(wheel: ListedWheel, path: str, files: Mapping[str, LockedFile]) -> LockedFile:
    if wheel.path not in files:
        raise InvalidInputError(
            f"{path} lists {wheel.path!r}, which is not in the image's files",
            where=path,
            next_step="publish an image that has it",
        )
    if wheel.sha256 != files[wheel.path].sha256:
        raise InvalidInputError(f"{path} and the image disagree about the digest of {wheel.path}", where=path)
    return files[wheel.path]


_RESOLUTION_KEYS = frozenset(
    ("model", "operator", "recipe", "dataset", "framework", "image", "prereleases", "hardware")
)
"""Keys of a request that select versions and platforms: they may be reworded while they select the same ones."""


class Freshness(Struct, frozen=True):
    """Whether a lock is still the answer to its request, and if not, the ``reasons``."""

    fresh: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def check_lock(lock: Lock, request: Request, snapshot: Snapshot) -> Freshness:
    """Check whether a lock is still the answer to a request.

    A newer version does not make a lock stale. A locked version that was yanked causes a warning.

    Args:
        lock: The lock.
        request: The request as it is now.
        snapshot: The catalogue at the time in the request, or else now.
    """
    locked_request, current_request = dict(lock.request), dict(request.document)
    if "as_of" not in current_request:
        locked_request.pop("as_of", None)
    changes = [key for key in (locked_request | current_request) if locked_request.get(key) != current_request.get(key)]
    reasons = [
        f"{key} was {_format_key(locked_request, key)}, is {_format_key(current_request, key)}"
        for key in changes
        if key not in _RESOLUTION_KEYS
    ]
    content = request.content
    if not isinstance(content, OperatorRequestDocument) and lock.inputs[1] != content.dataset.split:
        reasons.append(f"dataset.split was {lock.inputs[1]}, is {content.dataset.split}")
    if "hardware" in changes and conditions_of(lock.request) != request.conditions:
        reasons.append(
            f"hardware was {_format_key(locked_request, 'hardware')}, is {_format_key(current_request, 'hardware')}"
        )
    resolved, warnings = _resolve_again(lock, request, snapshot)
    if "as_of" in lock.request and "as_of" not in current_request:
        warnings.append(
            f"the lock was created as of {lock.request['as_of']}, but the request has no as_of: a new lock may differ"
        )
    reasons += resolved
    reworded = [key for key in changes if key in _RESOLUTION_KEYS]
    if reworded and not reasons:
        what = "versions and platforms" if "hardware" in reworded else "versions"
        warnings.append(f"the request has changed in {', '.join(reworded)}, but resolves to the same {what}")
    return Freshness(not reasons, tuple(reasons), tuple(warnings))


def _resolve_again(lock: Lock, request: Request, snapshot: Snapshot) -> tuple[list[str], list[str]]:
    try:
        resolution = resolve(question_of(request), snapshot, preferences_of(lock))
    except (ConflictError, UnknownNameError) as error:
        return [error.what], []
    reasons, warnings = [], []
    for kind, artifact in lock.artifacts().items():
        candidate = resolution.chosen().get(kind)
        locked = f"{kind}/{artifact.name} {artifact.version}"
        if candidate is None:
            reasons.append(f"{locked} does not satisfy the request, which has no {kind}")
            continue
        if (candidate.name, candidate.version) != (artifact.name, parse_version(artifact.version)):
            reasons.append(f"{locked} does not satisfy the request; {candidate} does")
        elif candidate.digest != artifact.digest:
            reasons.append(f"{locked} has other content in this catalogue: {candidate.digest}, not {artifact.digest}")
        elif candidate.yanked is not None:
            warnings.append(f"{locked} is yanked: {candidate.yanked}")
    locked_platforms = {
        (platform.os, platform.arch, platform.device, platform.python) for platform in lock.image.platforms
    }
    admitted_platforms = {offer[:4] for offer in resolution.platforms}
    if not reasons and locked_platforms != admitted_platforms:
        reasons.append(
            f"the request admits other platforms of the image than the lock has: "
            f"{_format_platforms(admitted_platforms)}, not {_format_platforms(locked_platforms)}"
        )
    return reasons, warnings


def _format_platforms(platforms: Collection[tuple[str, ...]]) -> str:
    alike = Counter(platform[:3] for platform in platforms)
    names = ((platform, "" if alike[platform[:3]] == 1 else f" python {platform[3]}") for platform in sorted(platforms))
    return ", ".join(f"{'/'.join(platform[:3])}{python}" for platform, python in names)


def _format_key(document: dict[str, Any], key: str) -> str:
    if key not in document:
        return "absent"
    value = document[key]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
