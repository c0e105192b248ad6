"""Proposed fixes of a conflict: the smallest changes of a request that make it solvable."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice, product, zip_longest
from typing import Any, Literal, cast

from benchlock.artifacts.display import escape_line
from benchlock.registry.names import KINDS, Kind
from benchlock.registry.requests.hardware_requirements import ANYWHERE, KEYS, Hardware
from benchlock.registry.resolution.candidates import EVERY, STATUSES, Population, Question, Requirement, Resolution
from benchlock.registry.resolution.conflicts import SHOWN, Fix
from benchlock.registry.resolution.version_search import Search
from benchlock.registry.versions.range_grammar import LEAST
from benchlock.registry.versions.semantic_version import Version
from benchlock.registry.versions.version_ranges import ANY, Constraint, Interval, Range

Field = Literal[
    "framework.version", "model.version", "image.version", "dataset.version", "prereleases", "image", "hardware"
]
FIELDS: tuple[Field, ...] = (
    *("framework.version", "model.version", "image.version", "dataset.version"),
    *("prereleases", "image", "hardware"),
)
"""What a fix may change, the less drastic first."""

_MOST = 3
"""Fields that one fix changes at most."""

_TRIED = 5
"""Versions of each sort (releases, pre-releases, yanked ones) that are tried, the nearest first."""


def find_nearest_fixes(search: Search) -> tuple[Fix, ...]:
    """A few ways to an answer that change the fewest fields of the request; none, if three are not enough."""
    fields = [field for field in FIELDS if _is_open(search.question, field)]
    for size in range(1, _MOST + 1):
        if size > 1 and search.asking(_loosened(search.question, fields)).find() is None:
            return ()
        those = [field for field in fields if _plays_a_part(search, field)] if size == 1 else fields
        found = (
            _tried(search, some) for some in combinations(those, size) if not {"image", "image.version"} <= {*some}
        )
        if fixes := tuple(islice((fix for fix in found if fix is not None), SHOWN)):
            return fixes
    return ()


def _plays_a_part(search: Search, field: Field) -> bool:
    """Whether the field alone may help: not if it says nothing of any kind in the conflict."""
    kinds = {fact.kind for fact in search.facts_of_conflict}
    match field:
        case "prereleases":
            return True
        case "model.version" | "dataset.version":
            return _kind(field) in kinds
        case _:
            return "framework" in kinds


def apply_fix(question: Question, changes: Mapping[str, Any]) -> Question:
    """The question with the fields of a fix set to its values."""
    for field, value in changes.items():
        question = _with(question, cast("Field", field), value)
    return question


def _tried(search: Search, fields: tuple[Field, ...]) -> Fix | None:
    """The fields set one after the other to the nearest value that leaves an answer possible."""
    settled: dict[str, Any] = {}
    for index, field in enumerate(fields):
        question = _loosened(apply_fix(search.question, settled), fields[index + 1 :])
        for value in _values(search, question, field):
            if search.asking(_with(question, field, value)).find():
                settled[field] = value
                break
        else:
            return None
    found = search.asking(apply_fix(search.question, settled)).find()
    assert found is not None
    chosen = {str(kind): f"{one.name} {one.version}" for kind, one in found.chosen().items()}
    texts = (_text(search.question, found, field, settled[field]) for field in fields)
    return Fix(settled, chosen, " and ".join(texts))


def _loosened(question: Question, fields: Iterable[Field]) -> Question:
    """The question with all that values of these fields could let in."""
    for field in fields:
        match field:
            case "prereleases":
                question = replace(question, prereleases=frozenset(KINDS))
            case "hardware":
                question = replace(question, hardware=ANYWHERE)
            case "image":
                question = replace(_letting_in(question, "image"), image=None)
            case _:
                kind = _kind(field)
                question = _with(_letting_in(question, kind), field, None if kind == "framework" else "*")
    return question


def _letting_in(question: Question, kind: Kind) -> Question:
    return replace(question, prereleases=question.prereleases | {kind}, yanked=question.yanked | {kind})


def _values(search: Search, question: Question, field: Field) -> Iterator[Any]:
    """What the field might be, the nearest to what is asked first."""
    loosest = search.asking(_loosened(question, (field,))).find()
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
    """Yield a version of another image than the one asked for; ``loosest`` is the answer for any image."""
    if question.image is None or question.image.name != loosest.image.name:
        yield {"name": loosest.image.name, "version": str(loosest.image.version)}
        return
    names = {name: None for one in _names(search, question, "framework") for name in search.snapshot.images(one)}
    for name in islice((name for name in names if name != loosest.image.name), _TRIED):
        named = replace(_loosened(question, ("image",)), image=Requirement("image", name, ANY, "the request"))
        answer = search.asking(named).find()
        if answer is not None:
            yield {"name": name, "version": str(answer.image.version)}


def _pins(search: Search, question: Question, kind: Kind) -> Iterator[str]:
    """Single versions near what is asked for: releases, then what only a pin admits: pre-releases, yanked versions."""
    asked = _constraint(question, kind)
    if asked is not None:
        for status, name in product(STATUSES, _names(search, question, kind)):
            near = _nearest(search, Population(kind, name, EVERY, status), asked.range)
            yield from map(str, filter(_required(search, question, name), near) if kind == "framework" else near)


def _yanked_frameworks(search: Search, question: Question) -> Iterator[str]:
    """Yield yanked versions of the framework: a request that asks for none admits them by naming one."""
    for name in _names(search, question, "framework"):
        newest = search.snapshot.newest(Population("framework", name, EVERY, "yanked"), _TRIED)
        yield from map(str, filter(_required(search, question, name), newest))


def _required(search: Search, question: Question, framework: str) -> Callable[[Version], bool]:
    """Whether a version of the framework is one that some version of the model asks for; no other can help."""
    available = search.asking(replace(question, framework=None)).available
    union = available.needs.together.get(framework)
    return Range.NONE.contains if union is None else union.range.contains


def _names(search: Search, question: Question, kind: Kind) -> Sequence[str]:
    """What the versions of that kind may be versions of."""
    if kind == "framework":
        return sorted({need[1] for need in search.snapshot.needs(question.model.name)})
    requirement = _requirement(question, kind)
    return [requirement.name] if requirement else []


def _nearest(search: Search, population: Population, wanted: Range) -> list[Version]:
    """Those in the gaps of ``wanted``, newest first; then in turn the next above and the next below it.

    Releases in ``wanted`` itself were let in before; of what is no release those too may be pinned.
    """
    if wanted.is_empty():
        return list(search.snapshot.newest(population, _TRIED))
    low, high = wanted.intervals[0].low, wanted.intervals[-1].high
    inside = Range.between(low, high) - (wanted if population.status == "release" else Range.NONE)
    gaps = (search.snapshot.newest(replace(population, interval=gap), _TRIED) for gap in reversed(inside.intervals))
    below = search.snapshot.newest(replace(population, interval=Interval(LEAST, low)), _TRIED)
    above = () if high is None else search.snapshot.oldest(replace(population, interval=Interval(high, None)), _TRIED)
    outside = chain.from_iterable(zip_longest(above, below))
    return [version for version in (*chain.from_iterable(gaps), *outside) if version is not None][:_TRIED]


def _platforms(search: Search, question: Question) -> list[dict[str, str]]:
    """The platforms that images offer, those that differ least from what is asked first."""
    wanted = search.question.hardware
    names = _names(search, question, "framework")
    offers = {
        platform
        for name in names
        for platform in search.snapshot.platforms(name)
        if not (question.accelerated and platform[-1] == "cpu")
    }
    nearest = sorted(offers, key=lambda offer: (wanted.distance(offer), -wanted.likeness(offer), offer))
    return [dict(zip(KEYS, offer, strict=True)) for offer in nearest]


def _is_open(question: Question, field: Field) -> bool:
    """Whether there is something to change: what is asked, or what the request does not ask for yet."""
    match field:
        case "prereleases":
            return question.prereleases != frozenset(KINDS)
        case "image.version":
            return question.image is not None
        case "hardware":
            return question.hardware != ANYWHERE
        case _:
            return True


def _kind(field: Field) -> Kind:
    return cast("Kind", field.removesuffix(".version"))


def _requirement(question: Question, kind: Kind) -> Requirement | None:
    return {"model": question.model, "dataset": question.dataset, "image": question.image}.get(kind)


def _constraint(question: Question, kind: Kind) -> Constraint | None:
    if kind == "framework":
        return question.framework
    requirement = _requirement(question, kind)
    return requirement.constraint if requirement else None


def _with(question: Question, field: Field, value: Any) -> Question:  # noqa: ANN401 - a plain value of a request
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
            return _reading(question, _kind(field), Constraint.parse(value))


def _reading(question: Question, kind: str, constraint: Constraint) -> Question:
    """The question with another constraint on what it asks of that kind."""

    def read(requirement: Requirement) -> Requirement:
        return replace(requirement, constraint=constraint) if requirement.kind == kind else requirement

    image = question.image and read(question.image)
    return replace(question, model=read(question.model), dataset=read(question.dataset), image=image)


def _text(question: Question, found: Resolution, field: Field, value: Any) -> str:  # noqa: ANN401 - as above
    match field:
        case "prereleases":
            return f"allow pre-releases (prereleases: [{', '.join(value)}])"
        case "image" if value is None:
            return f"leave out image ({found.image} fits)"
        case "hardware":
            keys = (key for key in KEYS if value[key] not in (getattr(question.hardware, key) or (value[key],)))
            how = ", ".join(f"hardware.{key}: {value[key]}" for key in keys)
            return f"ask for the hardware {Hardware.only(value)} ({how})"
        case _:
            chosen = found.chosen()[_kind(field)]
            although = f", which is yanked ({escape_line(chosen.yanked)})" if chosen.yanked else ""
            how = f'{field}: "{value}"' if isinstance(value, str) else f"image: {value['name']} {value['version']}"
            return f"ask for {chosen} ({how}){although}"
