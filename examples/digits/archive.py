"""What makes a zip file the same whenever and wherever it is written."""

import zipfile
from collections.abc import Callable
from pathlib import Path


def rewrite(path: Path, keep: Callable[[str, bytes], bytes | None]) -> None:
    """Write a zip file anew without times, each entry as ``keep(name, content)`` returns it, left out for ``None``."""
    with zipfile.ZipFile(path) as read:
        entries = [(name, keep(name, read.read(name))) for name in read.namelist()]
    with zipfile.ZipFile(path, "w") as written:
        for name, content in entries:
            if content is not None:
                written.writestr(zipfile.ZipInfo(name), content)
