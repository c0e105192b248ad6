"""Proposed fixes of a conflict: the smallest changes of a request that make it solvable.

1. Try each field alone, then pairs, then three fields; the least drastic fields come first.
2. Loosen the chosen fields completely. If the request then still has no answer, no values of them can help.
3. Fix one field after the other: take the value nearest to the request that leaves the others an answer.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice, product, zip_longest
from typing import Any, Literal, cast

from benchlock.artifacts.user_output import escape_line
from benchlock.registry.artifact_names import KINDS, Kind
from benchlock.registry.requests.hardware_requirements import ANYWHERE, KEYS, Hardware
from benchlock.registry.resolution.conflicts import SHOWN, Fix
from benchlock.registry.resolution.resolver_types import EVERY, STATUSES, Population, Question, Requirement, Resolution
from benchlock.registry.resolution.version_search import Search
from benchlock.registry.versions.range_grammar import LEAST
from benchlock.registry.versions.semantic_version import Version
from benchlock.registry.versions.version_ranges import ANY, Constraint, Interval, Range

Field = Literal[
    "framework.version",
    "model.version",
    "operator.version",
    "recipe.version",
    "image.version",
    "dataset.version",
    "prereleases",
    "image",
    "hardware",
]
FIELDS: tuple[Field, ...] = (
    *("framework.version", "model.version", "operator.version", "recipe.version"),
    *("image.version", "dataset.version"),
    *("prereleases", "image", "hardware"),
)
"""The fields that a fix may change, the least drastic first."""

_MAX_CHANGES = 3
"""Maximum number of fields that one fix changes."""

_TRIED = 5
"""Number of versions of each status that are tried, the nearest first."""


def find_nearest_fixes(search: Search) -> tuple[Fix, ...]:
    """Find a few fixes that change the fewest fields of the request; none if three fields are not enough."""
    fields = [field for field in FIELDS if _is_open(search.question, field)]
    for size in range(1, _MAX_CHANGES + 1):
        if size > 1 and search.with_question(_loosened(search.question, fields)).find() is None:
            return ()
        relevant = [field for field in fields if _is_relevant(search, field)] if size == 1 else fields
        attempts = (
            _try_fields(search, combination)
            for combination in combinations(relevant, size)
            if not {"image", "image.version"} <= {*combination}
        )
        if fixes := tuple(islice((fix for fix in attempts if fix is not None), SHOWN)):
            return fixes
    return ()


def _is_relevant(search: Search, field: Field) -> bool:
    """Return whether a change of the field alone may help: it must concern a kind in the conflict."""
    kinds = {fact.kind for fact in search.facts_of_conflict}
    match field:
        case "prereleases":
            return True
        case "model.version" | "dataset.version":
            return _kind(field) in kinds
        case "operator.version" | "recipe.version":
            return "model" in kinds  # it takes the model's place in the search
        case _:
            return "framework" in kinds


def apply_fix(question: Question, changes: Mapping[str, Any]) -> Question:
    """Return the question with the fields of a fix set to its values."""
    for field, value in changes.items():
        question = _with(question, cast("Field", field), value)
    return question


def _try_fields(search: Search, fields: tuple[Field, ...]) -> Fix | None:
    """Set the fields one after the other to the nearest value that leaves an answer possible."""
    settled: dict[str, Any] = {}
    for index, field in enumerate(fields):
        question = _loosened(apply_fix(search.question, settled), fields[index + 1 :])
        for value in _values(search, question, field):
            if search.with_question(_with(question, field, value)).find():
                settled[field] = value
                break
        else:
            return None
    resolution = search.with_question(apply_fix(search.question, settled)).find()
    assert resolution is not None
    chosen = {str(kind): f"{candidate.name} {candidate.version}" for kind, candidate in resolution.chosen().items()}
    texts = (_text(search.question, resolution, field, settled[field]) for field in fields)
    return Fix(settled, chosen, " and ".join(texts))


def _loosened(question: Question, fields: Iterable[Field]) -> Question:
    """Return the question with everything admitted that any value of these fields could admit."""
    for field in fields:
        match field:
            case "prereleases":
                question = replace(question, prereleases=frozenset(KINDS))
            case "hardware":
                question = replace(question, hardware=ANYWHERE)
            case "image":
                question = replace(_admitting_all(question, "image"), image=None)
            case _:
                kind = _kind(field)
                question = _with(_admitting_all(question, kind), field, None if kind == "framework" else "*")
    return question


def _admitting_all(question: Question, kind: Kind) -> Question:
    """Return the question with pre-releases and yanked versions of the kind admitted."""
    return replace(question, prereleases=question.prereleases | {kind}, yanked=question.yanked | {kind})


def _values(search: Search, question: Question, field: Field) -> Iterator[Any]:
    """Yield the values of the field that are worth a try, the nearest to the request first."""
    loosest = search.with_question(_loosened(question, (field,))).find()
    if loosest is None:
        return
    match field:
        case "prereleases":
            for size in range(1, len(KINDS) + 1):
                yield from (sorted({*question.prereleases, *kinds}) for kinds in combinations(KINDS, size))
        case "image":
            if question.image is not None:
                yield None
            yield from _other_images(search, question, loosest)
        case "hardware":
            yield from _platforms(search, question)
        case _:
            yield from _pins(search, question, _kind(field))
            yield str(loosest.chosen()[_kind(field)].version)
            if field == "framework.version" and question.framework is None:
                yield from _yanked_frameworks(search, question)


def _other_images(search: Search, question: Question, loosest: Resolution) -> Iterator[dict[str, str]]:
    """Yield a version of each image other than the requested one; ``loosest`` is the answer for any image."""
    if question.image is None or question.image.name != loosest.image.name:
        yield {"name": loosest.image.name, "version": str(loosest.image.version)}
        return
    names = {
        name: None for framework in _names(search, question, "framework") for name in search.snapshot.images(framework)
    }
    for name in islice((name for name in names if name != loosest.image.name), _TRIED):
        changed = replace(_loosened(question, ("image",)), image=Requirement("image", name, ANY, "the request"))
        answer = search.with_question(changed).find()
        if answer is not None:
            yield {"name": name, "version": str(answer.image.version)}


def _pins(search: Search, question: Question, kind: Kind) -> Iterator[str]:
    """Yield single versions near the requested ones: releases, then pre-releases and yanked versions.

    Only an exact pin admits the latter two.
    """
    constraint = _constraint(question, kind)
    if constraint is not None:
        for status, name in product(STATUSES, _names(search, question, kind)):
            near = _nearest(search, Population(kind, name, EVERY, status), constraint.range)
            yield from map(str, filter(_required(search, question, name), near) if kind == "framework" else near)


def _yanked_frameworks(search: Search, question: Question) -> Iterator[str]:
    """Yield yanked versions of the framework; a request without a constraint on it admits them by naming one."""
    for name in _names(search, question, "framework"):
        newest = search.snapshot.newest(Population("framework", name, EVERY, "yanked"), _TRIED)
        yield from map(str, filter(_required(search, question, name), newest))


def _required(search: Search, question: Question, framework: str) -> Callable[[Version], bool]:
    """Return a predicate for versions of the framework that some version of the model admits; no other can help."""
    available = search.with_question(replace(question, framework=None)).available
    union = available.needs.unions.get(framework)
    return Range.NONE.contains if union is None else union.range.contains


def _names(search: Search, question: Question, kind: Kind) -> Sequence[str]:
    """Return the names that versions of the kind may have."""
    if kind == "framework":
        if question.need is not None:
            return [question.need[1]]
        return sorted({need[1] for need in search.snapshot.needs(question.model.name)})
    requirement = _requirement(question, kind)
    return [requirement.name] if requirement else []


def _nearest(search: Search, population: Population, requested: Range) -> list[Version]:
    """Return the versions of the population nearest to ``wanted``.

    First come those in its gaps, newest first, then in turn the next above and the next below it. Releases in
    ``wanted`` itself were admitted before; a pre-release or yanked version in it may still need an exact pin.
    """
    if requested.is_empty():
        return list(search.snapshot.newest(population, _TRIED))
    low, high = requested.intervals[0].low, requested.intervals[-1].high
    unrequested = Range.between(low, high) - (requested if population.status == "release" else Range.NONE)
    gaps = (
        search.snapshot.newest(replace(population, interval=gap), _TRIED) for gap in reversed(unrequested.intervals)
    )
    below = search.snapshot.newest(replace(population, interval=Interval(LEAST, low)), _TRIED)
    above = () if high is None else search.snapshot.oldest(replace(population, interval=Interval(high, None)), _TRIED)
    outside = chain.from_iterable(zip_longest(above, below))
    return [version for version in (*chain.from_iterable(gaps), *outside) if version is not None][:_TRIED]


def _platforms(search: Search, question: Question) -> list[dict[str, str]]:
    """Return the platforms that images offer, those that differ least from the request first."""
    hardware = search.question.hardware
    names = _names(search, question, "framework")
    offers = {
        platform
        for name in names
        for platform in search.snapshot.platforms(name)
        if not (question.accelerated and platform[-1] == "cpu")
    }
    nearest = sorted(offers, key=lambda offer: (hardware.distance(offer), -hardware.likeness(offer), offer))
    return [dict(zip(KEYS, offer, strict=True)) for offer in nearest]


def _is_open(question: Question, field: Field) -> bool:
    """Return whether the field has a value that can be changed, or can be added."""
    match field:
        case "prereleases":
            return question.prereleases != frozenset(KINDS)
        case "image.version":
            return question.image is not None
        case "model.version" | "operator.version" | "recipe.version" | "dataset.version":
            return _requirement(question, _kind(field)) is not None
        case "hardware":
            return question.hardware != ANYWHERE
        case _:
            return True


def _kind(field: Field) -> Kind:
    """Return the kind that a ``.version`` field is about."""
    return cast("Kind", field.removesuffix(".version"))


def _requirement(question: Question, kind: Kind) -> Requirement | None:
    """Return the request's requirement on the kind, if it has one."""
    requirements = {question.model.kind: question.model, "dataset": question.dataset, "image": question.image}
    return requirements.get(kind)


def _constraint(question: Question, kind: Kind) -> Constraint | None:
    """Return the request's constraint on versions of the kind, if it has one."""
    if kind == "framework":
        return question.framework
    requirement = _requirement(question, kind)
    return requirement.constraint if requirement else None


def _with(question: Question, field: Field, value: Any) -> Question:  # noqa: ANN401 - a plain value of a request
    """Return the question with one field set to a plain value."""
    match field:
        case "prereleases":
            return replace(question, prereleases=frozenset(value))
        case "image" if value is None:
            return replace(question, image=None)
        case "image":
            constraint = Constraint.parse(value["version"])
            return replace(question, image=Requirement("image", value["name"], constraint, "the request"))
        case "hardware":
            return replace(question, hardware=Hardware.only(value))
        case "framework.version":
            return replace(question, framework=value and Constraint.parse(value))
        case _:
            return _with_constraint(question, _kind(field), Constraint.parse(value))


def _with_constraint(question: Question, kind: str, constraint: Constraint) -> Question:
    """Return the question with another constraint on the kind."""

    def read(requirement: Requirement) -> Requirement:
        return replace(requirement, constraint=constraint) if requirement.kind == kind else requirement

    image, dataset = question.image and read(question.image), question.dataset and read(question.dataset)
    return replace(question, model=read(question.model), dataset=dataset, image=image)


def _text(question: Question, resolution: Resolution, field: Field, value: Any) -> str:  # noqa: ANN401 - as above
    """Describe the change of one field in words."""
    match field:
        case "prereleases":
            return f"allow pre-releases (prereleases: [{', '.join(value)}])"
        case "image" if value is None:
            return f"remove image ({resolution.image} fits)"
        case "hardware":
            keys = (key for key in KEYS if value[key] not in (getattr(question.hardware, key) or (value[key],)))
            setting = ", ".join(f"hardware.{key}: {value[key]}" for key in keys)
            return f"request the hardware {Hardware.only(value)} ({setting})"
        case _:
            chosen = resolution.chosen()[_kind(field)]
            although = f", which is yanked ({escape_line(chosen.yanked)})" if chosen.yanked else ""
            setting = f'{field}: "{value}"' if isinstance(value, str) else f"image: {value['name']} {value['version']}"
            return f"request {chosen} ({setting}){although}"
