"""Small real wheels, an index that is a folder of them, and the Debian base, which is made once and kept."""

import base64
import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.images.build import Builder, BuildOptions, BuiltImage
from benchlock.evaluator.images.external_tools import workspace


def write_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    files: Mapping[str, str] | None = None,
    *,
    requires: tuple[str, ...] = (),
    tag: str = "py3-none-any",
) -> Path:
    """Write a wheel of ``files`` (path to text; by default one module) into ``folder``."""
    module = name.replace("-", "_")
    stem = f"{module}-{version}"
    contents = {f"{module}/__init__.py": f"NAME = {name!r}\n"} if files is None else dict(files)
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {requirement}" for requirement in requires)]
    contents[f"{stem}.dist-info/METADATA"] = "\n".join(["Metadata-Version: 2.1", *metadata, ""])
    contents[f"{stem}.dist-info/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
    record = "".join(f"{path},sha256={_record_digest(text)},{len(text)}\n" for path, text in contents.items())
    contents[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n"
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in contents.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return wheel


def write_index(folder: Path) -> None:
    """Write two frameworks, what the harness requires, and ``same``, which shares a file with ``numpy``."""
    shared = {"numpy/__init__.py": "def f(x):\n    return x in {'b', 'a', 3}\n"}
    write_wheel(folder, "numpy", "2.1.0", {**shared, "numpy/bad.py": "print 1\n"})
    write_wheel(folder, "numpy", "2.3.0")
    write_wheel(folder, "numpy", "3.0.0")
    write_wheel(folder, "same", files={**shared, "tests/__init__.py": ""})
    write_wheel(folder, "other", files={"tests/__init__.py": "# another\n"})
    write_wheel(folder, "pillow", "13.0.0", {"PIL/__init__.py": "x = 1\n", "PIL/Image.py": "from . import x\n"})
    write_wheel(folder, "pyarrow", "26.0.1")
    write_wheel(folder, "pycocotools", "2.0.11")
    write_wheel(folder, "safetensors", "0.8.0")
    write_wheel(folder, "tokenizers", "0.23.3")
    write_wheel(folder, "mlcommons-loadgen", "6.0.17", {"mlperf_loadgen.py": "VALID = True\n"})
    write_wheel(folder, "flatbuffers", "25.1")
    write_wheel(folder, "onnxruntime", "1.31.1", requires=("flatbuffers", "numpy<2.3"))
    write_wheel(folder, "onnxruntime", "1.30.0", requires=("flatbuffers", "numpy<2"))
    write_wheel(folder, "ai-edge-litert", "2.3.0", requires=("flatbuffers", "numpy<2.3"))


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a wheel (name, version, files, requires, tag) into the index, and gives its path."""
    return partial(write_wheel, tmp_path / "index")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip is configured to look into, and nowhere else."""
    write_index(tmp_path / "index")
    configure_pip(monkeypatch, tmp_path / "index")
    return tmp_path / "index"


def configure_pip(environment: pytest.MonkeyPatch, folder: Path) -> None:
    """Make ``folder`` the only index that the user's pip configuration names."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        environment.delenv(name)
    environment.setenv("PIP_CONFIG_FILE", os.devnull)
    environment.setenv("PIP_NO_INDEX", "1")
    environment.setenv("PIP_FIND_LINKS", str(folder))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


@pytest.fixture(scope="session")
def small_builds(base_tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BuiltImage, ...]]:
    """Three builds of small wheels on the Debian base, in three folders.

    The same one twice, under another umask the second time; then another framework. All the rest is as in a build for
    users.
    """
    index = tmp_path_factory.mktemp("index")
    write_index(index)
    options = BuildOptions(base=base_tarball, requirements=("same",), version="1.4.0")
    with workspace(tmp_path_factory.mktemp("builds")) as root, umask(0o022):
        store = LocalStore(root / "blobs")

        def build(spec: str, folder: str, mask: int) -> BuiltImage:
            (root / folder).mkdir(parents=True)
            with umask(mask):
                return Builder(root / folder, root / "cache", store, SILENT).build(spec, options)

        # The small wheels are for these builds alone: tests that follow resolve the real ones.
        with pytest.MonkeyPatch.context() as environment:
            configure_pip(environment, index)
            builds = (
                build("onnxruntime==1.31.1", "one", 0o022),
                build("onnxruntime==1.31.1", "another/and/longer", 0o077),
                build("litert==2.3.0", "two", 0o022),
            )
        yield builds


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _record_digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
