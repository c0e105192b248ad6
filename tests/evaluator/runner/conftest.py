"""An engine of the suite's own with one small image in it: the Python that runs the tests, and nothing else."""

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from artifacts.digest import Descriptor, Digest
from artifacts.local import LocalStore
from evaluator.images.archive import docker_archive
from evaluator.images.config import encode_config
from evaluator.runner.engine import Engine
from evaluator.runner.host import this_host


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
        for path in _files():
            _add(layer, path)
    descriptor = store.put_file(folder / "layer.tar")
    config = encode_config(this_host().arch, [descriptor.digest])
    return PythonImage(store, config, store.put(io.BytesIO(config)).digest, (descriptor,))


def _files() -> list[Path]:
    """The interpreter, its standard library, and the shared libraries that these need."""
    interpreter = Path(sysconfig.get_config_var("BINDIR")) / f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = Path(sysconfig.get_config_var("LIBDEST"))
    left_out = {"test", "tests", "site-packages", "dist-packages", "idlelib", "ensurepip", "lib2to3", "__pycache__"}
    modules = []
    for folder, folders, names in os.walk(library):
        folders[:] = sorted(name for name in folders if name not in left_out and not name.startswith("config-"))
        modules += [Path(folder, name) for name in names]
    compiled = [str(path) for path in modules if path.suffix == ".so"]
    listing = subprocess.run(["ldd", str(interpreter), *compiled], check=True, capture_output=True, text=True).stdout
    shared = {Path(found) for found in re.findall(r"(/\S+) \(0x", listing)}
    return sorted({interpreter, *modules, *shared})


def _add(layer: tarfile.TarFile, path: Path) -> None:
    """Add the file's bytes under its own path, and under /usr/bin if it is the interpreter."""
    entry = tarfile.TarInfo(str(path).lstrip("/"))
    content = path.read_bytes()
    entry.size, entry.mode = len(content), 0o755
    layer.addfile(entry, io.BytesIO(content))
    if path.name.startswith("python3.") and path.parent.name == "bin":
        link = tarfile.TarInfo(f"usr/local/bin/{path.name}")
        link.type, link.linkname = tarfile.SYMTYPE, str(path)
        layer.addfile(link)
