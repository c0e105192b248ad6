"""Pickles: the globals that a pickle would call, found without loading it.

A pickle runs any function that it names. A dictionary of PyTorch weights names a few harmless ones, which
``torch.load(weights_only=True)`` accepts; any other counts as code. Detection finds carelessness and simple attacks.
What a determined attacker could hide still runs inside the container.
"""

import pickletools
import re
import warnings
from collections.abc import Iterator
from typing import BinaryIO

from benchlock.registry.inspection.formats.untrusted_files import BUDGET, meter_stream

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
"""The first byte of a pickle of protocol 2 or later; earlier ones may begin like text."""
_UNKNOWN = "(a-computed-name)"
_GLOBALS = ("GLOBAL", "INST")
_EXTENSIONS = ("EXT1", "EXT2", "EXT4")
_STORES = ("PUT", "BINPUT", "LONG_BINPUT")
_FETCHES = ("GET", "BINGET", "LONG_BINGET")
_TEXTS = ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_CALLS = ("REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX")


def foreign_globals(stream: BinaryIO) -> frozenset[str]:
    """Return the functions, other than harmless ones, that reading the rest of the stream as pickles would call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes in files that are not pickles
        names = set(_globals(meter_stream(stream)))
    return frozenset(name.replace(" ", ".") for name in names if not _HARMLESS.fullmatch(name))


def _globals(stream: BinaryIO) -> Iterator[str]:
    """Yield ``module name`` of every global in consecutive pickles; PyTorch's old format has five."""
    while start := stream.read(len(_PICKLE)):
        stream.seek(-len(_PICKLE), 1)
        names: set[str] = set()
        has_calls = start == _PICKLE  # in bytes that may be text, names count only after a call
        is_complete = False
        try:
            for operation, name in _operations(stream):
                has_calls = has_calls or operation in _CALLS
                is_complete = operation == "STOP"
                names |= {_clipped(name)} if name else set()
        except (ValueError, EOFError, UnicodeDecodeError, IndexError, OverflowError):
            is_complete = False  # raw values of tensors follow, or it is not a pickle: no reader can read further
        yield from names if has_calls else ()
        if not is_complete:
            return


def _operations(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    """Yield each operation of one pickle, with the global that it names; empty if it names none.

    A name from the stack counts only if its two words were pushed immediately before: otherwise it cannot be
    determined. The pickle ends at an operation that takes more values than were pushed, or needs a mark that was not
    set; every unpickler stops there too. So words in a text call nothing. Only INST may look up its name before it
    misses its mark.
    """
    has_mark, most_values = False, 0  # upper bound of the stack's size: values above a mark are never subtracted
    words: list[str] = []  # texts pushed since the last operation other than pushing or memoizing text
    memo: dict[int, str] = {}
    for operation, argument, _ in pickletools.genops(stream):
        takes_mark = pickletools.stackslice in operation.stack_before
        if not (has_mark or operation.name == "INST" if takes_mark else len(operation.stack_before) <= most_values):
            return
        has_mark = has_mark or operation.name == "MARK"
        most_values += len(operation.stack_after) - (0 if takes_mark else len(operation.stack_before))
        global_name = ""
        if operation.name == "MEMOIZE":
            memo[len(memo)] = words[-1] if words else _UNKNOWN
        elif operation.name in _STORES:
            memo[int(argument or 0)] = words[-1] if words else _UNKNOWN
        elif operation.name in _FETCHES:
            words = [*words[-1:], memo.get(int(argument or 0), _UNKNOWN)]
        elif operation.name in _TEXTS:
            words = [*words[-1:], _clipped(str(argument))]
        else:
            global_name = _named(operation.name, argument, words)
            words = []
        yield operation.name, global_name


def _clipped(name: str) -> str:
    """Return a name of bounded length; a clipped one never equals a harmless one."""
    return name if len(name) <= BUDGET.names else f"{name[: BUDGET.names]}…"


def _named(operation: str, argument: object, words: list[str]) -> str:
    """Return the global that an operation names; empty if it names none."""
    if operation in _GLOBALS:
        return str(argument)
    if operation in _EXTENSIONS:
        return _UNKNOWN
    if operation == "STACK_GLOBAL":
        return " ".join(words[-2:]) if len(words) > 1 else _UNKNOWN
    return ""
