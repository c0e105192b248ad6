"""Build each framework twice, and compare the two images.

``python -m tests.support.system.same_image NAME==VERSION…`` builds first as the caller, then as another user, in
another folder and with another umask. It takes minutes, and gigabytes of the disk for that time, so the suite does it
with small wheels alone.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.images.base_image import debian_tarball
from tests.support.api.commands import BENCHLOCK, Commands

_AS_ANOTHER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


def this_user(arguments: Sequence[str], folder: Path) -> str:
    """The image id of ``image build`` with ``arguments``, in a registry of its own below ``folder``."""
    return _image_id(["sh", "-c", 'umask 022; exec "$0" "$@"'], arguments, folder / "one")


def another_user(arguments: Sequence[str], folder: Path) -> str:
    """The same as user 1000 of a user namespace, where the kernel has them; with another umask in any case."""
    allowed = subprocess.run([*_AS_ANOTHER, "true"], check=False, capture_output=True).returncode == 0
    start = ["sh", "-c", 'umask 077; exec "$0" "$@"']
    return _image_id([*_AS_ANOTHER, *start] if allowed else start, arguments, folder / "another" / "and" / "longer")


def _image_id(start: list[str], arguments: Sequence[str], registry: Path) -> str:
    command = [*start, str(BENCHLOCK), "--registry", str(registry), "--json", "image", "build", *arguments]
    done = subprocess.run(command, env=Commands(registry).environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["image"]["image_id"])


def main(frameworks: Sequence[str]) -> int:
    """Print a line a framework; 1 where two builds differ."""
    same = True
    with tempfile.TemporaryDirectory(prefix="same-image-") as root:
        base = Path(root) / "base.tar"
        debian_tarball(base, Path(root) / "cache", LocalStore(Path(root) / "blobs"), SILENT)
        for framework in frameworks:
            start = time.monotonic()
            with tempfile.TemporaryDirectory(dir=root) as folder:
                arguments = (framework, "--base", str(base))
                found = [build(arguments, Path(folder)) for build in (this_user, another_user)]
            same = same and found[0] == found[1]
            verdict = "the same image" if found[0] == found[1] else "DIFFERENT IMAGES"
            sys.stdout.write(
                f"{framework}: {verdict} {' '.join(dict.fromkeys(found))} ({time.monotonic() - start:.0f} s)\n"
            )
            sys.stdout.flush()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
