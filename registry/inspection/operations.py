"""Operations of graphs that reach files, other processes or Python: with these a graph is code.

TensorFlow and TorchScript execute such operations in any model. A model without code runs as a process of the host,
where they could read labels or write any file of the user.
"""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from benchlock.registry.inspection.protobuf import Message, whole
from benchlock.registry.inspection.tflite_graphs import custom_operations

_TENSORFLOW = re.compile(
    r"(?!Sharded)\w*File.*"
    r"|\w*(?:PyFunc|Reader|Dataset|Summary|Remote|Rpc|RPC|Debug|Sql|LMDB|Socket|Service|Vocab|Dump|HostCompute).*"
    r"|_?(?:Host|Xla|Nccl|Collective\w*)?(?:Send|Recv).*"
    r"|Save|SaveSlices|Restore|RestoreSlice|DTensorRestoreV2|DistributedSave|CalibrationStatisticsSaver"
    r"|PrintV2|LoadAndRemapMatrix|RecordInput|FixedUnigramCandidateSampler|XlaCustomCall.*"
)
"""``SaveV2``, ``RestoreV2`` and what goes with them are in every SavedModel, and read and write checkpoints alone."""
_FLEX = "Flex"
"""What TFLite says before the name of an operation of TensorFlow."""
_DOT = rb"(?:\s|\\|#[^\n]*+\n)*+\.(?:\s|\\|#[^\n]*+\n)*+"
"""A dot, and what may stand around it."""
_TORCHSCRIPT = re.compile(
    rb"\b(?:from_file|load_tensor|rpc_sync|rpc_async|rpc_remote|_c10d_functional|symm_mem)\b"
    rb"|\btorch" + _DOT + rb"classes\b(?!" + _DOT + rb"(?:quantized|xnnpack)\b)"
    rb"|\b(?:torch|aten)" + _DOT + rb"save\b"
)
"""Names that make TorchScript code. Packed weights of quantized layers are classes of PyTorch's own."""
_INSIDE: dict[str, dict[int, str]] = {
    "saved_model": {2: "meta_graph"},
    "meta_graph": {2: "graph"},
    "graph": {1: "node", 2: "library"},
    "library": {1: "function"},
    "function": {3: "node"},
}
"""In which fields of a message of TensorFlow there are messages that lead to nodes."""


def tensorflow_operations(stream: BinaryIO, size: int, *, saved_model: bool) -> tuple[str, ...]:
    """Return the operations of a SavedModel, or of a frozen graph, that make it code.

    Raises:
        MalformedError: The file is neither.
    """
    return _select(_operations(whole(stream, size), "saved_model" if saved_model else "graph"))


def tflite_operations(stream: BinaryIO, size: int) -> tuple[str, ...]:
    """Return the operations of TensorFlow in a TFLite graph that make it code.

    Raises:
        MalformedError: The file is no TFLite graph.
    """
    return _select(name.removeprefix(_FLEX) for name in custom_operations(stream, size))


def _select(operations: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for name in operations if _TENSORFLOW.fullmatch(name)}))


def torchscript_operations(source: bytes) -> tuple[str, ...]:
    """Return the names in a source file of TorchScript that make it code."""
    return tuple(sorted({re.sub(_DOT, b".", match.group()).decode() for match in _TORCHSCRIPT.finditer(source)}))


def _operations(message: Message, of_type: str) -> Iterator[str]:
    if of_type == "node":
        yield message.text(2)
        return
    inside = _INSIDE[of_type]
    for field in message.fields():
        if field.number in inside and field.size is not None:
            yield from _operations(message.inside(field), inside[field.number])
