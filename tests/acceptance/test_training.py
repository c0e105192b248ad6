"""The recipes of ``examples/training``: locked, trained in a container, repeated bit for bit, and promoted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.support.api.commands import Commands

pytestmark = [pytest.mark.engine, pytest.mark.image]

EXAMPLES = Path(__file__).parents[2] / "examples"
REPEATS = 2
SEEDS = [1022875441, 141673547]
STEPS = 1438 // 64
"""The steps of an epoch."""
METRICS = {
    "epochs_to_quality",
    "samples_to_quality",
    "time_to_quality",
    "cpu_time_to_quality",
    "training_throughput",
    "final_quality",
}


@pytest.fixture(scope="module")
def published(images: Commands) -> Commands:
    recipes = [EXAMPLES / "training" / f"{name}.yaml" for name in ("recipe", "recipe_tf", "recipe-own-adam")]
    images.done("publish", EXAMPLES / "digits" / "dataset.yaml", *recipes)
    return images


def lock_request(commands: Commands, folder: Path, name: str = "digits", **replaced: str) -> Path:
    """The lock of an example's request with few repeats and an easy target."""
    text = (EXAMPLES / "training" / "requests" / f"{name}.yaml").read_text()
    replaced = {"repeats: 10": f"repeats: {REPEATS}", "value: 0.97": "value: 0.9"} | replaced
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    request, lock = folder / "request.yaml", folder / f"{name}.lock"
    request.write_text(text)
    commands.done("lock", request, "-o", lock)
    return lock


Trained = tuple[Path, dict[str, Any]]
"""A lock, and its run."""


def train(commands: Commands, lock: Path) -> Trained:
    run: dict[str, Any] = commands.done("run", lock)
    assert run["end"]["outcome"] == "done", run["end"]
    return lock, run


@pytest.fixture(scope="module")
def pytorch(published: Commands, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(published, lock_request(published, tmp_path_factory.mktemp("training")))


@pytest.fixture(scope="module")
def tensorflow(published: Commands, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(published, lock_request(published, tmp_path_factory.mktemp("training"), "digits-tensorflow"))


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_a_training_reports_medians_over_repeats(framework: str, request: pytest.FixtureRequest) -> None:
    _, run = request.getfixturevalue(framework)
    metrics = {metric["name"]: metric for metric in run["end"]["metrics"]}
    assert metrics.keys() == METRICS  # the olympic mean needs 5 repeats
    assert {metric["n"] for metric in metrics.values()} == {REPEATS}
    assert metrics["final_quality"]["value"] >= 0.9
    epochs = metrics["epochs_to_quality"]["value"]
    assert metrics["samples_to_quality"]["value"] == epochs * STEPS * 64
    repeats = run["end"]["details"]["training"]["repeats"]
    assert len({repeat["weights"] for repeat in repeats}) == REPEATS
    assert [repeat["seed"] for repeat in repeats] == SEEDS


def test_a_report_on_a_training_shows_its_curve_and_its_repeats(
    published: Commands, pytorch: Trained, tmp_path: Path
) -> None:
    _, run = pytorch
    published.done("report", run["run"], "-o", tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert f"{REPEATS} of {REPEATS} repeats reach top1 0.9 on the split test" in page
    assert "Quality by epoch" in page
    assert len((tmp_path / "report" / "tables" / "repeats.csv").read_text().splitlines()) == 1 + REPEATS
    published.done("export", run["run"], "--format", "in-toto", "-o", tmp_path / "statement.json")
    subjects = {one["name"]: one["digest"] for one in json.loads((tmp_path / "statement.json").read_text())["subject"]}
    for repeat, facts in enumerate(run["end"]["details"]["training"]["repeats"]):
        assert f"sha256:{subjects[f'weights-{repeat}']['sha256']}" == facts["weights"]


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_a_rerun_has_equal_bits_and_promotes_to_the_same_model(
    published: Commands, framework: str, request: pytest.FixtureRequest
) -> None:
    lock, run = request.getfixturevalue(framework)
    name = f"digits-again-{framework}"
    first = published.done("promote", run["run"], "--as", f"{name}@1.0.0")
    verdict = published.done("rerun", lock, "--against", run["run"])
    (speed,) = published.done("compare", run["run"], verdict["run"], "--mlperf")["speeds"]
    assert (speed["answer"], speed["ratio"], speed["repeats"]) == ("undecided", 1, [REPEATS, REPEATS])
    assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict
    second = published.done("promote", verdict["run"], "--as", f"{name}@1.0.0")
    assert (first["changed"], second["changed"]) == (True, False)
    assert first["digest"] == second["digest"]
    origin = published.done("why", f"model/{name}")
    facts = run["end"]["details"]["training"]["repeats"][0]
    assert origin["trained"] == {"lock": run["lock"], "repeat": 0, "seed": SEEDS[0], "weights": facts["weights"]}
    assert origin["artifacts"]["dataset"] == "dataset/digits@1.0.0"
    assert origin["run"] in (run["run"], verdict["run"])
    for trained_here in (run["run"], verdict["run"]):
        published.done("hide", trained_here, "--reason", "a test of origins")
    assert published.done("why", f"model/{name}")["run"] is None
    for trained_here in (run["run"], verdict["run"]):
        published.done("hide", trained_here, "--undo")
    other = published.error(2, "promote", run["run"], "--as", f"{name}@1.0.0", "--repeat", "1")
    assert "already published with different content" in str(other)


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_a_promoted_model_is_evaluated_like_any_other(
    published: Commands, framework: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    _, trained = request.getfixturevalue(framework)
    published.done("promote", trained["run"], "--as", f"digits-cnn-{framework}@1.0.0")
    path, lock = tmp_path / "request.yaml", tmp_path / "promoted.lock"
    path.write_text(
        f"""
schema: 1
kind: evaluation
name: promoted
model: {{name: digits-cnn-{framework}, version: "^1.0"}}
dataset: {{name: digits, version: "^1.0", split: test}}
hardware: {{os: linux, arch: amd64, device: cpu}}
limits: {{time: 5m, memory: 2GiB, cpus: 1, processes: 256}}
scenario: {{name: accuracy, batch: 359}}
metrics: [top1]
seed: 7
"""
    )
    published.done("lock", path, "-o", lock)
    run = published.done("run", lock)
    (metric,) = run["end"]["metrics"]
    assert metric["value"] >= 0.9


def read_losses(commands: Commands, run: str, folder: Path) -> NDArray[np.float64]:
    """The losses of the steps of the first repeat of a run."""
    commands.done("get", run, "-o", folder)
    losses: NDArray[np.float64] = load_file(next(folder.rglob("samples.safetensors")))["0/loss"]
    return losses


@pytest.fixture(scope="module")
def losses(published: Commands, pytorch: Trained, tmp_path_factory: pytest.TempPathFactory) -> NDArray[np.float64]:
    """The losses of PyTorch's training: those of any other until it differs."""
    found = read_losses(published, pytorch[1]["run"], tmp_path_factory.mktemp("losses") / "files")
    assert len(found) >= 2 * STEPS
    return found


def publish_changed(
    commands: Commands, folder: Path, recipe: str = "recipe", code: str = "", into: str = "network.py", **replaced: str
) -> None:
    """Publish a recipe of the examples with parts of its text replaced, and with code added to one of its files."""
    text = (EXAMPLES / "training" / f"{recipe}.yaml").read_text()
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    for path in (EXAMPLES / "training").glob("*.py"):
        (folder / path.name).write_text(path.read_text() + (code if path.name == into else ""))
    (folder / "recipe.yaml").write_text(text)
    commands.done("publish", folder / "recipe.yaml")


LEAK = """
KEPT = []


class Leaky(nn.Module):
    def forward(self, values):
        KEPT.append(__import__("torch").zeros(2 << 20))
        return values


def build_leaky(weights):
    network = build(weights)
    return network if weights else nn.Sequential(*network, Leaky())
"""


MEMORY = ("weights", "gradients", "optimizer", "saved", "transient")
MEASURED = {"  - final_quality\n": "".join(f"  - {name}\n" for name in (
    "final_quality", "step_memory", *(f"memory_{part}" for part in (*MEMORY, "growth"))
))}  # fmt: skip


@pytest.fixture(scope="module")
def missed(published: Commands, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run of two epochs that miss their target, the second at half the learning rate, of a network that leaks."""
    folder = tmp_path_factory.mktemp("missed")
    named = {"digits-cnn-adam": "digits-scheduled"}
    schedule = {"batch: 64\n": "batch: 64\nschedule: {name: step, milestones: [1], factor: 0.5}\n"}
    publish_changed(published, folder, code=LEAK, **named, **schedule, **{"function: build}": "function: build_leaky}"})
    few = {"repeats: 10": "repeats: 1", "epochs: 40": "epochs: 2", "value: 0.97": "value: 1.0"}
    return train(published, lock_request(published, folder, "digits-distribution", **named, **few, **MEASURED))[1]


def test_a_missed_target_is_a_result_that_only_an_option_promotes(published: Commands, missed: dict[str, Any]) -> None:
    names = {metric["name"] for metric in missed["end"]["metrics"] if "memory" not in metric["name"]}
    assert names == {"training_throughput", "final_quality"}
    error = published.error(1, "promote", missed["run"], "--as", "digits-missed@1.0.0")
    assert "missed its target, top1 1 on the split test" in str(error)
    assert published.done("promote", missed["run"], "--as", "digits-missed@1.0.0", "--below-target")["changed"]


def test_a_schedule_changes_the_learning_rate_from_its_milestone_on(
    published: Commands, missed: dict[str, Any], losses: NDArray[np.float64], tmp_path: Path
) -> None:
    """In PyTorch; ``test_formats`` shows that TensorFlow's trainer takes the rate that it is given."""
    scheduled = read_losses(published, missed["run"], tmp_path / "files")
    assert len(scheduled) == 2 * STEPS
    assert scheduled[: STEPS + 1].tobytes() == losses[: STEPS + 1].tobytes()
    assert scheduled[STEPS + 1] != losses[STEPS + 1]


@pytest.fixture(scope="module")
def custom(published: Commands, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run of one epoch with the optimizer of the examples and a micro-batch of the size of the batch."""
    return train_custom(published, tmp_path_factory.mktemp("custom"), 64, **MEASURED)


def train_custom(commands: Commands, folder: Path, size: int, **replaced: str) -> dict[str, Any]:
    named, settings = {"digits-cnn-adam": "digits-cnn-own-adam"}, f"settings: {{micro_batch: {size}}}"
    few = {"repeats: 10": "repeats: 1", "epochs: 40": "epochs: 1", "seed: 42": f"{settings}\nseed: 42"}
    return train(commands, lock_request(commands, folder, **named, **few, **replaced))[1]


def test_the_memory_of_a_step_is_the_sum_of_its_parts_and_a_leak_is_found(
    custom: dict[str, Any], missed: dict[str, Any]
) -> None:
    for run, leaked in ((custom, 0), (missed, 8 << 20)):
        values = {metric["name"]: metric["value"] for metric in run["end"]["metrics"]}
        assert values["step_memory"] == sum(values[f"memory_{part}"] for part in MEMORY)
        assert values["memory_growth"] == leaked
        parameters = 16 * 9 + 16 + 32 * 16 * 9 + 32 + 128 * 10 + 10
        assert values["memory_weights"] == 4 * parameters
        assert values["memory_optimizer"] >= 2 * values["memory_weights"]  # and its counts of steps
        assert values["memory_saved"] > 0
        operators = run["end"]["details"]["training"]["breakdown"]["operators"]
        assert "convolution_backward" in {operator["kind"] for operator in operators}


def test_a_custom_optimizer_has_the_bits_of_pytorchs(
    published: Commands, custom: dict[str, Any], losses: NDArray[np.float64], tmp_path: Path
) -> None:
    """And a micro-batch of the size of the batch is the batch itself."""
    assert read_losses(published, custom["run"], tmp_path / "files").tobytes() == losses[:STEPS].tobytes()


def test_micro_batches_change_no_more_than_the_rounding_of_losses(
    published: Commands, losses: NDArray[np.float64], tmp_path: Path
) -> None:
    """Here of 30, 30 and 4 samples."""
    parts = read_losses(published, train_custom(published, tmp_path, 30)["run"], tmp_path / "files")
    assert parts.tobytes() != losses[:STEPS].tobytes()
    np.testing.assert_allclose(parts, losses[:STEPS], rtol=1e-6, atol=0)


def test_a_recipe_starts_from_the_weights_of_a_trained_model(
    published: Commands, pytorch: Trained, losses: NDArray[np.float64], tmp_path: Path
) -> None:
    """In PyTorch; ``test_formats`` shows it of TensorFlow's trainer."""
    published.done("promote", pytorch[1]["run"], "--as", "digits-base@1.0.0")
    published.done("get", "model/digits-base", "-o", tmp_path / "base")
    weights = next((tmp_path / "base").rglob("weights.safetensors"))
    (tmp_path / "base.safetensors").write_bytes(weights.read_bytes())
    named, file = (
        {"digits-cnn-adam": "digits-tuned"},
        "{path: base.safetensors, role: weights, source: ./base.safetensors}",
    )
    publish_changed(published, tmp_path, **named, **{"files:\n": f"files:\n  - {file}\n"})
    few = {"repeats: 10": "repeats: 1", "epochs: 40": "epochs: 1", "value: 0.97": "value: 0.5"}
    _, run = train(published, lock_request(published, tmp_path, **named, **few))
    assert read_losses(published, run["run"], tmp_path / "tuned")[0] < min(losses[:5])
    published.done("promote", run["run"], "--as", "digits-tuned@1.0.0")
    shown = published.done("show", "model/digits-tuned")
    assert {file["path"] for file in shown["manifest"]["files"]} >= {"weights.safetensors"}
    assert "base.safetensors" not in {file["path"] for file in shown["manifest"]["files"]}
    origin = published.done("why", "model/digits-tuned")
    digest = pytorch[1]["end"]["details"]["training"]["repeats"][0]["weights"]
    assert origin["initial_weights"] == {"base.safetensors": digest}


FAULTY = """


class Exiting(CustomOptimizer):
    def step(self):
        raise SystemExit(4)


def exits(parameters, settings):
    return Exiting(parameters, settings, update_sgd)
"""


def test_the_code_of_an_optimizer_fails_the_run_and_never_ends_the_harness(published: Commands, tmp_path: Path) -> None:
    """One fault through a whole run; ``test_formats`` shows the others on the trainer."""
    replaced = {"digits-cnn-own-adam": "digits-exits", "make_adam": "exits"}
    publish_changed(published, tmp_path, "recipe-own-adam", FAULTY, "optimizers.py", **replaced)
    answer = published.call("run", lock_request(published, tmp_path, **{"digits-cnn-adam": "digits-exits"}))
    assert answer.code == 1, answer
    assert answer.document["end"]["failure_class"] == "predict"
    assert "step 0: ValueError: the optimizer exited with 4" in answer.document["end"]["failure_message"]
