"""The resolver: finds versions that fit together, or explains the conflict.

The result is a pure function of the question, the snapshot of the catalogue and the preferences. The kinds are decided
in the order model, framework, image, dataset, each the newest version that leaves an answer. Versions in the
preferences come before newer ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from benchlock.artifacts.errors import UnknownNameError
from benchlock.registry.resolution.conflicts import (
    SHOWN,
    Code,
    Conflict,
    ConflictError,
    Rejection,
    RequirementText,
    VersionGroup,
    find_nearest_name,
    group_admitted_versions,
    group_rejections,
    list_rejections,
)
from benchlock.registry.resolution.fix_proposals import find_nearest_fixes
from benchlock.registry.resolution.resolver_types import (
    EVERY,
    Candidate,
    Need,
    Offer,
    Population,
    Question,
    Requirement,
    Resolution,
    Snapshot,
)
from benchlock.registry.resolution.version_search import Preferences, Search
from benchlock.registry.versions.version_ranges import ANY, Constraint, Range

_CUTS_SPELLED = 32
"""Number of ends of intervals up to which a union is written in full."""
_NAMES = 5
"""Number of image names that are listed; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class _FrameworkDemand:
    """The requirement of some versions of the model, ``models``, on a framework.

    ``ways`` is the number of different requirements that are combined.
    """

    requirement: Requirement
    models: VersionGroup
    ways: int = 1


def explain(search: Search) -> Conflict:
    """Explain why ``search`` found nothing; fixes are added by ``fix_proposals``."""
    question = search.question
    requirements = [
        requirement for requirement in (question.model, question.dataset, question.image) if requirement is not None
    ]
    empty = [requirement for requirement in requirements if _choosable(search, requirement) is None]
    if not empty:
        return _environments(search)
    names = " and ".join(f"{requirement.kind}/{requirement.name}" for requirement in empty)
    return Conflict(
        f"no available version of {names} satisfies the request",
        tuple(map(format_requirement, empty)),
        tuple(line for requirement in empty for line in list_rejections(search, (requirement,))),
        advice=f"publish {' and '.join(map(str, empty))}, or request versions that exist",
    )


def _choosable(search: Search, *requirements: Requirement) -> VersionGroup | None:
    """Return the versions of the name that all requirements admit."""
    kind, name = requirements[0].kind, requirements[0].name
    versions = search.available.admitted(kind, name, *(requirement.constraint for requirement in requirements))
    return group_admitted_versions(search.snapshot, kind, name, versions)


def _environments(search: Search) -> Conflict:
    """Explain a conflict in which each kind alone has versions, but no framework and image fit the model."""
    question = search.question
    requirement_texts, advice = [format_requirement(question.model)], ""
    lines = [*list_rejections(search, (question.model,))]
    demands = _demands(search)
    for demand in demands:
        requirements = (demand.requirement, *_narrowing(search, demand.requirement.name))
        requirement_texts += [
            format_requirement(requirement, demand.ways)
            for requirement in requirements
            if format_requirement(requirement, demand.ways) not in requirement_texts
        ]
        rejections, hint = _environment(search, requirements)
        lines += [line for line in rejections if line not in lines]
        advice = advice or hint
    if question.image is not None:
        requirement_texts.append(format_requirement(question.image))
    return Conflict(_summary(search, demands, lines), tuple(requirement_texts), tuple(lines), advice=advice)


def _demands(search: Search) -> list[_FrameworkDemand]:
    """Return the requirements of the model's versions, those of the newest first.

    More than a few requirements are combined by framework.
    """
    needs = dict.fromkeys(need for need, _ in search.available.models)
    names = dict.fromkeys(name for _, name, _ in needs)
    together = {name: [need for need in needs if need[1] == name] for name in names}
    groups = together.values() if len(needs) > SHOWN else [[need] for need in needs]
    return [_demand(search, group, _models(search, group if len(groups) > 1 else None)) for group in groups]


def _models(search: Search, needs: Sequence[Need] | None) -> VersionGroup:
    """Return the model's admitted versions with one of these requirements; all of them for ``None``."""
    model, admitted = search.question.model, search.available.model_versions
    needs = None if search.question.need is not None else needs
    version_groups = (
        group_admitted_versions(search.snapshot, model.kind, model.name, admitted, need) for need in needs or (None,)
    )
    return reduce(VersionGroup.__or__, (group for group in version_groups if group is not None))


def _demand(search: Search, needs: Sequence[Need], models: VersionGroup) -> _FrameworkDemand:
    """Return one requirement, or the union of all requirements on one framework."""
    (_, framework, text), *others = needs
    constraint = Constraint.parse(text)
    if others:
        union = search.available.needs.unions[framework]
        constraint = replace(union, text=_spell_union(union.range))
    model = search.question.model
    asked_by = f"{model.kind}/{model.name} {models}" if search.question.need is None else "the request"
    return _FrameworkDemand(Requirement("framework", framework, constraint, asked_by), models, len(needs))


def _spell_union(versions: Range) -> str:
    """Write a set of versions as text; of many intervals the first few and the last."""
    cuts = versions.cuts
    if len(cuts) <= _CUTS_SPELLED:
        return str(versions)
    return f"{Range(cuts[: 2 * SHOWN])} || … || {Range(cuts[len(cuts) % 2 - 2 :])}"


def _narrowing(search: Search, framework: str) -> tuple[Requirement, ...]:
    """Return the request's own requirement on the framework, if it has one."""
    constraint = search.question.framework
    return () if constraint is None else (Requirement("framework", framework, constraint, "the request"),)


def _summary(search: Search, demands: list[_FrameworkDemand], lines: list[Rejection]) -> str:
    """Summarise the conflict in one line."""
    question = search.question
    model, hardware = f"{question.model.kind}/{question.model.name}", question.hardware
    names = {demand.requirement.name for demand in demands}
    if len(names) != 1 or any(line.reason == "unknown" for line in lines):
        return f"no framework and image fit {model} on {hardware}"
    (name,) = names
    requester = f"{model} and the request" if search.question.framework else model
    if any(line.reason == "no-image" for line in lines):
        return f"no available image provides framework/{name} as required by {requester}, on {hardware}"
    return f"no version of framework/{name} satisfies {requester}"


def _environment(search: Search, requirements: tuple[Requirement, ...]) -> tuple[list[Rejection], str]:
    """Return why one framework has no environment, and what might be published."""
    framework = requirements[0].name
    if not search.snapshot.newest(Population("framework", framework, EVERY), 1):
        near = find_nearest_name(search.snapshot, "framework", framework)
        text = f"framework/{framework} is not in the catalogue" + (f"; framework/{near} is" if near else "")
        advice = f"publish a version of the model that requires {near}" if near else _publish(requirements[0])
        return [Rejection("framework", framework, (), 0, "unknown", text)], advice
    lines, fitting = [*list_rejections(search, requirements)], _choosable(search, *requirements)
    if fitting is None:
        return lines, _publish(requirements[0])
    text = f"framework/{framework} {fitting}: fits, but no available image provides it"
    lines.append(Rejection("framework", framework, fitting.texts, fitting.count, "no-image", text))
    lines += _images(search, framework)
    return lines, f"publish an image that provides {framework}=={fitting.newest}"


def _publish(framework: Requirement) -> str:
    """Return the advice to publish a framework and an image."""
    return f"publish {framework} and an image that provides it"


def _images(search: Search, framework: str) -> Iterator[Rejection]:
    """Yield the rejections of every image that the request may mean.

    Images that could be chosen otherwise are for other platforms or frameworks.
    """
    requested = search.question.image
    names = search.snapshot.images(framework) if requested is None else (requested.name,)
    for name in names[:_NAMES]:
        requirement = Requirement("image", name, ANY, "the request") if requested is None else requested
        yield from list_rejections(search, (requirement,))
        existing = _choosable(search, requirement)
        if existing is not None:
            candidates = search.snapshot.candidates("image", name, existing.versions)
            yield from group_rejections(candidates, existing.count, lambda image: _because(search, image, framework))
    if len(names) > _NAMES:
        more = len(names) - _NAMES
        yield Rejection(
            "image", names[_NAMES], (), more, "framework", f"{more} more images provide framework/{framework}"
        )


def _because(search: Search, image: Candidate, framework: str) -> tuple[Code, str]:
    """Return why an image does not fit: its platforms, or the framework that it provides."""
    provided, version = image.provides or ("no framework", "")
    if provided == framework and not search.available.fits(image):
        return "platform", f"for {', '.join(sorted({'/'.join(offer[:3]) for offer in image.platforms}))} only"
    return "framework", f"provides {provided} {version}"


def format_requirement(requirement: Requirement, ways: int = 1) -> RequirementText:
    """Return the requirement as a line; ``ways`` is the number of different requirements that are combined."""
    verb = "require" if ", " in requirement.asked_by or " and " in requirement.asked_by else "requires"
    different = f", in {ways} different ways" if ways > 1 and requirement.asked_by != "the request" else ""
    text = f"{requirement.asked_by} {verb} {requirement}{different}"
    return RequirementText(requirement.kind, requirement.name, requirement.constraint.text, requirement.asked_by, text)


__all__ = [
    "Candidate",
    "Need",
    "Offer",
    "Preferences",
    "Question",
    "Requirement",
    "Resolution",
    "Snapshot",
    "resolve",
]


def resolve(question: Question, snapshot: Snapshot, preferences: Preferences) -> Resolution:
    """Find the versions that answer ``question``.

    Args:
        question: The request, as far as versions are concerned.
        snapshot: The catalogue at one moment.
        preferences: The versions in an existing lock, which come before newer ones.

    Raises:
        UnknownNameError: The catalogue has no model, dataset or image of a name in the question.
        ConflictError: No versions fit together. It lists the requirements, the reason of each rejection, and fixes.
    """
    search = Search.of(question, snapshot, preferences)
    for requirement in (question.model, question.dataset, question.image):
        if requirement is not None and not _is_known(search, requirement):
            raise _unknown(requirement, snapshot)
    resolution = search.find()
    if resolution is None:
        raise ConflictError(replace(explain(search), fixes=find_nearest_fixes(search)))
    return resolution


def _is_known(search: Search, requirement: Requirement) -> bool:
    """Return whether the catalogue has any version of the name."""
    return bool(search.snapshot.newest(Population(requirement.kind, requirement.name, EVERY), 1))


def _unknown(requirement: Requirement, snapshot: Snapshot) -> UnknownNameError:
    """Return the error about an unknown name, with the nearest known one."""
    kind, name = requirement.kind, requirement.name
    near = find_nearest_name(snapshot, kind, name)
    return UnknownNameError(
        f"the catalogue has no {kind}/{name}",
        where=f"{kind}.name",
        next_step=f"did you mean {near}?" if near else f"list the {kind}s",
    )
