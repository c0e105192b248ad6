"""Deep500, level 2: optimizers written by hand beside those of PyTorch, and the variance of reruns."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from benchlock.evaluator.statistics.confidence_intervals import quantile
from benchmarks.claims.measured_runs import EXAMPLES, PROCESS, Laboratory, MeasuredRun, abbreviate, read_document
from benchmarks.claims.rows import Row, format_interval, format_rows, format_seconds, format_table

LOSSES = 20
_TRAINING = EXAMPLES / "training"
_STEPS = Path(__file__).with_name("step_times.py")
_BLOCKS = 200
_LR = 2.0e-3
_OWN = {
    "adam": {"function": "make_adam", "lr": _LR, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},
    "sgd": {"function": "make_sgd", "lr": _LR},
}
"""The optimizers of ``examples/training/optimizers.py``, with PyTorch's defaults."""
_CONTROL = "PyTorch's Adam again (A/A)"
_FUNCTIONAL, _IN_PLACE = "own Adam, functional", "own Adam, in place"


def measure(laboratory: Laboratory) -> Iterator[str]:
    """Yield the section."""
    folder = _write_recipes(laboratory)
    runs = {name: laboratory.run(folder / f"{name}.yaml") for name in ("adam", "own-adam", "sgd", "own-sgd")}
    equal = {
        name: _losses(laboratory, runs[name]) == _losses(laboratory, runs[f"own-{name}"]) for name in ("adam", "sgd")
    }
    steps = laboratory.execute(runs["adam"], _STEPS, folder, str(_BLOCKS))
    differences = {name: _summarise(answer["differences"]) for name, answer in steps.items()}
    verdict = laboratory.commands.call("rerun", runs["adam"].file, *PROCESS)
    agreement, bits = (verdict.document.get(key) for key in ("verdict", "predictions"))
    yield from format_rows(
        (
            _equality_row(equal, runs),
            _step_row(differences, runs["adam"]),
            Row(
                "Deep500 L1, L2: heat maps of the variance of repeated runs",
                f"a rerun of a training of one epoch is {agreement}: {bits}",
                "partly" if bits == "bit-equal" else "no",
                "the seed, threads and kernels are in the lock, so one kind of processor has no variance to plot; "
                "level 2 alone",
                abbreviate(runs["adam"]),
            ),
        )
    )
    yield f"\nA step alone against PyTorch's Adam (`foreach=False`), {_BLOCKS} ABBA blocks, CPU time of the thread:\n"
    rows = (
        (name, format_seconds(steps[name]["step"]), f"{middle:+.1%}", format_interval(low, high, 100))
        for name, (middle, low, high) in differences.items()
    )
    yield from format_table(("contestant", "a step of PyTorch's Adam", "difference", "95 %, in %"), rows)


def _write_recipes(laboratory: Laboratory) -> Path:
    """Write and publish a recipe for each optimizer; return the folder with them, their files and their requests."""
    folder = laboratory.folder / "optimizers"
    folder.mkdir()
    files = ("network.py", "optimizers.py")
    for file in files:
        shutil.copy(_TRAINING / file, folder)
    recipe = read_document(_TRAINING / "recipe.yaml")
    request = read_document(_TRAINING / "requests" / "digits.yaml")
    for name in ("adam", "own-adam", "sgd", "own-sgd"):
        kind = name.removeprefix("own-")
        changed: dict[str, Any] = {
            "name": f"digits-{name}",
            "optimizer": {"name": kind, "lr": _LR} if name == kind else {"file": "optimizers.py", **_OWN[kind]},
            "files": [{"path": file, "role": "code", "source": f"./{file}"} for file in files],
        }
        (folder / f"recipe-{name}.yaml").write_text(json.dumps(recipe | changed))
        changed = {
            "name": name,
            "recipe": {"name": f"digits-{name}", "version": "^1.0"},
            "scenario": request["scenario"] | {"repeats": 1, "max": {"epochs": 1}},
        }
        (folder / f"{name}.yaml").write_text(json.dumps(request | changed))
    laboratory.publish(EXAMPLES / "digits" / "dataset.yaml", *folder.glob("recipe-*.yaml"))
    return folder


def _losses(laboratory: Laboratory, run: MeasuredRun) -> list[str]:
    """Return the first losses of a training as texts without rounding."""
    folder = laboratory.folder / "samples"
    laboratory.commands.done("get", run.id, "-o", folder)
    losses = load_file(next(folder.rglob("samples.safetensors")))["0/loss"][:LOSSES]
    shutil.rmtree(folder)
    if len(losses) < LOSSES:
        raise ValueError(f"{run.id}: {len(losses)} losses, expected {LOSSES}")
    return [value.hex() for value in map(float, losses)]


def _summarise(differences: list[float]) -> tuple[float, float | None, float | None]:
    middle, interval = quantile(sorted(differences), 0.5)
    return middle, interval.low, interval.high


def _equality_row(equal: dict[str, bool], runs: dict[str, MeasuredRun]) -> Row:
    words = (f"{name}: {'bit-equal' if is_equal else 'different'}" for name, is_equal in equal.items())
    return Row(
        "Deep500 L2: a reference optimizer computes what the framework's does",
        f"the first {LOSSES} losses of own in-place optimizers against PyTorch's: {', '.join(words)}",
        "yes" if all(equal.values()) else "partly",
        "the same operations in the same order on the same kernels; a formula written another way rounds differently",
        abbreviate(*runs.values()),
    )


def _step_row(differences: dict[str, tuple[float, float | None, float | None]], run: MeasuredRun) -> Row:
    texts = [
        f"{name}: {middle:+.1%} {format_interval(low, high, 100)} %"
        for name, (middle, low, high) in differences.items()
        if name in (_CONTROL, _IN_PLACE, _FUNCTIONAL)
    ]
    fits = [high is not None and high < 0.01 for _, _, high in (differences[_IN_PLACE], differences[_FUNCTIONAL])]
    return Row(
        "Deep500 L2: reference optimizers cost < 1 % more",
        f"a step alone, {'; '.join(texts)}",
        "yes" if all(fits) else "partly" if any(fits) else "no",
        "in-place updates make no tensors; the functional form that papers print makes new ones in every step",
        f"environment of {abbreviate(run)}",
    )
