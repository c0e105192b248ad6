"""An image made of the Python that runs the tests, in one layer; without a Debian to be fetched, and in seconds."""

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.images.image_layers import PACKAGES, docker_archive, encode_config
from benchlock.evaluator.runner.host_platform import this_host


@dataclass(frozen=True)
class PythonImage:
    """The image, not loaded: its config and its one layer, which lies in ``store``."""

    store: LocalStore
    config: bytes
    id: Digest
    layers: tuple[Descriptor, ...]

    def archive(self) -> Iterator[bytes]:
        return docker_archive(self.config, self.layers, self.store)


def make_image(folder: Path, needed: Sequence[str] = ()) -> PythonImage:
    """The image, with what of the tests' environment is ``needed`` beside the standard library."""
    store = LocalStore(folder / "store")
    with tarfile.open(folder / "layer.tar", "w") as layer:
        for path, name in _files(needed):
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mode = path.stat().st_size, 0o755
            with path.open("rb") as content:
                layer.addfile(entry, content)
    descriptor = store.put_file(folder / "layer.tar")
    config = encode_config(this_host().arch, [descriptor.digest])
    return PythonImage(store, config, store.put(io.BytesIO(config)).digest, (descriptor,))


def _files(needed: Sequence[str]) -> list[tuple[Path, str]]:
    """Each file and its path in the image: the interpreter, its library, what the harness needs, shared libraries."""
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = Path(sysconfig.get_config_var("BINDIR")) / minor
    installed = Path(sysconfig.get_path("platlib"))
    library = [(path, str(path)) for path in _below(Path(sysconfig.get_config_var("LIBDEST")))]
    harness = [
        (path, f"{PACKAGES}/{path.relative_to(installed)}")
        for name in needed
        for found in sorted(installed.glob(name))
        for path in ([found] if found.is_file() else _below(found))
    ]
    compiled = [str(path) for path, _ in (*library, *harness) if ".so" in path.suffixes]
    listing = subprocess.run(["ldd", str(interpreter), *compiled], check=True, capture_output=True, text=True).stdout
    shared = {path for path in re.findall(r"(/\S+) \(0x", listing) if not path.startswith(str(installed))}
    paths = [(interpreter, str(interpreter)), (interpreter, f"/usr/local/bin/{minor}"), *library, *harness]
    return paths + [(Path(path), path) for path in sorted(shared)]


def _below(folder: Path) -> list[Path]:
    left_out = {"test", "tests", "site-packages", "dist-packages", "idlelib", "ensurepip", "lib2to3", "__pycache__"}
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in left_out and not name.startswith("config-"))
        found += [Path(place, name) for name in sorted(names)]
    return found
