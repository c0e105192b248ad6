"""Pickles: the globals that a pickle would call, found without loading it.

A pickle runs whatever function it names. A dictionary of PyTorch weights names a few harmless ones, which
``torch.load(weights_only=True)`` admits; any other is code. This finds carelessness and plain attacks; what a
determined one could hide still meets the container.
"""

import pickletools
import re
import warnings
from collections.abc import Iterator
from typing import BinaryIO

from benchlock.registry.inspection.formats.foreign_files import BUDGET, meter_stream

_HARMLESS = re.compile(
    r"collections OrderedDict"
    r"|torch\._utils _rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state|sparse_tensor|qtensor)"
    r"|torch\._tensor _rebuild_from_type_v2"
    r"|torch\.nn\.parameter Parameter"
    r"|torch\.storage (UntypedStorage|TypedStorage)"
    r"|torch ([A-Za-z0-9]*Storage|Tensor|Size|device|per_tensor_affine|per_channel_affine)"
    r"|torch (bool|bfloat16|(float|u?int|complex|quint|qint|float8_e)[0-9a-z]+)"
    r"|numpy(\._?core)?(\.multiarray)? (dtype|scalar|_reconstruct|ndarray)"
    r"|_codecs encode"
)
_PICKLE = b"\x80"
"""How a pickle of protocol 2 or later begins; those before begin as text may."""
_UNKNOWN = "a name that is made while it is read"
_GLOBALS = ("GLOBAL", "INST")
_EXTENSIONS = ("EXT1", "EXT2", "EXT4")
_STORES = ("PUT", "BINPUT", "LONG_BINPUT")
_FETCHES = ("GET", "BINGET", "LONG_BINGET")
_TEXTS = ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_CALLS = ("REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX")


def foreign_globals(stream: BinaryIO) -> frozenset[str]:
    """The functions that reading the rest of the stream as pickles would call, but for the harmless ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes, in what is no pickle
        found = set(_globals(meter_stream(stream)))
    return frozenset(name.replace(" ", ".") for name in found if not _HARMLESS.fullmatch(name))


def _globals(stream: BinaryIO) -> Iterator[str]:
    """``module name`` of every global in the pickles that follow one another; PyTorch's old format has five."""
    while start := stream.read(len(_PICKLE)):
        stream.seek(-len(_PICKLE), 1)
        found: set[str] = set()
        called = start == _PICKLE  # of bytes that may be text, names count once something is done with them
        whole = False
        try:
            for operation, name in _operations(stream):
                called = called or operation in _CALLS
                whole = operation == "STOP"
                found |= {_clipped(name)} if name else set()
        except (ValueError, EOFError, UnicodeDecodeError, IndexError, OverflowError):
            whole = False  # the raw values of tensors follow, or it is no pickle: nothing after this can be read
        yield from found if called else ()
        if not whole:
            return


def _operations(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    """Each operation of one pickle, with the global that it names, empty where it names none.

    A name from the stack counts only where its two words were pushed right before: else nobody can tell. An operation
    that takes more than was ever pushed, or back to a mark where none was set, ends it, as every unpickler does there:
    so words in a text call nothing. INST alone may look its name up before it misses its mark.
    """
    marked, most = False, 0  # values that the stack can have, at the most: what a mark sets apart is never subtracted
    words: list[str] = []  # pushed since the last operation that is neither a push of text nor a note of one
    memo: dict[int, str] = {}
    for operation, argument, _ in pickletools.genops(stream):
        sliced = pickletools.stackslice in operation.stack_before
        if not (marked or operation.name == "INST" if sliced else len(operation.stack_before) <= most):
            return
        marked = marked or operation.name == "MARK"
        most += len(operation.stack_after) - (0 if sliced else len(operation.stack_before))
        named = ""
        if operation.name == "MEMOIZE":
            memo[len(memo)] = words[-1] if words else _UNKNOWN
        elif operation.name in _STORES:
            memo[int(argument or 0)] = words[-1] if words else _UNKNOWN
        elif operation.name in _FETCHES:
            words = [*words[-1:], memo.get(int(argument or 0), _UNKNOWN)]
        elif operation.name in _TEXTS:
            words = [*words[-1:], _clipped(str(argument))]
        else:
            named = _named(operation.name, argument, words)
            words = []
        yield operation.name, named


def _clipped(name: str) -> str:
    """A name of bounded length; one that was cut ends as no harmless one does."""
    return name if len(name) <= BUDGET.names else f"{name[: BUDGET.names]}…"


def _named(operation: str, argument: object, words: list[str]) -> str:
    if operation in _GLOBALS:
        return str(argument)
    if operation in _EXTENSIONS:
        return _UNKNOWN
    if operation == "STACK_GLOBAL":
        return " ".join(words[-2:]) if len(words) > 1 else _UNKNOWN
    return ""
