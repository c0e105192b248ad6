"""Reading of a manifest that must have no problems."""

from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.authored_manifests import examine


def read_authored(text: bytes | str, name: str) -> Manifest:
    """Return the manifest in ``text``, or raise the first problem with all others; ``name`` is its name in errors."""
    reading = examine(text, name)
    reading.problems.refuse()
    assert reading.manifest is not None  # a missing key is ignored only where a TODO line is a problem itself
    return reading.manifest
