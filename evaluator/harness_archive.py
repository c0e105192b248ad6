"""The harness packed as a reproducible zip application."""

import io
import marshal
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path

from benchlock.evaluator.harness import VERSION

HARNESS_VERSION = VERSION

_SOURCES = Path(__file__).parent / "harness"
_NAME = "harness"
_START = b"import sys\n\nfrom harness.main import main\n\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16
_UNIX = 3
_UNCHECKED = (1).to_bytes(4, "little")


def build_harness(sources: Path = _SOURCES) -> bytes:
    """Build the zipapp of the Python files below ``sources``; it is run as ``python harness.pyz JOB OUT``.

    The entries are sorted and stored uncompressed, with fixed times and modes and no byte code, so equal sources give
    equal bytes.
    """
    paths = sorted(sources.rglob("*.py"), key=lambda path: path.relative_to(sources).as_posix())
    entries = {"__main__.py": _START}
    entries |= {f"{_NAME}/{path.relative_to(sources).as_posix()}": path.read_bytes() for path in paths}
    return _write_zip(entries)


@lru_cache(maxsize=1)
def add_bytecode(harness: bytes) -> bytes:
    """Return the zipapp with this interpreter's byte code for each source, if it is this version's own harness.

    Compiling takes half of the harness's start time, and each process of a run would compile again. An interpreter of
    another version ignores this byte code and compiles as before. A foreign harness is returned unchanged, because
    only the run itself may read untrusted files.
    """
    return compile_harness(harness) if harness == build_harness() else harness


def compile_harness(harness: bytes) -> bytes:
    """Return a trusted zipapp with this interpreter's byte code for each source."""
    with zipfile.ZipFile(io.BytesIO(harness)) as archive_file:
        entries = {entry.filename: archive_file.read(entry) for entry in archive_file.infolist()}
    return _write_zip({**{f"{name}c": _bytecode(source, name) for name, source in entries.items()}, **entries})


def _bytecode(source: bytes, name: str) -> bytes:
    """Return the content of a ``.pyc`` file that is never compared with its source (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + _UNCHECKED + source_hash(source) + marshal.dumps(code)


def _write_zip(entries: Mapping[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as archive_file:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = _UNIX
            entry.external_attr = _MODE
            archive_file.writestr(entry, content)
    return archive.getvalue()
