"""Digests and versions of the released harnesses.

A lock names its harness by digest and version, and the author of a lock can name any. A harness sees labels, so
metrics decide something only if a released harness made them; those of any other harness are self-reported.

To release a harness, raise ``VERSION`` in ``evaluator/harness/__init__.py`` with the change that needs it, and add
the digest of the previous version here. That digest is of ``build_harness(sources)`` with the folder
``evaluator/harness`` of the last commit of that version:
``git archive COMMIT evaluator/harness | tar -x -C FOLDER``.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import IntegrityError
from benchlock.evaluator.harness import VERSION

if TYPE_CHECKING:
    from benchlock.registry.lock.lockfile import LockedHarness

RELEASES: Final[Mapping[Digest, str]] = MappingProxyType(
    {
        Digest("sha256:4d1f74ab96efd803149849b010f084469f5143ec076d5b03b9ae0914b4962c4f"): "1.0.0",
        Digest("sha256:f22a0a30610b11a3a151b2beba4f7b096d9b3debd8f541ad8d41a5b3732c46e7"): "1.1.0",
        Digest("sha256:9ccb83f8eadfab6010a2a32d247da239646c0aa1a61a9e138aec0cc16cea14e4"): "1.2.0",
        Digest("sha256:2958b81590db0d9083960971be936b3aaf795aaffd8780be93419be3cc9696b1"): "1.3.0",
        Digest("sha256:975c2c774ca265727213507264977cd74363e380425722ae062a77e71fe2524b"): "1.4.0",
        Digest("sha256:b1efb8d2ab7e535f1d47c30e19196449d5401b85d1fbe07c9d6be5834d94c722"): "1.5.0",
        Digest("sha256:eb14919ba51c08926186b9f4c890d0e5d5fb7792350f8d3d379848d9b9c1d2f8"): "1.6.0",
    }
)
"""The versions of released harnesses by digest, without this build's own harness."""


def is_released(harness: "LockedHarness") -> bool:
    """Return whether a lock names a released harness, or this build's own, under the right version."""
    return find_version(harness.digest) == harness.version


def find_version(digest: Digest) -> str | None:
    """Return the version of the released harness with this digest; None if there is none."""
    return RELEASES.get(digest) or (VERSION if digest == _digest_own() else None)


def check_version(harness: "LockedHarness") -> None:
    """Raise if a lock names a released harness under the version of another one.

    The version decides what a run must leave, so a false one would weaken the checks of its metrics.

    Raises:
        IntegrityError: The version is not the one that this harness was released with.
    """
    version = find_version(harness.digest)
    if version not in (None, harness.version):
        raise IntegrityError(
            f"the lock has harness {harness.version} with the digest of harness {version}",
            where=f"harness {harness.version}",
            next_step="lock the request again; this lock was edited by hand",
        )


@lru_cache(maxsize=1)
def _digest_own() -> Digest:
    from benchlock.evaluator.harness_archive import build_harness  # noqa: PLC0415 - most commands ask about no run

    return digest_bytes(build_harness())
