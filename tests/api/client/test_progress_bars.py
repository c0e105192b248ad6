"""Progress bars in the output of cells, in a Jupyter kernel; those of a terminal are tested with the command line."""

from typing import Any

import pytest

from benchlock.api.client.progress_bars import is_notebook
from tests.support.api.kernels import run_cells

TASKS = """
from threading import Thread
from time import sleep
from benchlock.api.client.progress_bars import NotebookBars, is_notebook

bars = NotebookBars(delay=0)
assert is_notebook()

def transfer(advance):
    for _ in range(8):
        sleep(0.1)
        advance(1)

with bars.task("fetching <b>\\x1b[2J", 10) as advance, bars.task("verifying"):
    print("started")
    thread = Thread(target=transfer, args=[advance])
    thread.start()
    thread.join()
with bars.task("recording"):
    sleep(0.5)
print("ended")
"""
QUICK = "with NotebookBars(delay=600).task('quick'):\n    sleep(0.5)"
AGAIN = "with bars.task('again'):\n    sleep(0.5)"
FAILING = "try:\n    with bars.task('failing'):\n        sleep(0.5)\n        1 / 0\nexcept ZeroDivisionError:\n    pass"
OPENED = "import benchlock\nregistry = benchlock.open('registry', create=True)\nprint(registry)"


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_cells(tmp_path_factory.mktemp("kernel"), TASKS, QUICK, AGAIN, FAILING, OPENED)


def states(answer: dict[str, Any], cell: int) -> list[tuple[str, dict[str, str]]]:
    return [(kind, data) for index, kind, data in answer["displays"] if index == cell]


def test_tasks_have_bars_in_html_and_text(answer: dict[str, Any]) -> None:
    shown = [data for _, data in states(answer, 0)]
    both = next(data for data in shown if "%" in data["text/plain"])
    assert "fetching <b>\\x1b[2J " in both["text/plain"]
    assert " ETA 0:0" in both["text/plain"]
    assert 'fetching &lt;b&gt;\\x1b[2J <progress value="0.' in both["text/html"]
    assert '<progress aria-label="verifying"></progress>' in both["text/html"]
    assert any("recording" in data["text/plain"] for data in shown)
    assert not any("<b>" in data["text/html"] for data in shown)


def test_a_cell_has_one_output_for_all_its_bars(answer: dict[str, Any]) -> None:
    for cell in (0, 2, 3):
        kinds = [kind for kind, _ in states(answer, cell)]
        assert kinds[0] == "display_data"
        assert set(kinds[1:]) == {"update_display_data"}


def test_nothing_is_left_of_them(answer: dict[str, Any]) -> None:
    for outputs in answer["outputs"]:
        assert [output["data"] for output in outputs if output["output_type"] == "display_data"] in (
            [],
            [{"text/plain": "", "text/html": ""}],
        )
    texts = [output["text"] for output in answer["outputs"][0] if output["output_type"] == "stream"]
    assert texts == ["started\n", "ended\n"]


def test_a_short_task_shows_nothing(answer: dict[str, Any]) -> None:
    assert answer["outputs"][1] == []


def test_a_registry_opens_in_a_kernel(answer: dict[str, Any]) -> None:
    (output,) = answer["outputs"][4]
    assert output["text"].startswith("<Registry ")


def test_a_test_is_no_notebook() -> None:
    assert not is_notebook()
