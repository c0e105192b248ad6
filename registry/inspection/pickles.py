"""What a pickle would call, found without loading it.

A pickle runs whatever function it names. A dictionary of PyTorch weights names a few harmless ones, which
``torch.load(weights_only=True)`` admits; any other is code. This finds carelessness and plain attacks; what a
determined one could hide still meets the container.
"""

import pickletools
import re
import zipfile
from collections.abc import Iterator
from typing import BinaryIO, cast

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
_ZIP = b"PK"
_UNKNOWN = "a name that is made while it is read"
_GLOBALS = ("GLOBAL", "INST")
_EXTENSIONS = ("EXT1", "EXT2", "EXT4")
_STORES = ("PUT", "BINPUT", "LONG_BINPUT")
_FETCHES = ("GET", "BINGET", "LONG_BINGET")


def foreign_globals(stream: BinaryIO, *, torchscript: bool) -> frozenset[str]:
    """The functions that reading the file as a pickle would call, but for the harmless ones; none if it is none.

    A PyTorch archive is a zip file with a pickle inside. TorchScript has an archive of that form too, but an unpickler
    of its own, which calls nothing: with ``torchscript`` an archive with code is passed.
    """
    start = stream.read(len(_ZIP))
    stream.seek(0)
    found: set[str] = set()
    if start == _ZIP and zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            names = archive.namelist()
            if not (torchscript and any(name.endswith("/constants.pkl") for name in names)):
                for name in names:
                    if name.endswith(".pkl"):
                        with archive.open(name) as member:
                            found.update(_globals(cast("BinaryIO", member)))
    elif start.startswith(_PICKLE):
        found.update(_globals(stream))
    return frozenset(name.replace(" ", ".") for name in found if not _HARMLESS.fullmatch(name))


def _globals(stream: BinaryIO) -> Iterator[str]:
    """``module name`` of every global in the pickles that follow one another; PyTorch's old format has five."""
    while start := stream.read(len(_PICKLE)):
        if start != _PICKLE:
            return
        stream.seek(-len(_PICKLE), 1)
        try:
            yield from _globals_of_one(stream)
        except (ValueError, EOFError, UnicodeDecodeError, IndexError):
            return  # the raw values of tensors follow, or it is no pickle: nothing after this can be read


def _globals_of_one(stream: BinaryIO) -> Iterator[str]:
    """A name from the stack counts only where its two words were pushed right before: else nobody can tell."""
    words: list[str] = []  # pushed since the last operation that is neither a push of text nor a note of one
    memo: dict[int, str] = {}
    for operation, argument, _ in pickletools.genops(stream):
        if operation.name == "MEMOIZE":
            memo[len(memo)] = words[-1] if words else _UNKNOWN
        elif operation.name in _STORES:
            memo[int(argument or 0)] = words[-1] if words else _UNKNOWN
        elif operation.name in _FETCHES:
            words.append(memo.get(int(argument or 0), _UNKNOWN))
        elif operation.name in _GLOBALS:
            yield str(argument)
            words.clear()
        elif operation.name in _EXTENSIONS:
            yield _UNKNOWN
        elif operation.name == "STACK_GLOBAL":
            yield " ".join(words[-2:]) if len(words) > 1 else _UNKNOWN
            words.clear()
        elif isinstance(argument, str):
            words.append(argument)
        else:
            words.clear()
