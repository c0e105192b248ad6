"""Differences between two locks, per artifact and per platform."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import UNSET, Struct

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.user_output import escape_line
from benchlock.registry.artifact_names import KINDS, Kind
from benchlock.registry.lock.lockfile import (
    Lock,
    LockedArtifact,
    LockedDataset,
    LockedFile,
    LockedImage,
    LockedPlatform,
)
from benchlock.registry.lock.manifest_diff import (
    Difference,
    find_content_changes,
    find_differences,
    find_file_changes,
    format_value,
    list_file_uses,
)
from benchlock.registry.manifests import Manifest


def find_platform_changes(before: LockedImage, after: LockedImage) -> Iterator[str]:
    """Yield a line for each changed platform.

    An example is ``linux/amd64/cpu: numpy 2.3.0 → 2.4.1; 3 of 5 layers unchanged``.
    """
    was, is_ = ({_name(platform, image): platform for platform in image.platforms} for image in (before, after))
    for name in sorted(was | is_):
        if name not in is_ or name not in was:
            yield f"{name} {'added' if name in is_ else 'removed'}"
        elif changes := [*_changes(was[name], is_[name])]:
            yield f"{name}: {'; '.join(changes)}"


def _name(platform: LockedPlatform, image: LockedImage) -> str:
    """Return the name of a platform, with its Python version if the image has several."""
    alike = sum(str(other) == str(platform) for other in image.platforms)
    return str(platform) if alike == 1 else f"{platform} python {platform.python}"


def _changes(before: LockedPlatform, after: LockedPlatform) -> Iterator[str]:
    if before.python != after.python:
        yield f"python {before.python} → {after.python}"
    if before.finished or after.finished:
        if before.reference != after.reference:
            yield f"{_find_platform(before)} → {_find_platform(after)}"
        return
    wheels = [*_wheels(before, after)]
    yield from wheels
    if before.wheels_lock != after.wheels_lock and not wheels:
        yield "wheels lock changed, wheels unchanged"
    yield from _layers(before, after)


def _find_platform(platform: LockedPlatform) -> str:
    return "built from wheels" if platform.reference is UNSET else f"the finished image {platform.reference}"


def _wheels(before: LockedPlatform, after: LockedPlatform) -> Iterator[str]:
    was, is_ = (_distributions(platform.wheels) for platform in (before, after))
    for name in sorted(was | is_):
        (old, old_digest), (new, new_digest) = was.get(name, ("absent", "")), is_.get(name, ("absent", ""))
        if old_digest != new_digest:
            yield f"{name} {old} → {new}" if old != new else f"{name} {old} with different bytes"


def _distributions(wheels: Iterable[LockedFile]) -> dict[str, tuple[str, str]]:
    """Return version and digest of each wheel by distribution name, from the file names."""
    by_name = {}
    for wheel in wheels:
        name, version, *_ = (*wheel.path.rpartition("/")[2].split("-"), "")
        by_name[name] = (version, wheel.sha256)
    return by_name


def _layers(before: LockedPlatform, after: LockedPlatform) -> Iterator[str]:
    """Yield changes of the layers; the first layer is the base."""
    was, is_ = ([] if platform.layers is UNSET else [*platform.layers] for platform in (before, after))
    if not (was and is_):
        if was or is_:
            yield "has layers now, runs in containers" if is_ else "no longer has layers, runs only as a process"
        return
    if was != is_:
        if was[0] != is_[0]:
            yield "base changed"
        shared = {layer.digest for layer in was} & {layer.digest for layer in is_}
        yield f"{len(shared)} of {len(is_)} layers unchanged"
    elif before.image_id != after.image_id:
        yield "image configuration changed, layers unchanged"


_WIDTH = 120
"""Maximum characters of a line; a longer change takes several lines."""

_NORMALIZED = ("limits", "scenario", "metrics")
"""Keys of the request that the lock also contains elsewhere, in their normalized form."""

_REQUEST_NAMES = {"seconds": "time", "bytes": "memory"}
"""The names of limits in requests."""


class Change(Struct, frozen=True):
    """A change from one lock to another; a side is null if the subject is absent there."""

    subject: str
    before: str | None
    after: str | None
    details: tuple[str, ...]

    def __str__(self) -> str:
        """Return one line, or several if it would be too long: one for each detail."""
        moved = "" if self.before == self.after else f" {self.before or 'absent'} → {self.after or 'absent'}"
        details = tuple(map(escape_line, self.details))
        head = escape_line(f"{self.subject}{moved}")
        line = head + (f": {', '.join(details)}" if details else "")
        return line if len(line) <= _WIDTH else "\n  ".join((f"{head}:", *details))


def diff(before: Lock, after: Lock, manifests: Mapping[Digest, Manifest]) -> tuple[Change, ...]:
    """Return the changes from one lock to another, artifacts first.

    The result is empty for the same lock, and has at least one change for different locks.

    Args:
        before: The old lock.
        after: The new lock.
        manifests: The known manifests, by digest. They allow naming files by their use and comparing steps; otherwise
            files
            are named by path.
    """
    if before.id == after.id:
        return ()
    changes: list[Change] = []
    for kind in ("model", "operator", "recipe", "dataset", "framework", "image"):
        changes += _artifact(kind, before, after, manifests)
    changes += (*_harness(before, after), *_request(before, after))
    changes += (*_settings("limits", before, after), *_settings("scenario", before, after), *_metrics(before, after))
    handled_keys = (*KINDS, "harness", "request", *_NORMALIZED)
    was, is_ = (
        {key: part for key, part in lock.document.items() if key not in handled_keys} for lock in (before, after)
    )
    changes += map(_make_change, find_differences(was, is_))
    return tuple(changes) or (Change("lock", before.id, after.id, ()),)


def _artifact(kind: Kind, before: Lock, after: Lock, manifests: Mapping[Digest, Manifest]) -> Iterator[Change]:
    if before.document.get(kind) == after.document.get(kind):
        return
    was, is_ = before.artifacts().get(kind), after.artifacts().get(kind)
    if was is None or is_ is None:
        old, new = (f"{artifact.name} {artifact.version}" if artifact else None for artifact in (was, is_))
        yield Change(kind, old, new, ())
        return
    details = [*_meaning(was, is_, manifests)]
    same_name = was.name == is_.name
    if same_name and was.version == is_.version and was.digest != is_.digest:
        details.insert(0, "different content of the same version")
    old, new = (artifact.version if same_name else f"{artifact.name} {artifact.version}" for artifact in (was, is_))
    yield Change(
        f"{kind}/{was.name}" if same_name else kind,
        old,
        new,
        tuple(details) or ("changed in keys that this version of benchlock does not know",),
    )


def _meaning(before: LockedArtifact, after: LockedArtifact, manifests: Mapping[Digest, Manifest]) -> Iterator[str]:
    if isinstance(before, LockedDataset) and isinstance(after, LockedDataset) and before.split != after.split:
        yield f"split {before.split} → {after.split}"
    if before.digest == after.digest:
        yield from _environment(before, after)
        return
    known_manifests = [manifests[artifact.digest] for artifact in (before, after) if artifact.digest in manifests]
    uses: dict[str, str] = {}
    for manifest in known_manifests:
        uses |= list_file_uses(manifest)
    details = [*find_file_changes(before, after, uses), *_environment(before, after)]
    if len(known_manifests) == 2:  # noqa: PLR2004 - both
        details += find_content_changes(*known_manifests)
        if not details:
            yield "content unchanged"
            return
    else:
        details.append("manifests not compared: they are not in this registry")
    if before.files and before.files == after.files:
        yield "files unchanged"
    yield from details


def _environment(before: LockedArtifact, after: LockedArtifact) -> Iterator[str]:
    if isinstance(before, LockedImage) and isinstance(after, LockedImage):
        yield from find_platform_changes(before, after)


def _harness(before: Lock, after: Lock) -> Iterator[Change]:
    was, is_ = before.harness, after.harness
    if was != is_:
        details = () if was.version != is_.version else ("different bytes of the same version",)
        yield Change("harness", was.version, is_.version, details)


def _request(before: Lock, after: Lock) -> Iterator[Change]:
    """Yield changed keys of the request; a key with a normalized form only if that form is unchanged."""
    for difference in find_differences(before.request, after.request, "request"):
        key = difference.path.split(".")[1].partition("[")[0]
        if key not in _NORMALIZED and difference.path != "request.dataset.split":
            yield _make_change(difference)
        elif key in _NORMALIZED and before.document[key] == after.document[key]:
            yield _make_change(difference, "equivalent")


def _settings(table: str, before: Lock, after: Lock) -> Iterator[Change]:
    """Yield changed limits or scenario settings, in the words of the request if both locks have them."""
    for difference in find_differences(before.document[table], after.document[table]):
        if difference.path.startswith("seeds") and before.request.get("seed") != after.request.get("seed"):
            continue  # the change of the seed implies them
        name = _REQUEST_NAMES.get(difference.path, difference.path)
        was, is_ = (_requested_settings(lock, table).get(name, UNSET) for lock in (before, after))
        both_requested = was is not UNSET and is_ is not UNSET
        yield _make_change(
            Difference(f"{table}.{name}", *((was, is_) if both_requested else (difference.before, difference.after)))
        )


def _requested_settings(lock: Lock, table: str) -> Mapping[str, Any]:
    """Return a table of the request in a lock, whose form nothing has checked, or an empty table."""
    settings = lock.request.get(table)
    return settings if isinstance(settings, Mapping) else {}


def _metrics(before: Lock, after: Lock) -> Iterator[Change]:
    was, is_ = before.metrics, after.metrics
    fates = (("no longer measured", was.keys() - is_.keys()), ("now measured", is_.keys() - was.keys()))
    details = [f"{' '.join(sorted(names))} {fate}" for fate, names in fates if names]
    details += (
        f"{name} has another definition ({was[name]} → {is_[name]}); its values are not comparable"
        for name in sorted(was.keys() & is_.keys())
        if was[name] != is_[name]
    )
    if details:
        yield Change("metrics", None, None, tuple(details))


def _make_change(difference: Difference, *details: str) -> Change:
    was, is_ = (None if value is UNSET else format_value(value) for value in (difference.before, difference.after))
    return Change(difference.path, was, is_, details)
