"""The config of an image: what an engine sets up, and, by its digest, the image id."""

from collections.abc import Sequence

from artifacts.canonical import canonical
from artifacts.digest import Digest

PREFIX = "/opt/benchlock"
PACKAGES = f"{PREFIX}/site-packages"
"""Where the wheels' modules are in an image."""
_PATH = f"{PREFIX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def encode_config(arch: str, layers: Sequence[Digest]) -> bytes:
    """The canonical JSON of an image of ``layers``, the lowest first: no times, no host, no history."""
    return canonical(
        {
            "architecture": arch,
            "os": "linux",
            "config": {
                "Env": [
                    f"PATH={_PATH}",
                    f"PYTHONPATH={PACKAGES}",
                    "PYTHONDONTWRITEBYTECODE=1",
                    "PYTHONNOUSERSITE=1",
                    "LANG=C.UTF-8",
                ],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": list(layers)},
        }
    )
