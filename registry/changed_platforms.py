"""What differs between the environments of two locked images, platform by platform."""

from collections.abc import Iterable, Iterator

from msgspec import UNSET

from benchlock.registry.lockfile import LockedFile, LockedImage, LockedLayer, LockedPlatform


def changed_platforms(before: LockedImage, after: LockedImage) -> Iterator[str]:
    """``linux/amd64/cpu: numpy 2.3.0 → 2.4.1; 3 of 5 layers the same``, one a platform."""
    was, is_ = ({_name(one, image): one for one in image.platforms} for image in (before, after))
    for name in sorted(was | is_):
        if name not in is_ or name not in was:
            yield f"{name} {'added' if name in is_ else 'removed'}"
        elif changes := [*_changes(was[name], is_[name])]:
            yield f"{name}: {'; '.join(changes)}"


def _name(platform: LockedPlatform, image: LockedImage) -> str:
    """With its Python, where the image has it with more than one."""
    alike = sum(str(one) == str(platform) for one in image.platforms)
    return str(platform) if alike == 1 else f"{platform} python {platform.python}"


def _changes(before: LockedPlatform, after: LockedPlatform) -> Iterator[str]:
    if before.python != after.python:
        yield f"python {before.python} → {after.python}"
    if before.finished or after.finished:
        if before.reference != after.reference:
            yield f"{_environment(before)} → {_environment(after)}"
        return
    wheels = [*_wheels(before, after)]
    yield from wheels
    if before.wheels_lock != after.wheels_lock and not wheels:
        yield "the lock of the wheels changed, the wheels the same"
    yield from _layers(before, after)


def _environment(platform: LockedPlatform) -> str:
    return "made of wheels" if platform.reference is UNSET else f"the finished image {platform.reference}"


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
    """The first layer is the base."""
    was, is_ = ([] if one.layers is UNSET else [*one.layers] for one in (before, after))
    if not (was and is_):
        if was or is_:
            yield "has layers now, for containers" if is_ else "has no layers any more, and runs as a process alone"
        return
    if was != is_:
        if was[0] != is_[0]:
            yield "base changed"
        yield f"{_shared(was, is_)} of {len(is_)} layers the same"
    elif before.image_id != after.image_id:
        yield "image configuration changed, the layers the same"


def _shared(before: list[LockedLayer], after: list[LockedLayer]) -> int:
    return len({layer.digest for layer in before} & {layer.digest for layer in after})
