"""Detection of code that a file would execute when it is loaded: pickles, Keras layers, graph operations.

TensorFlow and TorchScript execute such operations in any model. A model without code may run as a process of the host,
where such operations could read labels or write any file of the user. Detection loads nothing.
"""

import builtins
import bz2
import io
import lzma
import posixpath
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType
from typing import Any, BinaryIO, Final, cast

import msgspec

from benchlock.registry.inspection.formats.model_graphs import custom_operations
from benchlock.registry.inspection.formats.pickles import foreign_globals
from benchlock.registry.inspection.formats.protobuf import MalformedError, Message, whole_message
from benchlock.registry.inspection.formats.tensor_files import MAGIC, read_array
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, check_count, meter_stream, read_whole

_TENSORFLOW = re.compile(
    r"(?!Sharded)\w*File.*"
    r"|\w*(?:PyFunc|Reader|Dataset|Summary|Remote|Rpc|RPC|Debug|Sql|LMDB|Socket|Service|Vocab|Dump|HostCompute).*"
    r"|_?(?:Host|Xla|Nccl|Collective\w*)?(?:Send|Recv).*"
    r"|Save|SaveSlices|Restore|RestoreSlice|DTensorRestoreV2|DistributedSave|CalibrationStatisticsSaver"
    r"|PrintV2|LoadAndRemapMatrix|RecordInput|FixedUnigramCandidateSampler|XlaCustomCall.*"
)
"""Operations of TensorFlow that reach files, processes or Python.

``SaveV2``, ``RestoreV2`` and related operations are in every SavedModel, and only read and write checkpoints.
"""
_FLEX = "Flex"
"""The prefix of an operation of TensorFlow in TFLite."""
_DOT = rb"(?:\s|\\|#[^\n]*+\n)*+\.(?:\s|\\|#[^\n]*+\n)*+"
"""A dot, and what may surround it."""
_TORCHSCRIPT = re.compile(
    rb"\b(?:from_file|load_tensor|rpc_sync|rpc_async|rpc_remote|_c10d_functional|symm_mem)\b"
    rb"|\btorch" + _DOT + rb"classes\b(?!" + _DOT + rb"(?:quantized|xnnpack)\b)"
    rb"|\b(?:torch|aten)" + _DOT + rb"save\b"
)
"""Names that make TorchScript code executable; the packed weights of quantized layers are classes of PyTorch itself."""
_INSIDE: dict[str, dict[int, str]] = {
    "saved_model": {2: "meta_graph"},
    "meta_graph": {2: "graph"},
    "graph": {1: "node", 2: "library"},
    "library": {1: "function"},
    "function": {3: "node"},
}
"""The fields of TensorFlow's messages that lead to nodes, by message."""


def tensorflow_operations(stream: BinaryIO, size: int, *, saved_model: bool) -> tuple[str, ...]:
    """Return the operations of a SavedModel, or of a frozen graph, that execute code.

    Raises:
        MalformedError: The file is neither.
    """
    return _select(_operations(whole_message(stream, size), "saved_model" if saved_model else "graph"))


def tflite_operations(stream: BinaryIO, size: int) -> tuple[str, ...]:
    """Return the operations of TensorFlow in a TFLite graph that execute code.

    Raises:
        MalformedError: The file is not a TFLite graph.
    """
    return _select(name.removeprefix(_FLEX) for name in custom_operations(stream, size))


def _select(operations: Iterable[str]) -> tuple[str, ...]:
    """Return the names of operations that reach files, processes or Python, each once, sorted."""
    return tuple(sorted({name for name in operations if _TENSORFLOW.fullmatch(name)}))


def torchscript_operations(source: bytes) -> tuple[str, ...]:
    """Return the names in a source file of TorchScript that execute code."""
    return tuple(sorted({re.sub(_DOT, b".", match.group()).decode() for match in _TORCHSCRIPT.finditer(source)}))


def _operations(message: Message, of_type: str) -> Iterator[str]:
    """Yield the names of all operations in a message."""
    if of_type == "node":
        yield message.text(2)
        return
    inside = _INSIDE[of_type]
    for field in message.fields():
        if field.number in inside and field.size is not None:
            yield from _operations(message.inside(field), inside[field.number])


_ZIP = b"PK\x03\x04"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_LAMBDA = re.compile(rb'"(?:class_name|registered_name)"\s*:\s*"(?:Lambda|__lambda__)"')
_REACHING = r"io\.[^\"]*|[^\"]*(?:file|py_func|numpy_function|load_)[^\"]*"
_FUNCTION = re.compile(_REACHING)
_FUNCTION_IN_HDF5 = re.compile(rb'"function"\s*:\s*"(?:' + _REACHING.encode() + rb')"')
"""Functions of TensorFlow that reach files or Python, which a layer ``TFOpLambda`` calls by name."""
_ESCAPED = re.compile(rb"\\u00[2-6][0-9a-fA-F]")
_OVERLAP = 256
_LARGEST_UNPACKED = 1 << 26  # bytes
_KERAS_MODULES = re.compile(r"(keras|tf_keras|tensorflow|builtins)(\.(?!.*(utils|saving|file_io|io\b)).*)?")
ZIPPED: Final = ("keras", "torchscript", "torch-export")
GRAPH_FORMS: Final = {
    "tflite": "TFLite graph",
    "savedmodel": "SavedModel",
    "frozen-graph": "frozen graph",
    **dict.fromkeys(ZIPPED, "zip archive"),
}
"""The name in messages of the graph of each inspected format."""
_UNREAD_SAVED_MODELS = ("saved_model.pbtxt", "saved_model.cpb")
_UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError, NotImplementedError, SyntaxError, KeyError),
    *(zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, msgspec.MsgspecError),
)


_UNPACKERS: dict[bytes, Callable[[], Any]] = {
    **dict.fromkeys((b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), lambda: zlib.decompressobj(47)),
    b"BZh": bz2.BZ2Decompressor,
    **dict.fromkeys((b"\xfd7zXZ\x00", b"\x5d\x00\x00"), lzma.LZMADecompressor),
}
"""How compressed files begin, and their decompressors; 47 makes zlib detect gzip or its own format."""


def list_code_reasons(stream: BinaryIO, *, torchscript: bool = False) -> tuple[str, ...]:
    """Return why reading the file would execute code, as sentences without a subject; empty if it would not.

    A PyTorch archive is a zip file with a pickle inside. TorchScript has an archive of that form too, but its unpickler
    calls nothing: with ``torchscript`` such an archive passes.
    """
    return tuple(dict.fromkeys(_reasons(meter_stream(stream), torchscript=torchscript, depth=0)))


def list_model_code_reasons(
    stream: BinaryIO, path: str, size: int, model_format: str, *, is_graph: bool = True
) -> tuple[str, ...]:
    """Return why a file of a model would execute code, when it is read or as an operation of its graph.

    Args:
        stream: The file.
        path: Its path inside the model.
        size: Its size in bytes.
        model_format: The model's ``format``.
        is_graph: Whether the framework loads the file, or a tree around it, as the model's graph.

    Raises:
        MalformedError: The file is a graph, but not of its format; ``GRAPH_FORMS`` has the name of the format.
    """
    reasons = list(list_code_reasons(stream, torchscript=model_format == "torchscript"))
    try:
        operations = _code_operations(stream, path, size, model_format) if is_graph else ()
    except MalformedError:
        if not reasons:
            raise
        operations = ()
    except _UNREADABLE as error:
        operations = ()
        reasons.append(f"has operations that cannot be inspected: {error}")
    if operations:
        reasons.append(f"has operations that access files, processes or Python: {', '.join(operations)}")
    if is_graph and posixpath.basename(path) in _UNREAD_SAVED_MODELS:
        reasons.append("is a SavedModel in a form that cannot be inspected")
    return tuple(reasons)


def _code_operations(stream: BinaryIO, path: str, size: int, model_format: str) -> tuple[str, ...]:
    """Return the operations of a graph that execute code."""
    stream.seek(0)
    if model_format == "torchscript":
        return _torchscript_operations(stream)
    if posixpath.basename(path) == "saved_model.pb":
        return tensorflow_operations(stream, size, saved_model=True)
    if model_format == "frozen-graph":
        return tensorflow_operations(stream, size, saved_model=False)
    return tflite_operations(stream, size) if model_format == "tflite" else ()


def _torchscript_operations(stream: BinaryIO) -> tuple[str, ...]:
    """Return the names in all sources of a TorchScript archive that execute code."""
    archive = _zip(stream)
    if archive is None:
        return ()
    names: list[str] = []
    with archive:
        for member in archive.infolist():
            if member.filename.endswith("/model.json"):
                raise MalformedError("its format is older than PyTorch 1.4")
            if member.filename.endswith(".py"):
                with archive.open(member) as content:
                    source = read_whole(meter_stream(cast("BinaryIO", content)), BUDGET.document)
                    names.extend(torchscript_operations(source))
    return tuple(dict.fromkeys(names))


def _reasons(stream: BinaryIO, *, torchscript: bool = False, depth: int) -> Iterator[str]:
    """Yield why reading a file, or a member of an archive, would execute code."""
    if depth > BUDGET.depth:
        yield f"contains archives nested more than {BUDGET.depth} levels deep, which are not inspected"
        return
    start = stream.read(len(_HDF5))
    # A file counts as an archive by its end too, a member of an archive only by its beginning.
    archive = _zip(stream) if not depth or start.startswith(_ZIP) else None
    if archive is not None:
        yield from _in_zip(archive, torchscript=torchscript, depth=depth)
    stream.seek(0)
    if start.startswith(MAGIC):
        yield from _in_array(stream)
    elif start.startswith(_HDF5):
        yield from _in_hdf5(stream)
    elif unpacker := next((unpacker for magic, unpacker in _UNPACKERS.items() if start.startswith(magic)), None):
        yield from _in_compressed(unpacker(), stream, depth)
    else:
        yield from _in_tar(stream, depth)
        stream.seek(0)
        yield from _in_pickle(stream)


def _in_pickle(stream: BinaryIO) -> Iterator[str]:
    """Yield the functions that pickles would call."""
    names = foreign_globals(stream)
    if names:
        yield f"calls {', '.join(sorted(names))}"


def _zip(stream: BinaryIO) -> zipfile.ZipFile | None:
    """Return the zip file that ends with the stream, whatever it begins with: readers differ in where they look."""
    try:
        return zipfile.ZipFile(stream) if zipfile.is_zipfile(stream) else None
    except _UNREADABLE:
        return None


def _in_zip(archive: zipfile.ZipFile, *, torchscript: bool, depth: int) -> Iterator[str]:
    """Yield the reasons in the members of a zip file."""
    with archive:
        members = archive.infolist()
        check_count(len(members), BUDGET.members, "members")
        if torchscript and any(member.filename.endswith("/constants.pkl") for member in members):
            return
        for member in members:
            if member.is_dir():
                continue
            try:
                with archive.open(member) as content:
                    inner = meter_stream(cast("BinaryIO", content), most=BUDGET.unpacked)
                    yield from (
                        _in_config(inner) if member.filename == "config.json" else _reasons(inner, depth=depth + 1)
                    )
            except _UNREADABLE as error:
                yield f"contains {member.filename!a}, which cannot be inspected: {error}"


def _in_tar(stream: BinaryIO, depth: int) -> Iterator[str]:
    """Yield the reasons in the members of a tar file."""
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for number, member in enumerate(archive):
                check_count(number, BUDGET.members, "members")
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    yield from _reasons(cast("BinaryIO", content), depth=depth + 1)
    except _UNREADABLE:
        return  # not a tar file, or truncated: no reader can read further


def _in_compressed(unpacker: Any, stream: BinaryIO, depth: int) -> Iterator[str]:  # noqa: ANN401 - of three libraries
    """Yield the reasons in compressed bytes, as far as they can be decompressed."""
    try:
        content = unpacker.decompress(stream.read(_LARGEST_UNPACKED), _LARGEST_UNPACKED)
    except _UNREADABLE:
        return
    if stream.read(1) or len(content) == _LARGEST_UNPACKED:
        yield "is compressed and too large to inspect"
        return
    yield from _reasons(io.BytesIO(content), depth=depth + 1)


def _in_array(stream: BinaryIO) -> Iterator[str]:
    """Yield the reason in an array of objects."""
    try:
        array = read_array(stream, "it")
    except MalformedError:
        yield "begins like an array, but its header cannot be read"
        return
    if array.holds_objects:
        yield "is an array of objects, a pickle"


def _in_config(stream: BinaryIO) -> Iterator[str]:
    """Yield layers of a Keras file that contain code, and functions that are looked up in any module."""
    yield from _in_layers(msgspec.json.decode(read_whole(stream, BUDGET.document)))


def _in_layers(value: object) -> Iterator[str]:
    """Yield the reasons in a Keras configuration, at any depth."""
    if isinstance(value, dict):
        if {value.get("class_name"), value.get("registered_name")} & {"Lambda", "__lambda__"}:
            yield "has a Lambda layer, which contains code"
        function = value.get("function")
        if isinstance(function, str) and _FUNCTION.fullmatch(function):
            yield f"calls TensorFlow's {function}"
        module = value.get("module")
        if "class_name" in value and isinstance(module, str) and not _KERAS_MODULES.fullmatch(module):
            yield f"looks up {value['class_name']} in the module {module}"
        elif module == "builtins":
            names = (value.get("class_name"), value.get("config"), value.get("registered_name"))
            yield from (f"looks up {name} in the module builtins" for name in names if _is_builtin_function(name))
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for nested in inner:
        yield from _in_layers(nested)


def _is_builtin_function(name: object) -> bool:
    """Return whether Python has a built-in function of this name, such as ``eval``; Keras has none with such a name."""
    return isinstance(name, str) and isinstance(getattr(builtins, name, None), BuiltinFunctionType)


def _in_hdf5(stream: BinaryIO) -> Iterator[str]:
    """Yield the reasons in the configuration of Keras, which HDF5 stores as uncompressed JSON.

    Escaped letters are a reason too: they could hide the others.
    """
    overlap = b""
    while chunk := stream.read(1 << 20):
        window = overlap + chunk
        if _LAMBDA.search(window):
            yield "has a Lambda layer, which contains code"
            return
        if _FUNCTION_IN_HDF5.search(window):
            yield "calls a function of TensorFlow that accesses files or Python"
            return
        if _ESCAPED.search(window):
            yield "hides its configuration with escaped letters"
            return
        overlap = window[-_OVERLAP:]
