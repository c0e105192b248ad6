"""Files that run code when they are read are found wherever they hide; so are archives that leave their folder."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchlock.registry.inspection.executable_code import list_code_reasons, list_model_code_reasons
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.inspection_process import InspectionTarget, find_code
from benchlock.registry.inspection.model_files import find_unsafe_members
from benchlock.registry.publishing.drafts import read_draft
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.registry.digits import DIGITS

MODELS = DIGITS / "models"


class Attack:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch /tmp/this-must-not-exist",)


PICKLE = pickle.dumps(Attack())
CALL = "calls posix.system"
OBJECTS = "is an array of objects, a pickle"
DEEP = "contains archives nested more than 4 levels deep, which are not inspected"
LAMBDA = "has a Lambda layer, which contains code"


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def array(value: Any) -> bytes:  # noqa: ANN401 - an array of any type
    out = io.BytesIO()
    np.save(out, value)
    return out.getvalue()


def arrays(**values: object) -> bytes:
    return zipped({f"{name}.npy": array(np.asarray(value)) for name, value in values.items()})


def nested(depth: int) -> bytes:
    content = PICKLE
    for _ in range(depth):
        content = zipped({"inner": content})
    return content


def keras(change: Callable[[str], str]) -> bytes:
    """The digits network with another configuration."""
    with zipfile.ZipFile(MODELS / "digits.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    config = change(members["config.json"].decode())
    json.loads(config)
    return zipped(members | {"config.json": config.encode()})


def with_layer(layer: Mapping[str, object]) -> Callable[[str], str]:
    return lambda config: json.dumps(json.loads(config) | {"more": {"layers": [{"deep": layer}]}})


HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(4096)
LAYER = {"class_name": "Lambda", "config": {"function": ["4wEAAAAAAAAA", None, None]}}
FOREIGN = {"class_name": "function", "config": "system", "module": "os"}
RECORD = np.zeros(2, [("a", "<f4"), ("O", "<i8")])
MIXED = np.zeros(2, [("a", "<f4"), ("b", "O")])
HIDING: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "in a zip under any name": (zipped({"data/0": PICKLE}), (CALL,)),
    "in a packed zip": (zipped({"weights.bin": PICKLE}, zipfile.ZIP_DEFLATED), (CALL,)),
    "in zips inside one another": (nested(3), (CALL,)),
    "too deep to be found": (nested(9), (DEEP,)),
    "in a zip with something in front": (b"\x08\x07" + bytes(100) + zipped({"data.pkl": PICKLE}), (CALL,)),
    "in front of a zip": (PICKLE + zipped({"a": b"plain"}), (CALL,)),
    "in a tar": (tarred({"sys_info": pickle.dumps({}), "pickle": PICKLE}), (CALL,)),
    "as joblib packs it with zlib": (zlib.compress(PICKLE), (CALL,)),
    "as joblib packs it with gzip": (gzip.compress(PICKLE), (CALL,)),
    "as joblib packs it with bz2": (bz2.compress(PICKLE), (CALL,)),
    "as joblib packs it with xz": (lzma.compress(PICKLE), (CALL,)),
    "as joblib packs it with lzma": (lzma.compress(PICKLE, lzma.FORMAT_ALONE), (CALL,)),
    "packed and too large": (zlib.compress(bytes(1 << 27)), ("is compressed and too large to inspect",)),
    "an array of objects": (array(np.array([{}, []], object)), (OBJECTS,)),
    "an array with a field of objects": (array(MIXED), (OBJECTS,)),
    "an array of objects in an npz": (arrays(x=np.zeros(3), y=np.array([Attack()], object)), (OBJECTS,)),
    "arrays": (arrays(x=np.zeros(3), y=RECORD, z=np.array(["O", "b"])), ()),
    "a protocol that is text": (pickle.dumps(Attack(), protocol=0), (CALL,)),
    "second, in PyTorch's old form": (pickle.dumps(1, 2) + pickle.dumps(2, 2) + pickle.dumps(Attack(), 0), (CALL,)),
    "a name of an extension": (b"\x80\x02\x82\x01)R.", ("calls (a-computed-name)",)),
    "an old class": (b"(S'true'\nios\nsystem\n.", ("calls os.system",)),
    "a name after a harmless call": (
        b"\x80\x02ccollections\nOrderedDict\n)Rq\x00cbuiltins\neval\nX\x01\x00\x00\x001\x85R.", ("calls builtins.eval",)
    ),
    "Keras": ((MODELS / "digits.keras").read_bytes(), ()),
    "Keras with a Lambda": (keras(with_layer(LAYER)), (LAMBDA,)),
    "Keras with a Lambda in other letters": (
        keras(lambda config: with_layer(LAYER)(config).replace("Lambda", "\\u004cambda")), (LAMBDA,)
    ),
    "Keras with a packed function": (keras(with_layer({"class_name": "__lambda__", "config": {}})), (LAMBDA,)),
    "Keras with a function of Python's": (
        keras(with_layer({"class_name": "function", "config": "exec", "module": "builtins"})),
        ("looks up exec in the module builtins",),
    ),
    "Keras with a function that writes files": (
        keras(with_layer({"class_name": "get_file", "module": "keras.utils"})),
        ("looks up get_file in the module keras.utils",),
    ),
    "Keras with TensorFlow's functions": (
        keras(with_layer({"class_name": "TFOpLambda", "config": {"function": "io.write_file"}})),
        ("calls TensorFlow's io.write_file",),
    ),
    "HDF5 with a harmless function": (HDF5 + b'{"class_name": "TFOpLambda", "function": "math.add"}' + bytes(99), ()),
    "HDF5 with a function that reads files": (
        HDF5 + b'{"class_name": "TFOpLambda", "config": {"function": "io.read_file"}}' + bytes(99),
        ("calls a function of TensorFlow that accesses files or Python",),
    ),
    "Keras with a foreign function": (keras(with_layer(FOREIGN)), ("looks up function in the module os",)),
    "HDF5": (HDF5 + b'{"class_name": "Dense"}' + bytes(99), ()),
    "HDF5 with a Lambda": (HDF5 + b'{"class_name": "Lambda"}' + bytes(99), (LAMBDA,)),
    "HDF5 with a Lambda across pieces": (
        b"\x89HDF\r\n\x1a\n" + bytes((1 << 20) - 20) + b'{"class_name" : "Lambda"}', (LAMBDA,)
    ),
    "HDF5 with a Lambda in other letters": (
        HDF5 + b'{"class_name": "\\u004cambda"}',
        ("hides its configuration with escaped letters",),
    ),
    "TorchScript's neighbours": ((MODELS / "digits.pt2").read_bytes(), ()),
    "a table of words": (b"cat\ndog\n(cos\nsystem\n", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", HIDING)
def test_code_is_found_where_it_hides(name: str) -> None:
    content, expected = HIDING[name]
    assert list_code_reasons(io.BytesIO(content)) == expected
    assert not Path("/tmp/this-must-not-exist").exists()


def test_an_encrypted_member_is_not_passed_over() -> None:
    content = bytearray(zipped({"data.pkl": PICKLE}))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (reason,) = list_code_reasons(io.BytesIO(bytes(content)))
    assert reason.startswith("contains 'data.pkl', which cannot be inspected")


@pytest.mark.parametrize("end", range(1, 200, 13))
def test_what_breaks_off_is_looked_at_without_a_fault(end: int) -> None:
    for content, _ in HIDING.values():
        list_code_reasons(io.BytesIO(content[:end]))
        list_code_reasons(io.BytesIO(content[:-end]))
        list(find_unsafe_members(io.BytesIO(content[:-end])))


def linked() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo("weights")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return out.getvalue()


def doubled() -> bytes:
    content = zipped({"config.json": b"{}", "config.jso_": b"[]"})
    return content.replace(b"config.jso_", b"config.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (zipped({"a/b": b"", "a/c": b""}), ""),
        (b"no archive", ""),
        (zipped({"../evil": b""}), "a file outside its folder: the path '../evil'"),
        (zipped({"/etc/evil": b""}), "the path '/etc/evil' is absolute"),
        (zipped({"a\\b": b""}), "has a backslash"),
        (zipped({"a": b"", "A": b""}), "'a' and 'A' are the same name"),
        (zipped({"\u00e9": b"", "e\u0301": b""}), "are the same name"),
        (linked(), "contains a symbolic link, 'weights'"),
        (doubled(), "contains 'config.json' twice"),
    ],
)
def test_an_archive_that_should_not_be_unpacked_says_why(content: bytes, words: str) -> None:
    found = list(find_unsafe_members(io.BytesIO(content)))
    assert bool(found) == bool(words), found
    assert not words or words in found[0]


@pytest.mark.parametrize("text", [b"bird\ncat\n", b"Rose\n", b"0.1 bird\nioo\nfrog\n", b"cow\nbull\nox\nRat\n"])
def test_words_are_no_pickle(text: bytes) -> None:
    """Each begins with an operation that takes what was never pushed: no unpickler goes on behind it."""
    with pytest.raises(Exception):  # noqa: B017, PT011 - anything at all
        pickle.loads(text)
    assert list_code_reasons(io.BytesIO(text)) == ()


@pytest.mark.parametrize(
    "code",
    [
        b"cposix\nsystem\n(S'x'\ntR.",
        b"(S'x'\niposix\nsystem\n.",
        b"(cposix\nsystem\nS'x'\no.",
        b"N0cposix\nsystem\n(S'x'\ntR.",
        b"(10cposix\nsystem\n(S'x'\ntR.",
        b"(NNNtN20cposix\nsystem\n(S'x'\ntR.",
        b"Np0\n0g0\n0cposix\nsystem\n(S'x'\ntR.",
        b"iposix\nsystem\n",
    ],
)
def test_code_that_begins_as_text_is_found(code: bytes) -> None:
    assert list_code_reasons(io.BytesIO(code)) == (CALL,)


def field(number: int, content: bytes) -> bytes:
    """A field of bytes of a protocol buffer."""
    size = len(content)
    return bytes([number << 3 | 2, size & 0x7F | 0x80, size >> 7]) + content


def graph_of(*operations: str, function: str = "NoOp") -> bytes:
    """A GraphDef with these operations, and with another inside a function of its library."""
    nodes = b"".join(field(1, field(1, b"n") + field(2, one.encode())) for one in operations)
    return nodes + field(2, field(1, field(3, field(2, function.encode()))))


def saved_model(*operations: str, function: str = "NoOp") -> bytes:
    return field(2, field(2, graph_of(*operations, function=function)))


def tflite(operation: str) -> bytes:
    """A TFLite file of one operator code, of a custom operation."""
    vtable = struct.pack("<4H", 8, 8, 0, 4)
    root = struct.pack("<iI", 8, 4)
    code = struct.pack("<iI", 8, 4) + struct.pack("<I", len(operation)) + operation.encode()
    return struct.pack("<I4s", 16, b"TFL3") + vtable + root + struct.pack("<2I", 1, 12) + vtable + code


def torchscript(source: str, name: str = "m/code/__torch__.py") -> bytes:
    return zipped({"m/constants.pkl": b"\x80\x02).", name: f"def forward(self, x):\n  {source}\n".encode()})


SAVING = ("SaveV2", "RestoreV2", "MergeV2Checkpoints", "ShardedFilename", "ReadVariableOp", "TensorArrayReadV3")
REACHING = "has operations that access files, processes or Python: "
GRAPHS: dict[str, tuple[str, str, bytes, tuple[str, ...]]] = {
    "what every SavedModel has": ("savedmodel", "g/saved_model.pb", saved_model(*SAVING), ()),
    "a file that is read": (
        "savedmodel", "g/saved_model.pb", saved_model("Add", "ReadFile"), (f"{REACHING}ReadFile",)
    ),
    "a file that a function writes": (
        "savedmodel", "saved_model.pb", saved_model("Add", function="WriteFile"), (f"{REACHING}WriteFile",)
    ),
    "a SavedModel as text": (
        "savedmodel", "g/saved_model.pbtxt", b"meta_graphs {}", ("is a SavedModel in a form that cannot be inspected",)
    ),
    "a frozen graph": ("frozen-graph", "g.pb", graph_of("Add", "MatMul"), ()),
    "a frozen graph with Python": (
        "frozen-graph", "g.pb", graph_of("PyFunc", "EagerPyFunc"), (f"{REACHING}EagerPyFunc, PyFunc",)
    ),
    "TFLite with an operation of its author": ("tflite", "g.tflite", tflite("Mine"), ()),
    "TFLite with TensorFlow's": ("tflite", "g.tflite", tflite("FlexAddV2"), ()),
    "TFLite that writes files": ("tflite", "g.tflite", tflite("FlexWriteFile"), (f"{REACHING}WriteFile",)),
    "TorchScript": ("torchscript", "m.pt", torchscript("return torch.add(x, self.saved)"), ()),
    "TorchScript that maps a file": (
        "torchscript", "m.pt", torchscript('return torch.from_file("/f", True, 5)'), (f"{REACHING}from_file",)
    ),
    "TorchScript that saves": (
        "torchscript", "m.pt", torchscript('ops.aten.save(x, "f")'), (f"{REACHING}aten.save",)
    ),
    "TorchScript that saves by another name": (
        "torchscript", "m.pt", torchscript("f = torch # it\n  . \\\n  save"), (f"{REACHING}torch.save",)
    ),
    "TorchScript with classes of its author": (
        "torchscript", "m.pt", torchscript("x : __torch__.torch.classes.mine.Reader"), (f"{REACHING}torch.classes",)
    ),
    "TorchScript of quantized layers": (
        "torchscript", "m.pt", torchscript("x : __torch__.torch.classes.quantized.LinearPackedParamsBase"), ()
    ),
    "TorchScript that calls something save": (
        "torchscript", "m.pt", torchscript('save = self.save(x)\n  raise Exception("cannot save state")'), ()
    ),
    "an exported program": ("torch-export", "m.pt2", (MODELS / "digits.pt2").read_bytes(), ()),
    "a graph of digits": ("tflite", "digits.tflite", (MODELS / "digits.tflite").read_bytes(), ()),
    "digits in TorchScript": ("torchscript", "d.pt", (MODELS / "digits.torchscript.pt").read_bytes(), ()),
    "digits as a SavedModel": (
        "savedmodel", "saved_model.pb", (MODELS / "digits.savedmodel" / "saved_model.pb").read_bytes(), ()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_operations_that_reach_files_are_code(name: str) -> None:
    model_format, path, content, expected = GRAPHS[name]
    assert list_model_code_reasons(io.BytesIO(content), path, len(content), model_format) == expected


@pytest.mark.parametrize(
    ("model_format", "path", "content", "message"),
    [
        ("savedmodel", "saved_model.pb", saved_model("Add")[:-1], "a field is longer than its message"),
        ("torchscript", "m.pt", torchscript("return x", "m/model.json"), "its format is older than PyTorch 1.4"),
        ("tflite", "g.tflite", b"<!DOCTYPE html>", "its first bytes do not match"),
    ],
)
def test_a_graph_that_is_not_of_its_format_is_no_code(
    model_format: str, path: str, content: bytes, message: str
) -> None:
    with pytest.raises(MalformedError, match=message):
        list_model_code_reasons(io.BytesIO(content), path, len(content), model_format)


def test_a_page_in_a_model_of_others_is_no_code() -> None:
    path, store = MODELS / "digits-litert.yaml", MemoryStore()
    manifest = read_draft(path.read_text(), path.name, path).manifest
    files = {"digits.tflite": store.put(io.BytesIO(b"<!DOCTYPE html>"))}
    error = find_code(InspectionTarget(manifest, "model/digits", store, files), list(files))
    assert error is not None
    assert error.what == "digits.tflite of model/digits is not a valid TFLite graph: it is an HTML or XML page"
