"""Changes of a request that would give it an answer: as few fields as possible, and every proposal was solved with."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations, islice
from typing import Any, Literal, cast

from registry.candidates import Candidate, Question, Requirement, Resolution
from registry.conflicts import Fix
from registry.constraints import Constraint
from registry.hardware import ANYWHERE, Hardware
from registry.names import KINDS, Kind
from registry.ranges import Range
from registry.search import Search, need_of
from registry.versions import key

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

_TRIED = 8
"""Versions of each sort (releases, pre-releases, yanked ones) that are tried, the nearest first."""

_LOOSEST: Mapping[str, Any] = {
    **dict.fromkeys(map(str, FIELDS[:4]), "*"),
    "prereleases": sorted(KINDS),
    "image": None,
    "hardware": {},
}


def nearest_fixes(search: Search) -> tuple[Fix, ...]:
    """Every way to an answer that changes the fewest fields of the request; none, if three are not enough."""
    fields = [field for field in FIELDS if _is_asked(search.question, field)]
    for size in range(1, _MOST + 1):
        found = (
            _tried(search, some) for some in combinations(fields, size) if not {"image", "image.version"} <= {*some}
        )
        if fixes := tuple(fix for fix in found if fix is not None):
            return fixes
    return ()


def changed(question: Question, changes: Mapping[str, Any]) -> Question:
    """The question with the fields of a fix set to its values."""
    for field, value in changes.items():
        question = _with(question, cast("Field", field), value)
    return question


def _tried(search: Search, fields: tuple[Field, ...]) -> Fix | None:
    """The fields set one after the other to the nearest value that leaves an answer possible."""
    settled: dict[str, Any] = {}
    for index, field in enumerate(fields):
        rest: dict[str, Any] = {later: _LOOSEST[later] for later in fields[index + 1 :]}
        values = _values(search, changed(search.question, settled | rest), field)
        for value in values:
            if search.asking(changed(search.question, {**settled, field: value, **rest})).find():
                settled[field] = value
                break
        else:
            return None
    found = search.asking(changed(search.question, settled)).find()
    assert found is not None
    chosen = {str(kind): f"{one.name} {one.version}" for kind, one in found.chosen().items()}
    return Fix(settled, chosen, " and ".join(_text(found, field, value) for field, value in settled.items()))


def _values(search: Search, question: Question, field: Field) -> Iterator[Any]:
    """What the field might be, the nearest to what is asked first."""
    loosest = search.asking(_with(question, field, _LOOSEST[field])).find()
    match field:
        case "prereleases":
            yield from (sorted({*question.prereleases, kind}) for kind in KINDS if loosest)
            yield from (_LOOSEST[field] for _ in range(loosest is not None))
        case "image":
            yield None
        case "hardware":
            yield from _platforms(search, question) if loosest else ()
        case _:
            kind = cast("Kind", field.removesuffix(".version"))
            yield from _pins(search, question, kind, loosest)


def _pins(search: Search, question: Question, kind: Kind, loosest: Resolution | None) -> Iterator[str]:
    """Single versions: releases if any can work at all, then what only a pin admits: pre-releases, yanked versions."""
    constraint = _constraint(question, kind)
    assert constraint is not None
    candidates = _by_distance(_of_kind(search, question, kind), constraint.range)
    sorts = {
        "release": (one for one in candidates if one.yanked is None and one.version.prerelease is None),
        "pre-release": (one for one in candidates if one.yanked is None and one.version.prerelease is not None),
        "yanked": (one for one in candidates if one.yanked is not None),
    }
    if loosest is None:
        del sorts["release"]
    yield from (str(one.version) for one in chain(*(islice(some, _TRIED) for some in sorts.values())))
    if loosest is not None:
        yield str(loosest.chosen()[kind].version)


def _of_kind(search: Search, question: Question, kind: Kind) -> list[Candidate]:
    if kind == "framework":
        models = search.asking(question).admitted((question.model,))
        names = sorted({need_of(model)[1] for model in models})
    else:
        requirement = _requirement(question, kind)
        names = [requirement.name] if requirement else []
    return [one for name in names for one in search.versions(kind, name)]


def _by_distance(candidates: Iterable[Candidate], wanted: Range) -> list[Candidate]:
    """By the number of versions between each and the range; of two as near the newer first."""
    ordered = sorted(candidates, key=lambda one: key(one.version))
    inside = [place for place, one in enumerate(ordered) if _within(one, wanted)]
    first = inside[0] if inside else sum(_below(one, wanted) for one in ordered)
    last = inside[-1] if inside else first - 1
    places = sorted(range(len(ordered)), key=lambda place: (max(first - place, place - last, 0), -place))
    return [ordered[place] for place in places]


def _within(candidate: Candidate, wanted: Range) -> bool:
    """Between the ends of the range, in a gap of it too."""
    return not _below(candidate, wanted) and key(candidate.version) < wanted.intervals[-1].high_key


def _below(candidate: Candidate, wanted: Range) -> bool:
    return wanted.is_empty() or key(candidate.version) < wanted.intervals[0].low_key


def _platforms(search: Search, question: Question) -> list[dict[str, str]]:
    """The platforms that images offer, those that differ least from what is asked first."""
    wanted = search.question.hardware
    images = (
        image
        for model in search.asking(question).admitted((question.model,))
        for requirement in search.asking(question).image_requirements(need_of(model)[1])
        for image in search.versions("image", requirement.name)
    )
    offers = {offer[:3] for image in images for offer in image.platforms}
    nearest = sorted(
        offers,
        key=lambda offer: (wanted.distance(offer), offer),
    )
    return [dict(zip(("os", "arch", "device"), offer, strict=True)) for offer in nearest]


def _is_asked(question: Question, field: Field) -> bool:
    match field:
        case "prereleases":
            return question.prereleases != frozenset(KINDS)
        case "image":
            return question.image is not None
        case "hardware":
            return question.hardware != ANYWHERE
        case _:
            return _constraint(question, cast("Kind", field.removesuffix(".version"))) is not None


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
        case "image":
            return replace(question, image=None)
        case "hardware":
            return replace(question, hardware=Hardware.only(value))
        case "framework.version":
            return replace(question, framework=Constraint.parse(value))
        case _:
            return _reading(question, field.removesuffix(".version"), Constraint.parse(value))


def _reading(question: Question, kind: str, constraint: Constraint) -> Question:
    """The question with another constraint on what it asks of that kind."""

    def read(requirement: Requirement) -> Requirement:
        return replace(requirement, constraint=constraint) if requirement.kind == kind else requirement

    image = question.image and read(question.image)
    return replace(question, model=read(question.model), dataset=read(question.dataset), image=image)


def _text(found: Resolution, field: str, value: Any) -> str:  # noqa: ANN401 - a plain value of a request
    match field:
        case "prereleases":
            return f"allow pre-releases (prereleases: [{', '.join(value)}])"
        case "image":
            return f"leave out image ({found.image} fits)"
        case "hardware":
            return f"ask for the hardware {Hardware.only(value)}"
        case _:
            chosen = found.chosen()[cast("Kind", field.removesuffix(".version"))]
            although = f", which is yanked ({chosen.yanked})" if chosen.yanked else ""
            return f'ask for {chosen} ({field}: "{value}"){although}'
