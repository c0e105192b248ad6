"""Whether a lock still answers its request: ``lock --check``."""

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from benchlock.artifacts.errors import UnknownNameError
from benchlock.registry.lockfile import Lock
from benchlock.registry.locking import preferences_of, question_of
from benchlock.registry.requests import Request, conditions_of
from benchlock.registry.resolution.candidates import Snapshot
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver import resolve
from benchlock.registry.versions import parse_version

_RESOLVED = frozenset(("model", "dataset", "framework", "image", "prereleases", "hardware"))
"""Keys of a request that choose versions and platforms: another text of them does no harm while the same answer it."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """``reasons`` why the lock is stale, none if it is not; ``warnings`` of what does not make it stale."""

    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def check_lock(lock: Lock, request: Request, snapshot: Snapshot) -> Freshness:
    """Whether ``lock`` answers ``request`` over ``snapshot``, which is of the time that the request names, else of now.

    A newer version makes no lock stale; a yanked version that it holds is a warning.
    """
    written, now = dict(lock.request), dict(request.document)
    if "as_of" not in now:
        written.pop("as_of", None)
    changes = [key for key in (written | now) if written.get(key) != now.get(key)]
    reasons = [f"{key} was {_shown(written, key)}, is {_shown(now, key)}" for key in changes if key not in _RESOLVED]
    if lock.dataset.split != request.asked.dataset.split:
        reasons.append(f"dataset.split was {lock.dataset.split}, is {request.asked.dataset.split}")
    if "hardware" in changes and conditions_of(lock.request) != request.conditions:
        reasons.append(f"hardware was {_shown(written, 'hardware')}, is {_shown(now, 'hardware')}")
    resolved, warnings = _resolved_again(lock, request, snapshot)
    if "as_of" in lock.request and "as_of" not in now:
        warnings.append(
            f"the lock was made as of {lock.request['as_of']}, and the request names no time: locked again, it moves"
        )
    reasons += resolved
    reworded = [key for key in changes if key in _RESOLVED]
    if reworded and not reasons:
        what = "versions and platforms" if "hardware" in reworded else "versions"
        warnings.append(f"the request asks otherwise for {', '.join(reworded)}; the same {what} answer it")
    return Freshness(tuple(reasons), tuple(warnings))


def _resolved_again(lock: Lock, request: Request, snapshot: Snapshot) -> tuple[list[str], list[str]]:
    try:
        found = resolve(question_of(request), snapshot, preferences_of(lock))
    except (ConflictError, UnknownNameError) as error:
        return [error.what], []
    reasons, warnings = [], []
    for kind, artifact in lock.artifacts().items():
        candidate = found.chosen()[kind]
        locked = f"{kind}/{artifact.name} {artifact.version}"
        if (candidate.name, candidate.version) != (artifact.name, parse_version(artifact.version)):
            reasons.append(f"{locked} does not answer the request; {candidate} does")
        elif candidate.digest != artifact.digest:
            reasons.append(f"{locked} has other content in this catalogue: {candidate.digest}, not {artifact.digest}")
        elif candidate.yanked is not None:
            warnings.append(f"{locked} is yanked: {candidate.yanked}")
    locked_platforms = {(one.os, one.arch, one.device, one.python) for one in lock.image.platforms}
    admitted = {offer[:4] for offer in found.platforms}
    if not reasons and locked_platforms != admitted:
        reasons.append(
            f"the request admits other platforms of the image than the lock has: {_spelled(admitted)}, "
            f"not {_spelled(locked_platforms)}"
        )
    return reasons, warnings


def _spelled(platforms: Collection[tuple[str, ...]]) -> str:
    alike = Counter(platform[:3] for platform in platforms)
    names = ((one, "" if alike[one[:3]] == 1 else f" python {one[3]}") for one in sorted(platforms))
    return ", ".join(f"{'/'.join(one[:3])}{python}" for one, python in names)


def _shown(document: dict[str, Any], key: str) -> str:
    if key not in document:
        return "absent"
    value = document[key]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
