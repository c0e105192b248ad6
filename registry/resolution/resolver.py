"""The resolver: finds versions that fit together, or explains the conflict.

A pure function of question, catalogue snapshot and preferences. The kinds are decided in the order model, framework,
image, dataset, each the newest that leaves an answer; what the preferences name comes before what is newest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from benchlock.artifacts.errors import UnknownNameError
from benchlock.registry.resolution.candidates import (
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
from benchlock.registry.resolution.version_search import Preferences, Search
from benchlock.registry.versions.version_ranges import ANY, Constraint, Range

_CUTS_SPELLED = 32
"""Ends of intervals of the longest union that is spelled in full."""
_NAMES = 5
"""Names of images that are told of before the rest is counted."""


@dataclass(frozen=True, slots=True)
class _Asking:
    """What some versions of the model, ``models``, ask of a framework; ``ways``: in how many different requirements."""

    requirement: Requirement
    models: VersionGroup
    ways: int = 1


def explain(search: Search) -> Conflict:
    """Why ``search`` found nothing, without changes that would help (see ``registry.resolution.fixes``)."""
    question = search.question
    alone = [one for one in (question.model, question.dataset, question.image) if one is not None]
    empty = [one for one in alone if _choosable(search, one) is None]
    if not empty:
        return _environments(search)
    names = " and ".join(f"{one.kind}/{one.name}" for one in empty)
    return Conflict(
        f"no version of {names} can be chosen",
        tuple(map(format_requirement, empty)),
        tuple(line for one in empty for line in list_rejections(search, (one,))),
        advice=f"publish {' and '.join(map(str, empty))}, or ask for versions that exist",
    )


def _choosable(search: Search, *requirements: Requirement) -> VersionGroup | None:
    """The versions of the name that all requirements let in."""
    kind, name = requirements[0].kind, requirements[0].name
    versions = search.available.admitted(kind, name, *(one.constraint for one in requirements))
    return group_admitted_versions(search.snapshot, kind, name, versions)


def _environments(search: Search) -> Conflict:
    """Each kind alone has versions, and no framework and image fit any version of the model."""
    question = search.question
    asked, advice = [format_requirement(question.model)], ""
    lines = [*list_rejections(search, (question.model,))]
    askings = _askings(search)
    for asking in askings:
        requirements = (asking.requirement, *_narrowing(search, asking.requirement.name))
        asked += [
            format_requirement(one, asking.ways)
            for one in requirements
            if format_requirement(one, asking.ways) not in asked
        ]
        found, hint = _environment(search, requirements)
        lines += [line for line in found if line not in lines]
        advice = advice or hint
    if question.image is not None:
        asked.append(format_requirement(question.image))
    return Conflict(_summary(search, askings, lines), tuple(asked), tuple(lines), advice=advice)


def _askings(search: Search) -> list[_Asking]:
    """What the model's versions ask for, those of the newest first; more than a few are taken together by framework."""
    needs = dict.fromkeys(need for need, _ in search.available.models)
    names = dict.fromkeys(name for _, name, _ in needs)
    together = {name: [need for need in needs if need[1] == name] for name in names}
    groups = together.values() if len(needs) > SHOWN else [[need] for need in needs]
    return [_asking(search, some, _models(search, some if len(groups) > 1 else None)) for some in groups]


def _models(search: Search, needs: Sequence[Need] | None) -> VersionGroup:
    """The model's admitted versions with one of these requirements; all of them without."""
    name, admitted = search.question.model.name, search.available.of_model
    crowds = (group_admitted_versions(search.snapshot, "model", name, admitted, need) for need in needs or (None,))
    return reduce(VersionGroup.__or__, (one for one in crowds if one is not None))


def _asking(search: Search, needs: Sequence[Need], models: VersionGroup) -> _Asking:
    """One requirement, or all those of one framework as one: their union."""
    (_, framework, text), *others = needs
    constraint = Constraint.parse(text)
    if others:
        union = search.available.needs.together[framework]
        constraint = replace(union, text=_spell_union(union.range))
    asked_by = f"model/{search.question.model.name} {models}"
    return _Asking(Requirement("framework", framework, constraint, asked_by), models, len(needs))


def _spell_union(versions: Range) -> str:
    """Return the text of a set; of one with many intervals the first few and the last."""
    cuts = versions.cuts
    if len(cuts) <= _CUTS_SPELLED:
        return str(versions)
    return f"{Range(cuts[: 2 * SHOWN])} || … || {Range(cuts[len(cuts) % 2 - 2 :])}"


def _narrowing(search: Search, framework: str) -> tuple[Requirement, ...]:
    narrowed = search.question.framework
    return () if narrowed is None else (Requirement("framework", framework, narrowed, "the request"),)


def _summary(search: Search, askings: list[_Asking], lines: list[Rejection]) -> str:
    model, hardware = f"model/{search.question.model.name}", search.question.hardware
    names = {one.requirement.name for one in askings}
    if len(names) != 1 or any(line.reason == "unknown" for line in lines):
        return f"no framework and image fit {model} on {hardware}"
    (name,) = names
    asking = f"{model} and the request ask" if search.question.framework else f"{model} asks"
    if any(line.reason == "no-image" for line in lines):
        return f"no image that can be chosen provides framework/{name} as {asking} for it, on {hardware}"
    return f"no version of framework/{name} is what {asking} for"


def _environment(search: Search, requirements: tuple[Requirement, ...]) -> tuple[list[Rejection], str]:
    """Why there is no environment under the requirements of one framework, and what might be published."""
    framework = requirements[0].name
    if not search.snapshot.newest(Population("framework", framework, EVERY), 1):
        near = find_nearest_name(search.snapshot, "framework", framework)
        text = f"framework/{framework} is not in the catalogue" + (f"; framework/{near} is" if near else "")
        advice = f"publish a version of the model that requires {near}" if near else _publish(requirements[0])
        return [Rejection("framework", framework, (), 0, "unknown", text)], advice
    lines, fitting = [*list_rejections(search, requirements)], _choosable(search, *requirements)
    if fitting is None:
        return lines, _publish(requirements[0])
    text = f"framework/{framework} {fitting}: would fit, and no image that can be chosen provides it"
    lines.append(Rejection("framework", framework, fitting.texts, fitting.count, "no-image", text))
    lines += _images(search, framework)
    return lines, f"publish an image that provides it: `benchlock image build {framework}=={fitting.newest}`"


def _publish(framework: Requirement) -> str:
    return f"publish {framework} and an image that provides it: `benchlock image build {framework.name}==VERSION`"


def _images(search: Search, framework: str) -> Iterator[Rejection]:
    """Every image that the request may mean: those that could be chosen are for other platforms or versions."""
    asked = search.question.image
    names = search.snapshot.images(framework) if asked is None else (asked.name,)
    for name in names[:_NAMES]:
        requirement = Requirement("image", name, ANY, "the request") if asked is None else asked
        yield from list_rejections(search, (requirement,))
        there = _choosable(search, requirement)
        if there is not None:
            candidates = search.snapshot.candidates("image", name, there.versions)
            yield from group_rejections(candidates, there.count, lambda image: _because(search, image, framework))
    if len(names) > _NAMES:
        more = len(names) - _NAMES
        yield Rejection(
            "image", names[_NAMES], (), more, "framework", f"{more} more images provide framework/{framework}"
        )


def _because(search: Search, image: Candidate, framework: str) -> tuple[Code, str]:
    provided, version = image.provides or ("no framework", "")
    if provided == framework and not search.available.fits(image):
        return "platform", f"for {', '.join(sorted({'/'.join(offer[:3]) for offer in image.platforms}))} only"
    return "framework", f"provides {provided} {version}"


def format_requirement(requirement: Requirement, ways: int = 1) -> RequirementText:
    """The requirement as a line; ``ways``: it is so many different ones taken together."""
    asks = "ask" if ", " in requirement.asked_by or " and " in requirement.asked_by else "asks"
    different = f", in {ways} different ways" if ways > 1 and requirement.asked_by != "the request" else ""
    text = f"{requirement.asked_by} {asks} for {requirement}{different}"
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
    """The answer to ``question``.

    Raises:
        UnknownNameError: the catalogue has no model, dataset or image of a name in the question.
        ConflictError: no versions fit together; it says who asked for what, why each was rejected, and what would do.
    """
    search = Search.of(question, snapshot, preferences)
    for requirement in (question.model, question.dataset, question.image):
        if requirement is not None and not _is_known(search, requirement):
            raise _unknown(requirement, snapshot)
    found = search.find()
    if found is None:
        raise ConflictError(replace(explain(search), fixes=find_nearest_fixes(search)))
    return found


def _is_known(search: Search, requirement: Requirement) -> bool:
    return bool(search.snapshot.newest(Population(requirement.kind, requirement.name, EVERY), 1))


def _unknown(requirement: Requirement, snapshot: Snapshot) -> UnknownNameError:
    kind, name = requirement.kind, requirement.name
    near = find_nearest_name(snapshot, kind, name)
    return UnknownNameError(
        f"the catalogue has no {kind}/{name}",
        where=f"{kind}.name",
        next_step=f"did you mean {near}?" if near else f"`benchlock list {kind}` lists what there is",
    )
