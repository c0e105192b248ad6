"""Conflicts: who asked for what, what exists, why each was rejected, and the nearest change that would do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar

from artifacts.errors import BenchlockError
from registry.candidates import Candidate, Need, Requirement
from registry.names import Kind
from registry.search import Code, Reason, Search, need_of

SHOWN = 3
"""Versions that a line names before it counts the rest; also the requirements of a model that are told apart."""

_LINES = 12
"""Reasons that the prose gives before it counts the rest."""

_LISTED = 100
"""Versions of one reason that the JSON lists before it counts them alone."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A requirement, in words: ``text`` is the whole line."""

    kind: Kind
    name: str
    constraint: str
    by: str
    text: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """Versions, newest first, that are out for one reason; none where the name itself is the trouble."""

    kind: Kind
    name: str
    versions: tuple[str, ...]
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes of the request, tried together: fields and their values (``None``: left out), and what is then chosen."""

    changes: Mapping[str, Any]
    gives: Mapping[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why there is no answer. ``advice`` says what to do where no change of the request alone would do."""

    summary: str
    asked: tuple[Asked, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    fixes: tuple[Fix, ...] = ()
    advice: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def prose(self) -> str:
        """A few lines: what, who asked, why not."""
        asked, rejected = ([line.text for line in lines] for lines in (self.asked, self.rejected))
        if len(rejected) > _LINES:
            rejected[_LINES:] = [f"and {len(rejected) - _LINES} more reasons, all in --json"]
        return "\n  ".join((self.summary, *asked, *rejected))

    def next_step(self) -> str:
        """The nearest changes that would do, else what might be published."""
        return "; or ".join(fix.text for fix in self.fixes[:SHOWN]) or self.advice

    def as_json(self) -> dict[str, Any]:
        """The same as plain values. Each reason's versions are counted, and the newest of them listed."""
        return {
            "summary": self.summary,
            "asked": [
                {"kind": one.kind, "name": one.name, "constraint": one.constraint, "by": one.by} for one in self.asked
            ],
            "rejected": [
                {
                    "kind": one.kind,
                    "name": one.name,
                    "versions": list(one.versions[:_LISTED]),
                    "count": len(one.versions),
                    "reason": one.reason,
                    "text": one.text,
                }
                for one in self.rejected
            ],
            "fixes": [{"changes": dict(one.changes), "gives": dict(one.gives), "text": one.text} for one in self.fixes],
            **self.details,
        }


class ConflictError(BenchlockError):
    """The request has no answer. ``conflict`` is the explanation as plain values."""

    code: ClassVar[str] = "conflict"

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict.prose(), next_step=conflict.next_step() or None)
        self.conflict = conflict.as_json()


def explain(search: Search) -> Conflict:
    """Why ``search`` found nothing, without changes that would help (see ``registry.fixes``)."""
    question = search.question
    alone = [one for one in (question.model, question.dataset, question.image) if one is not None]
    empty = [one for one in alone if not search.admitted((one,))]
    if empty:
        names = " and ".join(f"{one.kind}/{one.name}" for one in empty)
        rejected = [line for one in empty for line in _versions(search, (one,))]
        advice = f"publish {' and '.join(map(str, empty))}, or ask for versions that exist"
        summary = f"no version of {names} can be chosen"
        return Conflict(summary, tuple(map(_asked, empty)), tuple(rejected), advice=advice)
    return _explain_environments(search)


def _explain_environments(search: Search) -> Conflict:
    question = search.question
    groups: dict[Need, list[Candidate]] = {}
    for model in search.admitted((question.model,)):
        groups.setdefault(need_of(model), []).append(model)
    asked, rejected, advice = [_asked(question.model)], list[Rejected](), ""
    for need, models in list(groups.items())[:SHOWN]:
        by = f"model/{question.model.name} {listed([str(one.version) for one in models])}"
        requirements = search.framework_requirements(need, by)
        asked += [_asked(one) for one in requirements if _asked(one) not in asked]
        lines, hint = _environment(search, requirements)
        rejected += [line for line in lines if line not in rejected]
        advice = advice or hint
    if question.image is not None:
        asked.append(_asked(question.image))
    more = f" (the {SHOWN} newest requirements of {len(groups)} are shown)" if len(groups) > SHOWN else ""
    name = question.model.name
    summary = f"no framework and image fit model/{name} on {question.hardware}{more}"
    return Conflict(summary, tuple(asked), tuple(rejected), advice=advice)


def _environment(search: Search, requirements: tuple[Requirement, ...]) -> tuple[list[Rejected], str]:
    """Why there is no environment under the requirements of one framework, and what might be published."""
    framework = requirements[0].name
    if not search.versions("framework", framework):
        near = nearest(framework, search.snapshot.names("framework"))
        text = f"framework/{framework} is not in the catalogue" + (f"; framework/{near} is" if near else "")
        advice = f"publish a version of the model that requires {near}" if near else _publish(requirements)
        return [Rejected("framework", framework, (), "unknown", text)], advice
    rejected = _versions(search, requirements)
    fitting = search.admitted(requirements)
    if not fitting:
        return rejected, _publish(requirements)
    versions = tuple(str(one.version) for one in fitting)
    text = f"no image that can be chosen provides framework/{framework} {listed(versions)}"
    lines = [Rejected("framework", framework, versions, "no-image", text)]
    for requirement in search.image_requirements(framework):
        lines += _images(search, requirement, framework)
    advice = f"publish an image that provides it: `benchlock image build {framework}=={versions[0]}`"
    return rejected + lines, advice


def _publish(requirements: tuple[Requirement, ...]) -> str:
    framework = requirements[0]
    return f"publish {framework} and an image that provides it: `benchlock image build {framework.name}==VERSION`"


def _versions(search: Search, requirements: tuple[Requirement, ...]) -> list[Rejected]:
    kind, name = requirements[0].kind, requirements[0].name
    pairs = ((one, search.reason(one, requirements)) for one in _newest_first(search, kind, name))
    return _grouped((one, reason) for one, reason in pairs if reason is not None)


def _images(search: Search, requirement: Requirement, framework: str) -> list[Rejected]:
    """Every image of the name: those that could be chosen provide a version that cannot."""
    images = _newest_first(search, "image", requirement.name)
    provides = Reason("framework")
    reasons = [(one, search.image_reason(one, requirement, framework) or provides) for one in images]
    return _grouped(reasons)


def _newest_first(search: Search, kind: Kind, name: str) -> list[Candidate]:
    return sorted(search.versions(kind, name), key=lambda one: one.version, reverse=True)


def _grouped(reasons: Iterable[tuple[Candidate, Reason]]) -> list[Rejected]:
    """Candidates of one name that are out for the same reason share a line."""
    groups: dict[tuple[Code, str], list[Candidate]] = {}
    for candidate, reason in reasons:
        groups.setdefault((reason.code, _because(candidate, reason)), []).append(candidate)
    lines = []
    for (code, because), candidates in groups.items():
        kind, name = candidates[0].kind, candidates[0].name
        versions = tuple(str(one.version) for one in candidates)
        lines.append(Rejected(kind, name, versions, code, f"{kind}/{name} {listed(versions)}: {because}"))
    return lines


def _because(candidate: Candidate, reason: Reason) -> str:
    match reason.code:
        case "yanked":
            return f"yanked ({candidate.yanked})"
        case "platform":
            return f"for {', '.join(sorted({'/'.join(offer[:3]) for offer in candidate.platforms}))} only"
        case "framework":
            framework, version = candidate.provides or ("no framework", "")
            return f"provides {framework} {version}"
        case "pre-release":
            return f"pre-release, not allowed by {_by(reason)}"
        case _:
            return f"outside {_by(reason)}"


def _by(reason: Reason) -> str:
    assert reason.by is not None
    return f"{reason.by.constraint} ({reason.by.asked_by})"


def _asked(requirement: Requirement) -> Asked:
    asks = "ask" if ", " in requirement.asked_by else "asks"
    text = f"{requirement.asked_by} {asks} for {requirement}"
    return Asked(requirement.kind, requirement.name, requirement.constraint.text, requirement.asked_by, text)


def listed(versions: Sequence[str]) -> str:
    """The first few of ``versions``, and how many more there are."""
    shown = ", ".join(versions[:SHOWN])
    return f"{shown} and {len(versions) - SHOWN} more" if len(versions) > SHOWN else shown


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that ``name`` may be a misspelling of."""
    return next(iter(get_close_matches(name, sorted(names), n=1)), None)
