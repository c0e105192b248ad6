"""Ids that may be abbreviated to an unambiguous beginning, for commands and the Python API alike."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from benchlock.api.schemas.registry_protocol import Registry
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, UnknownNameError
from benchlock.evaluator.records.run_types import DamagedRun, RunFilter
from benchlock.registry.database.ids_and_timestamps import (
    DIGITS,
    SHORTEST_PREFIX,
    SHOWN_CANDIDATES,
    ambiguous_prefix_error,
)
from benchlock.registry.lock.lockfile import load

_PREFIX: Final = rf"[0-9a-hjkmnp-tv-z]{{{SHORTEST_PREFIX},{DIGITS}}}"

Candidates = Sequence[tuple[str, str]]
"""Ids, each with a description that distinguishes it: the time and more."""


def complete_prefix(kind: str, text: str, find: Callable[[str, int], Candidates], *, only: bool = True) -> str:
    """Return the id that begins with a text; a text in another form unchanged.

    Args:
        kind: What the ids are: ``run``, ``job`` or ``token``.
        text: The beginning of an id; the part before ``/`` may be missing.
        find: Returns at most so many ids that begin with a text.
        only: Whether the text can be nothing else. Otherwise, a text without ``kind`` that no id begins with is
            returned unchanged, too.

    Raises:
        InvalidInputError: Several ids begin with the text; ``where`` lists them.
        UnknownNameError: No id begins with the text.
    """
    if not re.fullmatch(f"({kind}/)?{_PREFIX}", text):
        return text
    prefix = f"{kind}/{text.removeprefix(f'{kind}/')}"
    if len(prefix) == len(f"{kind}/") + DIGITS:
        return prefix
    candidates = find(prefix, SHOWN_CANDIDATES + 1)
    if len(candidates) > 1:
        raise ambiguous_prefix_error(prefix, candidates)
    if not candidates and (only or text == prefix):
        raise UnknownNameError(f"no {kind} id begins with {prefix}", next_step=f"list the {kind}s, or write the id")
    return candidates[0][0] if candidates else text


def find_runs(registry: Registry, prefix: str, limit: int) -> Candidates:
    """Return at most ``limit`` runs whose ids begin with ``prefix``."""
    entries = registry.records.list_entries(chosen=RunFilter(prefix=prefix), limit=limit, examine=False)
    return [
        (entry.id, "damaged")
        if isinstance(entry, DamagedRun)
        else (entry.id, f"{describe_moment(entry.start.started_at)}, {describe_model(registry, entry.start.lock)}")
        for entry in entries
    ]


def describe_moment(at: datetime) -> str:
    """Return a time as tables have it."""
    return at.strftime("%Y-%m-%d %H:%M")


def describe_model(registry: Registry, lock: Digest) -> str:
    """Return the model or operator of a lock and its version; the lock's id if it cannot be read."""
    try:
        model = load(registry.catalogue.get_lock(lock), lock).subject
    except BenchlockError:
        return f"lock {lock}"
    return f"{model.name} {model.version}"
