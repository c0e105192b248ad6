"""What differs between two locks, told of artifacts: ``model/x 1.2.0 → 1.3.0: weights changed, labels the same``."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from artifacts.digest import Digest
from registry.lockfile import Lock, LockedArtifact, LockedFile, LockedImage, LockedPlatform
from registry.manifests import Manifest, files_of
from registry.names import Kind

_SHOWN = 5
"""Files of one kind of change that are named before the rest is counted."""

_REQUESTED = ("model", "dataset", "framework", "image", "prereleases", "hardware", "trace", "equivalence", "as_of")
"""Keys of the request that stand nowhere else in a lock; the others are told as limits, scenario and metrics."""

_FIELDS = ("request", "limits", "scenario", "metrics")


@dataclass(frozen=True, slots=True)
class Change:
    """``subject`` was ``before`` and is ``after``, each ``None`` where there is none; ``details`` say what it means."""

    subject: str
    before: str | None
    after: str | None
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        moved = "" if self.before == self.after else f" {self.before or 'absent'} → {self.after or 'absent'}"
        return f"{self.subject}{moved}" + (f": {', '.join(self.details)}" if self.details else "")


def diff(before: Lock, after: Lock, manifests: Mapping[Digest, Manifest]) -> tuple[Change, ...]:
    """The changes from one lock to another, artifacts first; none if they are the same lock.

    ``manifests`` has those that are known, by digest: with them files are told by role, else by path.
    """
    changes: list[Change] = []
    for kind, artifact in before.artifacts().items():
        changes += _artifact(kind, artifact, after.artifacts()[kind], manifests)
    if before.harness != after.harness:
        details = () if before.harness.digest == after.harness.digest else ("other bytes",)
        changes.append(Change("harness", before.harness.version, after.harness.version, details))
    for name in _FIELDS:
        changes += _table(name, before.document[name], after.document[name])
    return tuple(changes)


def _artifact(
    kind: Kind, before: LockedArtifact, after: LockedArtifact, manifests: Mapping[Digest, Manifest]
) -> Iterator[Change]:
    if before == after:
        return
    details = [*_files(before, after, manifests)]
    if isinstance(before, LockedImage) and isinstance(after, LockedImage):
        details += _platforms(before, after)
    if before.digest != after.digest and not details:
        details.append("other manifest, the same files" if before.files else "other manifest")
    same_name = before.name == after.name
    subject = f"{kind}/{before.name}" if same_name else kind
    was, is_ = (one.version if same_name else f"{one.name} {one.version}" for one in (before, after))
    yield Change(subject, was, is_, tuple(details))


def _files(before: LockedArtifact, after: LockedArtifact, manifests: Mapping[Digest, Manifest]) -> Iterator[str]:
    """What happened to the files: by role where both manifests are known and say roles, else by path."""
    was, is_ = ({file.path: file.sha256 for file in one.files} for one in (before, after))
    if was == is_:
        return
    roles = _roles(before, manifests), _roles(after, manifests)
    if not all(roles):
        yield from _mapping(was, is_)
        return
    for role in dict.fromkeys((*roles[0].values(), *roles[1].values())):
        mine, theirs = (
            {path: sha for path, sha in files.items() if known.get(path) == role}
            for files, known in ((was, roles[0]), (is_, roles[1]))
        )
        yield f"{role} {_fate(mine, theirs)}"


def _roles(artifact: LockedArtifact, manifests: Mapping[Digest, Manifest]) -> dict[str, str]:
    manifest = manifests.get(artifact.digest)
    files = () if manifest is None else files_of(manifest)
    return {file.path: file.role for file in files if file.role is not UNSET}


def _fate(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    if sorted(before.values()) == sorted(after.values()):
        return "the same" if before == after else "renamed"
    if not (before and after):
        return "added" if after else "removed"
    return "changed"


def _mapping(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """``a.txt changed``, ``b.txt added``, …, and how many are the same."""
    fates = {path: _fate(_only(before, path), _only(after, path)) for path in sorted({*before, *after})}
    for fate in ("changed", "added", "removed"):
        paths = [path for path, one in fates.items() if one == fate]
        if paths:
            more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
            yield f"{' '.join(paths[:_SHOWN])}{more} {fate}"
    if same := sum(fate == "the same" for fate in fates.values()):
        yield f"{same} other file{'s' if same > 1 else ''} the same"


def _only(files: Mapping[str, str], path: str) -> Mapping[str, str]:
    return {path: files[path]} if path in files else {}


def _platforms(before: LockedImage, after: LockedImage) -> Iterator[str]:
    was, is_ = ({f"{one} python {one.python}": one for one in image.platforms} for image in (before, after))
    for name in sorted(was | is_):
        if name not in is_ or name not in was:
            yield f"{name} {'added' if name in is_ else 'removed'}"
            continue
        changes = [*_wheels(was[name], is_[name]), *_layers(was[name], is_[name])]
        if changes:
            yield f"{name}: {'; '.join(changes)}"


def _wheels(before: LockedPlatform, after: LockedPlatform) -> Iterator[str]:
    was, is_ = (_distributions(platform.wheels) for platform in (before, after))
    for name in sorted(was | is_):
        (old, old_digest), (new, new_digest) = was.get(name, ("absent", "")), is_.get(name, ("absent", ""))
        if old_digest != new_digest:
            yield f"{name} {old} → {new}" if old != new else f"{name} {old} with other bytes"


def _distributions(wheels: Iterable[LockedFile]) -> dict[str, tuple[str, str]]:
    """Version and digest by name, as the names of wheel files say them."""
    found = {}
    for wheel in wheels:
        name, version, *_ = (*wheel.path.rpartition("/")[2].split("-"), "")
        found[name] = (version, wheel.sha256)
    return found


def _layers(before: LockedPlatform, after: LockedPlatform) -> Iterator[str]:
    if before.layers == after.layers:
        if before.image_id != after.image_id:
            yield "image configuration changed"
        return
    was, is_ = (() if one.layers is UNSET else one.layers for one in (before, after))
    shared = len({layer.digest for layer in was} & {layer.digest for layer in is_})
    yield f"layers changed ({shared} of {len(is_)} the same)"


def _table(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for key in sorted({*before, *after}):
        if name == "request" and key not in _REQUESTED:
            continue
        yield from _value(f"{name}.{key}", before.get(key), after.get(key))


def _value(subject: str, before: object, after: object) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from _value(f"{subject}.{key}", before.get(key), after.get(key))
    elif before != after:
        was, is_ = (None if one is None else str(one) for one in (before, after))
        yield Change(subject, was, is_)
