"""Hostile files, made when they are needed: small ones that unpack to much, and headers that promise too much.

Each case is the bytes of some files and the manifest that publishes them. Nothing large is kept in the repository.
"""

import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from benchlock.artifacts.json_codec import encode_canonical

_MIB = 1 << 20
Files = dict[str, tuple[str | None, bytes]]
"""Role and bytes by path."""


@dataclass(frozen=True, slots=True)
class Case:
    """A publication that should be refused, or cost little. ``blobs`` are all bytes that it names."""

    name: str
    manifest: dict[str, Any]
    blobs: tuple[bytes, ...]
    refused: bool = True

    @property
    def bytes_sent(self) -> int:
        return sum(map(len, self.blobs)) + len(json.dumps(self.manifest))


def _listed(files: Files) -> list[dict[str, Any]]:
    return [
        {"path": path, "sha256": sha256(content).hexdigest(), "size": len(content)} | ({"role": role} if role else {})
        for path, (role, content) in files.items()
    ]


def _head(kind: str, name: str) -> dict[str, Any]:
    return {"schema": 1, "kind": kind, "name": f"hostile/{name}", "version": "1.0.0", "license": "MIT"}


_PORTS = {
    "inputs": [{"type": "tensor", "name": "x", "dtype": "float32", "shape": [None, 4]}],
    "outputs": [{"name": "y", "type": "tensor", "dtype": "float32", "shape": [None, 2]}],
}
_FORMATS = {
    "onnx": ("onnxruntime", "graph"),
    "tflite": ("litert", "graph"),
    "keras": ("tensorflow", "graph"),
    "hdf5": ("tensorflow", "graph"),
    "torchscript": ("pytorch", "graph"),
    "safetensors": ("pytorch", "weights"),
    "state-dict": ("pytorch", "weights"),
}


def _model(name: str, form: str, path: str, content: bytes, *, refused: bool = True) -> Case:
    framework, role = _FORMATS[form]
    files: Files = {path: (role, content)}
    manifest = _head("model", name) | {
        "task": "tensor",
        "framework": {"name": framework, "version": "*"},
        "format": form,
        **_PORTS,
    }
    if role == "weights":
        files["net.py"] = ("code", b"def make(weights): ...\n")
        manifest["code"] = {"file": "net.py", "function": "make"}
    manifest["files"] = _listed(files)
    return Case(name, manifest, tuple(content for _, content in files.values()), refused)


def _dataset(name: str, form: str, split: dict[str, Any], files: Mapping[str, bytes], **more: Any) -> Case:  # noqa: ANN401
    listed: Files = {path: (None, content) for path, content in files.items()}
    manifest = _head("dataset", name) | {"format": form, "splits": {"test": {"samples": 1} | split}, **more}
    manifest["files"] = _listed(listed)
    return Case(name, manifest, tuple(files.values()))


def _zipped(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _npy(header: bytes) -> bytes:
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def pack_repeated(head: bytes, piece: bytes, count: int, tail: bytes = b"") -> bytes:
    """What gzip unpacks to ``head``, so many times ``piece``, and ``tail``: each is compressed once, a member each."""
    first, repeated, last = (gzip.compress(part, 9, mtime=0) for part in (head, piece, tail))
    return first + repeated * count + last


def _safetensors(header: bytes, rest: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + rest


def _names_twice(memo: int) -> bytes:
    """A small pickle that names a function of a long name again and again."""
    name = b"a" * 500_000
    push = b"\x80\x04X" + struct.pack("<I", len(name)) + name + b"\x94X\x01\x00\x00\x00b\x94"
    return push + b"h\x00h\x01\x93" * memo + b"."


def _keras() -> bytes:
    """33 KB that hold 33 MB of configuration: empty lists, which take much more as objects."""
    return _zipped({"config.json": b"[" + b"[]," * 11_000_000 + b"[]]", "metadata.json": b"{}"})


def _parquet() -> bytes:
    """A footer of 32 MB: a schema of 16 million empty elements."""
    count = 16_000_000
    footer = b"\x15\x02\x19\xfc" + _varint(count) + b"\x00" * 32_000_000
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _deep_zip() -> bytes:
    content = b"x" * 1000
    for _ in range(12):
        content = _zipped({"inner.zip": content})
    return content


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(10_000):
            archive.addfile(tarfile.TarInfo(f"{number}"))
    return lzma.compress(file.getvalue(), preset=1)


def _hdf5() -> bytes:
    return b"\x89HDF\r\n\x1a\n" + (b'"class_name"' + b" " * 4096) * 4096


def cases() -> Iterator[Callable[[], Case]]:
    """Every case, made when it is called."""
    yield from _datasets()
    yield from _models()
    yield from _manifests()


def _datasets() -> Iterator[Callable[[], Case]]:
    jsonl = {"file": "d.jsonl.gz", "fields": {"x": "x"}}
    line = pack_repeated(b'{"x": "', b"a" * _MIB, 700, b'"}\n')
    yield lambda: _dataset("gzip-line", "jsonl", jsonl, {"d.jsonl.gz": line})
    yield lambda: _dataset("gzip-lines", "jsonl", jsonl, {"d.jsonl.gz": gzip.compress(b"\n" * (4 * _MIB), 9)})
    yield lambda: _dataset("gzip-idx", "idx", {"images": "d.gz"}, {"d.gz": pack_repeated(b"", bytes(_MIB), 600)})
    yield lambda: _dataset("deep-json", "jsonl", {**jsonl, "file": "d.jsonl"}, {"d.jsonl": b"[" * 5_000_000})
    coco = {"annotations": "a.json", "images": "i/"}
    tree = encode_canonical([["1.jpg", sha256(b"\xff\xd8").hexdigest(), 2]])
    pictures = {"path": "i/", "sha256": sha256(tree).hexdigest(), "size": 2}
    picture = b'{"id":1,"file_name":""}'
    for name, content in {
        "annotations-gzip": pack_repeated(b'{"images": [], "x": "', b"a" * _MIB, 600, b'"}'),
        "annotations-deep": b'{"images": ' + b"[" * 5_000_000,
        "annotations-objects": gzip.compress(b'{"images":[' + b"%s]}" % b",".join([picture] * 300_000), 1),
    }.items():
        yield lambda name=name, content=content: _coco(name, coco, content, pictures, tree)  # type: ignore[misc]
    headers = {
        "npz-parentheses": b"(" * 1_000_000,
        "npz-sums": b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1+" * 400_000 + b"1,)}",
        "npz-lists": b"[[]," * 250_000 + b"[]" + b"]",
    }
    for name, header in headers.items():
        yield lambda name=name, header=header: _dataset(  # type: ignore[misc]
            name, "npz", {"file": "d.npz", "fields": {"x": "x"}},
            {"d.npz": _zipped({f"x{number}.npy": _npy(header) for number in range(8)})},
        )  # fmt: skip
    yield lambda: _dataset(
        "parquet-footer", "parquet", {"file": "d.parquet", "fields": {"x": "x"}}, {"d.parquet": _parquet()}
    )
    index = {"index": "d.csv"}
    yield lambda: _dataset("csv-line", "image-index", index, {"d.csv": b"path,label\n" + b"," * (48 * _MIB)})
    yield lambda: _dataset(
        "labels", "image-index", index, {"d.csv": b"path\n", "l.txt": b"a\n" * (24 * _MIB)}, labels="l.txt"
    )
    wav = b"RIFF\xff\xff\xff\xffWAVEfmt \xff\xff\xff\xff" + bytes(64)
    yield lambda: _dataset(
        "wav-rows", "wav-index", index, {"d.csv": b"path,label\n" + b"1.wav,1\n" * 30_000, "1.wav": wav}
    )
    for ending, start in {
        "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + b"\xff" * 17 + b"\x7f\xff\xff\xffiTXt",
        "jpg": b"\xff\xd8" + b"\xff\xe2\xff\xff" * 4096,
        "tif": b"II*\x00\x08\x00\x00\x00\xff\xff" + b"\xff" * 4096,
    }.items():
        rows = b"path,label\n" + f"1.{ending},1\n".encode() * 2
        files = {"d.csv": rows, f"1.{ending}": start + bytes(1 << 16)}
        yield lambda ending=ending, files=files: _dataset(ending, "image-index", index, files)  # type: ignore[misc]


def _models() -> Iterator[Callable[[], Case]]:
    yield lambda: _model("zip-names", "torchscript", "m.pt", _zipped({f"{n}": b"" for n in range(25_000)}))
    yield lambda: _model("zip-deep", "torchscript", "m.pt", _deep_zip())
    yield lambda: _model("zip-bomb", "torchscript", "m.pt", _zipped({"a/data.pkl": bytes(200 * _MIB)}), refused=False)
    yield lambda: _model("xz-tar", "torchscript", "m.pt", _tar())
    yield lambda: _model("keras", "keras", "m.keras", _keras())
    layers = _zipped({"config.json": b"[" + b"[]," * 1_000_000 + b"[]]", "metadata.json": b"{}"})
    yield lambda: _model("keras-lists", "keras", "m.keras", layers, refused=False)
    yield lambda: _model("hdf5", "hdf5", "m.h5", _hdf5(), refused=False)
    yield lambda: _model("pickle-names", "state-dict", "m.pth", _names_twice(20_000))
    yield lambda: _model("pickle-memo", "state-dict", "m.pth", b"\x80\x04N" + b"\x94" * 200_000 + b".", refused=False)
    yield lambda: _model(
        "pickle-length", "state-dict", "m.pth", b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62), refused=False
    )
    yield lambda: _model("pickle-real", "state-dict", "m.pth", pickle.dumps(print))
    shape = b'{"a":{"dtype":"F32","shape":[' + b"9999999999," * 200_000 + b'1],"data_offsets":[0,4]}}'
    yield lambda: _model("safetensors-shape", "safetensors", "m.safetensors", _safetensors(shape, bytes(4)))
    metadata = b'{"__metadata__":{' + b",".join(b'"%d":""' % n for n in range(4_000_000)) + b"}}"
    yield lambda: _model("safetensors-metadata", "safetensors", "m.safetensors", _safetensors(metadata))
    yield lambda: _model("safetensors-deep", "safetensors", "m.safetensors", _safetensors(b"[" * 1_000_000))
    yield lambda: _model("onnx-fields", "onnx", "m.onnx", b"\x08\x07" * (_MIB // 4))
    yield lambda: _model("onnx-nodes", "onnx", "m.onnx", _field(7, b"\x0a\x00" * (_MIB // 16)))
    inputs = b"".join(_field(11, _field(1, b"%d" % n)) for n in range(100_000))
    yield lambda: _model("onnx-inputs", "onnx", "m.onnx", _field(7, inputs))
    yield lambda: _model("tflite", "tflite", "m.tflite", b"\x08\x00\x00\x00TFL3" + b"\xff\xff\x00\x00" * 16384)


def _manifests() -> Iterator[Callable[[], Case]]:
    """Manifests whose lists, paths and numbers are the attack."""
    yield lambda: _reshaped("reshape-axes", 300_000)
    yield lambda: _reshaped("reshape-fewer-axes", 50_000)
    yield lambda: _with_path("path-deep", "a/" * 59_999 + "a")
    yield lambda: _with_path("path-long", "a" * 300_000)
    yield lambda: _with_tree("tree-deep", [["a/" * 12_000 + "a", sha256(b"").hexdigest(), 0]])
    many = sorted(["/".join("a" * 60) + f"/{n:05}", sha256(b"").hexdigest(), 0] for n in range(10_000))
    yield lambda: _with_tree("tree-many", many)
    yield lambda: _values("values", [{}] * 400_000)
    yield lambda: _values("numbers", [1] * 99_000, refused=False)
    yield _wrong_inputs
    nested: Any = 1
    for _ in range(300):
        nested = [nested]
    yield lambda: _values("nested", nested, refused=False)


def _coco(name: str, split: dict[str, Any], content: bytes, pictures: dict[str, Any], tree: bytes) -> Case:
    case = _dataset(name, "coco", split, {"a.json": content})
    case.manifest["files"].append(pictures)
    return Case(name, case.manifest, (content, tree, b"\xff\xd8"))


def _with_path(name: str, path: str) -> Case:
    return _dataset(name, "image-index", {"index": "d.csv"}, {"d.csv": b"path\n", path: b""})


def _with_tree(name: str, rows: list[list[Any]]) -> Case:
    case = _dataset(name, "image-index", {"index": "d.csv"}, {"d.csv": b"path\n"})
    listing = encode_canonical(rows)
    case.manifest["files"].append({"path": "t/", "sha256": sha256(listing).hexdigest(), "size": 0})
    return Case(name, case.manifest, (b"path\n", listing, b""))


def _values(name: str, value: object, *, refused: bool = True) -> Case:
    """A framework, which has no files, with attributes."""
    manifest = _head("framework", name) | {"predictor": "onnxruntime", "distributions": ["onnxruntime"]}
    return Case(name, manifest | {"attributes": {"value": value}}, (), refused)


def _reshaped(name: str, axes: int) -> Case:
    case = _model(name, "onnx", "m.onnx", b"\x08\x07")
    case.manifest["inputs"] = [{**_PORTS["inputs"][0], "steps": [{"reshape": {"shape": [1] * axes}}]}]
    return case


def _wrong_inputs() -> Case:
    """Each of many inputs is wrong, and each is a problem of its own."""
    case = _model("wrong-inputs", "onnx", "m.onnx", b"\x08\x07")
    return Case(case.name, case.manifest | {"inputs": [1] * 90_000}, case.blobs)
