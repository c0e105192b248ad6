"""The walk through the API that a tutorial prints, by a real shell and curl: each block prints what stands below it."""

import sys
from pathlib import Path

import pytest

from tests.support.api.commands import Commands, copied
from tests.support.api.tutorials import read_blocks, run_script
from tests.support.registry.digits import DIGITS
from tests.support.servers.registry_server import free_port

pytestmark = pytest.mark.image

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "http-api.md"


@pytest.fixture
def checkout(built_once: Commands, tmp_path: Path) -> Path:
    """A folder as `make demo` leaves it, as far as the walk looks at it."""
    commands = copied(built_once, tmp_path / ".demo" / "registry", "")
    commands.done("publish", DIGITS / "dataset.yaml")
    (tmp_path / "examples").symlink_to(DIGITS.parent)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    return tmp_path


def test_the_walk_through_the_api_works_as_printed(checkout: Path) -> None:
    blocks = read_blocks(PAGE)
    assert len(blocks) == 4
    port = str(free_port())
    script = "printf '\\0'\n".join(commands for commands, _ in blocks)
    script = script.replace(":8080", f":{port}").replace("benchlock serve ", f"benchlock serve --port {port} ")
    said, complaints = run_script(script, checkout)
    logs = "\n".join(path.read_text() for path in sorted((checkout / ".demo").glob("*.log")))
    assert said.split("\0") == [printed for _, printed in blocks], (complaints, logs)
    assert complaints == ""
