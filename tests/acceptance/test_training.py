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
REPEATS = 3
SEEDS = [1022875441, 141673547, 647139205]
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


@pytest.fixture(scope="module", params=["pytorch", "tensorflow"])
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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


@pytest.fixture(scope="module")
def trained(
    published: Commands, framework: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    name = "digits" if framework == "pytorch" else f"digits-{framework}"
    lock = lock_request(published, tmp_path_factory.mktemp("training"), name)
    run: dict[str, Any] = published.done("run", lock)
    assert run["end"]["outcome"] == "done", run["end"]
    return lock, run


def test_a_training_reports_medians_over_repeats(trained: tuple[Path, dict[str, Any]]) -> None:
    _, run = trained
    metrics = {metric["name"]: metric for metric in run["end"]["metrics"]}
    assert metrics.keys() == METRICS  # the olympic mean needs 5 repeats
    assert {metric["n"] for metric in metrics.values()} == {REPEATS}
    assert metrics["final_quality"]["value"] >= 0.9
    epochs = metrics["epochs_to_quality"]["value"]
    assert metrics["samples_to_quality"]["value"] == epochs * (1438 - 1438 % 64)
    repeats = run["end"]["details"]["training"]["repeats"]
    assert len({repeat["weights"] for repeat in repeats}) == REPEATS
    assert [repeat["seed"] for repeat in repeats] == SEEDS


def test_a_report_on_a_training_shows_its_curve_and_its_repeats(
    published: Commands, trained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    published.done("report", trained[1]["run"], "-o", tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert f"{REPEATS} of {REPEATS} repeats reach top1 0.9 on the split test" in page
    assert "Quality by epoch" in page
    assert len((tmp_path / "report" / "tables" / "repeats.csv").read_text().splitlines()) == 1 + REPEATS
    published.done("export", trained[1]["run"], "--format", "in-toto", "-o", tmp_path / "statement.json")
    subjects = {one["name"]: one["digest"] for one in json.loads((tmp_path / "statement.json").read_text())["subject"]}
    for repeat, facts in enumerate(trained[1]["end"]["details"]["training"]["repeats"]):
        assert f"sha256:{subjects[f'weights-{repeat}']['sha256']}" == facts["weights"]


def test_a_rerun_has_equal_bits_and_promotes_to_the_same_model(
    published: Commands, framework: str, trained: tuple[Path, dict[str, Any]]
) -> None:
    lock, run = trained
    name = f"digits-cnn-{framework}"
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


def test_a_missed_target_is_a_result_that_only_an_option_promotes(published: Commands, tmp_path: Path) -> None:
    replaced = {"value: 0.97": "value: 1.0", "epochs: 40": "epochs: 1"}
    lock = lock_request(published, tmp_path, "digits-distribution", **replaced)
    run = published.done("run", lock)
    assert {metric["name"] for metric in run["end"]["metrics"]} == {"training_throughput", "final_quality"}
    error = published.error(1, "promote", run["run"], "--as", "digits-missed@1.0.0")
    assert "missed its target, top1 1 on the split test" in str(error)
    assert published.done("promote", run["run"], "--as", "digits-missed@1.0.0", "--below-target")["changed"]


def test_a_promoted_model_is_evaluated_like_any_other(published: Commands, framework: str, tmp_path: Path) -> None:
    request, lock = tmp_path / "request.yaml", tmp_path / "promoted.lock"
    request.write_text(
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
    published.done("lock", request, "-o", lock)
    run = published.done("run", lock)
    (metric,) = run["end"]["metrics"]
    assert metric["value"] >= 0.9


MEMORY = ("weights", "gradients", "optimizer", "saved", "transient")
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


@pytest.mark.parametrize("leaked", [0, 8 << 20])
def test_the_memory_of_a_step_is_the_sum_of_its_parts_and_a_leak_is_found(
    published: Commands, tmp_path: Path, leaked: int
) -> None:
    name = "digits-leaky" if leaked else "digits-cnn-adam"
    if leaked:
        text = (EXAMPLES / "training" / "recipe.yaml").read_text()
        (tmp_path / "network.py").write_text((EXAMPLES / "training" / "network.py").read_text() + LEAK)
        (tmp_path / "recipe.yaml").write_text(
            text.replace("digits-cnn-adam", name).replace("function: build}", "function: build_leaky}")
        )
        published.done("publish", tmp_path / "recipe.yaml")
    asked = "".join(f"  - memory_{part}\n" for part in (*MEMORY, "growth"))
    lock = lock_request(
        published,
        tmp_path,
        **{"digits-cnn-adam": name, "repeats: 3": "repeats: 1", "epochs: 40": "epochs: 2", "value: 0.9": "value: 0.1"},
        **{"  - final_quality\n": f"  - final_quality\n  - step_memory\n{asked}"},
    )
    run = published.done("run", lock)
    values = {metric["name"]: metric["value"] for metric in run["end"]["metrics"]}
    assert values["step_memory"] == sum(values[f"memory_{part}"] for part in MEMORY)
    assert values["memory_growth"] == leaked
    parameters = 16 * 9 + 16 + 32 * 16 * 9 + 32 + 128 * 10 + 10
    assert values["memory_weights"] == 4 * parameters
    assert values["memory_optimizer"] >= 2 * values["memory_weights"]  # and its counts of steps
    assert values["memory_saved"] > 0
    operators = run["end"]["details"]["training"]["breakdown"]["operators"]
    assert "convolution_backward" in {operator["kind"] for operator in operators}


CUSTOM = {"digits-cnn-adam": "digits-cnn-own-adam"}
FAULTY = """


class Exiting(CustomOptimizer):
    def step(self):
        raise SystemExit(4)


def exits(parameters, settings):
    raise SystemExit(3)


def exits_later(parameters, settings):
    return Exiting(parameters, settings, update_sgd)


def wrong(parameters, settings):
    return settings
"""


def train_one_epoch(commands: Commands, folder: Path, settings: str = "{}", **replaced: str) -> NDArray[np.float64]:
    """The losses of the steps of one epoch, with these settings changed."""
    folder.mkdir()
    few = {"repeats: 10": "repeats: 1", "epochs: 40": "epochs: 1", "seed: 42": f"settings: {settings}\nseed: 42"}
    run = commands.done("run", lock_request(commands, folder, **few, **replaced))
    return read_losses(commands, run["run"], folder / "files")


def read_losses(commands: Commands, run: str, folder: Path) -> NDArray[np.float64]:
    """The losses of the steps of the first repeat of a run."""
    commands.done("get", run, "-o", folder)
    losses: NDArray[np.float64] = load_file(next(folder.rglob("samples.safetensors")))["0/loss"]
    return losses


def test_a_custom_optimizer_has_the_bits_of_pytorchs(published: Commands, tmp_path: Path) -> None:
    custom, named = (
        train_one_epoch(published, tmp_path / name, **replaced)
        for name, replaced in (("custom", CUSTOM), ("named", {}))
    )
    assert len(custom) >= 20
    assert custom.tobytes() == named.tobytes()


def test_micro_batches_change_no_more_than_the_rounding_of_losses(published: Commands, tmp_path: Path) -> None:
    whole, equal, parts, uneven = (
        train_one_epoch(published, tmp_path / f"{number}", settings, **CUSTOM)
        for number, settings in enumerate(("{}", "{micro_batch: 64}", "{micro_batch: 16}", "{micro_batch: 30}"))
    )
    assert whole.tobytes() == equal.tobytes()
    for losses in (parts, uneven):
        assert losses.tobytes() != whole.tobytes()
        np.testing.assert_allclose(losses, whole, rtol=1e-6, atol=0)


def publish_changed(commands: Commands, folder: Path, name: str, old: str, new: str, recipe: str = "recipe") -> None:
    """Publish a recipe of the examples under a new name, with a part of its text replaced."""
    folder.mkdir(exist_ok=True)
    text = (EXAMPLES / "training" / f"{recipe}.yaml").read_text()
    known = text.split("name: ", 1)[1].split("\n", 1)[0]
    assert old in text
    for code in (EXAMPLES / "training").glob("*.py"):
        (folder / code.name).write_bytes(code.read_bytes())
    (folder / "recipe.yaml").write_text(text.replace(f"name: {known}", f"name: {name}").replace(old, new))
    commands.done("publish", folder / "recipe.yaml")


def test_a_schedule_changes_the_learning_rate_from_its_milestone_on(
    published: Commands, framework: str, tmp_path: Path
) -> None:
    recipe, request = ("recipe", "digits") if framework == "pytorch" else ("recipe_tf", "digits-tensorflow")
    plain = "digits-cnn-adam" if framework == "pytorch" else "digits-cnn-adam-tensorflow"
    losses = []
    for name, schedule in (("one", "{name: step, milestones: [1], factor: 0.5}"), ("other", None)):
        chosen = plain
        if schedule:
            chosen = f"digits-{name}-{framework}"
            publish_changed(published, tmp_path, chosen, "batch: 64\n", f"schedule: {schedule}\nbatch: 64\n", recipe)
        lock = lock_request(
            published,
            tmp_path,
            request,
            **{f"name: {plain}": f"name: {chosen}", "epochs: 40": "epochs: 2", "value: 0.9": "value: 1.0"},
            **{"repeats: 3": "repeats: 1"},
        )
        losses.append(read_losses(published, published.done("run", lock)["run"], tmp_path / name))
    scheduled, constant = losses
    steps = len(constant) // 2
    assert scheduled[: steps + 1].tobytes() == constant[: steps + 1].tobytes()
    assert scheduled[steps + 1] != constant[steps + 1]


def test_a_recipe_starts_from_the_weights_of_a_trained_model(
    published: Commands, framework: str, trained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    recipe, request = ("recipe", "digits") if framework == "pytorch" else ("recipe_tf", "digits-tensorflow")
    plain = "digits-cnn-adam" if framework == "pytorch" else "digits-cnn-adam-tensorflow"
    published.done("promote", trained[1]["run"], "--as", f"digits-base-{framework}@1.0.0")
    published.done("get", f"model/digits-base-{framework}", "-o", tmp_path / "base")
    weights = next((tmp_path / "base").rglob("weights.safetensors"))
    (tmp_path / "base.safetensors").write_bytes(weights.read_bytes())
    name, file = f"digits-tuned-{framework}", "{path: base.safetensors, role: weights, source: ./base.safetensors}"
    publish_changed(published, tmp_path, name, "files:\n", f"files:\n  - {file}\n", recipe)
    few = {"repeats: 3": "repeats: 1", "epochs: 40": "epochs: 1", "value: 0.9": "value: 0.5"}
    lock = lock_request(published, tmp_path, request, **{f"name: {plain}": f"name: {name}"}, **few)
    run = published.done("run", lock)
    tuned, new = (
        read_losses(published, one["run"], tmp_path / folder) for one, folder in ((run, "tuned"), (trained[1], "new"))
    )
    assert tuned[0] < min(new[:5])
    published.done("promote", run["run"], "--as", f"{name}@1.0.0")
    shown = published.done("show", f"model/{name}")
    assert {file["path"] for file in shown["manifest"]["files"]} >= {"weights.safetensors"}
    assert "base.safetensors" not in {file["path"] for file in shown["manifest"]["files"]}
    origin = published.done("why", f"model/{name}")
    digest = trained[1]["end"]["details"]["training"]["repeats"][0]["weights"]
    assert origin["initial_weights"] == {"base.safetensors": digest}


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        ("exits", "load", "the optimizer: ValueError: exits exited with 3"),
        ("wrong", "load", "wrong returned dict, expected torch.optim.Optimizer"),
        ("exits_later", "predict", "step 0: ValueError: the optimizer exited with 4"),
    ],
)
def test_the_code_of_an_optimizer_fails_the_run_and_never_ends_the_harness(
    published: Commands, tmp_path: Path, function: str, kind: str, words: str
) -> None:
    name = f"digits-{function.replace('_', '-')}"
    text = (EXAMPLES / "training" / "recipe-own-adam.yaml").read_text()
    (tmp_path / "network.py").write_text((EXAMPLES / "training" / "network.py").read_text())
    (tmp_path / "optimizers.py").write_text((EXAMPLES / "training" / "optimizers.py").read_text() + FAULTY)
    (tmp_path / "recipe.yaml").write_text(text.replace("digits-cnn-own-adam", name).replace("make_adam", function))
    published.done("publish", tmp_path / "recipe.yaml")
    answer = published.call("run", lock_request(published, tmp_path, **{"digits-cnn-adam": name}))
    assert answer.code == 1, answer
    assert answer.document["end"]["failure_class"] == kind
    assert words in answer.document["end"]["failure_message"]
