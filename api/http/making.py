"""Locks that the service makes of requests."""

from benchlock.api.image_lookup import public_look_up
from benchlock.api.wiring import Registry
from benchlock.evaluator.harness_archive import HARNESS_VERSION, build_harness
from benchlock.registry.lockfile import Lock
from benchlock.registry.locks import Harness, keep_lock, resolve_request, yanked
from benchlock.registry.requests import Request
from benchlock.registry.resolution.search import Preferences


def make_lock(registry: Registry, request: Request, preferences: Preferences) -> tuple[Lock, tuple[str, ...]]:
    """The lock that answers ``request``, kept, and warnings of yanked versions in it.

    No registry of images is asked on a network that is not public.

    Raises:
        ConflictError: nothing answers it, and why.
        BenchlockError: as ``registry.locks.keep_lock``.
    """
    resolution = resolve_request(request, registry.catalogue, preferences)
    harness = Harness(HARNESS_VERSION, build_harness())
    look_up = public_look_up(registry.store)
    made = keep_lock(request, resolution, harness, registry.store, registry.catalogue, look_up)
    return made, yanked(resolution)
