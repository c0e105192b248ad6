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
    """The zipapp, run as ``python harness.pyz JOB OUT``: the Python files below ``sources`` as ``harness``.

    Sorted, stored uncompressed, with fixed times and modes and no bytecode, so that equal sources give equal bytes.
    """
    paths = sorted(sources.rglob("*.py"), key=lambda path: path.relative_to(sources).as_posix())
    entries = {"__main__.py": _START}
    entries |= {f"{_NAME}/{path.relative_to(sources).as_posix()}": path.read_bytes() for path in paths}
    return _written(entries)


@lru_cache(maxsize=1)
def add_bytecode(harness: bytes) -> bytes:
    """The zipapp with the byte code of each source beside it, made by this interpreter, if it is this version's own.

    Compiling is half of what the harness takes to start, and each process of a run would do it again. An interpreter
    of another version ignores byte code that is not its own, and compiles as before. A harness that came with
    somebody's lock is left as it is: nothing but the run itself reads what others wrote.
    """
    if harness != build_harness():
        return harness
    with zipfile.ZipFile(io.BytesIO(harness)) as opened:
        entries = {entry.filename: opened.read(entry) for entry in opened.infolist()}
    return _written({**{f"{name}c": _bytecode(source, name) for name, source in entries.items()}, **entries})


def _bytecode(source: bytes, name: str) -> bytes:
    """What a ``.pyc`` file holds that is never compared with its source (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + _UNCHECKED + source_hash(source) + marshal.dumps(code)


def _written(entries: Mapping[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as opened:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = _UNIX
            entry.external_attr = _MODE
            opened.writestr(entry, content)
    return archive.getvalue()
