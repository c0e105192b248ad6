"""The Debian base of the tests' images, made once and kept between sessions.

``python -m tests.support.system.base FOLDER`` makes it beforehand: most of that time is waiting for the network.
"""

import fcntl
import sys
import tempfile
from pathlib import Path

from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.images.base_image import debian_tarball


def keep_base(tarball: Path, kept: Path) -> None:
    """Write the base to ``tarball``, from the folder ``kept`` once it is there; of several processes one makes it."""
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        debian_tarball(tarball, kept, LocalStore(kept / "blobs"), SILENT)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="benchlock-base-") as folder:
        keep_base(Path(folder) / "base.tar", Path(sys.argv[1]))
