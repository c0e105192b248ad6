"""The resolver: versions that fit together, or the reasons why there are none.

A pure function of question, catalogue snapshot and preferences. The kinds are decided in the order model, framework,
image, dataset, each the newest that leaves an answer; what the preferences name comes before what is newest.
"""

from dataclasses import replace

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
from benchlock.registry.resolution.conflicts import ConflictError, nearest_name
from benchlock.registry.resolution.explaining import explain
from benchlock.registry.resolution.fixes import nearest_fixes
from benchlock.registry.resolution.search import Preferences, Search

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
        raise ConflictError(replace(explain(search), fixes=nearest_fixes(search)))
    return found


def _is_known(search: Search, requirement: Requirement) -> bool:
    return bool(search.snapshot.newest(Population(requirement.kind, requirement.name, EVERY), 1))


def _unknown(requirement: Requirement, snapshot: Snapshot) -> UnknownNameError:
    kind, name = requirement.kind, requirement.name
    near = nearest_name(snapshot, kind, name)
    return UnknownNameError(
        f"the catalogue has no {kind}/{name}",
        where=f"{kind}.name",
        next_step=f"did you mean {near}?" if near else f"`benchlock list {kind}` lists what there is",
    )
