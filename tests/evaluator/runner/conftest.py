"""An engine of the suite's own, and an image made of the Python that runs the tests and of what the harness needs."""

import base64
import hashlib
import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from artifacts.digest import Descriptor, Digest
from artifacts.local import LocalStore
from evaluator.images.archive import docker_archive
from evaluator.images.config import PACKAGES, encode_config
from evaluator.runner.engine import Engine
from evaluator.runner.host import this_host

NEEDED = ("numpy*", "pillow*", "PIL", "safetensors*", "mlcommons_loadgen*", "mlperf_loadgen*")
"""What the harness imports, and what describes it, in the environment of the tests."""


@dataclass(frozen=True)
class PythonImage:
    """The image, not loaded: its config and its one layer, which lies in ``store``."""

    store: LocalStore
    config: bytes
    id: Digest
    layers: tuple[Descriptor, ...]

    def archive(self) -> Iterator[bytes]:
        return docker_archive(self.config, self.layers, self.store)


@pytest.fixture
def engine(engine_url: str) -> Iterator[Engine]:
    connected = Engine.connect(engine_url)
    assert connected is not None
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def python_image(tmp_path_factory: pytest.TempPathFactory) -> PythonImage:
    folder = tmp_path_factory.mktemp("python-image")
    store = LocalStore(folder / "store")
    with tarfile.open(folder / "layer.tar", "w") as layer:
        for path, name in _files():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mode = path.stat().st_size, 0o755
            with path.open("rb") as content:
                layer.addfile(entry, content)
    descriptor = store.put_file(folder / "layer.tar")
    config = encode_config(this_host().arch, [descriptor.digest])
    return PythonImage(store, config, store.put(io.BytesIO(config)).digest, (descriptor,))


def _files() -> list[tuple[Path, str]]:
    """Each file and its path in the image: the interpreter, its library, what the harness needs, shared libraries."""
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = Path(sysconfig.get_config_var("BINDIR")) / minor
    installed = Path(sysconfig.get_path("platlib"))
    library = [(path, str(path)) for path in _below(Path(sysconfig.get_config_var("LIBDEST")))]
    harness = [
        (path, f"{PACKAGES}/{path.relative_to(installed)}")
        for name in NEEDED
        for found in sorted(installed.glob(name))
        for path in ([found] if found.is_file() else _below(found))
    ]
    compiled = [str(path) for path, _ in (*library, *harness) if ".so" in path.suffixes]
    listing = subprocess.run(["ldd", str(interpreter), *compiled], check=True, capture_output=True, text=True).stdout
    shared = {path for path in re.findall(r"(/\S+) \(0x", listing) if not path.startswith(str(installed))}
    paths = [(interpreter, str(interpreter)), (interpreter, f"/usr/local/bin/{minor}"), *library, *harness]
    return paths + [(Path(path), path) for path in sorted(shared)]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """What the harness needs as wheels, made of the installed files as their records list them."""
    folder = tmp_path_factory.mktemp("wheels")
    return tuple(_wheel(distribution(name), folder) for name in ("numpy", "pillow", "safetensors", "mlcommons_loadgen"))


def _wheel(installed: Distribution, folder: Path) -> Path:
    root = Path(str(installed.locate_file("")))
    names = [str(file) for file in installed.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    record = next(name for name in names if name.endswith(".dist-info/RECORD"))
    contents = {name: (root / name).read_bytes() for name in names if name != record}
    rows = [f"{name},sha256={_record_digest(data)},{len(data)}" for name, data in contents.items()]
    tag = re.search(r"^Tag: (\S+)$", installed.read_text("WHEEL") or "", re.MULTILINE)
    assert tag is not None
    path = folder / f"{installed.name.replace('-', '_')}-{installed.version}-{tag[1]}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in contents.items():
            wheel.writestr(name, data)
        wheel.writestr(record, "\n".join([*rows, f"{record},,", ""]))
    return path


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _below(folder: Path) -> list[Path]:
    left_out = {"test", "tests", "site-packages", "dist-packages", "idlelib", "ensurepip", "lib2to3", "__pycache__"}
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in left_out and not name.startswith("config-"))
        found += [Path(place, name) for name in sorted(names)]
    return found
