"""The reasons why a lock has a version and not a newer one: ``benchlock why``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.artifacts.user_output import escape_line
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import LockedArtifact
from benchlock.registry.resolution.conflicts import (
    Code,
    Conflict,
    Rejection,
    RequirementText,
    VersionGroup,
    find_nearest,
    group_admitted_versions,
    list_rejections,
)
from benchlock.registry.resolution.resolver import explain, format_requirement
from benchlock.registry.resolution.resolver_types import ORDER, Candidate, Requirement, Resolution
from benchlock.registry.resolution.version_search import Search, need_of
from benchlock.registry.versions.semantic_version import Version, parse_version, successor
from benchlock.registry.versions.version_ranges import ANY, Constraint, Range

LockedVersions = Mapping[Kind, LockedArtifact]
"""The locked artifacts, by kind."""


@dataclass(frozen=True, slots=True)
class SelectionReason:
    """The reasons why a lock has ``version``; ``yanked`` is the reason if the version is yanked.

    ``requirements`` are those on the name. ``newer`` are the versions above the locked one, and why they were
    rejected.
    """

    kind: Kind
    name: str
    version: Version
    yanked: str | None
    requirements: tuple[RequirementText, ...]
    newer: tuple[Rejection, ...]

    def prose(self) -> str:
        """Return the reasons as a few lines of text."""
        newer = [rejection.text for rejection in self.newer] or ["no newer version is published"]
        although = f", which is yanked ({escape_line(self.yanked)})" if self.yanked is not None else ""
        head = f"{self.kind}/{self.name} {self.version}{although}"
        return "\n  ".join((head, *(requirement.text for requirement in self.requirements), *newer))

    def as_json(self) -> dict[str, Any]:
        """Return the reasons as plain values for JSON."""
        return {
            "kind": self.kind,
            "name": self.name,
            "version": str(self.version),
            "yanked": self.yanked,
            "asked": [requirement.as_json() for requirement in self.requirements],
            "newer": [rejection.as_json() for rejection in self.newer],
        }


def explain_selection(locked: LockedVersions, kind: Kind, name: str, search: Search) -> SelectionReason:
    """Explain why a lock has its version of ``kind``/``name``.

    Args:
        locked: The artifacts of the lock.
        kind: The kind of the artifact.
        name: The name of the artifact.
        search: The search for the lock's request, without preferences.

    Raises:
        InvalidInputError: The lock has no such artifact.
        UnknownNameError: The catalogue does not have the lock's model.
    """
    if kind not in locked or locked[kind].name != name:
        locked_names = [f"{locked_kind}/{artifact.name}" for locked_kind, artifact in locked.items()]
        own = f"{kind}/{locked[kind].name}" if kind in locked else locked_names[0]
        suggestion = find_nearest(f"{kind}/{name}", locked_names) or own
        raise InvalidInputError(f"the lock has no {kind}/{name}", where=kind, next_step=f"did you mean {suggestion}?")
    version = parse_version(locked[kind].version)
    requirements = tuple(_requirements(locked, kind, search))
    newer = Range.between(successor(version), None)
    lines = [*list_rejections(search, requirements, newer), *_explain_admitted(search, requirements, newer)]
    texts = tuple(_requirement_texts(locked, kind, search))
    yanked = next((candidate.yanked for candidate in search.snapshot.candidates(kind, name, (version,))), None)
    return SelectionReason(kind, name, version, yanked, texts, tuple(lines))


def _requirement_texts(locked: LockedVersions, kind: Kind, search: Search) -> Iterator[RequirementText]:
    """Yield the requirements as lines; an image must also provide the framework."""
    if kind != "image" or search.question.image is not None:
        yield from map(format_requirement, _requirements(locked, kind, search))
    if kind == "image":
        framework = f"framework/{locked['framework'].name} {locked['framework'].version}"
        text = f"an image must provide {framework} on {search.question.hardware}"
        yield RequirementText(kind, locked[kind].name, "*", framework, text)


def _requirements(locked: LockedVersions, kind: Kind, search: Search) -> Iterator[Requirement]:
    """Yield the requirements on the name: those of the request and, for a framework, those of the locked model.

    Raises:
        UnknownNameError: The catalogue does not have that model.
    """
    question = search.question
    if kind == "framework" and question.need is not None and question.framework is not None:
        yield Requirement(kind, question.need[1], question.framework, "the request")
    elif kind == "framework":
        name, version = locked["model"].name, locked["model"].version
        model = f"model/{name} {version}"
        models = search.snapshot.candidates("model", name, (parse_version(version),))
        if not models:
            what = f"the catalogue has no {model}, which states its framework requirement"
            raise UnknownNameError(what, next_step="use the registry in which the lock was created")
        _, framework, text = need_of(models[0])
        yield Requirement(kind, framework, Constraint.parse(text), model)
        if question.framework is not None:
            yield Requirement(kind, locked["framework"].name, question.framework, "the request")
    elif kind == "image":
        yield question.image or Requirement(kind, locked["image"].name, ANY, "the request")
    else:
        requirement = question.dataset if kind == "dataset" else question.model
        assert requirement is not None
        yield requirement


def _explain_admitted(search: Search, requirements: tuple[Requirement, ...], newer: Range) -> Iterator[Rejection]:
    """Yield the newer versions that the requirements admit: they conflict with other versions, or could be locked."""
    group = _group_admitted(search, requirements, newer)
    if group is None:
        return
    asking = _search_newer(search, requirements, newer)
    resolution = asking.find()
    if resolution is None:
        kind, name = requirements[0].kind, requirements[0].name
        text = f"{kind}/{name} {group}: {_because(kind, explain(asking))}"
        yield Rejection(kind, name, group.texts, group.count, "conflict", text)
        return
    chosen = resolution.chosen()[requirements[0].kind]
    yield from _explain_admitted(search, requirements, Range.between(successor(chosen.version), None))
    yield _explain_lockable(search, resolution, chosen)


def _group_admitted(search: Search, requirements: tuple[Requirement, ...], newer: Range) -> VersionGroup | None:
    kind, name = requirements[0].kind, requirements[0].name
    ranges = search.available.admitted(kind, name, *(requirement.constraint for requirement in requirements))
    versions = {status: part & newer for status, part in ranges.items()}
    return group_admitted_versions(search.snapshot, kind, name, versions)


def _search_newer(search: Search, requirements: tuple[Requirement, ...], newer: Range) -> Search:
    """Return the search for the same question with the kind restricted to ``newer``."""
    question, (requirement, *_) = search.question, requirements
    narrowed = replace(requirement, constraint=_narrow(requirement.constraint, newer))
    match requirement.kind:
        case "model" | "operator" | "recipe":
            return search.with_question(replace(question, model=narrowed))
        case "dataset":
            return search.with_question(replace(question, dataset=narrowed))
        case "image":
            return search.with_question(replace(question, image=narrowed))
        case "framework":
            framework = question.framework or Constraint(Range.ALL, Range.ALL, "*")
            return search.with_question(replace(question, framework=_narrow(framework, newer)))


def _narrow(constraint: Constraint, newer: Range) -> Constraint:
    return Constraint(constraint.range & newer, constraint.prereleases & newer, f"{constraint} and {newer}")


def _explain_lockable(search: Search, resolution: Resolution, chosen: Candidate) -> Rejection:
    """Return the reason for a version that could be locked.

    Either the lock is older than the version, or a kind that is chosen earlier gets a newer version without it.
    """
    now = search.find()
    earlier = ORDER[: ORDER.index("model" if chosen.kind in ("operator", "recipe") else chosen.kind)]
    earlier = tuple(resolution.model.kind if kind == "model" else kind for kind in earlier)
    moved = next((kind for kind in earlier if now and now.chosen()[kind] != resolution.chosen()[kind]), None)
    if now is not None and moved is not None:
        because = f"fits with {resolution.chosen()[moved]}, but {now.chosen()[moved]} is preferred"
        return _reject(chosen, "order", because)
    upgrade = f"lock the request again and upgrade {chosen.kind}/{chosen.name}"
    return _reject(chosen, "kept", f"also fits; to use it, {upgrade}")


def _reject(chosen: Candidate, code: Code, because: str) -> Rejection:
    version = str(chosen.version)
    return Rejection(chosen.kind, chosen.name, (version,), 1, code, f"{chosen}: {because}")


def _because(kind: Kind, conflict: Conflict) -> str:
    """Return why the newer versions conflict with others: their requirements, or the existing images."""
    if kind in ("model", "operator", "recipe"):
        texts = (
            f"{requirement.kind}/{requirement.name} {requirement.constraint}" for requirement in conflict.asked[1:]
        )
        return f"{conflict.summary}: {', '.join(texts)}"
    images = [line for line in conflict.rejected if line.kind == "image"]
    if kind == "image":
        fates = (line.text.partition(": ")[2] for line in images if line.reason in ("framework", "platform"))
        return "; ".join(fates) or conflict.summary
    reasons = "; ".join(line.text for line in images if line.reason in ("platform", "yanked", "pre-release"))
    return "no available image provides it" + (f" ({reasons})" if reasons else "")
