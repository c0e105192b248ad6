"""Steps of code: what a file of the model may do, and how it fails."""

import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from benchlock.evaluator.harness.core.failures import describe_error
from benchlock.evaluator.harness.core.job import Step
from benchlock.evaluator.harness.steps import StepError, Tensor, bind
from benchlock.evaluator.harness.steps.step_tensor import Geometry


def applied(folder: Path, tensor: Tensor, file: str = "code/steps.py", function: str = "halve") -> Tensor:
    (step,) = bind("tensor", [Step("python", {"file": file, "function": function})], folder)
    return step.apply(tensor)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "code/steps.py": """
            import numpy as np
            import tables
            from .tables import DIVISOR
            from . import deep

            calls = []

            def halve(value):
                calls.append(value.shape)
                value /= tables.DIVISOR
                return value

            def count(value):
                return value * 0 + len(calls)

            def add(value):
                return value + deep.more.AMOUNT

            def one(value):
                return value.max()

            def listed(value):
                return value.tolist()

            def leave(value):
                raise SystemExit(3)

            def fail(value):
                raise ValueError("no such thing")

            def channels_first(value):
                return value.transpose(2, 0, 1)[None]

            def on_its_side(value):
                return value.transpose(1, 0, 2)

            def letterboxed(value):
                return np.pad(value, [(1, 1), (0, 0), (0, 0)])

            NAME = "no function"
            """,
        "code/tables.py": "DIVISOR = 2\n",
        "code/deep/__init__.py": "from . import more\n",
        "code/deep/more.py": "AMOUNT = 40\n",
        "other/steps.py": "import tables\ndef halve(value):\n    return value / tables.DIVISOR + 100\n",
        "third/steps.py": "def halve(value):\n    return value\n",
        "third/tables.py": "DIVISOR = 3\n",
        "broken.py": "def broken(:\n",
        "absent.py": "import no_such_wheel\n",
        "leaving.py": "raise SystemExit('bye')\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(dedent(text))
    return tmp_path


def test_a_function_is_done_and_finds_its_siblings(folder: Path) -> None:
    found = applied(folder, Tensor(np.array([2.0, 4.0]), "C", 8000))
    assert (found.values.tolist(), found.layout, found.rate) == ([1, 2], None, None)
    assert applied(folder, Tensor(np.array([2.0])), function="add").values.tolist() == [42]
    assert applied(folder, Tensor(np.array([2.0, 7.0])), function="one").values.tolist() == 7


@pytest.mark.parametrize(
    ("function", "known"), [("halve", True), ("channels_first", True), ("on_its_side", False), ("letterboxed", False)]
)
def test_the_way_back_to_the_original_is_known_while_the_picture_keeps_its_size(
    folder: Path, function: str, known: bool
) -> None:
    way = Geometry.identity(8, 12).resized(4, 6)
    found = applied(folder, Tensor(np.ones((4, 6, 3)), "HWC", geometry=way), function=function)
    assert found.geometry == (way if known else None)
    assert applied(folder, Tensor(np.ones((4, 6, 3)), "HWC"), function=function).geometry is None


def test_the_way_back_outlives_code_on_a_picture_that_lies_flat(folder: Path) -> None:
    way = Geometry.identity(4, 6)
    assert applied(folder, Tensor(np.ones(24), geometry=way)).geometry == way


def test_a_function_cannot_change_what_it_was_given(folder: Path) -> None:
    stored = np.array([2.0, 4.0])
    stored.setflags(write=False)
    applied(folder, Tensor(stored))
    assert stored.tolist() == [2, 4]


def test_a_file_is_executed_once_and_files_of_one_name_are_told_apart(folder: Path) -> None:
    applied(folder, Tensor(np.zeros(2)))
    applied(folder, Tensor(np.zeros(2)))
    assert applied(folder, Tensor(np.zeros(1)), function="count").values.tolist() == [2]
    assert applied(folder, Tensor(np.zeros(1)), file="other/steps.py").values.tolist() == [100]


def test_a_function_that_fails_is_named_with_file_and_line(folder: Path) -> None:
    with pytest.raises(ValueError, match="no such thing") as caught:
        applied(folder, Tensor(np.zeros(1)), function="fail")
    lines = (folder / "code" / "steps.py").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "no such thing" in text)
    assert describe_error(caught.value) == f"ValueError: no such thing (code/steps.py, line {line})"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("listed", "listed returned list, expected a NumPy array"),
        ("leave", "leave exited with 3"),
        ("fail", "no such thing"),
    ],
)
def test_a_function_that_fails_fails_the_step(folder: Path, function: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        applied(folder, Tensor(np.zeros(1)), function=function)


@pytest.mark.parametrize(
    ("file", "function", "message"),
    [
        ("code/none.py", "halve", r"steps\[0\].python: StepError: none.py is not a Python file"),
        ("code/steps.py", "double", "steps.py has no function 'double'"),
        ("code/steps.py", "NAME", "steps.py has no function 'NAME'"),
        ("broken.py", "broken", "broken.py: SyntaxError: invalid syntax"),
        ("absent.py", "absent", "absent.py: ModuleNotFoundError: No module named 'no_such_wheel'"),
        ("leaving.py", "leaving", "leaving.py: SystemExit: bye"),
    ],
)
def test_code_that_cannot_be_used_is_refused_when_the_model_is_loaded(
    folder: Path, file: str, function: str, message: str
) -> None:
    with pytest.raises(StepError, match=message):
        bind("tensor", [Step("python", {"file": file, "function": function})], folder)


def test_siblings_of_one_name_in_two_folders_are_refused(folder: Path) -> None:
    applied(folder, Tensor(np.zeros(1)))
    with pytest.raises(StepError, match=r"tables.py is in both folders third and code"):
        applied(folder, Tensor(np.zeros(1)), file="third/steps.py")


@pytest.fixture(autouse=True)
def undone() -> object:
    """What the tests import is forgotten, and the path is as it was."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
