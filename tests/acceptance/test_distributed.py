"""The example of a distributed training, its network extended: two ranks in a container, a rerun, and faults."""

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.image_scripts import inside
from tests.support.api.commands import Commands

pytestmark = [pytest.mark.engine, pytest.mark.image]

EXAMPLES = Path(__file__).parents[2] / "examples"
SPLIT_BRAIN = """
import os


class Private(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("private", __import__("torch").zeros(1))

    def forward(self, values):
        self.private += os.getpid()
        return values


def build_private(weights):
    return nn.Sequential(*build({}), Private())
"""
WIDE = """

def build_wide(weights):
    return nn.Sequential(*build({}), nn.Linear(10, 4096), nn.ReLU(), nn.Linear(4096, 10))
"""
GRADIENTS = 24_360 + 4 * (10 * 4096 + 4096 + 4096 * 10 + 10)
"""The bytes of its gradients, a number in float32 for each weight; the first are those of the example's network."""
FOUR_GRADIENTS = 4 * (64 * 2048 + 2048 + 2048 * 10 + 10)
"""The same of the network of four ranks (``inside/four_ranks.py``)."""
STRUCK = """
import os
import signal
import sys


class Struck(nn.Module):
    calls = 0

    def forward(self, values):
        self.calls += 1
        if "rank-1" in sys.argv and self.calls == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return values


def build_struck(weights):
    return nn.Sequential(*build({}), Struck())
"""


@pytest.fixture(scope="module")
def published(images: Commands) -> Commands:
    images.done("publish", EXAMPLES / "digits" / "dataset.yaml", EXAMPLES / "training" / "recipe.yaml")
    return images


def lock_request(commands: Commands, folder: Path, **replaced: str) -> Path:
    """The lock of the example's request, with texts replaced."""
    text = (EXAMPLES / "training" / "requests" / "digits-distributed.yaml").read_text()
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    request, lock = folder / "request.yaml", folder / "request.lock"
    request.write_text(text)
    commands.done("lock", request, "-o", lock)
    return lock


def publish_variant(commands: Commands, folder: Path, name: str, code: str, function: str) -> None:
    """Publish the example's recipe under another name, with code added that builds the network."""
    text = (EXAMPLES / "training" / "recipe.yaml").read_text()
    (folder / "network.py").write_text((EXAMPLES / "training" / "network.py").read_text() + code)
    text = text.replace("digits-cnn-adam", name).replace("function: build}", f"function: {function}}}")
    (folder / "recipe.yaml").write_text(text)
    commands.done("publish", folder / "recipe.yaml")


@pytest.fixture(scope="module")
def trained(published: Commands, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run of the example with further layers, so that headers weigh little, and few steps."""
    folder = tmp_path_factory.mktemp("distributed")
    publish_variant(published, folder, "digits-wide", WIDE, "build_wide")
    lock = lock_request(published, folder, **{"digits-cnn-adam": "digits-wide", "steps: 60": "steps: 10"})
    run: dict[str, Any] = published.done("run", lock)
    assert run["end"]["outcome"] == "done", run["end"]
    return lock, run


def test_two_ranks_have_the_bits_of_one_process_and_send_the_gradients_once(
    trained: tuple[Path, dict[str, Any]],
) -> None:
    _, run = trained
    metrics = {metric["name"]: metric["value"] for metric in run["end"]["metrics"]}
    assert metrics["loss_difference"] == 0
    assert metrics["communication_logical"] == GRADIENTS
    assert 0 <= metrics["communication"] - GRADIENTS <= 1024  # barriers and headers of gloo: within 1 percent
    assert metrics["efficiency"] == metrics["speedup"] / 2
    weights = run["end"]["details"]["distributed"]
    assert {*weights["ranks"]} == {weights["reference"]}
    assert run["end"]["details"]["ranks"]["is_bit_equal"]


def test_a_rerun_has_equal_bits_and_a_report_names_each_rank(
    published: Commands, trained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    lock, run = trained
    verdict = published.done("rerun", lock, "--against", run["run"])
    assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict
    assert "2 ranks and of their reference are bit-equal" in verdict["reasons"][0]
    published.done("report", run["run"], "-o", tmp_path / "report")
    assert "2 ranks end with equal weights" in (tmp_path / "report" / "report.html").read_text()
    assert len((tmp_path / "report" / "tables" / "ranks.csv").read_text().splitlines()) == 1 + 2


def test_four_ranks_send_three_halves_of_the_gradients_within_two_percent(published: Commands, tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in inside(published, "digits-torchscript", "four_ranks", folder)["ranks"]:
        assert rank["gradients"] == FOUR_GRADIENTS
        assert rank["sent"] == pytest.approx([1.5 * FOUR_GRADIENTS] * len(rank["sent"]), rel=0.02)


def run_to_failure(commands: Commands, lock: Path) -> dict[str, Any]:
    """The run of a lock that fails."""
    answer = commands.call("run", lock)
    assert answer.code == 1, answer
    return answer.document


def test_ranks_with_different_weights_fail_the_run(published: Commands, tmp_path: Path) -> None:
    publish_variant(published, tmp_path, "digits-private", SPLIT_BRAIN, "build_private")
    lock = lock_request(published, tmp_path, **{"digits-cnn-adam": "digits-private", "steps: 60": "steps: 3"})
    run = run_to_failure(published, lock)
    assert run["end"]["failure_class"] == "desync", run["end"]
    assert "the weights of rank-1 differ from those of rank-0" in run["end"]["failure_message"]


def find_processes(words: str) -> list[int]:
    """The processes of this machine whose command line has these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if words in line:
            found.append(int(path.parent.name))
    return found


def test_the_death_of_a_rank_ends_the_run_without_orphans(published: Commands, tmp_path: Path) -> None:
    """The rank is killed amid its steps, where the other waits for its gradients."""
    publish_variant(published, tmp_path, "digits-struck", STRUCK, "build_struck")
    lock = lock_request(published, tmp_path, **{"digits-cnn-adam": "digits-struck", "steps: 60": "steps: 10"})
    run = run_to_failure(published, lock)
    assert run["end"]["failure_class"] == "crash"
    assert "the rank-1 phase was killed by SIGKILL" in run["end"]["failure_message"]
    assert not find_processes("--phase rank-")
