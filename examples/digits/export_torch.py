"""The trained network as TorchScript, as a `torch.export` program and as ONNX.

The batch axis is free, and no file names a path of the machine that wrote it.
"""

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from examples.digits.archive import rewrite
from examples.digits.network import be_deterministic, trained
from examples.digits.weights import MODELS


def without_sources(name: str, content: bytes) -> bytes | None:
    """TorchScript's debug entries say where torch's sources lie on this machine; its id is a digest of those too."""
    return None if name.endswith((".debug_pkl", ".data/serialization_id")) else content


def exported(model: nn.Sequential) -> ExportedProgram:
    """The program, its nodes without the stack traces that name files of this machine."""
    program = torch.export.export(model, (torch.zeros(2, 1, 8, 8),), dynamic_shapes=({0: Dim("batch")},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


def main() -> None:
    """Three files out of one set of weights."""
    be_deterministic(seed=0)
    model = trained()
    torchscript = MODELS / "digits.torchscript.pt"
    torch.jit.save(torch.jit.freeze(torch.jit.script(model)), torchscript)
    rewrite(torchscript, without_sources)
    program = exported(model)
    torch.export.save(program, MODELS / "digits.pt2")
    torch.onnx.export(program, input_names=["input"], output_names=["scores"]).save(MODELS / "digits.onnx")


if __name__ == "__main__":
    main()
