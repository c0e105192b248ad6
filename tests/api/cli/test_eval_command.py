"""The command eval before anything runs: its options, its errors, and its dialogue on a terminal."""

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchlock.api.cli.eval_command import evaluate, repeat_command
from tests.support.api.commands import BENCHLOCK, Commands
from tests.support.api.terminal import SECONDS, clean_environment
from tests.support.registry.digits import DIGITS

STEPS = "[{decode: {color: L, exif: ignore}}, {cast: {dtype: float32}}, {transpose: {layout: NCHW}}]"
DIALOGUE = (
    ("model.license [LicenseRef-unknown]:", ""),
    ("model.task:", "guessing"),
    ("model.task:", "image-classification"),
    ("model.inputs[0].type:", "image"),
    ("model.inputs[0].steps:", STEPS),
    ("model.outputs[0].type:", "class-scores"),
    ("model.outputs[0].label_offset:", "0"),
    ("dataset.license [LicenseRef-unknown]:", "CC-BY-4.0"),
    ("Is that right? [Y/n]:", ""),
    ("Write these files, publish and run? [Y/n]:", "n"),
)
"""What is asked for, and the answers; the last one ends the command."""


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, Path, Path]:
    """The command for a model and a dataset in a folder."""
    shutil.copy(DIGITS / "models" / "digits.onnx", tmp_path)
    shutil.copytree(DIGITS / "data", tmp_path / "data")
    return "eval", tmp_path / "digits.onnx", tmp_path / "data" / "test-images.idx"


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path / "registry")


def test_without_a_terminal_each_missing_value_is_an_error_with_its_option(
    commands: Commands, words: tuple[str, Path, Path]
) -> None:
    answer = commands.call(*words)
    errors = {error["message"].split()[0]: error["next"] for error in answer.document["error"]["problems"]}
    assert answer.code == 2
    assert {"model.task", "model.inputs[0].steps", "model.license", "dataset.labels"} < errors.keys()
    for path, step in errors.items():
        assert f"{path}=VALUE" in step
        assert ("--yes" in step) == (path in {"model.license", "dataset.license", "dataset.labels"})
    assert not commands.registry.exists()
    assert sorted(path.name for path in words[1].parent.iterdir()) == ["data", "digits.onnx"]


def test_yes_accepts_defaults_and_nothing_else(commands: Commands, words: tuple[str, Path, Path]) -> None:
    steps = [f"--set=model.inputs[0].steps={STEPS}", "--set=model.inputs[0].type=image"]
    problems = commands.call(*words, "--yes", *steps).document["error"]["problems"]
    assert [problem["message"].split()[0] for problem in problems] == [
        "model.task",
        "model.outputs[0].type",
    ]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--set=model.task", "no value"),
        ("--set=task=regression", "unknown path"),
        ("--set=model.inputs=[1", "not YAML"),
        ("--answers=none.yaml", "cannot read"),
        ("--answers=/dev/zero", "has more than 64 MiB"),
        ("--labels=none.txt", "none.txt not found"),
        ("--code=none.py:network", "none.py not found"),
        ("--isolation=none", "isolation"),
    ],
)
def test_a_wrong_option_is_an_error(
    option: str, message: str, commands: Commands, words: tuple[str, Path, Path]
) -> None:
    assert message in commands.error(2, *words, option)["message"]


def test_answers_of_a_file_are_paths(commands: Commands, words: tuple[str, Path, Path], tmp_path: Path) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text("task: regression\n")
    error = commands.error(2, *words, "--answers", answers)
    assert (error["message"], error["where"]) == ("unknown path 'task'", f"task ({answers}, line 1)")
    answers.write_text("[1]\n")
    assert "not a mapping" in commands.error(2, *words, "--answers", answers)["message"]


def converse(
    command: list[str], environment: dict[str, str], dialogue: Sequence[tuple[str, str]] = DIALOGUE
) -> tuple[int, str]:
    """Answer the prompts of a dialogue on a terminal; the exit code, and everything that was printed."""
    leader, follower = pty.openpty()
    text = ""
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        for prompt, answer in dialogue:
            seen = ""
            while prompt not in seen:
                seen += os.read(leader, 1 << 16).decode()
            text += seen
            os.write(leader, f"{answer}\n".encode())
        while chunk := _read(leader):
            text += chunk
        code = process.wait(SECONDS)
    os.close(leader)
    return code, text


def _read(leader: int) -> str:
    """The next output; empty once the command has ended."""
    try:
        return os.read(leader, 1 << 16).decode()
    except OSError:
        return ""


def test_on_a_terminal_each_value_is_asked_for_until_it_is_right(
    commands: Commands, words: tuple[str, Path, Path]
) -> None:
    environment = clean_environment(BENCHLOCK_REGISTRY=str(commands.registry), NO_COLOR="1")
    code, text = converse([str(BENCHLOCK), *map(str, words)], environment)
    _, quiet_text = converse([str(BENCHLOCK), *map(str, words), "--quiet"], environment)
    assert code == 130
    assert "Error: 'guessing' is not one of" in text
    assert "name: the name of digits.onnx; written as digits" in text
    assert "name: the name of digits.onnx" not in quiet_text
    assert "model.task: no file states the task of the model" in quiet_text
    assert re.search(r"limits: the default limits; .*; written as \{time: 1h", text)
    assert re.search(r"Your answers, for a file that --answers reads:\s+model\.", text)
    assert f"To go on with them: benchlock eval {words[1]} {words[2]} --answers FILE" in text
    assert "nothing was written, published or run" in text
    assert sorted(path.name for path in words[1].parent.iterdir()) == ["data", "digits.onnx"]


def test_on_a_terminal_answers_that_do_not_fit_together_are_asked_for_again(
    commands: Commands, words: tuple[str, Path, Path]
) -> None:
    """Those about the same input; a kept answer is its default, and a single step is added to the former ones."""
    hwc_steps = STEPS.replace(", {transpose: {layout: NCHW}}", "")
    dialogue = [(prompt, hwc_steps if answer == STEPS else answer) for prompt, answer in DIALOGUE]
    dialogue[-1:] = [
        ("model.inputs[0].type [image]:", ""),
        (f"model.inputs[0].steps [{hwc_steps[:20]}", "{transpose: {layout: NCHW}}"),
        DIALOGUE[-1],
    ]
    environment = clean_environment(BENCHLOCK_REGISTRY=str(commands.registry), NO_COLOR="1")
    _, text = converse([str(BENCHLOCK), *map(str, words)], environment, [dialogue[0], *dialogue[2:]])
    revised = text.partition("These answers do not fit together:")[2]
    assert "the steps give HWC, not CHW" in revised
    assert "next: add {transpose: {layout: NCHW}} as the last step, or write layout: NHWC" in revised
    assert "model.task" not in revised.partition("Write these files")[0]
    assert f"model.inputs[0].steps: {STEPS}" in revised.partition("Your answers")[2]


def test_an_unknown_name_creates_no_registry(commands: Commands, words: tuple[str, Path, Path]) -> None:
    error = commands.error(2, "eval", "nothing", words[2])
    assert error["message"] == "unknown model 'nothing', and no file or folder has this name"
    assert not commands.registry.exists()
    error = commands.error(2, "eval", words[1].with_name("digist.onnx"), words[2])
    assert error["message"].endswith("digist.onnx not found")
    assert error["next"] == f"{words[1].parent} has no digist.onnx; did you mean {words[1]}?"
    assert not commands.registry.exists()


def test_an_answer_that_cannot_be_set_is_named_with_its_subject(
    commands: Commands, words: tuple[str, Path, Path]
) -> None:
    error = commands.error(2, *words, "--yes", "--set", "model.inputs[0].size.height=8")
    assert error["message"].startswith("cannot set model.inputs[0].size.height: ")
    assert (error["where"], error["next"]) == (
        "model.inputs[0].size.height",
        "give the whole value of model.inputs[0].size",
    )


def test_the_help_has_an_example_and_what_is_written() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchlock", "eval", "--help"], capture_output=True, text=True, check=True
    )
    assert "Example: benchlock eval" in done.stdout
    assert "--answers FILE" in done.stdout


def test_a_request_is_generated_by_init(commands: Commands, tmp_path: Path) -> None:
    manifests = (DIGITS / "models" / "digits-onnx.yaml", DIGITS / "dataset.yaml")
    written = commands.done("init", "request", *manifests, "-o", tmp_path)
    assert (written["manifest"], written["kind"]) == (str(tmp_path / "request.yaml"), "request")
    assert [finding["path"] for finding in written["findings"] if finding["todo"]] == ["dataset.split"]
    assert "already exists" in commands.error(2, "init", "request", "-o", tmp_path)["message"]
    assert "3 arguments" in commands.error(2, "init", "request", *manifests, "more", "-o", tmp_path)["message"]
    assert "2 arguments" in commands.error(2, "init", "model", *manifests, "-o", tmp_path)["message"]


def test_the_command_to_go_on_keeps_the_options_of_the_call() -> None:
    words = ["m x.onnx", "d", "--split", "test", "--set", "model.task=regression", "--set", "request.seed=1", "--yes"]
    with evaluate.make_context("eval", [*words, "--answers", "a.yaml"], resilient_parsing=False) as context:
        repeated = repeat_command(context, {"model.task"})
    assert repeated == "benchlock eval 'm x.onnx' d --set request.seed=1 --split test --yes"
