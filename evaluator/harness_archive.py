"""The harness as one file: a zipapp of its sources, the same bytes wherever and whenever it is built."""

import io
import zipfile
from pathlib import Path

from evaluator.harness import VERSION

HARNESS_VERSION = VERSION

_SOURCES = Path(__file__).parent / "harness"
_NAME = "harness"
_START = b"import sys\n\nfrom harness.main import main\n\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16
_UNIX = 3


def build_harness(sources: Path = _SOURCES) -> bytes:
    """The zipapp, run as ``python harness.pyz JOB OUT``: the Python files below ``sources`` as ``harness``.

    Sorted, stored uncompressed, with fixed times and modes and no bytecode, so that equal sources give equal bytes.
    """
    paths = sorted(sources.rglob("*.py"), key=lambda path: path.relative_to(sources).as_posix())
    entries = {"__main__.py": _START}
    entries |= {f"{_NAME}/{path.relative_to(sources).as_posix()}": path.read_bytes() for path in paths}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as opened:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = _UNIX
            entry.external_attr = _MODE
            opened.writestr(entry, content)
    return archive.getvalue()
