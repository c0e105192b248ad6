"""The notebook of the digits example: it works on a new registry, and shows what the committed one shows."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.examples.notebook_execution import NOTEBOOK
from tests.support.api.commands import Commands
from tests.support.api.kernels import ROOT

REMAKE = "`make notebook` writes the notebook anew"


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def text_of(output: dict[str, Any], kind: str = "text/html") -> str:
    content = output["text"] if output["output_type"] == "stream" else output["data"].get(kind, "")
    return content if isinstance(content, str) else "".join(content)


def shape(cells: list[dict[str, Any]]) -> list[tuple[str, list[tuple[str, list[str], list[str]]]]]:
    """What does not change from run to run: sources, types of outputs, and heads of tables without ids."""
    return [
        (
            text_of({"output_type": "stream", "text": cell["source"]}),
            [
                (
                    output["output_type"],
                    sorted(output.get("data", ())),
                    re.sub(r"run/\w{26}", "RUN", " ".join(re.findall(r"<th>.*?</th>", text_of(output)))).split(),
                )
                for output in cell["outputs"]
            ],
        )
        for cell in cells
    ]


@pytest.fixture(scope="module")
def executed(built_once: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("notebook") / "executed.ipynb"
    environments = built_once.registry / "environments"
    environments.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.examples.notebook_execution", str(target), str(environments)]
    subprocess.run(command, cwd=ROOT, check=True)
    return target


@pytest.mark.image
def test_the_notebook_works_on_a_new_registry(executed: Path) -> None:
    outputs = {"".join(cell["source"]).splitlines()[-1]: cell["outputs"] for cell in code_cells(executed)}
    assert text_of(outputs['print(registry.build_image("onnxruntime==1.31.1", layers=False))'][0]) == (
        "image/onnxruntime-cpu@1.0.0\n"
    )
    assert ": done</caption>" in text_of(outputs["run"][0])
    top1 = text_of(outputs['run.metrics["top1"].value, run.metrics["top1"].interval'][0], "text/plain")
    assert float(top1.strip("()").split(",")[0]) == pytest.approx(358 / 359)
    assert text_of(outputs["registry.claims(run)"][0]).count("<td>holds</td>") == 2
    assert ": reproduced</caption>" in text_of(outputs["rerun"][0])
    assert "<td>equal</td>" in text_of(outputs["registry.compare(run, rerun.run)"][0])
    assert text_of(code_cells(executed)[-1]["outputs"][0]).count("<td>done</td>") == 2


@pytest.mark.image
def test_its_committed_outputs_are_those_of_this_version(executed: Path) -> None:
    assert shape(code_cells(NOTEBOOK)) == shape(code_cells(executed)), REMAKE


@pytest.mark.image
def test_no_output_is_garbled(executed: Path) -> None:
    for path in (executed, NOTEBOOK):
        for cell in code_cells(path):
            for output in cell["outputs"]:
                assert output["output_type"] in ("stream", "execute_result"), output
                assert output.get("name", "stdout") == "stdout"
                shown = text_of(output) + text_of(output, "text/plain")
                assert not set(shown) & set("\r\x1b\b"), shown


def test_it_names_no_folder_of_the_machine_that_wrote_it() -> None:
    text = NOTEBOOK.read_text()
    assert not re.search(r"/(root|home|tmp|work|usr|Users)\b", text), REMAKE
    assert [cell for cell in code_cells(NOTEBOOK) if cell["outputs"]], REMAKE
