"""Models of PyTorch, as ``trying`` says."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from trying import OUT, broken, described, floats, operated, port, threads, tried, write

SCRIPT, EXPORT = ("pytorch", "torchscript"), ("pytorch", "torch-export")
TENSORS, STATE = ("pytorch", "safetensors"), ("pytorch", "state-dict")
BUILD = """
import torch

def build(weights):
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    network.load_state_dict({name.replace("fc", "0"): tensor for name, tensor in weights.items()})
    return network

def weights_back(weights):
    return weights

def filled(module):
    torch.nn.init.ones_(module.weight)
    torch.nn.init.zeros_(module.bias)
    return module

def fails(weights):
    raise KeyError("layer1.weight:\\n  absent")

def leaves(weights):
    raise SystemExit(3)
"""
X = [port("x", None, 2)]


class Two(torch.nn.Module):
    """Two inputs, of which the second is whole numbers, and two outputs in a dictionary."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": x + y, "least": torch.minimum(x, y.to(torch.float32))}


class Changing(torch.nn.Module):
    """It changes its input, and answers with a buffer that the next call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        self.total.add_(x)
        return self.total


class Fixed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(4, 2).sum(dim=1, keepdim=True)


class Odd(torch.nn.Module):
    """It answers with what is no tensor."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return x, [x]


def scripted(module: torch.nn.Module, name: str) -> str:
    torch.jit.script(module).save(str(OUT / name))
    return name


def graphs() -> dict[str, Any]:
    same = floats(1, 2)
    free, fixed = {0: torch.export.Dim("n")}, floats(4, 2)
    linear = torch.nn.Linear(2, 1)
    torch.nn.init.ones_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    torch.export.save(torch.export.export(linear, (torch.ones(3, 2),), dynamic_shapes=(free,)), str(OUT / "free.pt2"))
    torch.export.save(torch.export.export(linear, (torch.ones(3, 2),)), str(OUT / "fixed.pt2"))
    two = [port("x", None, 2), port("y", None, 2, dtype="int64")]
    whole = {"x": floats(2, 2), "y": np.full((2, 2), 3, np.int64)}
    return {
        "two": tried(SCRIPT, scripted(Two(), "two.pt"), two, ["sum", "least"], whole),
        "changing": tried(SCRIPT, scripted(Changing(), "changing.pt"), X, ["y"], *[{"x": same}] * 3),
        "changing: its input": same.tolist(),
        "threads": threads(
            SCRIPT,
            "changing.pt",
            X,
            ["y"],
            {"x": floats(1, 2)},
            runtime=lambda _: [torch.get_num_threads(), torch.get_num_interop_threads()],
        ),
        "fixed": tried(SCRIPT, scripted(Fixed(), "fixed.pt"), [port("x", 4, 2, axis=0)], ["y"], {"x": fixed}),
        "fixed, another batch": tried(SCRIPT, "fixed.pt", X, ["y"], {"x": same}),
        "too many outputs": tried(SCRIPT, "two.pt", two, ["sum"], whole),
        "no tensor": tried(SCRIPT, scripted(Odd(), "odd.pt"), X, ["y", "z"], {"x": same}),
        "export": tried(EXPORT, "free.pt2", X, ["y"], {"x": floats(1, 2)}, {"x": floats(3, 2)}),
        "export, fixed": tried(EXPORT, "fixed.pt2", [port("x", 3, 2, axis=0)], ["y"], {"x": floats(3, 2)}),
        "export, another batch": tried(EXPORT, "fixed.pt2", X, ["y"], {"x": floats(1, 2)}),
        **broken(SCRIPT, OUT / "two.pt", two, ["sum", "least"], whole),
        **broken(EXPORT, OUT / "free.pt2", X, ["y"], {"x": same}),
    }


def weights() -> dict[str, Any]:
    tensors = {"fc.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "fc.bias": torch.tensor([1.0, -1.0])}
    (OUT / "network.py").write_text(BUILD)
    code = {"file": "network.py", "function": "build"}
    for name, tensor in tensors.items():
        save_file({name: tensor}, OUT / f"{name}.safetensors")
    torch.save(tensors, OUT / "weights.pth")
    torch.save(torch.nn.Linear(2, 2), OUT / "module.pth")
    files, batch = [f"{name}.safetensors" for name in tensors], {"x": floats(2, 2)}

    def coded(function: str, file: str = "network.py") -> Any:  # noqa: ANN401 - JSON
        return tried(STATE, "weights.pth", X, ["y"], batch, code={"file": file, "function": function})

    return {
        "state-dict": tried(STATE, "weights.pth", X, ["y"], batch, code=code),
        "safetensors": tried(TENSORS, files, X, ["y"], batch, code=code),
        "safetensors twice": tried(TENSORS, [files[0], files[0]], X, ["y"], batch, code=code),
        "safetensors, one missing": tried(TENSORS, files[:1], X, ["y"], batch, code=code),
        "no function": coded("absent"),
        "no module": coded("weights_back"),
        "fails": coded("fails"),
        "leaves": coded("leaves"),
        "no file": coded("build", "elsewhere.py"),
        "a module": tried(STATE, "module.pth", X, ["y"], batch, code=code),
        "a module, unsafe": tried(
            STATE, "module.pth", X, ["y"], batch, code=code | {"function": "filled"}, unsafe=True
        ),
        **broken(STATE, OUT / "weights.pth", X, ["y"], batch, code=code),
        **broken(TENSORS, OUT / files[0], X, ["y"], batch, code=code),
    }


OPTIMIZERS = """
import torch

class Exiting(torch.optim.SGD):
    def step(self):
        raise SystemExit(4)

def exits(parameters, settings):
    raise SystemExit(3)

def exits_later(parameters, settings):
    return Exiting(parameters, lr=0.1)

def wrong(parameters, settings):
    return settings
"""


def optimizers() -> dict[str, Any]:
    """How the code of an optimizer fails: when it is made, or in a step."""
    from harness.core.failures import Failure, classify_errors  # noqa: PLC0415 - trying adds it to the path
    from harness.core.job import Code  # noqa: PLC0415 - as above
    from harness.training.pytorch_training import build  # noqa: PLC0415 - as above

    (OUT / "new_network.py").write_text("import torch\n\ndef build(weights):\n    return torch.nn.Linear(2, 2)\n")
    (OUT / "optimizers.py").write_text(OPTIMIZERS)

    def failure(function: str) -> Any:  # noqa: ANN401 - JSON
        job: Any = SimpleNamespace(
            device="cpu",
            threads=1,
            deterministic=False,
            initial=(),
            network=Code("new_network.py", "build"),
            settings={"batch": 2, "optimizer": {"file": "optimizers.py", "function": function}},
            evaluation=SimpleNamespace(model=described(TENSORS, [], X, ["y"])),
        )
        try:
            trainer = build(job, OUT, 1)
            with classify_errors("predict", "step 0"):
                trainer.step({"x": floats(2, 2)}, np.array([0, 1]))
        except Failure as error:
            return [error.kind, error.message]
        return None

    functions = {"exits": "exits", "wrong": "wrong", "exits later": "exits_later"}
    return {f"optimizer, {name}": failure(function) for name, function in functions.items()}


def operator() -> dict[str, Any]:
    from harness.operators import pytorch_operators  # noqa: PLC0415 - trying adds it to the path

    shapes = {"X": (1, 2, 5, 5), "W": (3, 2, 3, 3)}
    arguments = {"pads": [1, 0, 0, 1], "strides": [2, 2]}
    return {"operator": operated(pytorch_operators, "Conv", shapes, arguments)}


write({**graphs(), **weights(), **optimizers(), **operator()})
