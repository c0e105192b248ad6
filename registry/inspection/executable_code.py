"""Detection of code that a file would execute when it is loaded: pickles, Keras layers, graph operations.

TensorFlow and TorchScript execute such operations in any model. A model without code runs as a process of the host,
where they could read labels or write any file of the user.

Nothing is loaded to find out.
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

from benchlock.registry.inspection.formats.foreign_files import BUDGET, check_count, meter_stream, read_whole
from benchlock.registry.inspection.formats.model_graphs import custom_operations
from benchlock.registry.inspection.formats.pickles import foreign_globals
from benchlock.registry.inspection.formats.protobuf import MalformedError, Message, whole_message
from benchlock.registry.inspection.formats.tensor_files import MAGIC, read_array

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
    return _select(_operations(whole_message(stream, size), "saved_model" if saved_model else "graph"))


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


_ZIP = b"PK\x03\x04"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_LAMBDA = re.compile(rb'"(?:class_name|registered_name)"\s*:\s*"(?:Lambda|__lambda__)"')
_REACHING = r"io\.[^\"]*|[^\"]*(?:file|py_func|numpy_function|load_)[^\"]*"
_FUNCTION = re.compile(_REACHING)
_FUNCTION_IN_HDF5 = re.compile(rb'"function"\s*:\s*"(?:' + _REACHING.encode() + rb')"')
"""Functions of TensorFlow that reach files or Python, which a layer ``TFOpLambda`` calls by their name."""
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
"""What messages call the graph of a format whose files are looked into."""
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
"""How compressed files begin, and what unpacks them: 47 is zlib's word for gzip or its own form, whichever is there."""


def list_code_reasons(stream: BinaryIO, *, torchscript: bool = False) -> tuple[str, ...]:
    """Why reading the file would run code, as sentences without a subject; empty where it would not.

    A PyTorch archive is a zip file with a pickle inside. TorchScript has an archive of that form too, but an unpickler
    of its own, which calls nothing: with ``torchscript`` an archive with code is passed.
    """
    return tuple(dict.fromkeys(_reasons(meter_stream(stream), torchscript=torchscript, depth=0)))


def list_model_code_reasons(
    stream: BinaryIO, path: str, size: int, model_format: str, *, is_graph: bool = True
) -> tuple[str, ...]:
    """Return why a file of a model would run code, when it is read or as an operation of its graph.

    Args:
        stream: The file.
        path: Where it lies inside the model.
        size: Its bytes.
        model_format: The model's ``format``.
        is_graph: Whether the framework takes the file, or a tree that it lies in, for the model's graph.

    Raises:
        MalformedError: It is a graph, and not of its format; ``GRAPH_FORMS`` says of which.
    """
    found = list(list_code_reasons(stream, torchscript=model_format == "torchscript"))
    try:
        operations = _code_operations(stream, path, size, model_format) if is_graph else ()
    except MalformedError:
        if not found:
            raise
        operations = ()
    except _UNREADABLE as error:
        operations = ()
        found.append(f"has operations that cannot be looked into: {error}")
    if operations:
        found.append(f"has operations that reach files, processes or Python: {', '.join(operations)}")
    if is_graph and posixpath.basename(path) in _UNREAD_SAVED_MODELS:
        found.append("is a SavedModel in a form that nobody looks into")
    return tuple(found)


def _code_operations(stream: BinaryIO, path: str, size: int, model_format: str) -> tuple[str, ...]:
    stream.seek(0)
    if model_format == "torchscript":
        return _torchscript_operations(stream)
    if posixpath.basename(path) == "saved_model.pb":
        return tensorflow_operations(stream, size, saved_model=True)
    if model_format == "frozen-graph":
        return tensorflow_operations(stream, size, saved_model=False)
    return tflite_operations(stream, size) if model_format == "tflite" else ()


def _torchscript_operations(stream: BinaryIO) -> tuple[str, ...]:
    archive = _zip(stream)
    if archive is None:
        return ()
    found: list[str] = []
    with archive:
        for member in archive.infolist():
            if member.filename.endswith("/model.json"):
                raise MalformedError("its form is older than PyTorch 1.4")
            if member.filename.endswith(".py"):
                with archive.open(member) as content:
                    source = read_whole(meter_stream(cast("BinaryIO", content)), BUDGET.document)
                    found.extend(torchscript_operations(source))
    return tuple(dict.fromkeys(found))


def _reasons(stream: BinaryIO, *, torchscript: bool = False, depth: int) -> Iterator[str]:
    if depth > BUDGET.depth:
        yield f"holds archives inside one another, more than {BUDGET.depth} deep, which nobody looks into"
        return
    start = stream.read(len(_HDF5))
    # A file is read as an archive by its end too; what lies in an archive, by its beginning alone.
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
    found = foreign_globals(stream)
    if found:
        yield f"calls {', '.join(sorted(found))}"


def _zip(stream: BinaryIO) -> zipfile.ZipFile | None:
    """The zip file that ends where the stream does, whatever it begins with: readers differ in where they look."""
    try:
        return zipfile.ZipFile(stream) if zipfile.is_zipfile(stream) else None
    except _UNREADABLE:
        return None


def _in_zip(archive: zipfile.ZipFile, *, torchscript: bool, depth: int) -> Iterator[str]:
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
                yield f"holds {member.filename!a}, which cannot be looked into: {error}"


def _in_tar(stream: BinaryIO, depth: int) -> Iterator[str]:
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for number, member in enumerate(archive):
                check_count(number, BUDGET.members, "members")
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    yield from _reasons(cast("BinaryIO", content), depth=depth + 1)
    except _UNREADABLE:
        return  # it is none, or breaks off: nothing after this can be read


def _in_compressed(unpacker: Any, stream: BinaryIO, depth: int) -> Iterator[str]:  # noqa: ANN401 - of three libraries
    """What is inside, as far as it can be unpacked."""
    try:
        content = unpacker.decompress(stream.read(_LARGEST_UNPACKED), _LARGEST_UNPACKED)
    except _UNREADABLE:
        return
    if stream.read(1) or len(content) == _LARGEST_UNPACKED:
        yield "is compressed, and too large to be looked into"
        return
    yield from _reasons(io.BytesIO(content), depth=depth + 1)


def _in_array(stream: BinaryIO) -> Iterator[str]:
    try:
        array = read_array(stream, "it")
    except MalformedError:
        yield "begins as an array whose header cannot be read"
        return
    if array.holds_objects:
        yield "is an array of objects, which are a pickle"


def _in_config(stream: BinaryIO) -> Iterator[str]:
    """The layers of a Keras file: those that hold code, and functions that are looked up in any module."""
    yield from _in_layers(msgspec.json.decode(read_whole(stream, BUDGET.document)))


def _in_layers(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if {value.get("class_name"), value.get("registered_name")} & {"Lambda", "__lambda__"}:
            yield "has a Lambda layer, which holds code"
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
    for one in inner:
        yield from _in_layers(one)


def _is_builtin_function(name: object) -> bool:
    """Return whether Python has a function of this name everywhere, as ``eval``: no function of Keras is called so."""
    return isinstance(name, str) and isinstance(getattr(builtins, name, None), BuiltinFunctionType)


def _in_hdf5(stream: BinaryIO) -> Iterator[str]:
    """Keras keeps its configuration as JSON, which HDF5 does not compress; spelled otherwise than usual, it hides."""
    kept = b""
    while chunk := stream.read(1 << 20):
        window = kept + chunk
        if _LAMBDA.search(window):
            yield "has a Lambda layer, which holds code"
            return
        if _FUNCTION_IN_HDF5.search(window):
            yield "calls a function of TensorFlow that reaches files or Python"
            return
        if _ESCAPED.search(window):
            yield "spells letters of its configuration as escapes, which hide what it is"
            return
        kept = window[-_OVERLAP:]
