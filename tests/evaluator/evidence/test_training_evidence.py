"""Trainings of the harness with a network in NumPy: equal bits, metrics from blobs, and evidence that was altered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.training_evidence import TrainingEvidence, measure_training
from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job_parser import parse_training
from benchlock.evaluator.harness.core.training_job import TrainingJob
from benchlock.evaluator.harness.training import Trainer, encode_weights, train_phase
from benchlock.evaluator.runner.job_folder import job_document
from benchlock.evaluator.runner.run_outcome import weights_role
from benchlock.evaluator.statistics.metric_types import metric_faults
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import (
    Lock,
    LockContent,
    LockedArtifact,
    LockedDataset,
    LockedFile,
    LockedHarness,
    LockedImage,
    LockedLimits,
    LockedPlatform,
    LockedTarget,
    from_content,
)
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.manifest_content import parse_content

DATA = Path(__file__).parents[3] / "examples" / "digits" / "data"
DIGEST = digest_bytes(b"any")
FILES = ("train-images.idx", "train-labels.idx", "test-images.idx", "test-labels.idx", "labels.txt")
DATASET = {
    "schema": 1,
    "kind": "dataset",
    "name": "digits",
    "version": "1.0.0",
    "license": "CC-BY-4.0",
    "format": "idx",
    "splits": {
        name: {"images": f"{name}-images.idx", "labels": f"{name}-labels.idx", "samples": count}
        for name, count in (("train", 1438), ("test", 359))
    },
    "labels": "labels.txt",
    "files": [{"path": path, "sha256": "0" * 64, "size": 1} for path in FILES],
}
RECIPE = {
    "schema": 1,
    "kind": "recipe",
    "name": "linear",
    "version": "1.0.0",
    "license": "MIT",
    "task": "image-classification",
    "framework": {"name": "pytorch", "version": "*"},
    "network": {"file": "network.py", "function": "build"},
    "loss": "cross-entropy",
    "optimizer": {"name": "sgd", "lr": 0.5},
    "batch": 64,
    "sampler": {"kind": "shuffle", "last": "drop"},
    "evaluate": {"every": 1, "batch": 100},
    "inputs": [
        {
            "name": "x",
            "type": "image",
            "dtype": "float32",
            "shape": [None, 1, 8, 8],
            "layout": "NCHW",
            "steps": [
                {"decode": {"color": "L", "exif": "ignore"}},
                {"cast": {"dtype": "float32"}},
                {"scale": {"factor": 0.0625}},
                {"transpose": {"layout": "NCHW"}},
            ],
        }
    ],
    "outputs": [{"name": "scores", "type": "class-scores", "dtype": "float32", "shape": [None, 10], "label_offset": 0}],
    "files": [{"path": "network.py", "role": "code", "sha256": "0" * 64, "size": 1}],
}
FRAMEWORK = {
    "schema": 1,
    "kind": "framework",
    "name": "pytorch",
    "version": "2.13.0",
    "license": "MIT",
    "predictor": "pytorch",
    "distributions": ["torch"],
}
METRICS = (
    "epochs_to_quality",
    "samples_to_quality",
    "time_to_quality",
    "cpu_time_to_quality",
    "training_throughput",
    "training_cost",
    "final_quality",
)
SETTINGS = {
    "optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.0, "weight_decay": 0.0, "implementation": "for-loop"},
    "loss": "cross-entropy",
    "batch": 64,
    "sampler": {"kind": "shuffle", "generator": "pcg64", "last": "drop"},
    "evaluate": {"every": 1, "batch": 100},
}
Tensors = dict[str, NDArray[Any]]


class LinearTrainer:
    """Softmax regression with plain gradient descent."""

    threads = MappingProxyType({"num_threads": 1})

    def __init__(self, rate: float) -> None:
        self._own_rate = self._rate = rate
        self._weights = np.zeros((64, 10), np.float32)
        self._bias = np.zeros(10, np.float32)

    def _scores(self, batch: Tensors) -> NDArray[np.float32]:
        flat: NDArray[np.float32] = batch["x"].reshape(len(batch["x"]), -1)
        return flat @ self._weights + self._bias

    def scale_rate(self, factor: float) -> None:
        self._rate = self._own_rate * factor

    def step(self, batch: Tensors, labels: NDArray[np.int64]) -> float:
        scores = self._scores(batch)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        loss = -np.log(shares[np.arange(len(labels)), labels]).mean()
        shares[np.arange(len(labels)), labels] -= 1
        flat = batch["x"].reshape(len(labels), -1)
        self._weights -= self._rate * (flat.T @ shares) / len(labels)
        self._bias -= self._rate * shares.mean(axis=0)
        return float(loss)

    def predict(self, batch: Tensors) -> Tensors:
        return {"scores": self._scores(batch)}

    def weights(self) -> Mapping[str, NDArray[Any]]:
        return {"weights": self._weights, "bias": self._bias}


def make_lock(value: float, epochs: int, split: str = "test") -> tuple[Lock, Mapping[Kind, Manifest]]:
    wheel = LockedFile(path="pylock.toml", sha256="0" * 64, size=1)
    platform = LockedPlatform(os="linux", arch="amd64", device="cpu", python="3.11", wheels_lock=wheel)
    content = LockContent(
        schema="1.1",
        request={"name": "train", "price": {"amount": 3600.0}},
        recipe=LockedArtifact(name="linear", version="1.0.0", digest=DIGEST),
        dataset=LockedDataset(name="digits", version="1.0.0", digest=DIGEST, split="train"),
        framework=LockedArtifact(name="pytorch", version="2.13.0", digest=DIGEST),
        image=LockedImage(name="pytorch-cpu", version="1.0.0", digest=DIGEST, platforms=(platform,)),
        harness=LockedHarness(version="1.6.0", digest=DIGEST, size=1),
        limits=LockedLimits(seconds=60, bytes=1 << 30, cpus=1, processes=64),
        target=LockedTarget(metric="top1", split=split, value=value),
        settings=SETTINGS,
        environment={"PYTHONHASHSEED": "0"},
        scenario={
            "name": "time_to_quality",
            "repeats": 2,
            "epochs": epochs,
            "deterministic": True,
            "seeds": [7, 8],
        },
        metrics=dict.fromkeys(METRICS, 1),
    )
    manifests: dict[Kind, Manifest] = {
        "recipe": parse_content(RECIPE),
        "dataset": parse_content(DATASET),
        "framework": parse_content(FRAMEWORK),
    }
    return from_content(content), manifests


@dataclass
class Evidence:
    """The blobs of a training, as columns and bytes that a test may alter before they are measured."""

    lock: Lock
    manifests: Mapping[Kind, Manifest]
    samples: Tensors
    scores: Tensors
    weights: dict[str, bytes]
    document: dict[str, Any]
    folder: Path

    def measure(self) -> TrainingEvidence:
        files = {"samples": self.folder / "s", "predictions": self.folder / "p"}
        save_file(self.samples, files["samples"])
        save_file(self.scores, files["predictions"])
        for role, content in self.weights.items():
            files[role] = self.folder / role
            files[role].write_bytes(content)
        return measure_training(self.lock, self.manifests, files, self.document, DATA)


def train(
    folder: Path, monkeypatch: pytest.MonkeyPatch, value: float = 0.9, epochs: int = 12, rate: float = 0.5
) -> Evidence:
    """Run the phases that train, and predict with the weights as the phase ``evaluate`` does."""

    def build(_job: TrainingJob, _folder: Path, _seed: int) -> Trainer:
        return LinearTrainer(rate)

    monkeypatch.setattr(train_phase, "build_trainer", build)
    lock, manifests = make_lock(value, epochs)
    job = parse_training(job_document(lock, "cpu", manifests))
    folder.mkdir(exist_ok=True)
    (folder / "dataset").symlink_to(DATA)
    evidence = Evidence(lock, manifests, {}, {}, {}, {"training": {"repeats": []}}, folder)
    pictures = np.frombuffer((DATA / "test-images.idx").read_bytes()[16:], np.uint8).reshape(-1, 64)
    for repeat in range(2):
        report = train_phase.run(job, folder, folder, repeat)
        evidence.document["training"]["repeats"].append(report["repeat"])
        columns = load_file(folder / train_phase.repeat_file(repeat))
        evidence.samples |= {f"{repeat}/{name}": column for name, column in columns.items()}
        content = (folder / train_phase.weights_file(repeat)).read_bytes()
        evidence.weights[weights_role(repeat)] = content
        weights = load_file(folder / train_phase.weights_file(repeat))
        flat = pictures.astype(np.float32) * np.float32(0.0625)
        evidence.scores[str(repeat)] = flat @ weights["weights"] + weights["bias"]
    return evidence


@pytest.fixture
def evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evidence:
    return train(tmp_path / "training", monkeypatch)


def test_metrics_follow_from_the_blobs(evidence: Evidence) -> None:
    measured = evidence.measure()
    values = {metric.name: metric for metric in measured.metrics}
    assert tuple(values) == METRICS
    assert list(metric_faults(measured.metrics)) == []
    epochs = [evidence.samples[f"{repeat}/evaluation"][-1][0] for repeat in range(2)]
    assert values["epochs_to_quality"].value == pytest.approx(np.sqrt(np.prod(epochs)))
    assert values["samples_to_quality"].value == pytest.approx(values["epochs_to_quality"].value * (1438 // 64) * 64)
    assert values["final_quality"].value >= 0.9
    assert values["training_cost"].value == pytest.approx(values["time_to_quality"].value)  # 3600 an hour
    assert measured.claimed > 0


def test_a_training_repeats_its_bits_and_another_seed_has_others(
    evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = train(tmp_path / "again", monkeypatch)
    assert again.weights == evidence.weights
    assert again.samples["0/loss"].tobytes() == evidence.samples["0/loss"].tobytes()
    assert evidence.weights[weights_role(0)] != evidence.weights[weights_role(1)]


def test_a_training_without_the_target_has_no_epochs_but_a_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed = train(tmp_path / "training", monkeypatch, value=1.0, epochs=2)
    assert [repeat["reached"] for repeat in missed.document["training"]["repeats"]] == [False, False]
    assert [metric.name for metric in missed.measure().metrics] == ["training_throughput", "final_quality"]


def test_a_loss_that_is_not_finite_ends_a_repeat_without_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with np.errstate(all="ignore"):
        diverged = train(tmp_path / "training", monkeypatch, rate=1e30)
    assert not np.isfinite(diverged.samples["0/loss"][-1])
    assert "epochs_to_quality" not in [metric.name for metric in diverged.measure().metrics]


def test_a_training_on_samples_of_the_evaluated_split_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_phase, "build_trainer", lambda *_: LinearTrainer(0.5))
    lock, manifests = make_lock(0.9, 1, split="train")
    job = parse_training(job_document(lock, "cpu", manifests))
    (tmp_path / "dataset").symlink_to(DATA)
    with pytest.raises(Failure, match="1438 of 1438 samples of the evaluated split are also in the training split"):
        train_phase.run(job, tmp_path, tmp_path, 0)


def test_encoded_weights_do_not_depend_on_order_or_memory_layout() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    first = encode_weights({"b": values, "a": values.T})
    assert first == encode_weights({"a": np.ascontiguousarray(values.T), "b": np.asfortranarray(values)})
    assert b"__metadata__" not in first


def _flip_weights(evidence: Evidence) -> None:
    evidence.weights[weights_role(1)] = evidence.weights[weights_role(0)]


def _drop_weights(evidence: Evidence) -> None:
    del evidence.weights[weights_role(0)]


def _state(name: str, value: object) -> Callable[[Evidence], None]:
    def alter(evidence: Evidence) -> None:
        evidence.document["training"]["repeats"][0][name] = value

    return alter


def _improve_predictions(evidence: Evidence) -> None:
    labels = np.frombuffer((DATA / "test-labels.idx").read_bytes()[8:], np.uint8)
    evidence.samples["0/predicted"][0] = labels


def _spoil_predictions(evidence: Evidence) -> None:
    evidence.samples["0/predicted"][-1] = -1


def _drop_evaluation(evidence: Evidence) -> None:
    for name in ("evaluation", "predicted"):
        evidence.samples[f"0/{name}"] = evidence.samples[f"0/{name}"][1:].copy()


def _shorten(evidence: Evidence) -> None:
    for name in ("loss", "step_ns"):
        evidence.samples[f"0/{name}"] = evidence.samples[f"0/{name}"][1:].copy()


def _go_back_in_time(evidence: Evidence) -> None:
    evidence.samples["0/step_ns"][0] = -1


def _swap_evaluations(column: int) -> Callable[[Evidence], None]:
    def alter(evidence: Evidence) -> None:
        times = evidence.samples["0/evaluation"]
        times[[0, -1], column] = times[[-1, 0], column]

    return alter


def _hurry_evaluations(evidence: Evidence) -> None:
    times = evidence.samples["0/evaluation"]
    times[:, 1] = np.arange(len(times))


def _drop_last_evaluation(evidence: Evidence) -> None:
    for name in ("evaluation", "predicted"):
        evidence.samples[f"0/{name}"] = evidence.samples[f"0/{name}"][:-1].copy()


def _evaluate_infinite_loss(evidence: Evidence) -> None:
    evidence.samples["0/loss"][-1] = np.inf


def _drop_column(evidence: Evidence) -> None:
    del evidence.samples["1/loss"]


def _drop_scores(evidence: Evidence) -> None:
    evidence.scores["0"] = evidence.scores["0"][1:].copy()


def _spoil_scores(evidence: Evidence) -> None:
    evidence.scores["0"] = np.roll(evidence.scores["0"], 1, axis=1)


def _forget_repeat(evidence: Evidence) -> None:
    evidence.document["training"]["repeats"].pop()


@pytest.mark.parametrize(
    ("alter", "words"),
    [
        (_flip_weights, "another weights of repeat 1"),
        (_drop_weights, "lacks the blob weights-0"),
        (_state("seed", 8), "another seed of repeat 0"),
        (_state("reached", False), "another reached of repeat 0"),
        (_improve_predictions, "did not end at epoch 1, which reached the target"),
        (_spoil_predictions, "without the target"),
        (_drop_evaluation, "steps do not give"),
        (_shorten, "steps do not give"),
        (_go_back_in_time, "values out of range"),
        (_swap_evaluations(1), "evaluations go back"),
        (_swap_evaluations(2), "evaluations go back"),
        (_hurry_evaluations, "earlier than the steps before it"),
        (_drop_last_evaluation, "steps do not give"),
        (_evaluate_infinite_loss, "steps do not give"),
        (_drop_column, "repeat 1 lack loss"),
        (_drop_scores, "lack the scores of a repeat"),
        (_spoil_scores, "final weights give 0"),
        (_forget_repeat, "does not state 2 repeats"),
    ],
)
def test_altered_evidence_is_refused(evidence: Evidence, alter: Callable[[Evidence], None], words: str) -> None:
    alter(evidence)
    with pytest.raises(InvalidInputError, match=words):
        evidence.measure()


def test_a_lock_with_another_target_refuses_the_evidence(evidence: Evidence) -> None:
    assert evidence.lock.target
    evidence.lock = replace(evidence.lock, target=replace(evidence.lock.target, value=1.0))
    with pytest.raises(InvalidInputError, match="without the target"):
        evidence.measure()
