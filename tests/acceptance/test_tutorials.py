"""Every command block of a tutorial works, and prints what stands below it; timed phases are shorter than printed."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.api.tutorials import is_as_printed, read_blocks, run_script
from tests.support.servers.registry_server import free_port

pytestmark = pytest.mark.image

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
FIRST = "first-number"
OTHERS = ("own-model", "rerun", "compare-frameworks", "team-service")
WALKS = {"http-api"}
"""Run by test_walk.py."""
SHORTER = {
    "min_duration: 1s": "min_duration: 100ms",
    "dataset.license: CC-BY-4.0\n": "dataset.license: CC-BY-4.0\nrequest.scenario.min_duration: 100ms\n",
}
"""What makes the runs of the tutorials shorter than printed, in commands and in files of the example."""


def run_tutorial(name: str, folder: Path) -> None:
    blocks = read_blocks(TUTORIALS / f"{name}.md")
    assert blocks
    script = "".join(f"{commands}printf '\\0%s\\0' $?\n" for commands, _ in blocks)
    output, notices = run_script(shorten(script).replace("8080", str(free_port())), folder)
    parts = output.split("\0")[:-1]
    logs = "\n".join(path.read_text() for path in sorted((folder / ".demo").glob("*.log")))
    assert len(parts) == 2 * len(blocks), (parts, notices, logs)
    failures = [
        f"{commands}\nexit code {status}, output:\n{said}"
        for (commands, printed), said, status in zip(blocks, parts[::2], parts[1::2], strict=True)
        if status != "0" or (printed and not is_as_printed(said, printed))
    ]
    assert (failures, "error: " in notices) == ([], False), "\n\n".join([*failures, notices, logs[-2000:]])


def shorten(text: str) -> str:
    for printed, shorter in SHORTER.items():
        text = text.replace(printed, shorter)
    return text


def test_what_is_shortened_is_in_the_tutorials_or_their_requests() -> None:
    paths = [*TUTORIALS.glob("*.md"), *(ROOT / "examples" / "digits" / "requests").iterdir()]
    texts = "".join(path.read_text() for path in paths)
    assert all(printed in texts for printed in SHORTER)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the repository in which benchlock is installed, after the first tutorial."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "Makefile").symlink_to(ROOT / "Makefile")
    shutil.copytree(ROOT / "examples" / "digits", folder / "examples" / "digits")
    for request in (folder / "examples" / "digits" / "requests").iterdir():
        request.write_text(shorten(request.read_text()))
    for name in ("pyproject.toml", "requirements/runtime.txt"):  # older than the environment, so it is up to date
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
        os.utime(folder / name, (0, 0))
    (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
    run_tutorial(FIRST, folder)
    return folder


@pytest.mark.parametrize("name", OTHERS)
def test_a_tutorial_works_as_printed(checkout: Path, name: str) -> None:
    run_tutorial(name, checkout)


def test_every_tutorial_is_run() -> None:
    assert {path.stem for path in TUTORIALS.glob("*.md")} == {FIRST, *OTHERS} | WALKS


@pytest.mark.parametrize(
    ("output", "printed", "answer"),
    [
        ("a  b\n\nc\n", "a b\nc\n", True),
        ("a 17 b\n", "a … b\n", True),
        ("x\ny\nend 5\n", "…\nend …\n", True),
        ("x\ny\nfin\n", "…\nend …\n", False),
        ("a b c\n", "a b\n", False),
        ("a+b\n", "a.b\n", False),
    ],
)
def test_output_is_compared_but_for_what_is_left_out(output: str, printed: str, answer: bool) -> None:
    assert is_as_printed(output, printed) is answer
