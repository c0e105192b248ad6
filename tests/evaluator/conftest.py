"""An engine of the suite's own, and an image made of the Python that runs the tests and of what the harness needs."""

import base64
import hashlib
import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from benchlock.evaluator.runner.container_engine import Engine
from tests.support.system.python_image import PythonImage, make_image

NEEDED = ("numpy*", "pillow*", "PIL", "safetensors*", "mlcommons_loadgen*", "mlperf_loadgen*")
"""What the harness imports, and what describes it, in the environment of the tests."""


@pytest.fixture
def engine(engine_url: str) -> Iterator[Engine]:
    connected = Engine.connect(engine_url)
    assert connected is not None
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Virtual environments, which take long to make, for registries to share: a run verifies each."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture(scope="session")
def python_image(tmp_path_factory: pytest.TempPathFactory) -> PythonImage:
    return make_image(tmp_path_factory.mktemp("python-image"), NEEDED)


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
