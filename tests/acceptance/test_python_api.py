"""The first example of docs/how-to/python.md works as printed, on a folder and on a server."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import benchlock
from tests.support.api.commands import Commands, copied
from tests.support.api.serving import service

pytestmark = pytest.mark.image

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(params=["folder", "server"])
def location(request: pytest.FixtureRequest, built_once: Commands, tmp_path: Path) -> Iterator[str]:
    """Where a registry with an image of ONNX Runtime and the digits is; no container engine answers."""
    folder = copied(built_once, tmp_path / "registry", "").registry
    with benchlock.open(folder) as registry:
        registry.publish(DIGITS / "dataset.yaml", DIGITS / "models" / "digits-onnx.yaml")
    if request.param == "folder":
        yield str(folder)
    else:
        with service(folder) as served:
            yield served.url


def test_the_example_works_as_printed(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = re.search(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "how-to" / "python.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert example is not None
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("BENCHLOCK_REGISTRY", location)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    names: dict[str, benchlock.Registry] = {}
    exec(example[1], names)
    lines = capsys.readouterr().out.splitlines()
    assert float(lines[0].split()[0]) == pytest.approx(358 / 359)
    assert lines[1] == "reproduced"
    assert lines[2] == "pyarrow.Table"
    names["registry"].close()
