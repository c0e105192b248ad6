"""Files that run code when they are read are refused; a safetensors file keeps the format's rules."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.inspection.executable_code import list_code_reasons
from benchlock.registry.publishing.publication import Draft, publish
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.registry.graphs import GRAPH

Author = Callable[..., Draft]

MODEL = """\
schema: 1
kind: model
name: net
version: 1.0.0
license: Apache-2.0
task: image-classification
framework: {name: onnxruntime, version: ">=1.20 <2"}
format: onnx
inputs:
  - name: x
    type: image
    dtype: float32
    shape: [null, 8, 8, 1]
    layout: NHWC
    steps: [{decode: {color: L, exif: ignore}}, {cast: {dtype: float32}}]
outputs:
  - {name: y, type: class-scores, dtype: float32, label_offset: 0}
files:
  - {path: net.onnx, role: graph, source: net.onnx}
  - {path: FILE, role: weights, source: FILE}
"""


class Attack:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("true",)


def archive(**members: bytes) -> bytes:
    """A zip file as PyTorch writes it, all in one folder."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in members.items():
            file.writestr(f"net/{name.replace('_', '.')}", content)
    return out.getvalue()


WEIGHTS = (
    b"\x80\x02ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n"
    b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000tQtRu."
)
# The harmless words are taken off the stack again before the name is made of the two below them.
HIDDEN = b"\x80\x04\x8c\x05posix\x8c\x06system\x8c\x0bcollections\x8c\x0bOrderedDict00\x93\x8c\x04true\x85R."
CALLS = ("calls posix.system",)
PICKLES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    **{f"protocol {number}": (pickle.dumps(Attack(), protocol=number), CALLS) for number in range(6)},
    "in an archive": (archive(data_pkl=pickle.dumps(Attack())), CALLS),
    "after weights": (WEIGHTS + pickle.dumps(Attack()), CALLS),
    "after weights, of an old protocol": (WEIGHTS + pickle.dumps(Attack(), protocol=0), CALLS),
    "before what is no pickle": (pickle.dumps(Attack())[:-1] + b"\xff\xff", CALLS),
    "of an old protocol, before what is no pickle": (pickle.dumps(Attack(), protocol=0)[:-1] + b"\xff", CALLS),
    "hidden": (HIDDEN, ("calls (a-computed-name)",)),
    "a module of its own": (b"\x80\x02c__main__\nNet\n)\x81.", ("calls __main__.Net",)),
    "weights": (WEIGHTS, ()),
    "weights in an archive": (archive(data_pkl=WEIGHTS, version=b"3"), ()),
    "weights and their values": (WEIGHTS + b"\x80\xff\x80\x04" * 100, ()),
    "plain values": (pickle.dumps(OrderedDict(rate=0.1, names=["a", "b"])), ()),
    "no pickle": (GRAPH, ()),
    "words": (b"cat\ndog\nindigo\n", ()),
    "nothing": (b"", ()),
}


@pytest.mark.parametrize("name", PICKLES)
def test_what_a_pickle_would_call_is_found(name: str) -> None:
    content, found = PICKLES[name]
    assert list_code_reasons(io.BytesIO(content)) == found


def test_torchscript_is_read_by_an_unpickler_that_calls_nothing() -> None:
    script = archive(data_pkl=b"\x80\x02c__torch__\nNet\n)\x81.", constants_pkl=b"\x80\x02).", version=b"3")
    assert list_code_reasons(io.BytesIO(script), torchscript=True) == ()
    assert list_code_reasons(io.BytesIO(script)) == ("calls __torch__.Net",)


@pytest.mark.parametrize("name", ["resnet20-12fca82f.th", "resnet20.torchscript.pt", "resnet20.safetensors"])
def test_real_weights_are_harmless(cases: Path, name: str) -> None:
    with (cases / "models" / "resnet20_cifar10" / name).open("rb") as stream:
        assert list_code_reasons(stream, torchscript="torchscript" in name) == ()


def draft(author: Author, path: str, content: bytes, text: str = MODEL) -> Draft:
    return author(text.replace("FILE", path), {"net.onnx": GRAPH, path: content})


def test_a_pickle_is_refused_unless_the_manifest_says_unsafe(author: Author, catalogue: Catalogue) -> None:
    attack = pickle.dumps(Attack())
    with pytest.raises(InvalidInputError, match=r"executes code .* calls posix\.system") as caught:
        publish(draft(author, "net.pt", attack), MemoryStore(), catalogue)
    assert caught.value.where is not None
    assert caught.value.where.startswith("files[1]")
    assert catalogue.list() == ()
    unsafe = MODEL.replace("format: onnx", "format: onnx\nunsafe: true")
    assert publish(draft(author, "net.pt", attack, unsafe), MemoryStore(), catalogue).changed


def header(tensors: object, length: int | None = None) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


def tensor(begin: int, end: int, shape: tuple[int, ...] = (2,), dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_a_safetensors_file_is_accepted(author: Author, catalogue: Catalogue) -> None:
    content = save({"w": np.ones((2, 3), np.float32), "b": np.ones(3, np.uint8)}, {"format": "np"})
    assert publish(draft(author, "net.safetensors", content), MemoryStore(), catalogue).changed


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234567",
        header({}, 1 << 60),
        header([]),
        header({"w": tensor(0, 8)}),
        header({"w": tensor(0, 8)}) + bytes(9),
        header({"w": tensor(0, 4)}) + bytes(4),
        header({"w": tensor(4, 12)}) + bytes(12),
        header({"w": tensor(0, 8), "v": tensor(4, 12)}) + bytes(12),
        header({"w": tensor(0, 8, dtype="F31")}) + bytes(8),
        header({"w": tensor(8, 0, (-2,))}),
        header({"w": {"dtype": "F32"}}),
        pickle.dumps(Attack()),
    ],
)
def test_a_safetensors_file_that_breaks_the_rules_is_refused(
    author: Author, catalogue: Catalogue, content: bytes
) -> None:
    with pytest.raises(InvalidInputError, match="not a valid safetensors file"):
        publish(draft(author, "net.safetensors", content), MemoryStore(), catalogue)
