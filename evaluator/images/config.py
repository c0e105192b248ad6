"""The config of an image: what an engine sets up, and, by its digest, the image id."""

from collections.abc import Sequence

from benchlock.artifacts.canonical import canonical
from benchlock.artifacts.digest import Digest

PREFIX = "/opt/benchlock"
PACKAGES = f"{PREFIX}/site-packages"
"""Where the wheels' modules are in an image."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def encode_config(arch: str, layers: Sequence[Digest], settings: Sequence[str] = ()) -> bytes:
    """The canonical JSON of an image of ``layers``, the lowest first: no times, no host, no history.

    ``settings`` are the variables that the base sets, as ``NAME=value``; those of the same name here come first.
    """
    inherited = dict(setting.partition("=")[::2] for setting in settings)
    own = {
        "PATH": f"{PREFIX}/bin:{inherited.get('PATH', _PATH)}",
        "PYTHONPATH": PACKAGES,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "LANG": "C.UTF-8",
    }
    return canonical(
        {
            "architecture": arch,
            "os": "linux",
            "config": {
                "Env": [f"{name}={value}" for name, value in (own | {**inherited, **own}).items()],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": list(layers)},
        }
    )
