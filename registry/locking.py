"""Making a lock from a resolution, and asking whether a lock still answers its request. No input or output here."""

import posixpath
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict

from msgspec import UNSET, structs

from artifacts.digest import Digest
from artifacts.errors import InvalidInputError
from registry.answerable import Chosen, Contents, check_answerable, check_labels, compared_labels
from registry.constraints import Constraint
from registry.hardware import Hardware
from registry.lockfile import (
    SCHEMA,
    Content,
    Lock,
    LockedArtifact,
    LockedDataset,
    LockedFile,
    LockedHarness,
    LockedImage,
    LockedLayer,
    LockedLimits,
    LockedPlatform,
    from_content,
)
from registry.manifests import File, Image, Platform, files_of
from registry.metrics import DEFINITIONS
from registry.names import Kind
from registry.requests import Request
from registry.resolution.candidates import Candidate, Question, Requirement, Resolution
from registry.resolution.search import Preferences
from registry.versions import parse_version


def question_of(request: Request) -> Question:
    """What the request asks of the resolver."""
    asked = request.asked

    def requirement(kind: Kind, name: str, version: str) -> Requirement:
        return Requirement(kind, name, Constraint.parse(version), "the request")

    image = None if asked.image is UNSET else requirement("image", asked.image.name, asked.image.version)
    return Question(
        model=requirement("model", asked.model.name, asked.model.version),
        dataset=requirement("dataset", asked.dataset.name, asked.dataset.version),
        framework=None if asked.framework is UNSET else Constraint.parse(asked.framework.version),
        image=image,
        prereleases=request.prereleases,
        hardware=request.hardware,
        accelerated=request.conditions.accelerator is not None,
    )


def preferences_of(lock: Lock, upgrade: Collection[tuple[Kind, str]] = ()) -> Preferences:
    """What a new lock keeps of an old one: its choices, but for those that are to be upgraded.

    Raises:
        InvalidInputError: the lock has no artifact of a name that is to be upgraded.
    """
    chosen = {(kind, artifact.name): parse_version(artifact.version) for kind, artifact in lock.artifacts().items()}
    for kind, name in upgrade:
        if (kind, name) not in chosen:
            has = ", ".join(f"{kind}/{name}" for kind, name in chosen)
            raise InvalidInputError(f"the lock has no {kind}/{name}", next_step=f"upgrade one of {has}")
    return {key: version for key, version in chosen.items() if key not in upgrade}


def reads(request: Request, chosen: Chosen) -> tuple[tuple[Kind, str], ...]:
    """The files that ``build_lock`` looks into: labels of both sides, and the locks of the wheels."""
    labels: list[tuple[Kind, str]] = []
    for compared in compared_labels(chosen):
        labels += [("model", compared.model), ("dataset", compared.dataset)]
    platforms = (one for one in chosen.image.platforms if _admits(request.hardware, one))
    wheels: list[tuple[Kind, str]] = [("image", one.wheels) for one in platforms if one.wheels is not UNSET]
    return tuple(dict.fromkeys((*labels, *wheels)))


def build_lock(
    request: Request, resolution: Resolution, chosen: Chosen, contents: Contents, harness: LockedHarness
) -> Lock:
    """The lock of ``resolution``. ``contents`` has what ``reads`` names.

    Raises:
        InvalidInputError: something is asked that the model, the dataset or this version of benchlock cannot give.
        ConflictError: model and dataset name classes in another order.
    """
    check_answerable(request, chosen)
    check_labels(chosen, contents)
    image = _artifact(resolution.image, ())
    admitted = (one for one in chosen.image.platforms if _admits(request.hardware, one))
    platforms = [_platform(chosen.image, one, contents) for one in admitted]
    dataset = _artifact(resolution.dataset, files_of(chosen.dataset))
    content = Content(
        schema=".".join(map(str, SCHEMA)),
        request=request.document,
        model=_artifact(resolution.model, files_of(chosen.model)),
        dataset=LockedDataset(**structs.asdict(dataset), split=request.asked.dataset.split),
        framework=_artifact(resolution.framework, ()),
        image=LockedImage(**structs.asdict(image), platforms=tuple(sorted(platforms, key=_platform_key))),
        harness=harness,
        limits=LockedLimits(
            seconds=request.limits.time,
            bytes=request.limits.memory,
            cpus=request.limits.cpus,
            processes=request.limits.processes,
        ),
        scenario={"name": request.scenario.name, **request.scenario.settings, "seeds": asdict(request.seeds)},
        metrics={name: DEFINITIONS[name].version for name in request.metrics},
    )
    return from_content(content)


def _admits(hardware: Hardware, platform: Platform) -> bool:
    return hardware.admits((platform.os, platform.arch, platform.device, platform.python, False))


def _platform_key(platform: LockedPlatform) -> tuple[str, str, str, str]:
    return (platform.os, platform.arch, platform.device, platform.python)


def _artifact(candidate: Candidate, files: Sequence[File]) -> LockedArtifact:
    locked = tuple(_file(file) for file in sorted(files, key=lambda file: file.path.encode()))
    return LockedArtifact(name=candidate.name, version=str(candidate.version), digest=candidate.digest, files=locked)


def _file(file: File) -> LockedFile:
    assert file.sha256 is not UNSET
    assert file.size is not UNSET
    return LockedFile(path=file.path, sha256=file.sha256, size=file.size)


def _platform(image: Image, platform: Platform, contents: Contents) -> LockedPlatform:
    files = {file.path: _file(file) for file in files_of(image)}
    sizes = {f"sha256:{file.sha256}": file.size for file in files.values()}
    path = str(platform.wheels)
    locked = LockedPlatform(
        os=platform.os,
        arch=platform.arch,
        device=platform.device,
        python=platform.python,
        wheels_lock=_listed(files, path, path),
        wheels=tuple(_wheels(contents["image", path], path, files)),
    )
    if platform.config is UNSET or platform.layers is UNSET:
        return locked
    for digest in (platform.config, *platform.layers):
        if digest not in sizes:
            raise InvalidInputError(f"the image names {digest}, and none of its files is that", where=str(locked))
    layers = tuple(LockedLayer(digest=Digest(digest), size=sizes[digest]) for digest in platform.layers)
    config = Digest(platform.config)
    return structs.replace(locked, image_id=config, config_size=sizes[config], layers=layers)


def _wheels(text: bytes, path: str, files: Mapping[str, LockedFile]) -> Iterator[LockedFile]:
    """The files of the image that the lock of its wheels lists, sorted by path.

    Raises:
        InvalidInputError: it is no such lock, or lists what the image has not.
    """
    from packaging.pylock import Pylock, PylockValidationError  # noqa: PLC0415 - only making a lock reads one

    try:
        packages = Pylock.from_dict(tomllib.loads(text.decode())).packages
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, PylockValidationError) as error:
        raise InvalidInputError(f"{path} is no lock of wheels (PEP 751): {error}", where=path) from error
    wheels = [wheel for package in packages for wheel in package.wheels or ()]
    for wheel in sorted(wheels, key=lambda wheel: wheel.path or ""):
        inside = posixpath.join(posixpath.dirname(path), wheel.path or "")
        file = _listed(files, inside, path)
        if wheel.hashes.get("sha256") != file.sha256:
            raise InvalidInputError(f"{path} and the image disagree about the digest of {inside}", where=path)
        yield file


def _listed(files: Mapping[str, LockedFile], path: str, where: str) -> LockedFile:
    if path not in files:
        raise InvalidInputError(
            f"{path!r} is none of the image's files", where=where, next_step="publish an image that has it"
        )
    return files[path]
